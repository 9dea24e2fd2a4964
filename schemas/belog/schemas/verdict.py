"""The verdict on an event: the one function that decides whether it is accepted.

Producer, processors, sink, replay and audit call `judge`, each over a view of the log before the
record, so they agree for ever. It is pure and total: no event that can stand in a log makes it
raise.
"""

import re
from collections.abc import Mapping
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.schemas.errors import (
    Conflict,
    ExpectedMismatch,
    IllegalTransition,
    NotOwner,
)
from belog.schemas.lifecycle import (
    LIFECYCLE_ADOPTED,
    LOG_CREATED,
    NEVER_SEEN,
    Lifecycle,
    SubjectKind,
)
from belog.schemas.limits import (
    DUPLICATE_SUBJECT_EVENTS,
    REF_BYTES_MAX,
)
from belog.schemas.payload import JsonValue

__all__ = [
    "GOVERNING",
    "Accepted",
    "Duplicate",
    "Overlay",
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
GOVERNING: Final = frozenset({LOG_CREATED, LIFECYCLE_ADOPTED})
"""Events that change what governs the log."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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
    target = lifecycle.targets[event.subject_kind].get((state, event_type))
    if target is None:
        kind = lifecycle.kinds.get(event_type)
        if kind is not None and kind != event.subject_kind:
            return Void("bad_subject", f"{event_type} is an event of {kind}", state, last_index)
        if kind is not None:
            return _void(lifecycle, event, before, "illegal_transition")
        target = state  # a type this lifecycle does not know changes no table
    elif event_type in lifecycle.attempt_events:
        claim = body.get("build_request_id") if body is not None else None
        if type(claim) is not str or not claim:
            flaw = "it is no map that names a build_request_id"
            return Void("bad_payload", flaw, state, last_index)
        if state not in lifecycle.owned_states:
            owner = claim
        elif claim != owner and event_type not in lifecycle.open_to_others:
            return _void(lifecycle, event, before, "not_owner")
    elif event_type in GOVERNING and (flaw := _governing_flaw(lifecycle, event, body)):
        return Void("bad_payload", flaw, state, last_index)
    if len(recent) >= _RECENT_BYTES_MAX:
        recent = recent[_RECENT_BYTES:]
    recent = recent + event.event_id + index.to_bytes(8, "big")
    return Accepted(SubjectState(target, index, owner, recent))


def needs_body(lifecycle: Lifecycle, event_type: str) -> bool:
    """Whether the verdict on this type of event reads its payload."""
    return event_type in lifecycle.attempt_events or event_type in GOVERNING


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
    if type(version) is not int or version < 1:
        return "it is no map that names a lifecycle_version"
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
