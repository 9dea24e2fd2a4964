"""A log in a folder of files: append-only segments, one writing process, any number of readers.

The bytes are described in `belog.storage.file_codec`: a segment is a header and then records, each

    crc32 u32 | length, batch flag u32 | distance to group u32 | index u64 | created_at i64 | value

little endian, 28 bytes before each value. An append is on the disk when it returns; threads that
append at the same time share one sync. The first append makes a process the log's writer until it
closes the log; another process that appends then is told the pid. Readers of other processes see
what is durable and nothing else, by the file `end`, which the writer renews after each sync.

When a log is opened and nobody writes, a tail that was cut short by a crash, and so was never
acknowledged, is cut off; `FileLog.torn` and a warning tell. Damage before that is `Corrupt`.

Source: group commit and the rule that a failed sync is final: https://lwn.net/Articles/752063/,
https://www.postgresql.org/docs/15/runtime-config-wal.html (`data_sync_retry`).
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, decode_event, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    InvalidUri,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NotFound,
    Unavailable,
)
from belog.schemas.filters import ALL, EventFilter, Matcher
from belog.schemas.fold import Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.append_plan import Append, Result, again, plan_appends
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
from belog.storage.file_codec import (
    INSTANCE_BYTES_MAX,
    VALUE_BYTES_MAX,
    EndMark,
    SegmentHeader,
)
from belog.storage.file_segments import Segments, fault, is_own_name, read_end
from belog.storage.file_writer import (
    FolderLock,
    SegmentWriter,
    SyncFailed,
    TornTail,
    create,
)
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
from belog.storage.judged import JudgedView
from belog.storage.open_file import LOOK_S
from belog.storage.recent import RecentRecords
from belog.storage.recount import recounted
from belog.storage.touch import TOUCH_RECORDS_MAX, touches

__all__ = ["SEGMENT_BYTES_MAX", "FileLog"]

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Length at which a segment is closed, bytes: some 200,000 events; a good unit to copy."""
LOCK_WAIT_S: Final = 1.0
"""Longest wait of a writer for the lock, seconds: a process that only opens the log holds it for
milliseconds, one that writes holds it until it closes."""
POLL_S: Final = 0.01
"""How often a waiting reader looks what another process wrote, seconds: a look costs about 5 µs."""


class FileLog(ConditionalLog):
    """See the module's docstring. Thread-safe.

    Attributes:
        folder: Where the files are.
        torn: What this object cut off when it opened the log, None for nothing.
    """

    capabilities = Capabilities(
        conditional_append=True, explicit_index=True, single_writer=True, vacuum=True
    )

    def __init__(
        self,
        folder: Path | str,
        *,
        clock: Callable[[], int] = now_us,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        """Name a folder; nothing is opened or created before `initialize`.

        Args:
            folder: The log's own folder; made where its parent is there.
            clock: Gives the ingest time, microseconds since the epoch.
            segment_bytes_max: Length at which a segment is closed.
            sync: Makes what was written to a file descriptor durable.
        """
        self.folder = Path(folder)
        self.name = f"file:{'//' if self.folder.is_absolute() else ''}{self.folder}"
        self.torn: TornTail | None = None
        self._clock = clock
        self._segment_bytes_max = segment_bytes_max
        self._sync = sync
        self._segments = Segments(self.folder, self.name)
        self._lock = FolderLock(self.folder, self.name)
        self._changed = threading.Condition()
        self._identity: LogIdentity | None = None
        self._closed = False
        # Only the leader of a commit group, and close, touch what follows; under this lock.
        self._writing = threading.Lock()
        self._writer: SegmentWriter | None = None
        self._recent = RecentRecords(0)
        self._failed = ""
        self._end: EndMark | None = None
        self._seen_idx = 0
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

        Where nobody writes, a torn tail is cut off. Opening does not make this process the writer.

        Raises:
            InvalidUri: The folder holds something else, or its parent is not there.
            Corrupt: Records that were acknowledged are missing or damaged.
        """
        with self._writing:
            self._check_open()
            if self._identity is None:
                self._identity = self._open_or_create(instance, log_id, replica, empty or replica)
            return check_identity(self._identity, log_id, replica=replica, name=self.name)

    def _open_or_create(
        self,
        instance: str,
        log_id: UUID | None,
        replica: bool,  # noqa: FBT001 - private
        empty: bool,  # noqa: FBT001 - as above
    ) -> LogIdentity:
        if not self._holds_log():
            if len(instance.encode()) > INSTANCE_BYTES_MAX:
                raise LimitExceeded(
                    "instance",
                    limit="INSTANCE_BYTES_MAX",
                    limit_value=INSTANCE_BYTES_MAX,
                    value=len(instance.encode()),
                )
            try:
                self.folder.mkdir(exist_ok=True)
                with self._lock.held(LOCK_WAIT_S):
                    # Another process may have been faster between the look and the lock.
                    if not self._holds_log():
                        self._create(
                            LogIdentity(log_id or new_uuid(), instance, replica), empty=empty
                        )
            except OSError as error:
                raise fault(error, self.name) from error
        identity = self._stored_identity()
        check_identity(identity, log_id, replica=replica, name=self.name)
        if not os.access(self.folder, os.W_OK):
            return identity
        try:
            self._lock.acquire(0)
        except Unavailable:
            return identity  # whoever writes has cut off the tail already
        try:
            self._recover().close()
        finally:
            self._lock.release()
        return identity

    def _stored_identity(self) -> LogIdentity:
        header = self._segments.refresh()[0].header
        return LogIdentity(header.log_id, header.instance, header.is_replica)

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        self._check_open()
        if self._identity is not None:
            return self._identity
        return self._stored_identity() if self._holds_log() else None

    def _holds_log(self) -> bool:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except NotADirectoryError as error:
            msg = f"{self.folder} is a file"
            raise InvalidUri(msg, log=self.name, hint="name a folder") from error
        except FileNotFoundError as error:
            if not self.folder.parent.is_dir():
                msg = f"the folder of {self.folder} does not exist"
                raise InvalidUri(msg, log=self.name, hint="create it first") from error
            return False
        except OSError as error:
            raise fault(error, self.name) from error
        if segments := [n for n in names if n.endswith(".seg") and is_own_name(n)]:
            return bool(segments)
        if strangers := [n for n in names if not is_own_name(n)]:
            msg = f"{self.folder} is a folder of something else: it holds {min(strangers)}"
            raise InvalidUri(msg, log=self.name, hint="name a new folder")
        return False

    def _create(self, identity: LogIdentity, *, empty: bool) -> None:
        header = SegmentHeader(identity.log_id, identity.instance, identity.is_replica, 0, None, 0)
        now = self._clock()
        event = log_created(identity.log_id, identity.instance, now)
        first = [] if empty else [(0, now, encode_event(event))]
        create(self.folder, header, first)

    def _recover(self) -> SegmentWriter:
        writer = SegmentWriter(
            self._segments,
            self.name,
            segment_bytes_max=self._segment_bytes_max,
            sync=self._sync,
        )
        self.torn = writer.torn or self.torn
        return writer

    def close(self) -> None:
        """See `EventLog.close`; another process may write from now on."""
        with self._writing:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._lock.release()
        with self._changed:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the log was closed"
            raise Closed(msg, log=self.name)

    def _require_identity(self) -> LogIdentity:
        self._check_open()
        if self._identity is None:
            msg = "the log was not initialized"
            raise NotFound(msg, log=self.name, hint="call initialize() first")
        return self._identity

    # --- raw records

    def _durable_end(self) -> EndMark:
        """Return how far the log is durable: by memory in the writer, by `end` elsewhere."""
        identity = self._require_identity()
        end = self._end
        if end is not None:
            self._lock.check_at_times()
            return end
        seen_idx = self._seen_idx
        mark = read_end(self.folder, self.name)
        if mark is None:
            msg = f"{self.folder / 'end'} is missing or damaged"
            hint = "open the log where nobody writes to it: that makes it anew"
            raise Unavailable(msg, log=self.name, hint=hint)
        if mark.log_id != identity.log_id:
            msg = f"the log is {mark.log_id} now, not {identity.log_id}"
            raise LogReplaced(msg, log=self.name, hint="was it recreated?")
        if mark.next_idx < seen_idx:
            msg = f"the log ends at {mark.next_idx}, it was read up to {seen_idx}"
            raise LogTruncated(msg, log=self.name, hint="was it restored from a copy?")
        self._seen_idx = mark.next_idx
        return mark

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        return self._durable_end().next_idx

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`.

        Raises:
            Corrupt: A record is not what was written; names file and offset.
        """
        return self._checked(since_position, self.scan_raw(since_position, limit))

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `Vacuumable.scan_raw`."""
        end = self._durable_end()
        if since_position >= end.next_idx:
            return []
        return self._segments.scan(since_position, limit, end)

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`; what this process appends wakes at once, else within `POLL_S`."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._changed:
                if self._durable_end().next_idx > position:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(POLL_S if self._end is None else LOOK_S, left))

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
        """See `EventLog.copy_records`."""
        check_copied(records, after)
        refuse_foreign_records(records, self._require_identity(), self.name)
        values = [record.value for record in records]
        for value in values:
            if len(value) > VALUE_BYTES_MAX:
                raise LimitExceeded(
                    "record",
                    limit="VALUE_BYTES_MAX",
                    limit_value=VALUE_BYTES_MAX,
                    value=len(value),
                )
        item = Append((), values, copied=records, after=after)
        self._group.submit(item, sum(map(len, values)))

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `Vacuumable.remove`; each segment is atomic. Makes this process the writer."""
        with self._writing:
            writer = self._open_writer()
            writer.remove({removal.position for removal in removals})
            self._end = writer.end

    def _commit(self, group: Sequence[Append]) -> Sequence[Result]:
        """Append what the waiting calls want, as far as their conditions hold."""
        with self._writing:
            try:
                writer = self._open_writer()
            except BelogError as error:
                return [again(error) for _ in group]
            return self._append_group(writer, group)

    def _open_writer(self) -> SegmentWriter:
        self._check_open()
        if self._failed:
            msg = f"a sync failed before, so nothing more is written: {self._failed}"
            raise Unavailable(msg, log=self.name, hint="look at the disk, then open the log anew")
        if self._writer is None:
            self._lock.acquire(LOCK_WAIT_S)
            try:
                self._writer = self._recover()
            except BaseException:
                self._lock.release()
                raise
            self._recent = RecentRecords(self._writer.end.next_idx)
            self._end = self._writer.end
        # What is written into a folder that was replaced would be acknowledged and lost.
        self._lock.check()
        return self._writer

    def _append_group(self, writer: SegmentWriter, group: Sequence[Append]) -> Sequence[Result]:
        end = writer.end
        plan = plan_appends(
            group,
            next_idx=end.next_idx,
            created_at=max(self._clock(), writer.created_at),
            recent=self._recent,
            looked_up=lambda events, seen_idx: self._touched_on_disk(events, seen_idx, end),
            log=self.name,
        )
        if not plan.batches:
            return plan.results
        try:
            writer.append(plan.batches)
        except BelogError as error:
            self._recent.forget(end.next_idx)
            return plan.failed_by(error)
        except SyncFailed as error:
            self._failed = str(error)
            msg = f"the disk did not confirm the write: {error}"
            return plan.unknown(group, msg, log=self.name, cause=error)
        except BaseException:
            self._recent.forget(end.next_idx)
            raise
        self._end = writer.end
        self._seen_idx = writer.end.next_idx
        with self._changed:
            self._changed.notify_all()
        return plan.results

    def _touched_on_disk(self, events: Sequence[Event], seen_idx: int, end: EndMark) -> bool:
        if end.next_idx - seen_idx > TOUCH_RECORDS_MAX:
            return True
        between = self._segments.scan(seen_idx, TOUCH_RECORDS_MAX + 1, end)
        return touches((record.value for record in between), events)

    # --- judged reads

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`.

        A filter reads the log once to learn what job runs concern; a plain page costs a scan of it.
        """
        check_page(limit, since_idx)
        if self._require_identity().is_replica or not Matcher(wanted).matches_all:
            return self._view.read(since_idx, wanted, limit)
        records = self.scan(since_idx, limit + 1)
        events = tuple(
            StoredEvent(r.position, r.created_at, decode_event(r.value))
            for r in records[:limit]
            if r.value is not None
        )
        next_idx = events[-1].index + 1 if events else since_idx
        return EventPage(events, next_idx, len(records) > limit)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        if self._require_identity().is_replica:
            return self._view.get(index)
        records = self.scan(max(index, 0), 1)
        if not records or records[0].position != index or records[0].value is None:
            return None
        return StoredEvent(index, records[0].created_at, decode_event(records[0].value))

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


def from_uri(uri: str) -> FileLog:
    """See `belog.storage.factory`: `file:///absolute/path`, or `file:relative/path` (RFC 8089)."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in {"", "localhost"} or not path or parts.query or parts.fragment:
        msg = "a file log's URI is of the form file:///path"
        raise InvalidUri(msg, hint="file:path for a relative path, and no options")
    # Four slashes, as SQLite's absolute paths have, mean the same.
    return FileLog(f"/{path.lstrip('/')}" if path.startswith("/") else path)
