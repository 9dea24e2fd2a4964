"""How the feed of a service reads a log whose tables it keeps itself."""

from collections.abc import Callable
from typing import Final

from belog.processors.memory_tables import MemoryTables
from belog.processors.own_events import OwnEvents
from belog.service.bridge import AppendQueue
from belog.service.feed import FEED_PAGE_EVENTS
from belog.storage.interface import FOLLOW_WAIT_S, EventLog, EventPage

__all__ = ["OWN_WAIT_S", "Following"]

OWN_WAIT_S: Final = 0.05
"""How long an own append that is under way is waited for before the log is asked, seconds: ten
times what one takes, so that a log that others write to meanwhile is not kept waiting for long."""


class Following:
    """Reads on for the tables and for the feed at once, which are at the same place.

    What this process writes is taken from its producer as soon as it is in the log; a log that only
    this process writes to is not read at all, and one that others write to is read where they
    wrote. For the thread of the feed.

    Attributes:
        own: Gets what the producer confirms.
        appends: What is under way, where the service appends.
    """

    def __init__(
        self, log: EventLog, tables: MemoryTables, on_read: Callable[[], object] | None = None
    ) -> None:
        """Read a log for its tables.

        Args:
            log: Open.
            tables: Of that log; nobody else lets them read on from now on.
            on_read: Called after each page.
        """
        self._log = log
        self._tables = tables
        self._on_read = on_read
        self.own = OwnEvents()
        self.appends: AppendQueue | None = None

    def read(self, index: int) -> EventPage:
        """Return the page at an index, which is where the tables are."""
        del index
        page = self._tables.read_on(self._log, FEED_PAGE_EVENTS, self.own)
        if self._on_read is not None:
            self._on_read()
        return page

    def wait(self, index: int) -> None:
        """Wait for the event at an index, for `FOLLOW_WAIT_S` at most."""
        appends = self.appends
        if appends is not None and appends.is_busy and self.own.wait(index, OWN_WAIT_S):
            return
        self._log.wait_for_index(index, FOLLOW_WAIT_S)
