"""Reading the segments of a file log."""

import os
import re
import threading
from bisect import bisect_right
from pathlib import Path
from typing import Final

from belog.schemas.errors import BelogError, Corrupt, LogReplaced, Unavailable
from belog.schemas.fold import Record
from belog.storage.file_codec import (
    END_BYTES,
    HEADER_BYTES_MAX,
    RECORD_BYTES_MAX,
    EndMark,
    IndexEntry,
    SegmentHeader,
    Walk,
    decode_end,
    decode_header,
    decode_index,
    walk,
)

__all__ = [
    "END_NAME",
    "INDEX_EVERY_BYTES",
    "Segment",
    "Segments",
    "fault",
    "is_own_name",
    "read_end",
    "segment_name",
]

END_NAME: Final = "end"
INDEX_EVERY_BYTES: Final = 65_536
"""Distance of two entries of a sparse index, bytes: about 200 records, walked in 0.2 ms."""
BLOCK_BYTES: Final = 1_048_576
"""One read of a scan, bytes: some 3,000 records, a good size for every kind of disk."""
RECORD_BYTES_USUAL: Final = 512
"""What a record is taken to need when the size of a read is chosen, bytes."""
END_TRIES_MAX: Final = 100
"""Reads of `end` that may meet it while it is being written; one write takes about 1 µs."""

_SEGMENT: Final = re.compile(r"\d{20}\.seg")
_OWN: Final = re.compile(r"\d{20}\.(seg|idx)|end|lock|.*\.tmp")


def segment_name(first_index: int) -> str:
    """Return the file name of a segment."""
    return f"{first_index:020d}.seg"


def is_own_name(name: str) -> bool:
    """Whether a file of this name can be part of a log."""
    return _OWN.fullmatch(name) is not None


def fault(error: OSError, log: str) -> BelogError:
    """Return the error for a file that cannot be read or written; nothing was written."""
    where = f" {error.filename}" if error.filename else ""
    msg = f"{error.strerror or error}{where}"
    return Unavailable(msg, log=log, hint="look at the disk and at the rights of the folder")


def read_end(folder: Path, log: str) -> EndMark | None:
    """Return how far the log is durable, None where `end` is missing or damaged."""
    path = folder / END_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault(error, log) from error
    try:
        for _ in range(END_TRIES_MAX):
            mark = decode_end(os.pread(descriptor, END_BYTES + 1, 0))
            if mark is not None:
                return mark
        return None
    finally:
        os.close(descriptor)


class Segment:
    """One segment file.

    Attributes:
        path: Where it is.
        header: What it says of itself.
        records_at: Offset of its first record.
        entries: Its sparse index, as far as it is known; grows while the segment is read.
    """

    __slots__ = ("entries", "header", "path", "records_at")

    def __init__(self, path: Path, header: SegmentHeader, records_at: int) -> None:
        self.path = path
        self.header = header
        self.records_at = records_at
        self.entries = [IndexEntry(header.first_index, records_at)]

    def load_index(self) -> None:
        """Take up what its index file holds; one that is missing or damaged is as good as empty."""
        try:
            stored = decode_index(self.path.with_suffix(".idx").read_bytes())
        except FileNotFoundError:
            return
        self.entries.extend(e for e in stored if e.offset > self.entries[-1].offset)

    def forget_index(self) -> None:
        """Drop what its index said."""
        self.entries = [IndexEntry(self.header.first_index, self.records_at)]

    def entry_before(self, index: int, offset_max: int) -> IndexEntry:
        """Return the last entry at or before an index whose offset is in bounds."""
        entries = self.entries
        at = bisect_right(entries, index, key=lambda e: e.index) - 1
        while at > 0 and entries[at].offset > offset_max:
            at -= 1
        return entries[max(at, 0)]

    def learn(self, index: int, offset: int) -> None:
        """Note where a record starts, if the last entry is far enough behind."""
        if offset >= self.entries[-1].offset + INDEX_EVERY_BYTES:
            self.entries.append(IndexEntry(index, offset))


class Segments:
    """The segments of one log, in order. Thread-safe."""

    def __init__(self, folder: Path, log: str) -> None:
        """Name a folder; nothing is read before `refresh`."""
        self.folder = folder
        self._log = log
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        # Where the scan ended that is likely to be gone on with: index → segment and offset.
        self._cursor: tuple[int, int, int] = (-1, 0, 0)

    def refresh(self) -> list[Segment]:
        """Take up segments that are new; return all.

        Raises:
            Corrupt: A segment is missing, has another length than the next one says, or its header
                is damaged.
            LogReplaced: A segment belongs to another log.
        """
        with self._lock:
            try:
                files = list(self.folder.iterdir())
            except OSError as error:
                raise fault(error, self._log) from error
            names = sorted(p.name for p in files if _SEGMENT.fullmatch(p.name))
            for name in names[len(self._segments) :]:
                self._segments.append(self._open(name))
            return list(self._segments)

    def _open(self, name: str) -> Segment:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                head = file.read(HEADER_BYTES_MAX)
            header, records_at = decode_header(head)
        except OSError as error:
            raise fault(error, self._log) from error
        except (Corrupt, UnicodeDecodeError) as error:
            msg = f"{path} at offset 0: {error}"
            raise Corrupt(msg, log=self._log) from error
        before = self._segments[-1] if self._segments else None
        if before is not None and before.header.log_id != header.log_id:
            msg = f"{path} belongs to log {header.log_id}, not to {before.header.log_id}"
            raise LogReplaced(msg, log=self._log)
        if segment_name(header.first_index) != name:
            msg = f"{path} holds the segment {segment_name(header.first_index)}"
            raise Corrupt(msg, log=self._log)
        if header.previous_first_index != (before.header.first_index if before else None):
            msg = f"the segment before {path} is missing"
            raise Corrupt(msg, log=self._log)
        if before is not None and (size := before.path.stat().st_size) != header.previous_bytes:
            msg = f"{before.path} has {size} bytes, it was closed with {header.previous_bytes}"
            raise Corrupt(msg, log=self._log)
        segment = Segment(path, header, records_at)
        segment.load_index()
        return segment

    def add(self, segment: Segment) -> None:
        """Take up a segment that was just made here."""
        with self._lock:
            self._segments.append(segment)

    def scan(self, since: int, limit: int, end: EndMark) -> list[Record]:
        """Return records from an index on, none at or past `end`.

        Raises:
            Corrupt: What is there is not what was written; names file and offset.
        """
        with self._lock:
            segments = self._segments
            if not segments or segments[-1].header.first_index < end.segment:
                segments = []
        if not segments:
            segments = self.refresh()
        records: list[Record] = []
        at = bisect_right(segments, since, key=lambda s: s.header.first_index) - 1
        for n in range(max(at, 0), len(segments)):
            segment = segments[n]
            if len(records) >= limit or segment.header.first_index > end.segment:
                break
            if segment.header.first_index == end.segment:
                stop = end.offset
            elif n + 1 < len(segments):
                stop = segments[n + 1].header.previous_bytes
            else:
                msg = f"the segment after {segment.path} is missing"
                raise Corrupt(msg, log=self._log)
            self._scan_segment(segment, since, limit, stop, records)
        return records

    def _scan_segment(
        self, segment: Segment, since: int, limit: int, stop: int, records: list[Record]
    ) -> None:
        """Append records of one segment below an offset."""
        first = segment.header.first_index
        index, cursor_segment, offset = self._cursor
        if index != since or cursor_segment != first or offset > stop:
            entry = segment.entry_before(since, stop)
            index, offset = entry.index, entry.offset
        had = len(records)
        try:
            self._read(segment, index, offset, since, limit, stop, records)
        except Corrupt:
            if offset == segment.records_at:
                raise
            # A sparse index is only a hint: what it leads to is believed when the records before
            # it lead there too.
            del records[had:]
            segment.forget_index()
            self._read(segment, first, segment.records_at, since, limit, stop, records)

    def _read(  # noqa: PLR0917 - private, the state of one run
        self,
        segment: Segment,
        index: int,
        offset: int,
        since: int,
        limit: int,
        stop: int,
        records: list[Record],
    ) -> None:
        try:
            descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise fault(error, self._log) from error
        try:
            while offset < stop and len(records) < limit:
                wanted = limit - len(records)
                size = min(BLOCK_BYTES, INDEX_EVERY_BYTES + wanted * RECORD_BYTES_USUAL)
                found = self._walk(descriptor, size, offset, stop, since, wanted, index - 1)
                if not found.at and not found.flaw and size < RECORD_BYTES_MAX:
                    size = RECORD_BYTES_MAX
                    found = self._walk(descriptor, size, offset, stop, since, wanted, index - 1)
                if found.flaw or not found.at:
                    reason = found.flaw or "it is cut off"
                    msg = f"{segment.path} is damaged at offset {offset + found.at}: {reason}"
                    hint = "restore the file, or start from a replica"
                    raise Corrupt(msg, log=self._log, hint=hint)
                records.extend(found.records)
                offset += found.at
                index = found.after + 1
                with self._lock:
                    segment.learn(index, offset)
        except OSError as error:
            raise fault(error, self._log) from error
        finally:
            os.close(descriptor)
        self._cursor = (index, segment.header.first_index, offset)

    @staticmethod
    def _walk(  # noqa: PLR0917 - private
        descriptor: int, size: int, offset: int, stop: int, since: int, limit: int, after: int
    ) -> Walk:
        block = os.pread(descriptor, min(size, stop - offset), offset)
        return walk(block, 0, since, limit, after)
