"""Which topic a Kafka log is, and how clients reach it. Pure.

`kafka://host:port[,host:port]/topic?setting=value`: the settings are those of librdkafka, as far as
`CLIENT_SETTINGS` names them, and `index`. They may hold secrets, so neither the name of the log nor
any error shows their values.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from belog.schemas.errors import InvalidUri
from belog.schemas.limits import EVENT_BYTES_MAX, REPLICA_OVERHEAD_BYTES_MAX

__all__ = [
    "CLIENT_SETTINGS",
    "DELIVERY_TIMEOUT_MS",
    "MESSAGE_BYTES_MIN",
    "SERVERS_MAX",
    "ClientConfig",
    "KafkaTarget",
    "parse_uri",
    "without_secrets",
]

SERVERS_MAX: Final = 16
"""Bootstrap servers of one URI: clients learn the rest of the cluster from any one of them."""

RECORD_OVERHEAD_BYTES: Final = 1_024
"""What key, record and batch headers add to a value, bytes: 16 + about 100, rounded up."""

MESSAGE_BYTES_MIN: Final = EVENT_BYTES_MAX + REPLICA_OVERHEAD_BYTES_MAX + RECORD_OVERHEAD_BYTES
"""The topic must take record batches of this size, so that every event and its replica fit. Clients
send no larger batch."""

DELIVERY_TIMEOUT_MS: Final = 30_000
"""After this time without an acknowledgement the outcome of a send counts as unknown, milliseconds:
longer than a broker's restart or a change of leaders takes, shorter than people wait."""

DELIVERY_TIMEOUT_MS_MIN: Final = 100
DELIVERY_TIMEOUT_MS_MAX: Final = 900_000
"""A quarter of an hour: a caller that waits longer is better served by a spool of its own."""

LINGER_MS: Final = 0
"""How long the client waits for a batch to fill, milliseconds. With 0 a lone append is not delayed,
and records that queue up while requests are under way still share batches: measured, throughput of
a pipelining sender is the same as with 1 or 5."""

LINGER_MS_MAX: Final = 1_000

CLIENT_SETTINGS: Final[frozenset[str]] = frozenset(
    {
        "broker.address.family",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.type",
        "delivery.timeout.ms",
        "group.id",
        "linger.ms",
        "sasl.mechanism",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.keepalive.enable",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
"""Settings that a URI may carry. What the promises of the log rest on (idempotence, acks, offsets,
automatic topics) is not among them."""

INDEX_SETTING: Final = "index"
"""The one setting that is not of the client: the file of a local index."""

_BOUNDS_MS: Final[Mapping[str, tuple[int, int]]] = {
    "delivery.timeout.ms": (DELIVERY_TIMEOUT_MS_MIN, DELIVERY_TIMEOUT_MS_MAX),
    "linger.ms": (0, LINGER_MS_MAX),
}
_SENDING: Final = frozenset({"compression.type", "delivery.timeout.ms", "linger.ms"})
_READING: Final = frozenset({"group.id"})
_GROUP_ID: Final = "belog"
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER: Final = re.compile(r"(?:[a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")
_FORM: Final = "kafka://host:port[,host:port]/topic?setting=value"


ClientConfig = dict[str, Any]
"""What a client is made with; typed as the client types it."""


class KafkaTarget(Struct, frozen=True):
    """A topic and the settings of its clients."""

    servers: str
    """`host:port`, separated by commas."""
    topic: str
    settings: Mapping[str, str]
    """As given; may hold secrets."""
    index_path: str = ""
    """File of a local index (`belog.storage.indexed`), empty for none."""

    @property
    def name(self) -> str:
        """The URI without settings: what errors and logs show."""
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def delivery_timeout_ms(self) -> int:
        """Bound on one send, milliseconds."""
        return int(self.settings.get("delivery.timeout.ms", DELIVERY_TIMEOUT_MS))

    def client(self) -> ClientConfig:
        """Return what every client of this log is configured with."""
        return {
            "bootstrap.servers": self.servers,
            "client.id": "belog",
            # A broker that is away is looked for twice a second: it may be back any moment.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log.connection.close": False,
        } | {k: v for k, v in self.settings.items() if k not in _SENDING | _READING}

    def consumer(self) -> ClientConfig:
        """Return what every consumer of this log is configured with."""
        return self.client() | {
            # Named because the client wants one; it is never joined and nothing is committed.
            "group.id": self.settings.get("group.id", _GROUP_ID),
            "allow.auto.create.topics": False,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # A position that is not there must be an error, never a silent jump.
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }

    def producer(self) -> ClientConfig:
        """Return what the producer of this log is configured with."""
        return self.client() | {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": int(self.settings.get("linger.ms", LINGER_MS)),
            "delivery.timeout.ms": self.delivery_timeout_ms,
            "message.max.bytes": MESSAGE_BYTES_MIN,
            "compression.type": self.settings.get("compression.type", "none"),
        }


def parse_uri(uri: str) -> KafkaTarget:
    """Read a log URI.

    Raises:
        InvalidUri: It is malformed, or names a setting that is unknown or unusable. The message
            shows no value of a setting.
    """
    parts = urlsplit(uri)
    topic = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "kafka" or parts.fragment:
        raise InvalidUri("a Kafka log URI has another form", hint=_FORM)
    if "@" in parts.netloc:
        raise InvalidUri(
            "a Kafka log URI carries no user before the host",
            hint="use ?security.protocol=…&sasl.mechanism=…&sasl.username=…&sasl.password=…",
        )
    servers = [server for server in parts.netloc.split(",") if server]
    if not 1 <= len(servers) <= SERVERS_MAX:
        raise InvalidUri(f"a Kafka log URI names 1 to {SERVERS_MAX} servers", hint=_FORM)
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or not 1 <= int(match[1]) <= 65_535:
            raise InvalidUri(f"{server!r} is not of the form host:port", hint=_FORM)
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise InvalidUri(
            f"{topic!r} is not the name of a topic",
            hint="letters, digits, '.', '_' and '-', at most 249 of them",
        )
    settings = dict(_settings(parts.query))
    index_path = settings.pop(INDEX_SETTING, "")
    return KafkaTarget(",".join(servers), topic, settings, index_path)


def _settings(query: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InvalidUri("the settings of the URI are malformed", hint=_FORM) from None
    for name, value in pairs:
        if name not in CLIENT_SETTINGS and name != INDEX_SETTING:
            raise InvalidUri(
                f"{name!r} is not a setting that a Kafka log URI may carry",
                hint=f"known: {', '.join(sorted({INDEX_SETTING, *CLIENT_SETTINGS}))}",
            )
        if name in seen:
            raise InvalidUri(f"{name} is given twice")
        seen.add(name)
        if not value:
            raise InvalidUri(f"{name} has no value")
        if name in _BOUNDS_MS:
            low, high = _BOUNDS_MS[name]
            if not (value.isascii() and value.isdigit() and low <= int(value) <= high):
                raise InvalidUri(f"{name} must be an integer from {low} to {high}")
        yield name, value


def without_secrets(text: str, target: KafkaTarget) -> str:
    """Return a client's message with every value of the target's settings blotted out."""
    for name, value in target.settings.items():
        if len(value) > 2 and not name.endswith((".ms", ".protocol", ".mechanism", ".type")):
            text = text.replace(value, "***")
    return text
