"""The connection to Redis: URI, names of keys, errors."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from msgspec import Struct
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import TimeoutError as TimedOut
from redis.retry import Retry

from belog.schemas.errors import InvalidUri, Misconfigured, Unavailable
from belog.storage.factory import redacted

__all__ = [
    "READER_ANSWER_S",
    "Keys",
    "RedisUri",
    "connect",
    "literal",
    "parse_redis_uri",
    "redis_errors",
]

ANSWER_S: Final = 30.0
"""Longest wait for an answer, seconds: the longest script takes about 0.3 s; several may queue."""

READER_ANSWER_S: Final = 8.0
"""The same for who only reads, seconds: somebody waits, and is told within ten that nobody answers.
A writer waits longer, because giving up makes it send its batch again."""

CONNECT_S: Final = 5.0
"""Longest wait for a connection, seconds."""

PORT: Final = 6379
PREFIX: Final = "belog"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_TLS_SETTINGS: Final = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)


class RedisUri(Struct, frozen=True):
    """Where tables are."""

    host: str
    port: int
    db: int
    prefix: str
    username: str | None
    password: str | None
    tls: bool
    tls_settings: Mapping[str, str]
    name: str
    """The URI without secrets."""


class Keys(Struct, frozen=True):
    """Names of keys; see `belog.processors.redis_scripts`."""

    tag: str
    """The hash tag and a colon; all keys start with it."""
    meta: str
    old: str
    channel: str
    """Where each new `applied` is published."""
    loading: str

    @staticmethod
    def of(prefix: str) -> "Keys":
        """Return the names under a prefix."""
        tag = f"{{{prefix}}}:"
        return Keys(tag, f"{tag}meta", f"{tag}old", f"{tag}applied", f"{tag}loading")

    def loading_into(self, generation: str) -> "Keys":
        """Return the names for writing a generation that nobody reads yet."""
        base = self.base(generation)
        return Keys(self.tag, f"{base}meta", self.old, f"{base}applied", self.loading)

    def base(self, generation: str) -> str:
        """Return what the keys of a generation start with."""
        return f"{self.tag}{generation}:"


def parse_redis_uri(uri: str) -> RedisUri:
    """Read `redis://[user:password@]host[:port][/db][?prefix=…]`, or `rediss://` for TLS.

    Raises:
        InvalidUri: It is not of that form, or has a setting that is not known.
    """
    name = redacted(uri)
    try:
        parts = urlsplit(uri)
        port = parts.port or PORT
        db = int(parts.path.strip("/") or "0")
    except ValueError as error:
        msg = f"tables URI {name!r} has a port or database that is no number"
        raise InvalidUri(msg) from error
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = settings.pop("prefix", PREFIX)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname or parts.fragment:
        msg = f"tables URI {name!r} is not of the form redis://host:port/db?prefix=…"
        raise InvalidUri(msg)
    if not _PREFIX.fullmatch(prefix):
        msg = f"prefix {prefix!r} is not made of 1 to 200 letters, digits and _ . : / -"
        raise InvalidUri(msg)
    unknown = sorted(settings.keys() - (_TLS_SETTINGS if parts.scheme == "rediss" else set()))
    if unknown:
        msg = f"tables URI {name!r} has settings that are not known: {', '.join(unknown)}"
        raise InvalidUri(
            msg, hint="known: prefix; with rediss: " + ", ".join(sorted(_TLS_SETTINGS))
        )
    return RedisUri(
        parts.hostname,
        port,
        db,
        prefix,
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else None,
        parts.scheme == "rediss",
        settings,
        f"{name}?prefix={prefix}",
    )


def connect(uri: RedisUri, answer_s: float = ANSWER_S) -> "redis.Redis":
    """Return a client that tries everything once; nothing is sent yet. Thread-safe.

    Args:
        uri: The server.
        answer_s: Longest wait for an answer, seconds.
    """
    options: dict[str, Any] = dict(uri.tls_settings)
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() in {"1", "true"}
    return redis.Redis(
        host=uri.host,
        port=uri.port,
        db=uri.db,
        username=uri.username,
        password=uri.password,
        ssl=uri.tls,
        decode_responses=True,
        socket_timeout=answer_s,
        socket_connect_timeout=CONNECT_S,
        retry=Retry(NoBackoff(), 0),
        **options,
    )


@contextmanager
def redis_errors(name: str) -> Generator[None]:
    """Turn the client's errors into those of belog.

    Raises:
        Unavailable: Redis does not answer, still loads, is a read-only replica or is out of memory.
        Misconfigured: It refuses the user, or keys under the prefix are of another program.
    """
    try:
        yield
    except (AuthenticationError, AuthorizationError) as error:
        msg = f"Redis refuses the user: {error}"
        raise Misconfigured(msg, setting="user", hint="check the tables URI", log=name) from error
    except (ConnectionFailed, TimedOut) as error:
        raise Unavailable(f"Redis does not answer: {error}", log=name) from error
    except OutOfMemoryError as error:
        msg = f"Redis is out of memory: {error}"
        raise Unavailable(msg, hint="raise its maxmemory", log=name) from error
    except ReadOnlyError as error:
        msg = f"Redis takes no writes: {error}"
        raise Unavailable(msg, hint="name the primary, not a replica", log=name) from error
    except ResponseError as error:
        msg = f"Redis refuses a command: {error}"
        hint = (
            "let the user run scripts and commands on all keys of the prefix, and no other program"
        )
        raise Misconfigured(msg, setting="prefix", hint=hint, log=name) from error


def literal(text: str) -> str:
    """Return a glob that matches a text and nothing else."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)
