"""What a log may hold, written down a second time: for the checker, as data of its own.

Nothing here comes from the code under test. The state diagrams, the ownership of attempts, the
rule for repeated events and the bytes of a record are restated from the documentation
(docs/lifecycle.md, ARCHITECTURE.md), so that a fault there is not followed here. Libraries only:
cbor2, fastavro, blake3.
"""

import io
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cbor2
import fastavro
from blake3 import blake3
from fastavro.schema import fingerprint, to_parsing_canonical_form

__all__ = [
    "DIAGRAMS",
    "ENVELOPE_HEADER",
    "OWNERLESS",
    "PARSED",
    "UNDER_WAY",
    "Accepted",
    "Fields",
    "Judged",
    "Raw",
    "allowed_in",
    "decode_record",
    "decode_replica_record",
    "is_legal",
    "judge_all",
]

# Per kind and event: the states it may come in ("" is never seen), and the state it leads to; "="
# stays.
DIAGRAMS: Mapping[str, Mapping[str, tuple[tuple[str, ...], str]]] = {
    kind: {
        f"v1.{slug}.{name}": (tuple("" if s == "∅" else s for s in sources.split()), target)
        for name, (sources, target) in rows.items()
    }
    for kind, slug, rows in (
        (
            "build",
            "build",
            {
                "received": ("∅", "received"),
                "planning": ("received", "planning"),
                "analysis_completed": ("planning", "analysis_completed"),
                "executing": ("analysis_completed", "executing"),
                "completed": ("analysis_completed executing", "completed"),
                "failed": ("received planning analysis_completed executing", "failed"),
                "cancelled": ("received planning analysis_completed executing", "cancelled"),
            },
        ),
        (
            "job_run",
            "job",
            {
                "scheduled": ("∅", "scheduled"),
                "skipped": ("∅ scheduled", "skipped"),
                "running": ("scheduled running", "running"),
                "completed": ("running", "completed"),
                "failed": ("scheduled running", "failed"),
                "cancelled": ("scheduled running", "cancelled"),
            },
        ),
        (
            "partition",
            "partition",
            {
                "requested": (
                    "∅ available failed stale removed scheduled building delegated",
                    "requested",
                ),
                "joined": ("requested scheduled building delegated", "="),
                "scheduled": ("requested", "scheduled"),
                "building": ("scheduled", "building"),
                "available": ("building delegated", "available"),
                "delegated": ("requested", "delegated"),
                "failed": ("requested scheduled building delegated", "failed"),
                "stale": ("available", "stale"),
                "removed": ("available stale failed", "removed"),
                "observed": ("∅ available stale failed removed", "available"),
            },
        ),
        (
            "system",
            "system",
            {
                "log_created": ("∅", "open"),
                "lifecycle_adopted": ("open", "open"),
                "snapshot_taken": ("open", "open"),
                "vacuumed": ("open", "open"),
            },
        ),
    )
}
KIND_OF_TYPE = {name: kind for kind, rows in DIAGRAMS.items() for name in rows}
UNDER_WAY = frozenset({"requested", "scheduled", "building", "delegated"})
OWNERLESS = frozenset({"v1.partition.stale", "v1.partition.removed", "v1.partition.observed"})
"""Partition events that name no build."""
JOINED = "v1.partition.joined"
"""The one event that any build may send to another's attempt."""
SUBJECT_BYTES_MAX = 1024
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_KINDS = ["build", "partition", "job_run", "system"]
_ENVELOPE = {
    "type": "record",
    "name": "belog.v1.BuildEvent",
    "fields": [
        {"name": "event_id", "type": {"type": "fixed", "name": "belog.v1.EventId", "size": 16}},
        {"name": "event_type", "type": "string"},
        {
            "name": "subject_kind",
            "type": {"type": "enum", "name": "belog.v1.SubjectKind", "symbols": _KINDS},
        },
        {"name": "subject_id", "type": "string"},
        {"name": "actor", "type": "string"},
        {"name": "occurred_at", "type": "long"},
        {"name": "payload", "type": "bytes"},
        {
            "name": "payload_digest",
            "type": {"type": "fixed", "name": "belog.v1.Digest", "size": 32},
        },
        {"name": "caused_by", "type": ["null", "belog.v1.EventId"]},
        {"name": "expected", "type": ["null", "long"]},
    ],
}
_REPLICA = {
    "type": "record",
    "name": "belog.v1.ReplicaRecord",
    "fields": [
        {"name": "origin_log_id", "type": {"type": "fixed", "name": "belog.v1.LogId", "size": 16}},
        {"name": "origin_index", "type": "long"},
        {"name": "prev_origin_index", "type": "long"},
        {"name": "origin_created_at", "type": "long"},
        {"name": "envelope", "type": "bytes"},
    ],
}


def _header(schema: dict[str, Any]) -> bytes:
    crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return b"\xc3\x01" + bytes.fromhex(crc)[::-1]


ENVELOPE_HEADER = _header(_ENVELOPE)
REPLICA_HEADER = _header(_REPLICA)
PARSED = {
    ENVELOPE_HEADER: fastavro.parse_schema(_ENVELOPE),
    REPLICA_HEADER: fastavro.parse_schema(_REPLICA),
}


@dataclass(frozen=True)
class Raw:
    """What a backend holds at one position."""

    position: int
    created_at: int
    """Microseconds."""
    value: bytes | None
    """None: a tombstone."""
    key: bytes | None = None


@dataclass(frozen=True)
class Fields:
    """One event, field by field."""

    event_id: bytes
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    occurred_at: int
    payload: bytes
    payload_digest: bytes
    caused_by: bytes | None
    expected: int | None

    @property
    def subject(self) -> tuple[str, str]:
        return self.subject_kind, self.subject_id

    def body(self) -> dict[str, Any]:
        """The payload as a map; empty where it is none."""
        try:
            value = cbor2.loads(self.payload)
        except (cbor2.CBORDecodeError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def __str__(self) -> str:
        build = self.body().get("build_request_id")
        named = f" of {build}" if build else ""
        expected = "" if self.expected is None else f", expected {self.expected}"
        return (
            f"{self.event_type} {self.subject_id!r}{named} by {self.actor}"
            f" (id {self.event_id.hex()[:12]}…{expected})"
        )


def _decoded(value: bytes, header: bytes) -> dict[str, Any] | None:
    if value[:10] != header:
        return None
    stream = io.BytesIO(value)
    stream.seek(10)
    try:
        fields: Any = fastavro.schemaless_reader(stream, PARSED[header], None)
    except Exception:  # noqa: BLE001 - fastavro raises whatever the bytes lead it into
        return None
    return None if stream.read(1) else fields


def decode_record(value: bytes) -> Fields | None:
    """The event that a record value holds, None where it holds none."""
    fields = _decoded(value, ENVELOPE_HEADER)
    return None if fields is None else Fields(**fields)


def decode_replica_record(value: bytes) -> dict[str, Any] | None:
    """The fields of a replica's record, None where it is none."""
    return _decoded(value, REPLICA_HEADER)


@dataclass(frozen=True)
class Accepted:
    """An event that counts, with what its subject was before and is after."""

    index: int
    created_at: int
    """Running maximum over accepted events."""
    raw_created_at: int
    value: bytes
    event: Fields
    before: str
    last_index: int
    after: str
    owner: str | None
    """Of the attempt, after the event."""


@dataclass
class Judged:
    """Which records of a log count."""

    records: list[Raw]
    accepted: dict[int, Accepted] = field(default_factory=dict)
    by_id: dict[bytes, int] = field(default_factory=dict)
    duplicates: dict[int, int] = field(default_factory=dict)
    """Position of a repetition → index of the first."""
    void: dict[int, str] = field(default_factory=dict)
    """Position → why the record there changes nothing."""
    events: dict[int, Fields] = field(default_factory=dict)
    """Whatever is an event, accepted or not."""
    tombstones: set[int] = field(default_factory=set)
    timelines: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Subject → indices of its accepted events."""
    end: int = 0
    """Position after the last record."""
    log_id: str | None = None

    def before(self, subject: tuple[str, str], index: int) -> Accepted | None:
        """The subject's last accepted event below an index."""
        line = self.timelines.get(subject, [])
        at = bisect_left(line, index)
        return self.accepted[line[at - 1]] if at else None


def allowed_in(kind: str, state: str) -> set[str]:
    """The events that are legal in a state."""
    return {name for name, (sources, _) in DIAGRAMS[kind].items() if state in sources}


def is_legal(event: Fields, before: Accepted | None) -> str:
    """Why an event may not follow what its subject is; empty where it may."""
    state, last, owner = (
        ("", -1, None)
        if before is None
        else (
            before.after,
            before.index,
            before.owner,
        )
    )
    if before is None:
        raw = event.subject_id
        if not raw or len(raw.encode()) > SUBJECT_BYTES_MAX or CONTROL.search(raw):
            return "bad_subject"
    if event.expected not in {None, last}:
        return "expected_mismatch"
    kind = KIND_OF_TYPE.get(event.event_type)
    if kind is None:
        return ""
    if kind != event.subject_kind:
        return "bad_subject"
    if state not in DIAGRAMS[kind][event.event_type][0]:
        return "illegal_transition"
    if kind == "partition" and event.event_type not in OWNERLESS:
        build = event.body().get("build_request_id")
        if not isinstance(build, str) or not build:
            return "bad_payload"
        if state in UNDER_WAY and build != owner and event.event_type != JOINED:
            return "not_owner"
    if event.event_type == "v1.system.lifecycle_adopted":
        return "bad_payload"  # there is no newer version to adopt
    return ""


def _after(event: Fields, before: Accepted | None) -> tuple[str, str | None]:
    state, owner = ("", None) if before is None else (before.after, before.owner)
    row = DIAGRAMS.get(event.subject_kind, {}).get(event.event_type)
    if row is None:
        return state, owner
    if (
        event.subject_kind == "partition"
        and event.event_type not in OWNERLESS
        and state not in UNDER_WAY
    ):
        owner = str(event.body()["build_request_id"])
    return (state if row[1] == "=" else row[1]), owner


def judge_all(records: Iterable[Raw]) -> Judged:
    """Judge a whole log, record by record. Assumes fewer events than the window of ids."""
    judged = Judged(list(records))
    clock = 0
    for record in judged.records:
        position = record.position
        judged.end = position + 1
        if record.value is None:
            judged.tombstones.add(position)
            continue
        event = decode_record(record.value)
        if event is None:
            judged.void[position] = "not_an_event"
            continue
        judged.events[position] = event
        if blake3(event.payload).digest() != event.payload_digest:
            judged.void[position] = "wrong_digest"
            continue
        first = judged.by_id.get(event.event_id)
        if first is not None:
            judged.duplicates[position] = first
            continue
        if (judged.log_id is None) != (event.event_type == "v1.system.log_created"):
            judged.void[position] = "log_not_open"
            continue
        before = judged.before(event.subject, position)
        if why := is_legal(event, before):
            judged.void[position] = why
            continue
        if judged.log_id is None:
            judged.log_id = event.subject_id
        after, owner = _after(event, before)
        clock = max(clock, record.created_at)
        judged.accepted[position] = Accepted(
            position,
            clock,
            record.created_at,
            record.value,
            event,
            "" if before is None else before.after,
            -1 if before is None else before.index,
            after,
            owner,
        )
        judged.by_id[event.event_id] = position
        judged.timelines.setdefault(event.subject, []).append(position)
    return judged
