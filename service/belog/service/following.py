"""How the feed of a service reads a log whose tables it keeps itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from belog.processors.memory_tables import MemoryTables
from belog.processors.own_events import OwnEvents
from belog.processors.table_fold import TableFold
from belog.schemas.errors import BelogError
from belog.schemas.fold import Fold
from belog.service.bridge import AppendQueue
from belog.service.feed import FEED_PAGE_EVENTS
from belog.storage import LogIdentity
from belog.storage.creation import require_end
from belog.storage.interface import (
    FOLLOW_WAIT_S,
    EventLog,
    EventPage,
    LogEnd,
    Receipt,
    fold_log,
)
from belog.storage.snapshots import SnapshotStore, restore_fold

__all__ = ["END_WAIT_S", "OWN_WAIT_S", "Following", "judging_fold"]

OWN_WAIT_S: Final = 0.25
"""How long an own append that is under way is waited for before the log is asked, seconds: what the
largest group takes where all are busy, since its records can be read before they are confirmed, and
would be judged twice. What others write is kept waiting until that group is written, and so long at
most."""

END_WAIT_S: Final = 0.25
"""How long the tables may take to come to the log's end before they are gone ahead of, seconds:
some milliseconds while they follow, and going ahead costs a copy of what they know."""


def judging_fold(
    log: EventLog, identity: LogIdentity, tables: TableFold | None, store: SnapshotStore | None
) -> Fold:
    """Return the fold that a service's producer starts from.

    Blocks for the reading of a snapshot, where the tables do not keep what it needs.

    Args:
        log: Of the service.
        identity: Which one it is.
        tables: Those of the same process; None where others keep them.
        store: Snapshots of the log; None for none.

    Returns:
        One that keeps the Merkle root, unless the tables keep it: one in a process is enough.
    """
    if tables is not None and tables.fold.keeps_root:
        # Else the log, or its snapshot, would be read for the tables and again for this.
        fold = tables.fold.copy()
        fold.keeps_root = False
        return fold
    found = None if store is None else restore_fold(log, identity, store)
    return Fold() if found is None else found[1]


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

    @property
    def keeps_root(self) -> bool:
        """Whether the tables keep the Merkle root, so that `end` is cheap."""
        return self._tables.keeps_root

    def end(self, next_idx: int) -> LogEnd:
        """Return where the log ends, with its Merkle root; blocks until that is known.

        Args:
            next_idx: Where it ended a moment ago; the answer is of then or later.

        Raises:
            Closed: The tables were closed.
            BelogError: They did not come there in time, and the log cannot be read.
        """
        tables = self._tables
        if tables.wait_for(next_idx - 1, END_WAIT_S):
            return require_end(tables.end(), self._log.name)
        fold = fold_log(self._log, tables.fold())
        end = (
            None if fold.log_id is None else LogEnd(fold.next_idx, fold.merkle.root(), fold.log_id)
        )
        return require_end(end, self._log.name)

    def written(self, outcomes: Iterable[Sequence[Receipt | BelogError] | Exception]) -> None:
        """Take what came of a group of appends; for the thread that wrote it.

        Where others wrote meanwhile, what is in the log is not among the own events.
        """
        last = self.own.last_position
        for results in outcomes:
            if isinstance(results, Exception) or any(
                isinstance(result, BelogError) or result.index > last for result in results
            ):
                self.own.miss()
                return

    def wait(self, index: int) -> None:
        """Wait for the event at an index, for `FOLLOW_WAIT_S` at most."""
        appends = self.appends
        if appends is not None and appends.is_busy and self.own.wait(index, OWN_WAIT_S):
            return
        self._log.wait_for_index(index, FOLLOW_WAIT_S)
