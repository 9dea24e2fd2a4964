"""The verdict on a record, and the fold that carries what the verdict needs.

`judge` is the one function that decides whether an event is accepted. Producer, processors, sink,
replay and audit call it, each over a view of the log before the record, so they agree for ever.

`Fold` is such a view: it takes the records of a log in order and keeps, for each subject, the state,
the index of the last accepted event, the owner of the attempt and the last four event ids; for the
log, its identity, the governing lifecycle, the ids of the last 65,536 accepted events, the running
maximum of the ingest time, and the Merkle range over the accepted envelopes.

Law: folding `a` and then `b` gives what folding `a + b` gives, and a fold restored from a snapshot
goes on as if it had never stopped.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol, cast
from uuid import UUID

from msgspec import Struct

from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import (
    Conflict,
    Corrupt,
    ExpectedMismatch,
    IllegalTransition,
    NewerFormat,
    NotOwner,
)
from belog.schemas.lifecycle import (
    KINDS,
    LIFECYCLE_1,
    LIFECYCLE_ADOPTED,
    LIFECYCLES,
    LOG_CREATED,
    NEVER_SEEN,
    Lifecycle,
    SubjectKind,
)
from belog.schemas.limits import (
    DUPLICATE_SUBJECT_EVENTS,
    DUPLICATE_WINDOW_EVENTS,
    REF_BYTES_MAX,
)
from belog.schemas.merkle import MerkleRange
from belog.schemas.payload import JsonValue, decode_payload, digest
from belog.schemas.replica import REPLICA_HEADER, decode_replica

__all__ = [
    "Accepted",
    "Duplicate",
    "Fold",
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

_RECENT_BYTES: Final = 24
"""One remembered event of a subject: its id and its index, big endian."""
_RECENT_BYTES_MAX: Final = _RECENT_BYTES * DUPLICATE_SUBJECT_EVENTS
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GOVERNING: Final = frozenset({LOG_CREATED, LIFECYCLE_ADOPTED})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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


class SubjectState(Struct, frozen=True, gc=False):
    """What the verdict has to know of one subject."""

    state: str
    index: int
    """Index of the last accepted event."""
    owner: str | None
    """The build that the current or last attempt belongs to; partitions only."""
    recent: bytes
    """Ids and indices of the last accepted events, the oldest first, 24 bytes each."""


class Accepted(Struct, frozen=True, gc=False):
    """The event is the next of its subject."""

    after: SubjectState


class Duplicate(Struct, frozen=True, gc=False):
    """The event id was accepted before, at `first_index`."""

    first_index: int


class Void(Struct, frozen=True, gc=False):
    """The record changes nothing."""

    reason: str
    """`not_an_event`, `wrong_digest`, `log_not_open`, `bad_subject`, `bad_payload`,
    `illegal_transition`, `not_owner`, `expected_mismatch`, `not_of_replica`."""
    detail: str = ""
    state: str = NEVER_SEEN
    last_index: int = -1
    allowed: tuple[str, ...] = ()
    owner: str | None = None


Verdict = Accepted | Duplicate | Void


class View(Protocol):
    """A log's state up to some index, as far as the verdict needs it."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The tables that govern the next event."""
        ...

    @property
    def log_id(self) -> UUID | None:
        """The log's identity, None before its first event."""
        ...

    def subject(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        """Return what is known of a subject, None if never seen."""
        ...

    def first_index(self, event_id: bytes) -> int | None:
        """Return the index of an event id within the log's window, else None."""
        ...


def judge(view: View, event: Event, body: Mapping[str, JsonValue] | None, index: int) -> Verdict:
    """Decide about an event that stands, or would stand, at `index`.

    Pure: looks at nothing but its arguments, and changes nothing.

    Args:
        view: The log before `index`.
        event: The event; its digest was checked.
        body: The decoded payload. May be None where `needs_body` is false for the event's type.
        index: The index the event has or would get.
    """
    before = view.subject(event.subject_kind, event.subject_id)
    first = view.first_index(event.event_id)
    if first is None and before is not None:
        first = _recent_index(before.recent, event.event_id)
    if first is not None:
        return Duplicate(first)
    lifecycle = view.lifecycle
    event_type = event.event_type
    if (view.log_id is None) != (event_type == LOG_CREATED):
        return _no_log_or_second(view, event)
    if before is None:
        state, last_index, owner, recent = NEVER_SEEN, -1, None, b""
        if flaw := _subject_flaw(event.subject_id):
            return Void("bad_subject", flaw)
    else:
        state, last_index = before.state, before.index
        owner, recent = before.owner, before.recent
    if event.expected is not None and event.expected != last_index:
        return _void(lifecycle, event, before, "expected_mismatch")
    target = lifecycle.targets.get((state, event_type))
    if target is None:
        if event_type in lifecycle.event_types:
            return _void(lifecycle, event, before, "illegal_transition")
        target = state  # a type this lifecycle does not know changes no table
    elif event_type in lifecycle.attempt_events:
        claim = body.get("build_request_id") if body is not None else None
        if type(claim) is not str:
            return Void("bad_payload", "it names no build_request_id", state, last_index)
        if state not in lifecycle.owned_states:
            owner = claim
        elif claim != owner and event_type not in lifecycle.open_to_others:
            return _void(lifecycle, event, before, "not_owner")
    elif event_type in _GOVERNING and (flaw := _governing_flaw(lifecycle, event, body)):
        return Void("bad_payload", flaw, state, last_index)
    if len(recent) >= _RECENT_BYTES_MAX:
        recent = recent[_RECENT_BYTES:]
    recent = recent + event.event_id + index.to_bytes(8, "big")
    return Accepted(SubjectState(target, index, owner, recent))


def needs_body(lifecycle: Lifecycle, event_type: str) -> bool:
    """Whether the verdict on this type of event reads its payload."""
    return event_type in lifecycle.attempt_events or event_type in _GOVERNING


def _recent_index(recent: bytes, event_id: bytes) -> int | None:
    at = recent.find(event_id)
    while at >= 0:
        if at % _RECENT_BYTES == 0:
            return int.from_bytes(recent[at + 16 : at + 24], "big")
        at = recent.find(event_id, at + 1)
    return None


def _subject_flaw(subject_id: str) -> str:
    if not subject_id:
        return "the subject id is empty"
    if len(subject_id.encode()) > REF_BYTES_MAX:
        return f"the subject id is longer than {REF_BYTES_MAX} bytes"
    if _CONTROL.search(subject_id):
        return "the subject id holds a control character"
    return ""


def _governing_flaw(
    lifecycle: Lifecycle, event: Event, body: Mapping[str, JsonValue] | None
) -> str:
    version = body.get("lifecycle_version") if body is not None else None
    if type(version) is not int:
        return "it names no lifecycle_version"
    if event.event_type == LIFECYCLE_ADOPTED:
        return "" if version > lifecycle.version else "it adopts no newer lifecycle_version"
    return "" if _UUID.fullmatch(event.subject_id) else "its subject id is no lower-case UUID"


def _no_log_or_second(view: View, event: Event) -> Void:
    if view.log_id is None:
        return Void("log_not_open", "the log has no log_created event yet", allowed=(LOG_CREATED,))
    before = view.subject("system", str(view.log_id))
    return _void(view.lifecycle, event, before, "illegal_transition")


def _void(lifecycle: Lifecycle, event: Event, before: SubjectState | None, reason: str) -> Void:
    state = NEVER_SEEN if before is None else before.state
    return Void(
        reason,
        state=state,
        last_index=-1 if before is None else before.index,
        allowed=lifecycle.allowed(event.subject_kind, state),
        owner=None if before is None or state not in lifecycle.owned_states else before.owner,
    )


def conflict_of(event: Event, void: Void, *, index: int, log: str | None = None) -> Conflict:
    """Return the error that tells a writer why its event is void at `index`."""
    where = void.state or "never seen"
    if void.reason == "not_owner":
        return NotOwner(
            f"{event.event_type} names another build than the attempt's owner {void.owner!r}",
            state=void.state,
            last_index=void.last_index,
            allowed=void.allowed,
            owner=void.owner,
            hint="join the attempt, or wait for its end and request anew",
            log=log,
            index=index,
            subject=event.subject,
        )
    if void.reason == "expected_mismatch":
        return ExpectedMismatch(
            f"expected {event.expected} as the subject's last index, it is {void.last_index}",
            state=void.state,
            last_index=void.last_index,
            allowed=void.allowed,
            owner=void.owner,
            hint="read what happened since, then decide again",
            log=log,
            index=index,
            subject=event.subject,
        )
    detail = f": {void.detail}" if void.detail else ""
    return IllegalTransition(
        f"{event.event_type} is not a next event of a subject that is {where}{detail}",
        state=void.state,
        last_index=void.last_index,
        allowed=void.allowed,
        owner=void.owner,
        hint="allowed: " + (", ".join(void.allowed) or "nothing, this is an end state"),
        log=log,
        index=index,
        subject=event.subject,
    )


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
    body: dict[str, JsonValue] | None
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
        self.next_position = 0
        self.next_idx = 0
        self.last_accepted = -1
        self.created_at = 0
        self.log_id: UUID | None = None
        self.is_replica = False
        self.lifecycle: Lifecycle = LIFECYCLE_1
        self.merkle = MerkleRange()
        self.subjects: dict[SubjectKind, dict[str, SubjectState]] = {k: {} for k in KINDS}
        self._window: dict[bytes, int] = {}
        self._window_ids: deque[bytes] = deque()

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
            NewerFormat: The record needs newer software; nothing was applied.
        """
        value = record.value
        position = record.position
        if value is None:
            self._pass(record)
            return None
        if value[:10] == REPLICA_HEADER:
            return self._apply_replica(record, value)
        if self.is_replica:
            return self._refuse(record, Void("not_of_replica", "a plain record in a replica"))
        try:
            event = decode_event(value)
        except Corrupt as error:
            return self._refuse(record, Void(_NOT_AN_EVENT, error.message))
        outcome = self._judge(record, event, value, position, record.created_at)
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
            event_type = event.event_type
            if event_type in self.lifecycle.attempt_events or event.subject_kind == "system":
                try:
                    body = decode_payload(payload)
                except Corrupt as error:
                    return Outcome(
                        record.position,
                        index,
                        created_at,
                        Void("bad_payload", error.message),
                        event,
                        None,
                    )
            verdict = judge(self, event, body, index)
            if type(verdict) is Accepted:
                if event.subject_kind == "system":
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

    def confirm(self, event: Event, after: SubjectState, value: bytes, created_at: int) -> int:
        """Take a writer's own event, judged `Accepted` over this fold, that landed where expected.

        The same as `apply` of its record, without decoding and judging it again. Not for `system`
        events, which may change what governs.

        Args:
            event: The event; `after.index` is `next_idx`.
            after: The state that its verdict gave.
            value: The record value.
            created_at: Ingest time as the backend gives it.

        Returns:
            The ingest time as readers see it.
        """
        if after.index != self.next_position or event.subject_kind == "system":
            msg = f"event at {after.index} does not follow {self.next_position}"
            raise ValueError(msg)
        created_at = max(created_at, self.created_at)
        self._take(event, after, value, created_at)
        self.next_position = self.next_idx = after.index + 1
        return created_at

    def _govern(self, event: Event, body: Mapping[str, JsonValue]) -> None:
        """Let an accepted system event change what governs the log; raise before any change."""
        if event.event_type not in _GOVERNING:
            return
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
            event = decode_event(wrapped.envelope)
        except Corrupt as error:
            return self._refuse(record, Void(_NOT_AN_EVENT, error.message))
        if wrapped.prev_origin_index != self.last_accepted or (
            self.log_id is not None and wrapped.origin_log_id != self.log_id.bytes
        ):
            reason = f"it follows {wrapped.prev_origin_index}, the last is {self.last_accepted}"
            return self._refuse(record, Void("not_of_replica", reason), event)
        if event.event_type == LOG_CREATED and event.subject_id != str(
            UUID(bytes=wrapped.origin_log_id)
        ):
            return self._refuse(record, Void("not_of_replica", "it is of another log"), event)
        index = wrapped.origin_index
        outcome = self._judge(record, event, wrapped.envelope, index, wrapped.origin_created_at)
        self.next_position = record.position + 1
        if type(outcome.verdict) is Accepted:
            self.is_replica = True
            self.next_idx = index + 1
        return outcome

    def _pass(self, record: Record) -> None:
        self.next_position = record.position + 1
        if not self.is_replica:
            self.next_idx = record.position + 1

    def _refuse(self, record: Record, void: Void, event: Event | None = None) -> Outcome:
        self._pass(record)
        index = self.next_idx - 1 if self.is_replica else record.position
        return Outcome(record.position, index, self.created_at, void, event, None)


class Overlay:
    """A view with the expected effects of events that are not yet confirmed, over another view.

    Not thread-safe. Events are added with the index each is expected to get.
    """

    __slots__ = ("_base", "_ids", "_subjects")

    def __init__(self, base: View) -> None:
        """Start without effects over `base`."""
        self._base = base
        self._subjects: dict[tuple[SubjectKind, str], SubjectState] = {}
        self._ids: dict[bytes, int] = {}

    @property
    def lifecycle(self) -> Lifecycle:
        """The tables that govern the next event."""
        return self._base.lifecycle

    @property
    def log_id(self) -> UUID | None:
        """The log's identity."""
        return self._base.log_id

    def subject(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        """Return the expected state of a subject."""
        found = self._subjects.get((kind, subject_id))
        return found if found is not None else self._base.subject(kind, subject_id)

    def first_index(self, event_id: bytes) -> int | None:
        """Return the confirmed or expected index of an event id within the window."""
        found = self._ids.get(event_id)
        return found if found is not None else self._base.first_index(event_id)

    def add(self, event: Event, after: SubjectState) -> None:
        """Let an event take effect that is expected to be accepted."""
        self._subjects[event.subject_kind, event.subject_id] = after
        self._ids[event.event_id] = after.index

    def discard(self, event: Event, index: int) -> None:
        """Forget an event that the view beneath now holds, unless a later one took its place."""
        key = event.subject_kind, event.subject_id
        found = self._subjects.get(key)
        if found is not None and found.index == index:
            del self._subjects[key]
        self._ids.pop(event.event_id, None)

    def clear(self) -> None:
        """Forget everything that was added."""
        self._subjects.clear()
        self._ids.clear()

    def __bool__(self) -> bool:
        """Whether anything is added."""
        return bool(self._subjects)
