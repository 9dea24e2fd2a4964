"""What a vacuum may remove. Pure."""

from collections.abc import Iterable, Iterator

from belog.schemas.envelope import decode_event
from belog.schemas.errors import Corrupt
from belog.schemas.fold import Fold, Record
from belog.schemas.lifecycle import SubjectKind

__all__ = ["superseded"]


def superseded(records: Iterable[Record], snapshot: Fold, before: int) -> Iterator[Record]:
    """Yield the records that may be removed, in the order in which they were superseded.

    Those are the events of builds, job runs and partitions that another event of the same subject
    followed before a time, both of them in the snapshot. Never among them are a subject's newest
    event, an event of the log itself (`system`), and what is no event. Void records are taken for
    events of their subjects: on logs that hold some, one that came right after an event lets that
    event go.

    Values are left out of what is yielded. Memory: one entry a subject.

    Args:
        records: A primary log from any position on, in order; read no further than needed.
        snapshot: The fold of the snapshot that takes the removed events' place.
        before: Ingest time, microseconds since the epoch, exclusive.
    """
    last: dict[tuple[SubjectKind, str], Record] = {}
    now = 0
    for record in records:
        now = max(now, record.created_at)
        if now >= before or record.position >= snapshot.next_position:
            return
        if record.value is None:
            continue
        try:
            event = decode_event(record.value)
        except Corrupt:
            continue
        newest = snapshot.subject(event.subject_kind, event.subject_id)
        if event.subject_kind == "system" or newest is None or record.position > newest.index:
            continue
        key = event.subject_kind, event.subject_id
        earlier = last.get(key)
        last[key] = Record(record.position, record.created_at, None, record.key)
        if earlier is not None:
            yield earlier
