"""Events that a process wrote itself, handed from its producer to its tables without a read."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from belog.schemas.fold import Confirmed

__all__ = ["OWN_EVENTS_MAX", "OwnEvents"]

OWN_EVENTS_MAX: Final = 10_000
"""Events kept until they are taken, about 5 MB: half a second's at the highest rate. Where more
come, the oldest are forgotten, and whoever follows reads them from the log."""


class OwnEvents:
    """What one thread after another puts in, and one takes out. Thread-safe.

    It holds nothing that is not in the log: whatever is missing here is read there.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._events: deque[Confirmed] = deque(maxlen=OWN_EVENTS_MAX)
        self._changed = threading.Condition()
        self._is_awaited = False
        self._is_missing = False
        self.last_position = -1
        """Of the last event that was put in."""

    def put(self, confirmed: Sequence[Confirmed]) -> None:
        """Keep events that are in the log now; in the order of their positions."""
        self._events.extend(confirmed)
        self.last_position = confirmed[-1].position if confirmed else self.last_position
        # Looked at after they are in: who begins to wait meanwhile finds them.
        if self._is_awaited:
            with self._changed:
                self._changed.notify_all()

    def miss(self) -> None:
        """Say that the log may hold events that are never put in here: who waits looks there."""
        self._is_missing = True
        with self._changed:
            self._changed.notify_all()

    def take(self, position: int, limit: int) -> list[Confirmed]:
        """Take out events in a row.

        Args:
            position: Of the first; those before it are forgotten.
            limit: Most events to take.

        Returns:
            Events at `position` and those right after it, none where that one is not here.
        """
        events = self._events
        taken: list[Confirmed] = []
        following = position
        while len(taken) < limit and (first := self._first()) is not None:
            if first.position > following:
                break
            # Others only put in, which may push out the oldest: that one is read from the log then.
            event = events.popleft()
            if event.position == following:
                taken.append(event)
                following += 1
            elif event.position > following:
                break
        return taken

    def wait(self, position: int, timeout_s: float) -> bool:
        """Wait until an event at or after a position is here, or there is one to look for.

        Returns:
            Whether it is here.
        """
        if self.has(position):
            return True
        with self._changed:
            self._is_awaited = True
            try:
                self._changed.wait_for(lambda: self.has(position) or self._is_missing, timeout_s)
            finally:
                self._is_awaited = self._is_missing = False
        return self.has(position)

    def has(self, position: int) -> bool:
        """Return whether an event at or after a position is here."""
        try:
            return self._events[-1].position >= position
        except IndexError:
            return False

    def _first(self) -> Confirmed | None:
        try:
            return self._events[0]
        except IndexError:
            return None
