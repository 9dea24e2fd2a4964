"""Snapshots that a follower of a log begins with, and takes as it goes on."""

import threading
from collections.abc import Callable
from typing import Final

from belog.processors.snapshots import (
    TablesImage,
    TakenSnapshot,
    image_of_tables,
    restore_tables,
    save_tables,
)
from belog.processors.table_fold import TableFold
from belog.processors.tables import TablesStatus
from belog.schemas.errors import BelogError, Unavailable
from belog.schemas.fold import Fold
from belog.storage.creation import now_us
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.snapshots import SnapshotStore

__all__ = ["SNAPSHOT_EVERY_EVENTS", "LoadTables", "OnOutcome", "SnapshotBeginning"]

SNAPSHOT_EVERY_EVENTS: Final = 100_000
"""Events between two snapshots: reading as many takes a worker a few seconds, which a start from a
snapshot is to save, and taking one of a large log about as long."""

LoadTables = Callable[[TableFold, TablesStatus], bool]
"""Puts a fold's rows in the place of stored tables, unless these have moved on; says whether."""

OnOutcome = Callable[[TakenSnapshot | BelogError], None]
"""Called with a snapshot that is on disk, or why there is none; often from a thread of its own."""


class SnapshotBeginning:
    """See `belog.processors.replay.Beginning`. One follower's own; not thread-safe.

    Snapshots are written beside the follower's work, one at a time. Of several workers that share a
    folder, one takes each.
    """

    def __init__(
        self,
        log: EventLog,
        identity: LogIdentity,
        store: SnapshotStore,
        load: LoadTables,
        *,
        every_events: int | None = SNAPSHOT_EVERY_EVENTS,
        on_outcome: OnOutcome | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Name where snapshots are; nothing is read yet.

        Args:
            log: The log that is followed.
            identity: What opening it said.
            store: Where its snapshots are.
            load: Puts a fold's rows in the place of the stored tables.
            every_events: Events between two snapshots, None to take none.
            on_outcome: Called with every snapshot, and with every failure to take one.
            clock: Gives the time, microseconds since the epoch.
        """
        self._log = log
        self._identity = identity
        self._store = store
        self._load = load
        self._every_events = every_events
        self._on_outcome = on_outcome
        self._clock = clock
        self._next_idx: int | None = None
        self._taking: threading.Thread | None = None

    def fold(self) -> TableFold:
        """Return the fold of the newest snapshot, an empty one where there is none."""
        keeps_root = self._every_events is not None
        found = restore_tables(self._log, self._identity, self._store, keeps_root=keeps_root)
        return TableFold(Fold(keeps_root=keeps_root)) if found is None else found[1]

    def load(self, fold: TableFold, seen: TablesStatus) -> bool:
        """Put a fold's rows in the place of the stored tables, unless they have moved on."""
        return self._load(fold, seen)

    def passed(self, fold: TableFold) -> None:
        """Take a snapshot if it is time and none is being taken; does not wait for it."""
        every = self._every_events
        if every is None or fold.fold.log_id is None:
            return
        if self._taking is not None and self._taking.is_alive():
            return
        next_idx = fold.fold.next_idx
        if self._next_idx is not None and next_idx < self._next_idx:
            return
        # Another worker may have taken one meanwhile.
        self._next_idx = self._newest_idx(next_idx) + every
        if next_idx >= self._next_idx:
            self._next_idx = next_idx + every
            self._begin(image_of_tables(fold))

    def _newest_idx(self, next_idx: int) -> int:
        """Return the index of the newest snapshot, 0 for none; `next_idx` if it is not known."""
        identity = self._identity
        try:
            files = self._store.files(identity.log_id, is_replica=identity.is_replica)
        except Unavailable as error:
            self._say(error)
            return next_idx
        return files[0].next_idx if files else 0

    def _begin(self, image: TablesImage) -> None:
        self._taking = threading.Thread(
            target=self._take, args=(image,), name="belog-snapshot", daemon=True
        )
        self._taking.start()

    def _take(self, image: TablesImage) -> None:
        outcome: TakenSnapshot | BelogError
        try:
            outcome = save_tables(self._store, image, taken_at=self._clock())
        except BelogError as error:
            outcome = error
        self._say(outcome)

    def _say(self, outcome: TakenSnapshot | BelogError) -> None:
        if self._on_outcome is not None:
            self._on_outcome(outcome)

    def close(self) -> None:
        """Wait for the snapshot that is being taken; idempotent."""
        if self._taking is not None:
            self._taking.join()
