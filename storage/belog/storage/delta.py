"""A log in a Delta Lake table, on a local disk or in an object store.

One commit per group of appends; that a commit's file is put only where none is yet is the
comparison that makes indices gapless over any number of writing processes. Threads of one process
that append at the same time share a commit. The columns are listed in
`belog.storage.delta_rows`; the table is partitioned by day and can be read by anything that reads
Delta. Followers look for new versions.

On a local disk the files of a commit are synced before it is acknowledged. deltalake itself does
not sync, so a power cut can leave a commit that was never acknowledged with an empty file; the
table then says that it is damaged, and the newest file of `_delta_log` is to be deleted.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, decode_event, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    InvalidUri,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from belog.schemas.filters import ALL, EventFilter, Matcher
from belog.schemas.fold import Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.append_plan import Append, Plan, Result, again, plan_appends
from belog.storage.commit_group import CommitGroup
from belog.storage.creation import (
    check_copied,
    check_identity,
    log_created,
    new_uuid,
    now_us,
    refuse_foreign_records,
    refuse_replica_append,
    require_end,
)
from belog.storage.delta_rows import check_created_at
from belog.storage.delta_table import CommitLost, DeltaStore, check_same_table, index_bounds
from belog.storage.delta_turns import NEXT_NAME, TURN_NAME, Turns
from belog.storage.delta_uri import DeltaLocation, local_location, parse_delta_uri
from belog.storage.delta_vacuum import FilesReport, optimize_files, remove_records
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    Capabilities,
    ConditionalLog,
    CopiedRecord,
    EventPage,
    LogEnd,
    LogIdentity,
    Receipt,
    Removal,
    Statistics,
    check_batch,
    check_page,
)
from belog.storage.judged import PAGE_SCAN_RECORDS_MAX, JudgedView
from belog.storage.recent import RecentRecords
from belog.storage.recount import recounted
from belog.storage.touch import TOUCH_RECORDS_MAX, touches

__all__ = ["RETENTION_H_MIN", "DeltaLog", "FilesReport"]

COMMIT_S_MAX: Final = 30.0
"""How long a group is tried against other processes' commits, seconds: three times what the slowest
turn of others may take (`belog.storage.delta_courtesy`)."""
OWN_NAMES: Final = ("_delta_log", "day=", NEXT_NAME, TURN_NAME)
"""What names in a table's folder begin with."""
POLL_LOCAL_S: Final = 0.02
POLL_STORE_S: Final = 0.5
"""How often a waiting reader looks for a new version, seconds: a look costs 1 ms on a local disk,
and a paid listing in an object store."""
RETENTION_H_MIN: Final = 168
"""Hours for which a file that was replaced stays: deltalake's own bound, a week. A reader that
started before the replacement goes on to find it."""


class DeltaLog(ConditionalLog):
    """See the module's docstring. Thread-safe."""

    capabilities = Capabilities(conditional_append=True, explicit_index=True, vacuum=True)

    def __init__(
        self, location: DeltaLocation | Path | str, *, clock: Callable[[], int] = now_us
    ) -> None:
        """Name a table; nothing is opened or created before `initialize`.

        Args:
            location: A local folder, or what `parse_delta_uri` returns.
            clock: Gives the ingest time, microseconds since the epoch.
        """
        if not isinstance(location, DeltaLocation):
            location = local_location(Path(location))
        self._location = location
        self.name = location.name
        self._clock = clock
        self._poll_s = POLL_LOCAL_S if location.folder is not None else POLL_STORE_S
        self._opening = threading.Lock()
        self._changed = threading.Condition()
        self._identity: LogIdentity | None = None
        self._closed = False
        self._reader = DeltaStore(location)
        self._seen_idx = 0
        # Only the leader of a commit group touches these.
        self._writer = DeltaStore(location)
        self._recent = RecentRecords(0)
        self._turns = Turns(location.folder)
        self._group: CommitGroup[Append, list[Receipt]] = CommitGroup(self._commit)
        self._view = JudgedView(self.scan, self.name)

    # --- life

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`.

        Raises:
            InvalidUri: There is another table or something else, or the folder's parent is missing.
        """
        with self._opening:
            self._check_open()
            if self._identity is None:
                wanted = LogIdentity(log_id or new_uuid(), instance, replica)
                identity = self._found() or self._create(wanted, empty=empty or replica)
                check_identity(identity, log_id, replica=replica, name=self.name)
                self._writer.load()
                self._recent = RecentRecords(self._writer.next_idx)
                self._identity = identity
            return check_identity(self._identity, log_id, replica=replica, name=self.name)

    def _found(self) -> LogIdentity | None:
        folder = self._location.folder
        if folder is not None:
            if not folder.parent.is_dir():
                msg = f"the folder of {folder} does not exist"
                raise InvalidUri(msg, log=self.name, hint="create it first")
            if not folder.exists():
                return None
            if not folder.is_dir():
                raise InvalidUri(f"{folder} is a file", log=self.name, hint="name a folder")
            if not (folder / "_delta_log").is_dir():
                names = sorted(entry.name for entry in folder.iterdir())
                # Its first data file is there before its first commit, also where its maker died.
                if stranger := next((n for n in names if not n.startswith(OWN_NAMES)), None):
                    msg = f"{folder} is a folder of something else: it holds {stranger}"
                    raise InvalidUri(msg, log=self.name, hint="name a new folder")
                return None
        return self._reader.load()

    def _create(self, identity: LogIdentity, *, empty: bool) -> LogIdentity:
        now = self._clock()
        event = log_created(identity.log_id, identity.instance, now)
        self._reader.create(identity, [] if empty else [(0, now, encode_event(event))])
        # Whether it is ours or that of a faster process: what is there counts.
        found = self._reader.load()
        if found is None:
            raise Unavailable("the table is not there right after it was made", log=self.name)
        return found

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        self._check_open()
        return self._identity or self._found()

    def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True
        with self._changed:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log was closed", log=self.name)

    def _require_identity(self) -> LogIdentity:
        self._check_open()
        if self._identity is None:
            hint = "call initialize() first"
            raise NotFound("the log was not initialized", log=self.name, hint=hint)
        return self._identity

    # --- raw records

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        identity = self._require_identity()
        store = self._reader
        seen_idx = self._seen_idx
        try:
            store.refresh()
            next_idx = store.next_idx
        except Unavailable:
            self._refuse_other_table()
            raise
        check_same_table(store, identity, next_idx, seen_idx)
        self._seen_idx = next_idx
        return next_idx

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`; reads only files that by their statistics hold wanted indices."""
        return self._checked(since_position, self.scan_raw(since_position, limit))

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `Vacuumable.scan_raw`."""
        self._require_identity()
        if since_position + limit > self._seen_idx:
            self.next_position()
        try:
            return self._reader.scan(since_position, limit)
        except (Corrupt, Unavailable):
            # The file may have been replaced and then vacuumed; a damaged one is still damaged.
            before = self._reader.version
            self.next_position()
            if self._reader.version == before:
                self._refuse_other_table()
                raise
            return self._reader.scan(since_position, limit)

    def _refuse_other_table(self) -> None:
        store = DeltaStore(self._location)
        if store.load() is not None:
            check_same_table(store, self._require_identity(), store.next_idx, self._seen_idx)

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`; what this process appends wakes at once."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.next_position() > position:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with self._changed:
                self._changed.wait(min(self._poll_s, left))

    # --- events

    def append_batch(
        self,
        events: Sequence[Event],
        *,
        at: int | None = None,
        atomic: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`; always atomic."""
        return [*self._append(events, at=at)]

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        """See `ConditionalLog.append_unless_touched`."""
        return self._append(events, seen_idx=seen_idx)

    def _append(
        self, events: Sequence[Event], *, at: int | None = None, seen_idx: int | None = None
    ) -> list[Receipt]:
        check_batch(events)
        refuse_replica_append(self._require_identity(), self.name)
        values = [encode_event(event) for event in events]
        return self._group.submit(Append(events, values, at, seen_idx), sum(map(len, values)))

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`.

        Raises:
            LimitExceeded: An ingest time that is not of the years 1 to 9999.
        """
        check_copied(records, after)
        check_created_at(record.created_at for record in records)
        refuse_foreign_records(records, self._require_identity(), self.name)
        values = [record.value for record in records]
        item = Append((), values, copied=records, after=after)
        self._group.submit(item, sum(map(len, values)))

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `Vacuumable.remove`; each step is atomic.

        Files that are replaced stay for who reads them, until `vacuum_files`.
        """
        self._require_identity()
        store = DeltaStore(self._location)
        store.load()
        remove_records(store, [removal.position for removal in removals])

    def _commit(self, group: Sequence[Append]) -> Sequence[Result]:
        """Commit what the waiting calls want, as far as their conditions hold."""
        self._check_open()
        deadline = time.monotonic() + COMMIT_S_MAX
        while time.monotonic() < deadline:
            with self._turns.turn():
                try:
                    results = self._committed(group)
                except Unavailable:
                    self._refuse_other_table()
                    raise
            if results is not None:
                return results
            self._turns.lost()
        busy = Overloaded(
            f"other writers were faster for {COMMIT_S_MAX:g} s",
            log=self.name,
            hint="append in larger batches, or from fewer processes",
        )
        return [again(busy) for _ in group]

    def _committed(self, group: Sequence[Append]) -> Sequence[Result] | None:
        """Try once; None where another writer was faster, and the log is read on."""
        store = self._writer
        if is_fresh := store.is_behind():
            self._refresh()
        plan = self._plan(store, group)
        if not is_fresh and any(isinstance(r, BaseException) for r in plan.results):
            # What is refused must be refused by the log as it is now.
            self._refresh()
            plan = self._plan(store, group)
        if not plan.batches:
            return plan.results
        try:
            done = self._try(store, plan)
        except OutcomeUnknown as error:
            self._recent.forget(store.next_idx)
            return plan.unknown(group, error.message, log=self.name, cause=error)
        except BelogError as error:
            self._recent.forget(store.next_idx)
            return plan.failed_by(error)
        if not done:
            self._recent.forget(store.next_idx)
            return None
        self._turns.won()
        with self._changed:
            self._changed.notify_all()
        return plan.results

    def _refresh(self) -> None:
        self._writer.refresh()
        self._recent.forget(self._writer.next_idx)

    def _plan(self, store: DeltaStore, group: Sequence[Append]) -> Plan:
        return plan_appends(
            group,
            next_idx=store.next_idx,
            created_at=max(self._clock(), store.created_at),
            recent=self._recent,
            looked_up=lambda events, seen_idx: self._touched(store, events, seen_idx),
            log=self.name,
        )

    def _try(self, store: DeltaStore, plan: Plan) -> bool:
        """Commit once; whether it is in the table.

        Raises:
            OutcomeUnknown: The store failed, and cannot be asked.
            Unavailable: The store failed; nothing was written.
        """
        commit_id = new_uuid().hex
        version = store.version
        records = [record for batch in plan.batches for record in batch]
        failed: BelogError | None = None
        try:
            store.commit(records, commit_id)
        except CommitLost:
            pass
        except BelogError as error:
            failed = error
        else:
            return True
        try:
            store.refresh()
            if store.holds(commit_id, version):
                store.sync(store.version)
                return True
        except BelogError as error:
            msg = f"the commit may be there or not: {failed or error}"
            raise OutcomeUnknown(msg, event_id=b"", log=self.name) from error
        if failed is not None:
            raise failed
        return False

    def _touched(self, store: DeltaStore, events: Sequence[Event], seen_idx: int) -> bool:
        if store.next_idx - seen_idx > TOUCH_RECORDS_MAX:
            return True
        between = store.scan(seen_idx, TOUCH_RECORDS_MAX)
        return touches((record.value for record in between), events)

    # --- judged reads

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`.

        A filter by subjects reads the log once to learn what job runs concern. Other filters cost a
        scan of the page, and a range of ingest times skips the files that lie outside.
        """
        check_page(limit, since_idx)
        matcher = Matcher(wanted)
        if self._require_identity().is_replica or matcher.needs_terms:
            return self._view.read(since_idx, wanted, limit)
        end = self.next_position()
        found: list[StoredEvent] = []
        cursor, stop = index_bounds(self._reader.files(), since_idx, end, wanted)
        looked_at = 0
        while cursor < stop and len(found) < limit and looked_at < PAGE_SCAN_RECORDS_MAX:
            records = self.scan(cursor, min(SCAN_RECORDS_MAX, max(limit, 100), stop - cursor))
            if not records:
                cursor = stop
            for record in records:
                if record.position >= stop or len(found) == limit:
                    break
                cursor = record.position + 1
                looked_at += 1
                stored = _stored(record)
                if stored is not None and matcher.matches(stored):
                    found.append(stored)
        next_idx = max(cursor if cursor < stop else end, since_idx)
        return EventPage(tuple(found), next_idx, next_idx < end)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        if self._require_identity().is_replica:
            return self._view.get(index)
        records = self.scan(max(index, 0), 1)
        return _stored(records[0]) if records and records[0].position == index else None

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`; past the window of recent ids it reads the log."""
        return self._view.get_by_id(event_id)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        return require_end(self._view.end(), self.name)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`."""
        replica = self._require_identity().is_replica
        return recounted(self, self._view.statistics(), is_replica=replica)

    # --- care

    def optimize(self) -> FilesReport:
        """Write small files together, for faster reads. Records and indices stay.

        What is replaced is kept for readers that started before; `vacuum_files` deletes it later.

        Raises:
            Overloaded: A writer was faster each time.
        """
        self._require_identity()
        store = DeltaStore(self._location)
        return optimize_files(store)

    def vacuum_files(
        self, retention_h: int = RETENTION_H_MIN, *, dry_run: bool = True
    ) -> FilesReport:
        """Delete files that were replaced longer ago than a number of hours. Removes no record.

        Args:
            retention_h: At least `RETENTION_H_MIN`, so that no reader loses its files.
            dry_run: Only count.

        Raises:
            LimitExceeded: A shorter retention.
        """
        self._require_identity()
        if retention_h < RETENTION_H_MIN:
            raise LimitExceeded(
                "retention", limit="RETENTION_H_MIN", limit_value=RETENTION_H_MIN, value=retention_h
            )
        store = DeltaStore(self._location)
        store.load()
        paths = store.vacuum(retention_h, dry_run=dry_run)
        return FilesReport(removed=len(paths), dry_run=dry_run)


def _stored(record: Record) -> StoredEvent | None:
    """Return an event, None for a record that is none."""
    try:
        event = decode_event(record.value or b"")
    except Corrupt:
        return None
    return StoredEvent(record.position, record.created_at, event)


def from_uri(uri: str) -> DeltaLog:
    """See `belog.storage.factory` and `belog.storage.delta_uri`."""
    return DeltaLog(parse_delta_uri(uri))
