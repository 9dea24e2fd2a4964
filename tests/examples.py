"""Events and records for tests, made the same way each time."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from belog.schemas.envelope import Event, encode_event
from belog.schemas.events import PAYLOADS, new_event
from belog.schemas.fold import Fold, Outcome, Record
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import JsonValue, digest, encode_payload
from belog.schemas.replica import ReplicaRecord, encode_replica

LOG_ID = UUID("3f0c6f3e-6d0a-4b57-9d3a-0f6f2f4be001")
OTHER_LOG_ID = UUID("3f0c6f3e-6d0a-4b57-9d3a-0f6f2f4be002")
T0 = 1_750_000_000_000_000
"""2025-06-15, microseconds."""

BUILD = "build-1"
REF = "data://example/a"

REQUIRED: Mapping[str, Mapping[str, JsonValue]] = {
    "v1.job.scheduled": {"build_request_id": BUILD},
    "v1.job.skipped": {"build_request_id": BUILD},
    **{
        f"v1.partition.{name}": {"build_request_id": BUILD}
        for name in ("requested", "joined", "scheduled", "building", "available", "failed")
    },
    "v1.partition.delegated": {"build_request_id": BUILD, "delegated_to_log": str(OTHER_LOG_ID)},
    "v1.system.log_created": {
        "log_id": str(LOG_ID),
        "instance": "here",
        "lifecycle_version": 1,
    },
    "v1.system.lifecycle_adopted": {"lifecycle_version": 2},
    "v1.system.snapshot_taken": {"index": 3, "location": "snapshots/3"},
    "v1.system.vacuumed": {"horizon": 3, "removed_count": 2, "snapshot": "snapshots/3"},
}
"""The fields that each event type cannot do without."""


def id_bytes(number: int) -> bytes:
    return number.to_bytes(16, "big")


def event(
    event_type: str,
    subject_id: str = REF,
    body: Mapping[str, JsonValue] | None = None,
    *,
    n: int,
    actor: str = "tester",
    kind: SubjectKind | None = None,
    expected: int | None = None,
) -> Event:
    """An event with the fields its type requires, or with `body`; `n` is its id."""
    return new_event(
        event_type,
        subject_id,
        REQUIRED.get(event_type) if body is None else body,
        event_id=id_bytes(n),
        actor=actor,
        occurred_at=T0 + n,
        subject_kind=kind,
        expected=expected,
    )


def raw_event(
    event_type: str,
    subject_id: str,
    body: Mapping[str, JsonValue],
    *,
    n: int,
    kind: SubjectKind,
) -> Event:
    """An event that went through no check, as another program could write it."""
    data = encode_payload(body)
    return Event(id_bytes(n), event_type, kind, subject_id, "x", T0, data, digest(data))


def created(log_id: UUID = LOG_ID, version: int = 1, *, n: int = 1_000_000) -> Event:
    body: dict[str, JsonValue] = {
        "log_id": str(log_id),
        "instance": "here",
        "lifecycle_version": version,
    }
    return event("v1.system.log_created", str(log_id), body, n=n)


def record(position: int, what: Event | bytes | None, created_at: int | None = None) -> Record:
    value = encode_event(what) if isinstance(what, Event) else what
    return Record(position, T0 + position if created_at is None else created_at, value)


def apply_all(fold: Fold, records: Iterable[Record]) -> list[Outcome | None]:
    return [fold.apply(item) for item in records]


def opened() -> Fold:
    """The fold of a log that holds nothing but its first event."""
    fold = Fold()
    fold.apply(record(0, created()))
    return fold


def put(fold: Fold, what: Event | bytes, created_at: int | None = None) -> Outcome:
    """Apply an event or a value as the next record."""
    outcome = fold.apply(record(fold.next_position, what, created_at))
    assert outcome is not None
    return outcome


def replica_value(
    what: Event, index: int, previous: int, *, log_id: UUID = LOG_ID, created_at: int | None = None
) -> bytes:
    at = T0 + index if created_at is None else created_at
    return encode_replica(ReplicaRecord(log_id.bytes, index, previous, at, encode_event(what)))


ALL_TYPES = tuple(sorted(PAYLOADS))


def state_of(fold: Fold) -> dict[str, object]:
    """Everything that a fold knows, for comparison."""
    return {
        "position": fold.next_position,
        "index": fold.next_idx,
        "last": fold.last_accepted,
        "created_at": fold.created_at,
        "log_id": fold.log_id,
        "replica": fold.is_replica,
        "lifecycle": fold.lifecycle.version,
        "merkle": (fold.merkle.size, fold.merkle.peaks),
        "subjects": {kind: dict(states) for kind, states in fold.subjects.items()},
        "window": fold.window(),
    }
