"""Counting what a vacuum has left: indexes and folds count what was there."""

from belog.schemas.envelope import decode_event
from belog.schemas.errors import Corrupt
from belog.storage.horizon import VACUUMED
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog, Statistics

__all__ = ["recounted"]


def recounted(log: EventLog, counted: Statistics, *, is_replica: bool = False) -> Statistics:
    """Return statistics as they were counted, or anew where the log was vacuumed.

    The second reads all that is left. Records that lost a race then count as events for as long as
    compaction leaves them there.
    """
    # A view that began with a snapshot may not have seen the record of the vacuum, nor the first
    # event of all.
    began_late = counted.first_index != 0 and not is_replica
    return _count(log) if began_late or VACUUMED in counted.by_type else counted


def _count(log: EventLog) -> Statistics:
    by_type: dict[str, int] = {}
    by_kind: dict[str, int] = {}
    first: tuple[int, int] | None = None
    last = (0, 0)
    size = events = void = tombstones = at = 0
    while records := log.scan_raw(at, SCAN_RECORDS_MAX):
        at = records[-1].position + 1
        for record in records:
            if record.value is None:
                tombstones += 1
                continue
            try:
                event = decode_event(record.value)
            except Corrupt:
                void += 1
                continue
            events += 1
            size += len(record.value)
            by_type[event.event_type] = by_type.get(event.event_type, 0) + 1
            by_kind[event.subject_kind] = by_kind.get(event.subject_kind, 0) + 1
            last = record.position, max(record.created_at, last[1])
            first = first or last
    return Statistics(
        events=events,
        first_index=first[0] if first else None,
        last_index=last[0] if first else None,
        first_created_at=first[1] if first else None,
        last_created_at=last[1] if first else None,
        bytes=size,
        by_type=by_type,
        by_subject_kind=by_kind,
        void=void,
        tombstones=tombstones,
        gaps=at - events - void - tombstones,
    )
