"""A local index of a log: its accepted events in a SQLite file, a cache that can be made anew.

The file is a SQLite log of its own kind: it holds the accepted events at their indices, and with
them what filtered reads and reads by id need (`belog.storage.selective`). There is no side file:
how far the index is, is what it holds. Each batch enters in one transaction, so after a crash at
any point it holds a beginning of the log, and goes on from there.

On opening the index is folded, which takes some 15 µs an event and no network: each of its events
must be accepted where it stands. A few of its records, the last among them, must be those that the
log has at the same positions. Otherwise it is made anew, with a warning; an index that holds more
than the log does is an error, because then the log lost what it had acknowledged.

Several processes may keep one index; each extends it. It is made anew by a process that has it
alone (a lock file beside it says so). A file that is no index is refused and left alone.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from belog.schemas.errors import (
    BelogError,
    Corrupt,
    Diverged,
    Gone,
    IndexConflict,
    InvalidUri,
    LogTruncated,
    Unavailable,
)
from belog.schemas.events import Vacuumed
from belog.schemas.fold import Accepted, Fold, Outcome, Record
from belog.storage.interface import SCAN_RECORDS_MAX, CopiedRecord, EventLog, LogIdentity
from belog.storage.sqlite import SqliteLog

__all__ = ["CHECKED_RECORDS", "INDEX_MARK", "IndexFile"]

LOGGER: Final = logging.getLogger("belog.index")

INDEX_MARK: Final = "index of "
"""What the instance name of an index starts with; no log of its own has it, so none is deleted."""

CHECKED_RECORDS: Final = 8
"""Records of the index that are compared with the log's on opening, evenly spread, the last among
them: each is a read of a few milliseconds. Event ids are random, so one equal record far back means
the same topic."""

_DOES_NOT_FIT: Final = (Corrupt, Diverged)


class IndexFile:
    """One process's access to an index. Not thread-safe but for `store`, which is read at any time.

    Attributes:
        store: The accepted events; read only.
        fold: The log as far as it was read.
        covered: Position up to which the index holds all events of the log.
        horizon: Index below which the log was vacuumed, and the index still holds what is gone.
    """

    def __init__(self, log: EventLog, path: Path, log_id: UUID) -> None:
        """Open the index of an opened primary log, making it where it is missing or does not fit.

        Raises:
            InvalidUri: The path is of something else, or its folder is not there.
            NewerFormat: Newer software wrote it.
            LogTruncated: The index holds more than the log.
            Unavailable: It does not fit, and another process uses it; or it cannot be written.
        """
        self._log = log
        self._path = path
        self._log_id = log_id
        self._lock = -1
        self.fold = Fold()
        self.covered = 0
        self.horizon = 0
        self.store = SqliteLog(path)
        # Read and not written yet, because a write failed.
        self._pending: list[CopiedRecord] = []
        self._lock = self._locked()
        try:
            self._open()
            self.covered = self.fold.next_position
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.store.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _locked(self) -> int:
        if not self._path.parent.is_dir():
            msg = f"the folder of {self._path} does not exist"
            raise InvalidUri(msg, log=self._log.name, hint="create it first")
        lock = -1
        try:
            lock = os.open(f"{self._path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            self._is_alone = self._try_alone(lock)
            if not self._is_alone:
                # Held by who checks or makes it now, too: then this waits until it is there.
                fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            msg = f"the index {self._path} cannot be locked: {error.strerror}"
            raise Unavailable(msg, log=self._log.name) from error
        return lock

    @staticmethod
    def _try_alone(lock: int) -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    # --- opening

    def _open(self) -> None:
        try:
            self._initialize()
            self._fold_store()
            self._compare()
        except _DOES_NOT_FIT as error:
            LOGGER.warning("%s: the index %s is made anew: %s", self._log.name, self._path, error)
            self._make_anew(error)

    def _initialize(self) -> None:
        found = self.store.identify()
        if found is not None:
            self._check_index(found)
            if found.log_id != self._log_id:
                msg = f"it is an index of log {found.log_id}, not of {self._log_id}"
                raise Diverged(msg, log=self.store.name)
        self.store.initialize(
            instance=f"{INDEX_MARK}{self._log.name}", log_id=self._log_id, empty=True
        )

    def _check_index(self, found: LogIdentity) -> None:
        if not found.instance.startswith(INDEX_MARK):
            msg = f"{self._path} is a log and no index of one"
            raise InvalidUri(msg, log=self._log.name, hint="name a new file for the index")

    def _make_anew(self, reason: BelogError) -> None:
        if not self._is_alone:
            msg = f"the index {self._path} does not fit, and another process uses it"
            raise Unavailable(msg, log=self._log.name, hint="end it, or name another file") from (
                reason
            )
        self.store.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self.fold = Fold()
        self.horizon = 0
        self.store = SqliteLog(self._path)
        self._initialize()

    def _fold_store(self) -> None:
        """Fold what the index holds; all of it must be accepted where it stands."""
        fold = self.fold
        # Raw: the index holds what was vacuumed from the log, and a hole in it is no loss.
        while records := self.store.scan_raw(fold.next_position, SCAN_RECORDS_MAX):
            for record in records:
                outcome = fold.apply(record)
                if outcome is None or type(outcome.verdict) is not Accepted:
                    msg = "it holds a record that no fold accepts"
                    raise Corrupt(msg, log=self.store.name, index=record.position)
                self._note(outcome)
                if outcome.created_at != record.created_at:
                    msg = "its ingest times go back"
                    raise Corrupt(msg, log=self.store.name, index=record.position)
        if fold.log_id not in {None, self._log_id}:
            msg = f"it holds events of log {fold.log_id}"
            raise Diverged(msg, log=self.store.name)

    def _compare(self) -> None:
        """Hold some records of the index against the log's."""
        end = self.fold.next_position
        log_end = self._log.next_position()
        if log_end < end:
            msg = f"the log ends at {log_end}, and its index {self._path} holds events up to {end}"
            hint = "acknowledged events were lost: compare with a replica; then delete the index"
            raise LogTruncated(msg, log=self._log.name, index=log_end, hint=hint)
        if end == 0:
            return
        for n in range(1, CHECKED_RECORDS + 1):
            (mine,) = self.store.scan_raw((end - 1) * n // CHECKED_RECORDS, 1)
            try:
                theirs = self._log.scan(mine.position, 1)
            except Gone:
                # Vacuumed; those behind the horizon are compared.
                continue
            if not theirs or (theirs[0].position, theirs[0].value) != (mine.position, mine.value):
                msg = "the log holds another record"
                raise Diverged(msg, log=self.store.name, index=mine.position)

    # --- growing

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Take in what the log holds now. Blocks; a million new events take about half a minute.

        Args:
            on_progress: Called after each batch with the position reached and the log's end.

        Raises:
            Gone: Events that are not in the index were vacuumed.
        """
        while records := self._log.scan(self.fold.next_position, SCAN_RECORDS_MAX):
            self._take(records)
            self._write()
            if on_progress is not None:
                position = self.covered
                on_progress(position, max(position, self._log.next_position()))
            if len(records) < SCAN_RECORDS_MAX:
                return
        self._write()

    def _take(self, records: Sequence[Record]) -> None:
        fold = self.fold
        for record in records:
            outcome = fold.apply(record)
            if outcome is not None and type(outcome.verdict) is Accepted:
                value = record.value or b""
                self._pending.append(CopiedRecord(outcome.index, outcome.created_at, value))
                self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        event = outcome.event
        if event is not None and event.event_type == Vacuumed.event_type:
            horizon = event.body().get("horizon")
            if isinstance(horizon, int):
                self.horizon = max(self.horizon, min(horizon, outcome.index))

    def _write(self) -> None:
        """Write what was read, but for what another process has written meanwhile."""
        while self._pending:
            after = self.store.next_position() - 1
            missing = [record for record in self._pending if record.index > after]
            try:
                self.store.copy_records(missing, after=after)
            except IndexConflict:
                continue
            self._pending = []
        self.covered = self.fold.next_position

    def verify(self) -> None:
        """Fold the log anew, up to what the index covers, and compare the Merkle roots.

        Raises:
            Diverged: They differ.
        """
        theirs = Fold()
        end = self.covered
        while theirs.next_position < end:
            records = self._log.scan(theirs.next_position, SCAN_RECORDS_MAX)
            if not records:
                break
            for record in records:
                if record.position < end:
                    theirs.apply(record)
        held = Fold()
        while records := self.store.scan_raw(held.next_position, SCAN_RECORDS_MAX):
            for record in records:
                if record.position < end:
                    held.apply(record)
            if records[-1].position >= end:
                break
        if held.merkle.root() != theirs.merkle.root():
            msg = f"the index {self._path} does not hold the log's events"
            raise Diverged(msg, log=self._log.name, hint="delete it; it is made anew")
