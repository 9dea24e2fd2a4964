"""URIs of logs and tables with the settings of their sections put in. Pure."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from belog.service.configuration import Configuration, RedisSection

__all__ = ["connected_uri", "log_uri_of", "tables_uri_of", "with_query"]


def connected_uri(uri: str, configuration: Configuration) -> str:
    """Return a URI of a log or of tables with the settings that its section has for it.

    `kafka.settings` go to `kafka:` URIs, `redis` to `redis:` and `rediss:` ones, and what a URI
    says itself goes before. Any other is returned as it is. The result may hold passwords.
    """
    scheme = uri.partition(":")[0].lower()
    if scheme == "kafka":
        return with_query(uri, configuration.kafka.settings)
    if scheme in {"redis", "rediss"}:
        return _with_redis(uri, configuration.redis, is_tls=scheme == "rediss")
    return uri


def log_uri_of(configuration: Configuration) -> str | None:
    """Return the connected URI of the log, None where none is configured."""
    uri = configuration.log.uri
    return None if uri is None else connected_uri(uri, configuration)


def tables_uri_of(configuration: Configuration) -> str:
    """Return the connected URI of the tables."""
    return connected_uri(configuration.tables.uri, configuration)


def _with_redis(uri: str, redis: RedisSection, *, is_tls: bool) -> str:
    parts = urlsplit(uri)
    if "@" not in parts.netloc and (redis.username is not None or redis.password is not None):
        password = "" if redis.password is None else ":" + quote(redis.password, safe="")
        login = quote(redis.username or "", safe="") + password
        uri = parts._replace(netloc=f"{login}@{parts.netloc}").geturl()
    if not is_tls:
        return uri
    files = {
        "ssl_ca_certs": redis.ca_file,
        "ssl_certfile": redis.cert_file,
        "ssl_keyfile": redis.key_file,
    }
    return with_query(uri, {name: file for name, file in files.items() if file is not None})


def with_query(uri: str, settings: Mapping[str, str]) -> str:
    """Return a URI with settings in its query; those that it has already stay as they are."""
    there = {name for name, _ in parse_qsl(urlsplit(uri).query, keep_blank_values=True)}
    added = {name: value for name, value in settings.items() if name not in there}
    if not added:
        return uri
    # A query that is malformed stays so, for its own error.
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(added, quote_via=quote)}"
