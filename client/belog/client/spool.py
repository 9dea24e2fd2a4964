"""A folder in which events wait, in order, until the log is there again.

A folder belongs to one log, and may be used by any number of processes at once: all write one
journal, each under a lock that ends with its holder, and one at a time sends. What is in it:

- `events.spool`, the journal (`belog.client.spool_codec`);
- `events.conflicts`, one JSON object a line for each event that the log refused;
- `write.lock` and `send.lock`, empty.
"""

import fcntl
import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, cast
from uuid import UUID

import msgspec

from belog.client import spool_codec as codec
from belog.client.spool_words import Left, Refusal, SpoolStatus, refusal_of
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    LogReplaced,
    LogTruncated,
    NotFound,
    Overloaded,
    Unavailable,
)

__all__ = ["COMPACT_BYTES", "SPOOL_BYTES_MAX", "Spool"]

SPOOL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest journal, bytes: two hundred thousand events of the usual size, which is days of a large
graph's work, and small enough to be read at every start."""

COMPACT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events that have left, from which on the journal is written anew without them."""


_REFUSALS: Final = msgspec.json.Decoder(Refusal)


def _now_us() -> int:
    return time.time_ns() // 1000


class Spool:
    """Events on disk, in order. Thread-safe, and safe between processes; not for use after a fork.

    Each method blocks for the disk, and for whoever else has the lock.
    """

    def __init__(
        self, folder: str | Path, *, bytes_max: int = SPOOL_BYTES_MAX, make: bool = True
    ) -> None:
        """Open a spool, making the folder where it is not there.

        Args:
            folder: On a local disk: locks of network file systems may not hold.
            bytes_max: Largest journal.
            make: Whether one is made where there is none.

        Raises:
            NotFound: There is none, and none is to be made.
            Corrupt: The journal is damaged, and no torn tail.
            NewerFormat: Newer software wrote it.
            Unavailable: The folder cannot be written.
        """
        self.folder = Path(folder)
        self._bytes_max = bytes_max
        self._mutex = threading.RLock()
        self._journal: codec.Journal | None = None
        self._fd = self._lock_fd = self._send_fd = -1
        self._sender = os.urandom(16)
        self._doubt_below = self._doubt_before = 0
        """Events below it may have been sent, and nothing is known of the answer."""
        self._place = (-1, 0)
        """An event's number and where it is at the earliest."""
        self._outcomes: dict[int, int | None] = {}
        self._awaited: set[int] = set()
        if not make and not (self.folder / "events.spool").exists():
            msg = f"there is no spool in {self.folder}"
            raise NotFound(msg, hint="is it the folder that the client was given?")
        with self._disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _open(self.folder / "write.lock")
            self._send_fd = _open(self.folder / "send.lock")
        try:
            with self._locked():
                pass
        except BaseException:
            self.close()
            raise

    # --- keeping

    def put(self, event: Event, *, may_be_sent: bool = False, is_awaited: bool = False) -> int:
        """Keep an event; durable on return.

        Args:
            event: The event, with its id and whatever `expected` its writer gave it.
            may_be_sent: It will be tried at once: saves a write to disk then.
            is_awaited: `outcome_of` will be asked for it, until `forget` is called.

        Returns:
            Its number.

        Raises:
            Overloaded: The journal would be larger than its bound.
            Unavailable: The disk cannot be written; nothing was kept.
        """
        with self._locked() as journal:
            number = journal.next_number
            # The numbers that may have been sent are a prefix.
            marked = may_be_sent and journal.sent_number >= number
            data = codec.encode_kept(number, _now_us(), event, may_be_sent=marked)
            if journal.at + len(data) > self._bytes_max:
                msg = f"the spool is full: {journal.pending} events wait in {journal.at} bytes"
                raise Overloaded(msg, hint="is the log away for long? flush it: belog spool flush")
            self._write(data, sync=True)
            if is_awaited:
                self._awaited.add(number)
            return number

    def status(self) -> SpoolStatus:
        """Return what is in it now."""
        with self._locked() as journal:
            first = next(iter(self._entries(1)), None)
            return SpoolStatus(
                pending=journal.pending,
                pending_bytes=journal.pending_bytes,
                oldest_at=None if first is None else first.put_at,
                conflicts=sum(1 for _ in self._conflict_lines()),
                log_id=journal.log_id,
                next_idx=journal.next_idx,
            )

    @property
    def pending(self) -> int:
        """Events that still have to be sent, by all processes."""
        with self._locked() as journal:
            return journal.pending

    @property
    def first_number(self) -> int:
        """Number of the first event that still has to be sent."""
        with self._locked() as journal:
            return journal.done_number

    # --- what became of events

    def outcome_of(self, number: int) -> Left | None:
        """Return what became of an event that was put with `is_awaited`; None: it is still here."""
        with self._locked() as journal:
            if number in self._outcomes:
                index = self._outcomes[number]
                return Left(was_refused=index is None, index=index)
            if number < journal.done_number:
                return Left(was_refused=False, index=None)
            return None

    def forget(self, number: int) -> None:
        """Ask no more what became of an event."""
        with self._mutex:
            self._awaited.discard(number)
            self._outcomes.pop(number, None)

    # --- sending: only with `sending` held

    @contextmanager
    def sending(self) -> Generator[bool]:
        """Be the one process that sends. Gives whether that is so; does not wait."""
        self._check_open()
        try:
            fcntl.flock(self._send_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            with self._locked() as journal:
                # Who sent last is told by the file: if another did, what he tried is in doubt.
                if os.pread(self._send_fd, 16, 0) != self._sender:
                    os.pwrite(self._send_fd, self._sender, 0)
                    self._doubt_below = journal.sent_number
            yield True
        finally:
            fcntl.flock(self._send_fd, fcntl.LOCK_UN)

    def entries(self, events_max: int, bytes_max: int) -> list[codec.Entry]:
        """Return the next events to send, in order.

        Args:
            events_max: Most of them.
            bytes_max: Most bytes of their payloads, if there is more than one.
        """
        with self._locked():
            found: list[codec.Entry] = []
            size = 0
            for entry in self._entries(events_max):
                size += len(entry.event.payload)
                if found and size > bytes_max:
                    break
                found.append(entry)
            return found

    def is_doubtful(self, entry: codec.Entry) -> bool:
        """Whether an event may have been sent already, by whomever, and no answer was seen."""
        return entry.number < self._doubt_below

    def trying(self, entries: Sequence[codec.Entry]) -> None:
        """Take note, durably, that events are about to be sent."""
        last = entries[-1].number
        with self._locked() as journal:
            if last >= journal.sent_number:
                self._write(codec.encode_sent(entries[0].number, last), sync=True)
            self._doubt_before = self._doubt_below
            self._doubt_below = max(self._doubt_below, last + 1)

    def not_sent(self) -> None:
        """Take note that what `trying` said last did not come to pass: nothing reached the log."""
        self._doubt_below = self._doubt_before

    def meet(self, log_id: UUID, next_idx: int) -> None:
        """Check that the log is the one that the events are for, as long as it was at least.

        Raises:
            LogReplaced: It is another log.
            LogTruncated: It is shorter than what it said it holds.
        """
        with self._locked() as journal:
            if journal.log_id is None:
                self._write(codec.encode_log(log_id, next_idx), sync=True)
            elif journal.log_id != log_id:
                msg = f"the spool {self.folder} is for log {journal.log_id}, this is {log_id}"
                hint = "was the log made anew? use another folder, and look at this one's events"
                raise LogReplaced(msg, hint=hint)
            elif next_idx < journal.next_idx:
                msg = f"the log ends at {next_idx}, and held index {journal.next_idx - 1} before"
                hint = "was it restored from an older backup? some events of this spool are gone"
                raise LogTruncated(msg, log=str(log_id), index=next_idx, hint=hint)

    def took(self, outcomes: Sequence[tuple[int, int]]) -> None:
        """Let events leave that the log has.

        Args:
            outcomes: Number and index of each, in order, from the first that is pending on.
        """
        if outcomes:
            with self._locked():
                # Not synced: what is lost of it is looked up in the log before it is sent again.
                data = b"".join(codec.encode_taken(number, index) for number, index in outcomes)
                self._write(data, sync=False)
                self._compact()

    def check_grows(self, index: int) -> None:
        """Refuse what only a log can answer that has lost its end.

        Args:
            index: At which an event landed now.

        Raises:
            LogTruncated: The log had reached that index before.
        """
        with self._locked() as journal:
            if index < journal.next_idx:
                msg = f"an event landed at index {index}, the log had reached {journal.next_idx}"
                hint = "was it restored from an older backup? some events of this spool are gone"
                raise LogTruncated(msg, log=str(journal.log_id), index=index, hint=hint)

    def refused(self, entry: codec.Entry, error: BelogError) -> None:
        """Let an event leave that the log will never have; recorded in `events.conflicts`."""
        refusal = refusal_of(entry.number, _now_us(), entry.event, error)
        with self._locked():
            self._record(refusal)
            self._write(codec.encode_refused(entry.number), sync=False)
            self._compact()

    def conflicts(self) -> list[Refusal]:
        """Return what the log refused, in the order in which that was found."""
        with self._locked():
            return [_REFUSALS.decode(line) for line in self._conflict_lines()]

    # --- ending

    def close(self) -> None:
        """Close the files; what is in them stays. Idempotent."""
        with self._mutex:
            for fd in (self._fd, self._lock_fd, self._send_fd):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._lock_fd = self._send_fd = -1

    def __enter__(self) -> Self:
        """Return the spool itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # --- the journal, only with the lock

    @contextmanager
    def _locked(self) -> Generator[codec.Journal]:
        """Hold the lock, with everything read that others wrote."""
        with self._mutex, self._disk():
            self._check_open()
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
            try:
                self._read_on()
                yield cast("codec.Journal", self._journal)
            finally:
                if self._lock_fd >= 0:
                    fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    @contextmanager
    def _disk(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            msg = f"the spool {self.folder} cannot be used: {error.strerror or error}"
            raise Unavailable(msg, hint="is there room, and the right to write?") from error

    def _read_on(self) -> None:
        path = self.folder / "events.spool"
        try:
            there = path.stat()
        except FileNotFoundError:
            self._replace_by(codec.Header(os.urandom(16), 0, None, 0), b"")
            there = path.stat()
        if self._fd < 0 or os.fstat(self._fd).st_ino != there.st_ino:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = _open(path)
            self._journal = codec.parse_header(os.pread(self._fd, codec.HEADER_BYTES, 0))
            self._place = (-1, 0)
        if self._journal is None:
            msg = f"the journal {path} was cut off"
            raise Corrupt(msg)
        size = os.fstat(self._fd).st_size
        if size > self._journal.at:
            data = os.pread(self._fd, size - self._journal.at, self._journal.at)
            self._take(data)
            if size > self._journal.at:
                # What a writer left who died: he was never told that it is kept.
                os.ftruncate(self._fd, self._journal.at)

    def _take(self, data: bytes) -> None:
        before = cast("codec.Journal", self._journal)
        self._journal, outcomes = codec.read_on(before, data)
        self._outcomes.update((n, i) for n, i in outcomes.items() if n in self._awaited)

    def _write(self, data: bytes, *, sync: bool) -> None:
        """Write records; all or none of them."""
        journal = cast("codec.Journal", self._journal)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], journal.at + written)
            if sync:
                os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, journal.at)
            raise
        self._take(data)

    def _entries(self, count: int) -> list[codec.Entry]:
        journal = cast("codec.Journal", self._journal)
        if not journal.pending:
            return []
        number, at = self._place
        at = at if number == journal.done_number else journal.done_at
        data = os.pread(self._fd, journal.at - at, at)
        start, found = 0, list[codec.Entry]()
        while len(found) < count and (step := codec.entry_at(data, start)) is not None:
            entry, following = step
            if entry is not None and entry.number >= journal.done_number:
                if not found:
                    self._place = (entry.number, at + start)
                found.append(entry)
            start = following
        return found

    def _compact(self) -> None:
        """Write the journal anew without what has left, where that is much."""
        journal = cast("codec.Journal", self._journal)
        first = next(iter(self._entries(1)), None)
        start = journal.at if first is None else self._place[1]
        if start < COMPACT_BYTES or start < journal.at - start:
            return
        rest = os.pread(self._fd, journal.at - start, start)
        kept = b"".join(_kept_records(rest))
        if first is not None and journal.sent_number > first.number:
            kept += codec.encode_sent(first.number, journal.sent_number - 1)
        header = codec.Header(os.urandom(16), journal.done_number, journal.log_id, journal.next_idx)
        self._replace_by(header, kept)
        self._read_on()

    def _replace_by(self, header: codec.Header, records: bytes) -> None:
        path, new = self.folder / "events.spool", self.folder / "events.spool.new"
        with new.open("wb") as file:
            file.write(codec.encode_header(header) + records)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_folder(self.folder)

    # --- the conflicts

    def _record(self, refusal: Refusal) -> None:
        path = self.folder / "events.conflicts"
        lines = self._conflict_lines()
        if lines:
            last = _REFUSALS.decode(lines[-1])
            if (last.number, last.event) == (refusal.number, refusal.event):
                return  # a sender died between this line and the journal
        fd = _open(path)
        try:
            # A line that was not ended is what is left of a writer who died within it.
            end = sum(len(line) + 1 for line in lines)
            os.ftruncate(fd, end)
            os.pwrite(fd, msgspec.json.encode(refusal) + b"\n", end)
            os.fsync(fd)
        finally:
            os.close(fd)
        _sync_folder(self.folder)

    def _conflict_lines(self) -> list[bytes]:
        try:
            data = (self.folder / "events.conflicts").read_bytes()
        except FileNotFoundError:
            return []
        return data.split(b"\n")[:-1]

    def _check_open(self) -> None:
        if self._lock_fd < 0:
            msg = f"the spool {self.folder} was closed"
            raise Closed(msg)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _kept_records(data: bytes) -> Generator[bytes]:
    """Give the records of events, as they are."""
    at = 0
    while (step := codec.entry_at(data, at)) is not None:
        entry, following = step
        if entry is not None:
            yield data[at:following]
        at = following
