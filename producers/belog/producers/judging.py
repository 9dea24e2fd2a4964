"""What every producer asks around a write: the verdict, and what a retry's first attempt was."""

from collections.abc import Sequence

from belog.schemas.envelope import Event, StoredEvent, decode_event
from belog.schemas.errors import BelogError, Corrupt, EventIdReused, InvalidEvent, OutcomeUnknown
from belog.schemas.fold import (
    Accepted,
    Duplicate,
    Outcome,
    Verdict,
    View,
    conflict_of,
    judge,
    needs_body,
)
from belog.schemas.lifecycle import LIFECYCLE_ADOPTED, LIFECYCLES
from belog.schemas.payload import digest, known_payload
from belog.schemas.verdict import GOVERNING
from belog.storage.interface import EventLog, Receipt

__all__ = [
    "check_digest",
    "check_same",
    "first_receipt",
    "governed_runs",
    "read_back_outcome",
    "verdict_on",
]


def verdict_on(view: View, event: Event, index: int) -> Verdict:
    """Judge an event of this writer as if it stood at `index`.

    Raises:
        InvalidEvent: Its payload cannot be in any log, or it adopts a lifecycle that this software
            could not read on under.
    """
    body = None
    if needs_body(view.lifecycle, event.event_type):
        try:
            body = known_payload(event.payload)
        except Corrupt as error:
            raise InvalidEvent(error.message, subject=event.subject) from error
        if event.event_type == LIFECYCLE_ADOPTED:
            version = body.get("lifecycle_version")
            if type(version) is int and version not in LIFECYCLES:
                msg = f"lifecycle version {version} is not known to this software"
                raise InvalidEvent(
                    msg, subject=event.subject, hint="adopt it with a belog that knows it"
                )
    return judge(view, event, body, index)


def check_digest(event: Event) -> None:
    """Refuse an event whose digest is not that of its payload.

    Raises:
        InvalidEvent: It is not.
    """
    if digest(event.payload) != event.payload_digest:
        msg = "payload_digest is not the BLAKE3 digest of payload"
        raise InvalidEvent(msg, subject=event.subject)


def governed_runs(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Cut a batch behind each event that may change which tables govern those after it."""
    cuts = [n + 1 for n, event in enumerate(events) if event.event_type in GOVERNING]
    if not cuts:
        return [events] if events else []
    starts = [0, *cuts]
    runs = [events[a:b] for a, b in zip(starts, [*cuts, len(events)], strict=True)]
    return [run for run in runs if run]


def check_same(event: Event, duplicate: Duplicate, first: StoredEvent) -> None:
    """Refuse an event id that was accepted with another content.

    A retry has the same type, subject and payload; its time and cause may differ.

    Raises:
        EventIdReused: The content differs.
    """
    same = (
        first.event.payload_digest == event.payload_digest
        and first.event.event_type == event.event_type
        and first.event.subject_id == event.subject_id
        and first.event.subject_kind == event.subject_kind
    )
    if not same:
        msg = f"event id {event.event_id.hex()} was accepted before with another content"
        raise EventIdReused(
            msg,
            state="",
            last_index=duplicate.first_index,
            allowed=(),
            hint="make a new event id for a new event",
            index=duplicate.first_index,
            subject=event.subject,
        )


def first_receipt(log: EventLog, event: Event, duplicate: Duplicate) -> Receipt:
    """Return the receipt of the first event with this id. Reads one record.

    Its time is 0 where the first event was removed by a vacuum since.

    Raises:
        EventIdReused: The first event has another content.
    """
    records = log.scan(duplicate.first_index, 1)
    created_at = 0
    if records and records[0].position == duplicate.first_index and records[0].value is not None:
        created_at = records[0].created_at
        first = StoredEvent(duplicate.first_index, created_at, decode_event(records[0].value))
        check_same(event, duplicate, first)
    return Receipt(duplicate.first_index, created_at, event.event_id, duplicate=True)


def read_back_outcome(log: EventLog, event: Event, outcome: Outcome | None) -> Receipt | BelogError:
    """Return what became of a sent event by the verdict where it landed.

    Args:
        log: Where it is.
        event: What was sent.
        outcome: Of the fold at its position; None where nothing is there any more.
    """
    if outcome is None:
        msg = "the record was removed by somebody else before it was judged"
        return OutcomeUnknown(msg, event_id=event.event_id, log=log.name)
    verdict = outcome.verdict
    if isinstance(verdict, Accepted):
        return Receipt(outcome.index, outcome.created_at, event.event_id)
    if isinstance(verdict, Duplicate):
        try:
            return first_receipt(log, event, verdict)
        except BelogError as error:
            return error
    return conflict_of(event, verdict, index=outcome.index, log=log.name)
