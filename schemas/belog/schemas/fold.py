"""The fold of a log: what verdicts need, carried over its records in order.

`Fold` takes the records of a log in order, judges each (`belog.schemas.verdict`), and keeps, for
each subject, the state, the index of the last accepted event, the owner of the attempt and the last
four event ids; for the log, its identity, the governing lifecycle, the ids of the last 65,536
accepted events, the running maximum of the ingest time, and the Merkle range over the accepted
envelopes.

Law: folding `a` and then `b` gives what folding `a + b` gives, and a fold restored from a snapshot
goes on as if it had never stopped.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast
from uuid import UUID

from msgspec import Struct

from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.lifecycle import (
    KINDS,
    LIFECYCLE_1,
    LIFECYCLES,
    LOG_CREATED,
    Lifecycle,
    SubjectKind,
)
from belog.schemas.limits import DUPLICATE_WINDOW_EVENTS
from belog.schemas.merkle import MerkleRange
from belog.schemas.payload import JsonValue, decode_payload, digest
from belog.schemas.replica import REPLICA_HEADER, ReplicaRecord, decode_replica
from belog.schemas.verdict import (
    GOVERNING,
    Accepted,
    Duplicate,
    Overlay,
    SubjectState,
    Verdict,
    View,
    Void,
    conflict_of,
    judge,
    needs_body,
)

__all__ = [
    "Accepted",
    "Confirmed",
    "Duplicate",
    "Fold",
    "OnConfirmed",
    "Outcome",
    "Overlay",
    "Record",
    "SubjectState",
    "Verdict",
    "View",
    "Void",
    "conflict_of",
    "judge",
    "needs_body",
]


class Record(Struct, frozen=True, gc=False):
    """What a log holds at one position, before anybody judged it."""

    position: int
    """Where the backend keeps it. Equal to the index but in a replica on Kafka."""
    created_at: int
    """Ingest time as the backend gives it, microseconds since the epoch, UTC."""
    value: bytes | None
    """None: a tombstone, or a position whose record was removed."""
    key: bytes | None = None
    """What compaction goes by; ordered logs only."""


class Confirmed(Struct, frozen=True, gc=False):
    """A writer's own event, accepted where it was expected to land."""

    position: int
    """Also its index: it is in no replica."""
    created_at: int
    """Ingest time as the backend gives it, microseconds since the epoch, UTC."""
    value: bytes
    event: Event
    after: SubjectState
    """Of its subject."""


OnConfirmed = Callable[[Sequence[Confirmed]], object]
"""Told of a writer's own events, some at a time, in the order of their positions."""


class Outcome(Struct, frozen=True, gc=False):
    """What the fold found at one position."""

    position: int
    index: int
    """The log's index: the position, or in a replica the origin's index."""
    created_at: int
    """Running maximum of the ingest time."""
    verdict: Verdict
    event: Event | None
    """None where the record is no event at all."""
    body: Mapping[str, JsonValue] | None
    """The decoded payload where the verdict needed it; decode it from the event otherwise."""


_NOT_AN_EVENT: Final = "not_an_event"


class Fold:
    """The log up to `next_idx`, as far as verdicts need it. Not thread-safe.

    Attributes:
        next_position: Position of the next record to apply.
        next_idx: Index of the next event; differs from the position only in a replica on Kafka.
        last_accepted: Index of the last accepted event, -1 for none.
        created_at: Running maximum of the ingest time, microseconds.
        is_replica: Whether the log is a replica.
        keeps_root: Whether `merkle` is kept; who only judges saves its hashes.
    """

    __slots__ = (
        "_window",
        "_window_ids",
        "created_at",
        "is_replica",
        "keeps_root",
        "last_accepted",
        "lifecycle",
        "log_id",
        "merkle",
        "next_idx",
        "next_position",
        "subjects",
    )

    def __init__(self, *, keeps_root: bool = True) -> None:
        """Start with the empty log."""
        self.keeps_root = keeps_root
        self.next_position: int = 0
        self.next_idx: int = 0
        self.last_accepted = -1
        self.created_at = 0
        self.log_id: UUID | None = None
        self.is_replica = False
        self.lifecycle: Lifecycle = LIFECYCLE_1
        self.merkle = MerkleRange()
        self.subjects: dict[SubjectKind, dict[str, SubjectState]] = {k: {} for k in KINDS}
        self._window: dict[bytes, int] = {}
        self._window_ids: deque[bytes] = deque()

    def copy(self) -> "Fold":
        """Return a fold at the same place that goes on by itself; takes milliseconds."""
        other = Fold(keeps_root=self.keeps_root)
        other.next_position = self.next_position
        other.next_idx = self.next_idx
        other.last_accepted = self.last_accepted
        other.created_at = self.created_at
        other.log_id = self.log_id
        other.is_replica = self.is_replica
        other.lifecycle = self.lifecycle
        other.merkle = self.merkle.copy()
        other.subjects = {kind: dict(states) for kind, states in self.subjects.items()}
        other.restore_window(self.window())
        return other

    def subject(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        """Return what is known of a subject, None if never seen."""
        return self.subjects[kind].get(subject_id)

    def first_index(self, event_id: bytes) -> int | None:
        """Return the index of an event id within the log's window, else None."""
        return self._window.get(event_id)

    def window(self) -> list[tuple[bytes, int]]:
        """Return the remembered event ids with their indices, the oldest first."""
        return [(event_id, self._window[event_id]) for event_id in self._window_ids]

    def restore_window(self, window: list[tuple[bytes, int]]) -> None:
        """Replace the remembered event ids by those of a snapshot."""
        self._window = dict(window)
        self._window_ids = deque(event_id for event_id, _ in window)

    def apply(self, record: Record) -> Outcome | None:
        """Take the next record.

        Positions may skip (compaction, removed records) but never go back.

        Returns:
            The outcome, or None for a tombstone.

        Raises:
            NewerFormat: The record needs newer software; nothing was applied. Names its index.
        """
        value = record.value
        position = record.position
        if value is None:
            self._pass(record)
            return None
        try:
            if value[:10] == REPLICA_HEADER:
                return self._apply_replica(record, value)
            if self.is_replica:
                return self._refuse(record, Void("not_of_replica", "a plain record in a replica"))
            try:
                event = decode_event(value)
            except Corrupt as error:
                return self._refuse(record, Void(_NOT_AN_EVENT, error.message))
            outcome = self._judge(record, event, value, position, record.created_at)
        except NewerFormat as error:
            error.index = position
            raise
        self.next_position = position + 1
        self.next_idx = position + 1
        return outcome

    def _judge(
        self, record: Record, event: Event, value: bytes, index: int, created_at: int
    ) -> Outcome:
        """Judge one event and apply it where it is accepted; positions are the caller's."""
        created_at = max(created_at, self.created_at)
        payload = event.payload
        body: dict[str, JsonValue] | None = None
        verdict: Verdict
        if digest(payload) != event.payload_digest:
            verdict = Void("wrong_digest")
        else:
            governs = False
            if event.event_type in self.lifecycle.attempt_events or (
                governs := event.event_type in GOVERNING
            ):
                try:
                    body = decode_payload(payload)
                except Corrupt:
                    body = None  # which the verdict refuses
            verdict = judge(self, event, body, index)
            if isinstance(verdict, Accepted):
                if governs:
                    self._govern(event, body or {})
                self._take(event, verdict.after, value, created_at)
        return Outcome(record.position, index, created_at, verdict, event, body)

    def _take(self, event: Event, after: SubjectState, value: bytes, created_at: int) -> None:
        index = after.index
        self.subjects[event.subject_kind][event.subject_id] = after
        window = self._window_ids
        self._window[event.event_id] = index
        window.append(event.event_id)
        if len(window) > DUPLICATE_WINDOW_EVENTS:
            del self._window[window.popleft()]
        if self.keeps_root:
            self.merkle.add(value)
        self.last_accepted = index
        # Of accepted events only: a void record may vanish, and nothing may depend on it.
        self.created_at = created_at

    def confirm(self, run: Sequence[Confirmed]) -> list[int]:
        """Take a writer's own events, judged `Accepted` over this fold, that landed as expected.

        The same as `apply` of their records, without decoding and judging them again. Not for
        `system` events, which may change what governs.

        Args:
            run: In order; the first one's index is `next_idx`.

        Returns:
            Their ingest times as readers see them.

        Raises:
            ValueError: One does not follow the one before, or is of the log itself; nothing was
                taken.
        """
        at = self.next_position
        for n, each in enumerate(run, at):
            if each.after.index != n or each.event.subject_kind == "system":
                msg = f"event at {each.after.index} does not follow {n}"
                raise ValueError(msg)
        if not run:
            return []
        subjects, window, window_ids = self.subjects, self._window, self._window_ids
        created_at = self.created_at
        times: list[int] = []
        for each in run:
            event, after = each.event, each.after
            created_at = max(created_at, each.created_at)
            times.append(created_at)
            subjects[event.subject_kind][event.subject_id] = after
            window[event.event_id] = after.index
            window_ids.append(event.event_id)
        for _ in range(len(window_ids) - DUPLICATE_WINDOW_EVENTS):
            del window[window_ids.popleft()]
        if self.keeps_root:
            self.merkle.extend([each.value for each in run])
        self.created_at = created_at
        self.last_accepted = at + len(run) - 1
        self.next_position = self.next_idx = at + len(run)
        return times

    def _govern(self, event: Event, body: Mapping[str, JsonValue]) -> None:
        """Let an accepted event change what governs the log; raise before any change."""
        version = cast("int", body["lifecycle_version"])
        if version not in LIFECYCLES:
            msg = f"the log adopts lifecycle version {version}, which is not known here"
            raise NewerFormat(msg, hint="read this log with a newer belog", log=event.subject_id)
        self.lifecycle = LIFECYCLES[version]
        if event.event_type == LOG_CREATED:
            self.log_id = UUID(event.subject_id)

    def _apply_replica(self, record: Record, value: bytes) -> Outcome:
        if self.log_id is not None and not self.is_replica:
            return self._refuse(record, Void(_NOT_AN_EVENT, "a replica's record in a primary log"))
        try:
            wrapped = decode_replica(value)
            if wrapped.envelope[:10] == REPLICA_HEADER:
                nested = "a replica's record within another"
                return self._refuse(record, Void(_NOT_AN_EVENT, nested))
            event = decode_event(wrapped.envelope)
        except Corrupt as error:
            return self._refuse(record, Void(_NOT_AN_EVENT, error.message))
        if flaw := self._replica_flaw(wrapped, event):
            return self._refuse(record, Void("not_of_replica", flaw), event)
        index = wrapped.origin_index
        outcome = self._judge(record, event, wrapped.envelope, index, wrapped.origin_created_at)
        self._pass(record)
        if isinstance(outcome.verdict, Accepted):
            self.is_replica = True
            self.next_idx = index + 1
        return outcome

    def _replica_flaw(self, wrapped: ReplicaRecord, event: Event) -> str:
        index, previous = wrapped.origin_index, wrapped.prev_origin_index
        if previous != self.last_accepted:
            return f"it follows {previous}, the last is {self.last_accepted}"
        if index <= previous:
            return f"its index {index} is not above {previous}, which it follows"
        origin = wrapped.origin_log_id
        if self.log_id is None:
            mine = event.event_type != LOG_CREATED or event.subject_id == str(UUID(bytes=origin))
        else:
            mine = origin == self.log_id.bytes
        return "" if mine else "it is of another log"

    def _pass(self, record: Record) -> None:
        self.next_position = record.position + 1
        if not self.is_replica:
            self.next_idx = record.position + 1

    def _refuse(self, record: Record, void: Void, event: Event | None = None) -> Outcome:
        self._pass(record)
        index = self.next_idx - 1 if self.is_replica else record.position
        return Outcome(record.position, index, self.created_at, void, event, None)
