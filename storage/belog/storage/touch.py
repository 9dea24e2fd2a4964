"""Whether records that came in between could change a verdict. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import Corrupt, IndexConflict

__all__ = ["TOUCH_RECORDS_MAX", "check_not_shorter", "touches"]

TOUCH_RECORDS_MAX: Final = 1_000
"""Records in between that a backend looks through while it holds its write lock, about 3 ms; a
producer further behind reads on first."""


def touches(between: Iterable[bytes | None], events: Sequence[Event]) -> bool:
    """Whether one of the record values concerns the subject or the id of one of the events.

    A record of the log itself (`system`) concerns all: it may change the lifecycle. One that is no
    event concerns none.
    """
    subjects = {(e.subject_kind, e.subject_id) for e in events}
    ids = {e.event_id for e in events}
    for value in between:
        if value is None:
            continue
        try:
            other = decode_event(value)
        except Corrupt:
            continue
        if (
            other.subject_kind == "system"
            or other.event_id in ids
            or (other.subject_kind, other.subject_id) in subjects
        ):
            return True
    return False


def check_not_shorter(next_idx: int, seen_idx: int, log: str) -> None:
    """Refuse an append by who has read more than there is: what was judged is of another log.

    Raises:
        IndexConflict: The log ends before `seen_idx`.
    """
    if next_idx < seen_idx:
        msg = f"the log's next index is {next_idx}, and {seen_idx} was seen"
        raise IndexConflict(msg, next_idx=next_idx, log=log)
