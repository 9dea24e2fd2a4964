"""What another instance is, and its answers as they are given here. Pure."""

from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from belog.client import PartitionState
from belog.client.settings import ClientOptions
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Conflict, NotOwner
from belog.schemas.events import Manifest
from belog.schemas.wire import message_to_json
from belog.service.federating import There
from belog.service.upstreams import Available
from belog.v1.catalog_pb2 import PartitionManifest

__all__ = [
    "ASK_RETRY_S",
    "ENDS",
    "NO_EVENT",
    "UpstreamSettings",
    "available",
    "client_options",
    "ended_upstream",
    "manifest_of",
    "not_delegated",
    "there_of",
]


ASK_RETRY_S: Final = 3.0
"""How long an upstream is tried again when a partition is asked for, seconds: whoever waits for the
answer has a time-out of his own, usually of some ten seconds."""

ANSWER_S: Final = 10.0
"""How long an upstream's answer may take, seconds."""


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """Another instance."""

    name: str
    url: str
    patterns: tuple[str, ...]
    """Globs of the partitions that it owns."""
    token: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def client_options(settings: UpstreamSettings) -> ClientOptions:
    """Return what a client of an upstream is made with."""
    return ClientOptions(
        token=settings.token,
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        retry_s=ASK_RETRY_S,
        timeout_s=ANSWER_S,
    )


ENDS: Final = ("available", "failed", "stale", "removed")


def ended_upstream(found: PartitionState) -> Conflict:
    """Return the error of one who waited for an attempt that did not end well."""
    reason = f": {found.row.reason}" if found.row.reason else ""
    return Conflict(
        f"the attempt ended upstream, it is {found.state}{reason}",
        state=found.state,
        last_index=found.row.index,
        allowed=(),
        owner=found.row.job_graph_run_id or None,
        hint="ask again to have it made anew",
        subject=f"partition:{found.ref}",
    )


def not_delegated(found: PartitionState, name: str, *, is_under_way: bool) -> Conflict:
    """Return the error of one who asked for what is not there, and does not let others make it.

    Args:
        found: As it is upstream.
        name: The upstream's.
        is_under_way: Whether a build is making it there.
    """
    owner = found.row.job_graph_run_id
    whose = f"build {owner!r} of upstream {name} is making it"
    nobody = f"it is {found.state or 'never seen'}, and only the upstream {name} makes it"
    return (NotOwner if is_under_way else Conflict)(
        whose if is_under_way else nobody,
        state=found.state,
        last_index=found.row.index if found.state else -1,
        allowed=(),
        owner=owner if is_under_way else None,
        hint="allow delegation, or wait for it",
        subject=f"partition:{found.ref}",
    )


def manifest_of(given: PartitionManifest | None) -> Manifest | None:
    """Return a manifest as events hold it."""
    if given is None:
        return None
    # Not strict: integers of 64 bits are text in JSON.
    return msgspec.convert(message_to_json(given), Manifest, strict=False)


def available(ref: str, index: int, log_id: str, manifest: PartitionManifest | None) -> Available:
    """Return the answer that a partition is there."""
    given = manifest_of(manifest)
    text = None if given is None else msgspec.json.encode(given).decode()
    return Available(ref, index, log_id, text)


def there_of(found: PartitionState, log_id: UUID, name: str) -> There:
    """Return where a partition of an upstream's log is, as what follows here is decided by."""
    return There(
        ref=found.ref,
        log_id=log_id,
        name=name,
        state=found.state,
        index=found.row.index,
        build_id=found.row.job_graph_run_id,
        manifest=manifest_of(found.row.manifest if found.row.HasField("manifest") else None),
        reason=found.row.reason or None,
    )


NO_EVENT: Final = StoredEvent(
    0, 0, Event(bytes(16), "v1.partition.requested", "partition", "-", "-", 0, b"", b"")
)
"""What a filter of partitions alone does not look at."""
