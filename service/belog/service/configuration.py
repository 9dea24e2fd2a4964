"""What can be configured: one frozen struct per section, with its defaults. Pure.

A key is named by its section and its own name, `server.port`. The structs are the only list of
keys: files, environment, `belog config` and `docs/configuration.md` are read and written by them.
`belog.service.configuration_merge` puts values from several places together.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from belog.processors.periodic import SNAPSHOT_EVERY_EVENTS
from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX
from belog.service.access import TokenEntry
from belog.storage.snapshots import SNAPSHOTS_KEPT

__all__ = [
    "BODY_BYTES_MAX",
    "DEFAULT",
    "DRAIN_S",
    "HOST",
    "PORT",
    "WAITERS_MAX",
    "WAIT_S_MAX",
    "AccessSection",
    "ClientSection",
    "Configuration",
    "FederationSection",
    "KafkaSection",
    "LogSection",
    "ObservabilitySection",
    "Origin",
    "ProducerSection",
    "RedisSection",
    "ServerSection",
    "SnapshotsSection",
    "TablesSection",
    "TlsSection",
    "UpstreamSection",
    "Visibility",
]

HOST: Final = "127.0.0.1"
"""Where the service is bound when nothing is said: other machines do not reach it."""

PORT: Final = 8000
"""HTTP, when nothing is said; what asynchronous servers in Python use."""

WAIT_S_MAX: Final = 60.0
"""Longest wait of one long-poll, seconds: proxies tend to cut idle connections after a minute."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest body of a request, bytes: a full batch of events of ordinary size, as JSON."""

WAITERS_MAX: Final = 10_000
"""Long-polls and streams at a time: some 300 MB at 30 kB each."""

DRAIN_S: Final = 15.0
"""How long a stopping service gives requests under way, seconds: above an append's usual answer,
below what orchestrators give a process before they kill it (30 s)."""

Visibility = Literal["plain", "secret", "uri", "tokens", "settings"]
"""How much of a value is shown: all, nothing, without the password, without hashes, without values
whose names say that they are secret."""


def _key(description: str, shown: Visibility = "plain", **bounds: Any) -> Meta:  # noqa: ANN401 - msgspec's own
    return Meta(description=description, extra={"shown": shown}, **bounds)


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class LogSection(Section, frozen=True, kw_only=True):
    """The log."""

    uri: Annotated[
        str | None, _key("Where the log is: `sqlite:///path`, `kafka://host:port/topic` …", "uri")
    ] = None
    instance: Annotated[
        str, _key("Name of this instance, for a log that is made.", min_length=1)
    ] = "local"


class TablesSection(Section, frozen=True, kw_only=True):
    """The tables made from it."""

    uri: Annotated[
        str, _key("`redis://host:port/db`, or `memory:` for tables in the process.", "uri")
    ] = "memory:"


class SnapshotsSection(Section, frozen=True, kw_only=True):
    """Snapshots, from which programs start."""

    uri: Annotated[str | None, _key("The folder of snapshots.", "uri")] = None
    every_events: Annotated[int, _key("Take one after so many events; 0: take none.", ge=0)] = (
        SNAPSHOT_EVERY_EVENTS
    )
    kept: Annotated[int, _key("Remove older ones than so many of a log.", ge=1)] = SNAPSHOTS_KEPT


class ProducerSection(Section, frozen=True, kw_only=True):
    """Writing from the command line."""

    actor: Annotated[
        Annotated[str, Meta(min_length=1)] | None, _key("Who writes, where no token says so.")
    ] = None


class ServerSection(Section, frozen=True, kw_only=True):
    """The service: where it is bound, and its limits, which can be lowered."""

    host: Annotated[str, _key("The address to bind.", min_length=1)] = HOST
    port: Annotated[int, _key("HTTP; 0 for any that is free.", ge=0, le=65_535)] = PORT
    grpc_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None,
        _key("gRPC; 0 for any that is free, unset for no gRPC."),
    ] = None
    allow_open: Annotated[
        bool, _key("Bind other addresses than this machine's own although there are no tokens.")
    ] = False
    hosts: Annotated[
        tuple[str, ...],
        _key("Names that it is called by beside `localhost` and addresses, without tokens."),
    ] = ()
    wait_s_max: Annotated[float, _key("Longest wait of a long-poll, seconds.", ge=0, le=3_600)] = (
        WAIT_S_MAX
    )
    waiters_max: Annotated[int, _key("Long-polls and streams at a time.", ge=1, le=1_000_000)] = (
        WAITERS_MAX
    )
    page_events_max: Annotated[int, _key("Events of one page.", ge=1, le=PAGE_EVENTS_MAX)] = (
        PAGE_EVENTS_MAX
    )
    batch_events_max: Annotated[int, _key("Events of one append.", ge=1, le=BATCH_EVENTS_MAX)] = (
        BATCH_EVENTS_MAX
    )
    body_bytes_max: Annotated[
        int, _key("Largest body of a request, bytes.", ge=1_024, le=256 * 1024 * 1024)
    ] = BODY_BYTES_MAX
    drain_s: Annotated[
        float, _key("How long requests under way are given when it stops, seconds.", ge=0, le=600)
    ] = DRAIN_S


class AccessSection(Section, frozen=True, kw_only=True):
    """Tokens. Where there are none, everyone may do everything."""

    tokens_file: Annotated[
        str | None, _key("A file of `[[tokens]]` entries, as `belog token create` prints them.")
    ] = None
    tokens: Annotated[
        tuple[TokenEntry, ...],
        _key("The same entries in place: actor, role, hash, patterns.", "tokens"),
    ] = ()


class TlsSection(Section, frozen=True, kw_only=True):
    """TLS of the service, for HTTP and gRPC alike."""

    cert_file: Annotated[str | None, _key("Its certificate and what leads to its CA, PEM.")] = None
    key_file: Annotated[str | None, _key("The key of the certificate, PEM.")] = None
    client_ca_file: Annotated[
        str | None, _key("Let in only clients with a certificate of these CAs, PEM.")
    ] = None


class UpstreamSection(Section, frozen=True, kw_only=True):
    """Another instance, `[federation.upstreams.NAME]`."""

    url: Annotated[str, _key("Its service.", "uri", min_length=1)]
    patterns: Annotated[tuple[str, ...], _key("Globs of the partitions that it owns.")] = ()
    token: Annotated[str | None, _key("The token to show there.", "secret")] = None
    token_file: Annotated[str | None, _key("A file that holds the token.")] = None
    ca_file: Annotated[str | None, _key("CAs to trust instead of the system's, PEM.")] = None
    cert_file: Annotated[str | None, _key("A certificate to show there, PEM.")] = None
    key_file: Annotated[str | None, _key("Its key, PEM.")] = None


class FederationSection(Section, frozen=True, kw_only=True):
    """Other instances."""

    upstreams: Mapping[str, UpstreamSection] = {}


class ClientSection(Section, frozen=True, kw_only=True):
    """How commands and programs reach a service."""

    url: Annotated[str | None, _key("The service.", "uri")] = None
    token: Annotated[str | None, _key("The token to show.", "secret")] = None
    token_file: Annotated[str | None, _key("A file that holds the token.")] = None
    ca_file: Annotated[str | None, _key("CAs to trust instead of the system's, PEM.")] = None
    cert_file: Annotated[str | None, _key("A certificate to show, PEM.")] = None
    key_file: Annotated[str | None, _key("Its key, PEM.")] = None
    spool: Annotated[str | None, _key("A folder that keeps events while the service is away.")] = (
        None
    )


class KafkaSection(Section, frozen=True, kw_only=True):
    """Connections to Kafka."""

    settings: Annotated[
        Mapping[str, str],
        _key(
            "Settings of librdkafka for every `kafka:` log (`security.protocol`, `sasl.*`, `ssl.*` "
            "…); what a log's URI says goes before.",
            "settings",
        ),
    ] = {}


class RedisSection(Section, frozen=True, kw_only=True):
    """Connections to Redis; what the URI of the tables says goes before."""

    username: Annotated[str | None, _key("The ACL user.")] = None
    password: Annotated[str | None, _key("Its password.", "secret")] = None
    ca_file: Annotated[str | None, _key("CAs to trust, for `rediss:`, PEM.")] = None
    cert_file: Annotated[str | None, _key("A certificate to show, for `rediss:`, PEM.")] = None
    key_file: Annotated[str | None, _key("Its key, PEM.")] = None


class ObservabilitySection(Section, frozen=True, kw_only=True):
    """Logs, metrics and traces of the programs themselves."""

    log_format: Annotated[
        Literal["text", "json"], _key("For people, or one JSON object a line.")
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _key("The least severity that is logged.")
    ] = "info"
    otlp_endpoint: Annotated[
        str | None, _key("Where traces go, `http://host:4318`; unset: nowhere.", "uri")
    ] = None
    metrics: Annotated[bool, _key("Whether the service answers `/metrics`.")] = True


class Origin(Struct, frozen=True):
    """Where a value comes from."""

    source: Literal["default", "file", "environment", "flag"]
    name: str = ""
    """The file, the variable or the flag; empty for a default."""

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.source} {self.name}".rstrip()


DEFAULT: Final = Origin("default")


class Configuration(Struct, frozen=True, kw_only=True):
    """Everything, and where it comes from. Immutable."""

    log: LogSection = LogSection()
    tables: TablesSection = TablesSection()
    snapshots: SnapshotsSection = SnapshotsSection()
    producer: ProducerSection = ProducerSection()
    server: ServerSection = ServerSection()
    access: AccessSection = AccessSection()
    tls: TlsSection = TlsSection()
    federation: FederationSection = FederationSection()
    client: ClientSection = ClientSection()
    kafka: KafkaSection = KafkaSection()
    redis: RedisSection = RedisSection()
    observability: ObservabilitySection = ObservabilitySection()
    origins: Mapping[str, Origin] = {}
    """By key, such as `server.port`; a key that is not there has its default."""

    def origin(self, key: str) -> Origin:
        """Return where the value of a key comes from."""
        return self.origins.get(key, DEFAULT)
