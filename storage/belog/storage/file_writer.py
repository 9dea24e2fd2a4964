"""Writing the segments of a file log: the lock, recovery, and durable appends."""

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Collection, Generator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from belog.schemas.errors import BelogError, Corrupt, LogReplaced, Unavailable
from belog.schemas.fold import Record
from belog.storage.append_plan import Batch
from belog.storage.file_codec import (
    HEAD_BYTES,
    EndMark,
    IndexEntry,
    SegmentHeader,
    encode_end,
    encode_header,
    encode_index_entry,
    encode_records,
    find_tail,
)
from belog.storage.file_segments import (
    END_NAME,
    INDEX_EVERY_BYTES,
    Segment,
    Segments,
    fault,
    read_end,
    segment_name,
)
from belog.storage.file_vacuum import rewrite_segment
from belog.storage.open_file import OpenFile

__all__ = ["LOCK_NAME", "FolderLock", "SegmentWriter", "SyncFailed", "TornTail", "create"]

LOCK_NAME: Final = "lock"
LOCK_POLL_S: Final = 0.01
"""How often a lock that is held is tried again, seconds."""
PID_BYTES_MAX: Final = 20
"""A pid as text, bytes: more digits than any has."""
SCAN_STEP_RECORDS: Final = 1_000
"""Records of one step while the last one is looked for; the index leaves some 200."""

_log = logging.getLogger(__name__)


class TornTail(Struct, frozen=True):
    """What recovery cut off: bytes that were never acknowledged."""

    path: Path
    offset: int
    length_bytes: int
    flaw: str


class SyncFailed(Exception):
    """The disk did not confirm a write: what it holds now is unknown. Stays in this backend."""


class FolderLock:
    """The right to write in a folder. Ends with the process at the latest."""

    def __init__(self, folder: Path, log: str) -> None:
        """Name a folder; nothing is locked yet."""
        self._path = folder / LOCK_NAME
        self._log = log
        self._descriptor = -1
        self._file = OpenFile(os.path.abspath(self._path), log)  # noqa: PTH100 - text

    def acquire(self, wait_s: float) -> None:
        """Take the lock.

        Raises:
            Unavailable: Another process, or another object of this one, writes; names its pid.
        """
        deadline = time.monotonic() + wait_s
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise fault(error, self._log) from error
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    holder = os.pread(descriptor, PID_BYTES_MAX, 0).decode(errors="replace")
                    os.close(descriptor)
                    msg = f"process {holder.strip() or 'unknown'} writes to this log"
                    hint = "one process writes a file log, any number may read; close it there"
                    raise Unavailable(msg, log=self._log, hint=hint) from error
                time.sleep(LOCK_POLL_S)
            else:
                break
        self._descriptor = descriptor
        self._file.remember(descriptor)
        # Only for the message above, so a full disk must not keep anybody from reading.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def check(self) -> None:
        """Look whether the folder that is locked is the one that is there; see `OpenFile.check`."""
        self._file.check()

    def check_at_times(self) -> None:
        """As `check`, but not as often; see `OpenFile.check_at_times`."""
        self._file.check_at_times()

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextlib.contextmanager
    def held(self, wait_s: float) -> Generator[None]:
        """Hold the lock for a while."""
        self.acquire(wait_s)
        try:
            yield
        finally:
            self.release()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(folder: Path, header: SegmentHeader, first: Batch) -> None:
    """Make the first segment of a log durable, with its first records or none.

    Raises:
        OSError: The log was not created.
    """
    data = encode_header(header) + b"".join(encode_records(first, 0))
    _create_file(folder / segment_name(header.first_index), data)
    sync_folder(folder.parent)


def _create_file(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write_whole(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        offset += written
        view = view[written:]


def _open_segment(path: Path) -> tuple[int, int]:
    """Return the descriptors of a segment and of its sparse index."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
    index = os.open(path.with_suffix(".idx"), flags, 0o644)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC), index
    except OSError:
        os.close(index)
        raise


class SegmentWriter:
    """Appends to the newest segment. The caller holds the lock, and calls one method at a time.

    Attributes:
        end: How far the log is durable.
        created_at: That of the last record, 0 for none.
        torn: What recovery cut off, None for nothing.
    """

    def __init__(
        self,
        segments: Segments,
        log: str,
        *,
        segment_bytes_max: int,
        sync: Callable[[int], None],
    ) -> None:
        """Recover the log and open its newest segment.

        Args:
            segments: The log's segments.
            log: Its name for errors.
            segment_bytes_max: Length at which a segment is closed.
            sync: Makes the content of a file durable.

        Raises:
            Corrupt: Records that were acknowledged are missing or damaged.
            LogReplaced: `end` is another log's.
        """
        self._segments = segments
        self._log = log
        self._bytes_max = segment_bytes_max
        self._sync = sync
        self.torn: TornTail | None = None
        self._descriptor = self._end_descriptor = self._index_descriptor = -1
        try:
            self._newest = segments.refresh()[-1]
            self._descriptor, self._index_descriptor = _open_segment(self._newest.path)
            self.end, self.created_at = self._recover()
            folder = segments.folder
            self._end_descriptor = os.open(
                folder / END_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            self._mark(self.end)
        except OSError as error:
            self.close()
            raise fault(error, log) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files. Idempotent."""
        for descriptor in (self._descriptor, self._end_descriptor, self._index_descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._end_descriptor = self._index_descriptor = -1

    # --- recovery

    def _recover(self) -> tuple[EndMark, int]:
        for leftover in self._segments.folder.glob("*.tmp"):
            leftover.unlink()
        newest = self._newest
        first = newest.header.first_index
        start, after = newest.records_at, first - 1
        mark = read_end(self._segments.folder, self._log)
        if mark is not None:
            start, after = self._durable(mark, start, after)
        size = os.fstat(self._descriptor).st_size
        block = os.pread(self._descriptor, size - start, start)
        tail = find_tail(block, 0, after)
        offset = start + tail.end
        if tail.is_damage:
            msg = f"{newest.path} is damaged after offset {offset}: {tail.flaw}"
            hint = "restore the file, or start from a replica"
            raise Corrupt(msg, log=self._log, hint=hint)
        if offset < size:
            self._cut(offset, size - offset, tail.flaw)
        # What a killed writer wrote may not be on the disk yet, and readers are shown it next.
        os.fsync(self._descriptor)
        next_idx = after + 1 if tail.last is None else tail.last.position + 1
        end = EndMark(newest.header.log_id, first, offset, next_idx)
        last = tail.last or self._last(end)
        return end, 0 if last is None else last.created_at

    def _durable(self, mark: EndMark, start: int, after: int) -> tuple[int, int]:
        """Check the log against its mark; return where in the newest segment to look on."""
        newest = self._newest
        if mark.log_id != newest.header.log_id:
            msg = f"{END_NAME} in {newest.path.parent} is that of log {mark.log_id}"
            raise LogReplaced(msg, log=self._log, hint="do not mix the files of two logs")
        known = {s.header.first_index: s for s in self._segments.refresh()}
        segment = known.get(mark.segment)
        size = segment.path.stat().st_size if segment else 0
        if segment is None or size < mark.offset:
            missing = self._segments.folder / segment_name(mark.segment)
            msg = f"{missing} is cut off at offset {size}, it was durable up to {mark.offset}"
            hint = "restore the file, or start from a replica"
            raise Corrupt(msg, log=self._log, hint=hint)
        return (mark.offset, mark.next_idx - 1) if segment is newest else (start, after)

    def _cut(self, offset: int, length_bytes: int, flaw: str) -> None:
        path = self._newest.path
        self.torn = TornTail(path, offset, length_bytes, flaw)
        _log.warning("cut %d bytes off %s at offset %d: %s", length_bytes, path, offset, flaw)
        os.ftruncate(self._descriptor, offset)
        index = path.with_suffix(".idx")
        if self._newest.entries[-1].offset >= offset:
            # It leads past the end; it is only a hint, and grows again.
            index.write_bytes(b"")
            self._newest.forget_index()

    def _last(self, end: EndMark) -> Record | None:
        """Return the log's last record; reads from the last known place before it."""
        cursor, last = self._before(end), None
        while records := self._segments.scan(cursor, SCAN_STEP_RECORDS, end):
            last = records[-1]
            cursor = last.position + 1
        return last

    def _before(self, end: EndMark) -> int:
        segments = [s for s in self._segments.refresh() if s.header.first_index < end.next_idx]
        if not segments:
            return 0
        return segments[-1].entry_before(end.next_idx - 1, end.offset).index

    # --- appending

    def append(self, batches: Sequence[Batch]) -> None:
        """Make batches durable, all in one piece. Blocks for one write and one sync.

        Raises:
            Unavailable: There is no room, or the files cannot be written; nothing was written.
            SyncFailed: It is not known what is on the disk; this object must not be used again.
        """
        pieces: list[bytes] = []
        starts: list[IndexEntry] = []
        length = 0
        end = self.end
        next_idx = end.next_idx
        for batch in batches:
            starts.append(IndexEntry(next_idx, length))
            pieces.extend(encode_records(batch, length))
            length += sum(len(r[2]) for r in batch) + len(batch) * HEAD_BYTES
            next_idx = batch[-1][0] + 1
        if end.offset + length > self._bytes_max and end.offset > self._newest.records_at:
            self._rotate()
            end = self.end
        self._write(b"".join(pieces), end.offset)
        offset = end.offset
        self.end = EndMark(end.log_id, end.segment, offset + length, next_idx)
        self.created_at = batches[-1][-1][1]
        self._note(starts, offset)
        try:
            self._mark(self.end)
        except OSError as error:
            # Readers of other processes would stand still for ever.
            raise SyncFailed(str(error)) from error

    def _write(self, data: bytes, offset: int) -> None:
        try:
            _write_whole(self._descriptor, data, offset)
        except BaseException as error:
            # Also an interrupt: what was written in part must not be taken for a record later.
            try:
                os.ftruncate(self._descriptor, offset)
            except OSError as second:
                raise SyncFailed(str(second)) from error
            if isinstance(error, OSError):
                raise self._no_room(error) from error
            raise
        try:
            self._sync(self._descriptor)
        except OSError as error:
            raise SyncFailed(str(error)) from error

    def _no_room(self, error: OSError) -> BelogError:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            msg = f"nothing was written: {error.strerror}"
            return Unavailable(msg, log=self._log, hint="make room, then append again")
        return fault(error, self._log)

    def _mark(self, end: EndMark) -> None:
        # Not synced: it is only ever behind what is durable, and recovery looks on from there.
        _write_whole(self._end_descriptor, encode_end(end), 0)

    def _note(self, starts: Sequence[IndexEntry], base: int) -> None:
        newest = self._newest
        for start in starts:
            offset = base + start.offset
            if offset < newest.entries[-1].offset + INDEX_EVERY_BYTES:
                continue
            newest.learn(start.index, offset)
            # A hint that is missing costs a longer walk and nothing else.
            with contextlib.suppress(OSError):
                entry = encode_index_entry(IndexEntry(start.index, offset))
                os.write(self._index_descriptor, entry)

    def remove(self, positions: Collection[int]) -> None:
        """Remove records; those of the newest segment close it first.

        Raises:
            Unavailable: A segment cannot be written; others may be done.
            Corrupt: One is damaged.
        """
        if max(positions, default=-1) >= self._newest.header.first_index:
            self._rotate()
        for segment in self._segments.refresh()[:-1]:
            try:
                if rewrite_segment(segment.path, segment.records_at, positions):
                    segment.forget_index()
            except OSError as error:
                raise self._no_room(error) from error

    def _rotate(self) -> None:
        """Go on in a new segment.

        Raises:
            Unavailable: It cannot be made; the log is as it was.
        """
        before = self._newest.header
        header = SegmentHeader(
            before.log_id,
            before.instance,
            before.is_replica,
            self.end.next_idx,
            before.first_index,
            self.end.offset,
        )
        path = self._segments.folder / segment_name(header.first_index)
        data = encode_header(header)
        try:
            _create_file(path, data)
        except OSError as error:
            raise self._no_room(error) from error
        try:
            opened = _open_segment(path)
        except OSError as error:
            path.unlink()
            raise self._no_room(error) from error
        for descriptor in (self._descriptor, self._index_descriptor):
            os.close(descriptor)
        self._descriptor, self._index_descriptor = opened
        self._newest = Segment(path, header, len(data))
        self._segments.add(self._newest)
        self.end = EndMark(header.log_id, header.first_index, len(data), self.end.next_idx)
