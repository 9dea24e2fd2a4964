"""What the newest records concern, so that most conditional appends need not read the log. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence

from belog.schemas.envelope import Event
from belog.storage.touch import TOUCH_RECORDS_MAX

__all__ = ["RecentRecords"]

_Concern = tuple[int, str, str, bytes]
"""Index, subject kind, subject id, event id."""


class RecentRecords:
    """The newest records of a log as far as one writer wrote them itself. Not thread-safe.

    Attributes:
        since: First index that is known about; nothing is where it equals the log's next index.
    """

    __slots__ = ("_known", "since")

    def __init__(self, next_idx: int) -> None:
        """Start with nothing known below the log's next index."""
        self.since = next_idx
        self._known: deque[_Concern] = deque()

    def extend(self, first_index: int, events: Sequence[Event]) -> None:
        """Take up events that were appended at consecutive indices."""
        known = self._known
        for n, e in enumerate(events):
            known.append((first_index + n, e.subject_kind, e.subject_id, e.event_id))
        while len(known) > TOUCH_RECORDS_MAX:
            self.since = known.popleft()[0] + 1

    def forget(self, next_idx: int) -> None:
        """Drop everything: records of unknown concern were written."""
        self._known.clear()
        self.since = next_idx

    def touched(self, seen_idx: int, events: Sequence[Event]) -> bool:
        """Whether a known record at or after an index concerns one of the events; see `touches`."""
        between: list[_Concern] = []
        for concern in reversed(self._known):
            if concern[0] < seen_idx:
                break
            between.append(concern)
        return bool(between) and _meet(between, events)


def _meet(between: Iterable[_Concern], events: Sequence[Event]) -> bool:
    subjects = {(e.subject_kind, e.subject_id) for e in events}
    ids = {e.event_id for e in events}
    return any(
        kind == "system" or event_id in ids or (kind, subject_id) in subjects
        for _, kind, subject_id, event_id in between
    )
