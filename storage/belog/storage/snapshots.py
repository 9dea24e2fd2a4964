"""Snapshots in a folder: written whole or not at all, found newest first.

A snapshot's name says what it is of: `LOG_ID-p-INDEX.avro` for a primary log, `-r-` for a replica,
INDEX being the index of the first event that is not in it, in 20 digits. It gets this name only
when it is on disk, so a process that dies leaves at most a temporary file, which the next one that
takes a snapshot removes. Several may take snapshots at once.

Warnings go to the logger `belog.snapshots`.
"""

import fcntl
import logging
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

from msgspec import Struct

from belog.schemas.envelope import decode_event
from belog.schemas.errors import BelogError, Corrupt, Gone, InvalidUri, NotFound, Unavailable
from belog.schemas.fold import Fold
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.schemas.snapshot import SnapshotReader
from belog.storage.interface import EventLog, LogIdentity

__all__ = [
    "SNAPSHOTS_KEPT",
    "SnapshotFile",
    "SnapshotStore",
    "checked_against",
    "restore_fold",
]

LOGGER: Final = logging.getLogger("belog.snapshots")

SNAPSHOTS_KEPT: Final = 3
"""Snapshots kept of a log: where the newest is damaged there is one before it, and one more for who
is reading that one."""

CLAIM_TRIES: Final = 100
"""How often a temporary file is made anew because a cleaner was faster: it never happens twice."""

_NAME: Final = re.compile(
    r"(?P<log_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<kind>[pr])-(?P<index>[0-9]{20})\.avro"
)
_TEMPORARY: Final = ".tmp"

T = TypeVar("T")


class SnapshotFile(Struct, frozen=True):
    """One snapshot of a folder, by its name."""

    path: Path
    log_id: UUID
    is_replica: bool
    next_idx: int
    """Index of the first event that is not in it."""


class SnapshotStore:
    """A folder of snapshots, of one or of many logs. Thread-safe; processes may share it."""

    def __init__(self, location: Path | str, *, keep: int = SNAPSHOTS_KEPT) -> None:
        """Name a folder; it is made when the first snapshot is taken.

        Args:
            location: A path, or `file:///path`.
            keep: Snapshots kept of each log, at least 1.

        Raises:
            InvalidUri: The location is neither.
            ValueError: `keep` is below 1.
        """
        if keep < 1:
            msg = f"{keep} snapshots cannot be kept"
            raise ValueError(msg)
        self.folder = _folder(location)
        self.name = str(self.folder)
        self.keep = keep

    def files(self, log_id: UUID | None = None, *, is_replica: bool = False) -> list[SnapshotFile]:
        """Return the snapshots of a log, or of all logs, the newest first. Opens none of them.

        Raises:
            Unavailable: The folder cannot be read.
        """
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error) from error
        found = [self._file(match) for name in names if (match := _NAME.fullmatch(name))]
        if log_id is not None:
            found = [f for f in found if f.log_id == log_id and f.is_replica == is_replica]
        return sorted(found, key=lambda f: (f.next_idx, f.log_id), reverse=True)

    def _file(self, match: "re.Match[str]") -> SnapshotFile:
        return SnapshotFile(
            self.folder / match[0], UUID(match["log_id"]), match["kind"] == "r", int(match["index"])
        )

    def save(
        self,
        log_id: UUID,
        next_idx: int,
        write: Callable[[BinaryIO], T],
        *,
        is_replica: bool = False,
    ) -> tuple[SnapshotFile, T]:
        """Store a snapshot. Durable on return; then older ones than `keep` are removed.

        One of the same log and index is replaced. Who has one open goes on reading it.

        Args:
            log_id: The log.
            next_idx: Index of the first event that is not in it.
            write: Writes it to a file; its result is returned.
            is_replica: Whether the log is a replica.

        Raises:
            Unavailable: The folder cannot be written, or is full; nothing changed.
        """
        name = f"{log_id}-{'r' if is_replica else 'p'}-{next_idx:020d}.avro"
        target = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned()
            with self._temporary(name) as (path, stream):
                result = write(stream)
                stream.flush()
                os.fsync(stream.fileno())
                path.replace(target)
            _sync_folder(self.folder)
            for old in self.files(log_id, is_replica=is_replica)[self.keep :]:
                old.path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable(error) from error
        return SnapshotFile(target, log_id, is_replica, next_idx), result

    @contextmanager
    def _temporary(self, name: str) -> Generator[tuple[Path, BinaryIO]]:
        """Give a new file that is removed unless it was renamed, by a cleaner if need be."""
        path, descriptor = self._claimed(name)
        with os.fdopen(descriptor, "wb") as stream:
            try:
                yield path, stream
            finally:
                # Still locked: nobody else can have made a file of this name.
                path.unlink(missing_ok=True)

    def _claimed(self, name: str) -> tuple[Path, int]:
        for _ in range(CLAIM_TRIES):
            path = self.folder / f"{name}.{os.urandom(8).hex()}{_TEMPORARY}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with suppress(BlockingIOError):
                # The lock says that its writer lives.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:
                    return path, descriptor
            os.close(descriptor)
        msg = f"no temporary file can be kept in {self.name}"
        raise Unavailable(msg, hint="who else deletes files there?")

    def _remove_abandoned(self) -> None:
        for path in self.folder.glob(f"*{_TEMPORARY}"):
            if not _NAME.match(path.name):
                continue
            with suppress(FileNotFoundError, BlockingIOError):
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)

    @contextmanager
    def open(self, file: SnapshotFile) -> Generator[SnapshotReader]:
        """Open a snapshot for reading; it may be removed meanwhile.

        Raises:
            NotFound: It is not there any more.
            Corrupt: It is damaged, or is not of what its name says.
            NewerFormat: It was written by newer software.
            Unavailable: It cannot be read.
        """
        try:
            with file.path.open("rb") as stream:
                reader = SnapshotReader(stream)
                header = reader.header
                found = UUID(bytes=header.log_id), header.is_replica, header.next_idx
                if found != (file.log_id, file.is_replica, file.next_idx):
                    msg = f"{file.path.name} holds a snapshot of {found[0]} at {found[2]}"
                    raise Corrupt(msg, hint="was it renamed?")
                yield reader
        except FileNotFoundError as error:
            msg = f"there is no snapshot {file.path.name}"
            raise NotFound(msg) from error
        except OSError as error:
            raise self._unavailable(error) from error

    def newest_valid(
        self,
        log_id: UUID,
        read: Callable[[SnapshotReader], T],
        *,
        is_replica: bool = False,
        next_idx_max: int | None = None,
        created_us_max: int | None = None,
        oldest_from: int | None = None,
    ) -> tuple[SnapshotFile, T] | None:
        """Return the newest snapshot that can be read, with what `read` made of it.

        One that is damaged, of newer software, or that `read` refuses is passed by with a warning.

        Args:
            log_id: The log.
            read: Reads what is wanted, to its end; raises `Corrupt`, `NewerFormat` or another
                error of this project to pass the snapshot by.
            is_replica: Whether the log is a replica.
            next_idx_max: Pass by those with more events, without a warning.
            created_us_max: Pass by those with events ingested later, microseconds since the epoch.
            oldest_from: Return the oldest one instead that holds all events below this index.

        Raises:
            Unavailable: The folder cannot be read.
        """
        passed_by = 0
        files = self.files(log_id, is_replica=is_replica)
        if oldest_from is not None:
            files = [file for file in reversed(files) if file.next_idx >= oldest_from]
        for file in files:
            if next_idx_max is not None and file.next_idx > next_idx_max:
                continue
            try:
                with self.open(file) as reader:
                    if created_us_max is not None and reader.header.created_at > created_us_max:
                        continue
                    return file, read(reader)
            except Unavailable:
                raise
            except BelogError as error:
                LOGGER.warning("snapshot %s is passed by: %s", file.path, error)
                passed_by += 1
        if passed_by:
            LOGGER.warning("log %s is read from its beginning: no snapshot can be used", log_id)
        return None

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"snapshots in {self.name}: {error.strerror or error}", hint="nothing was changed"
        )


def _folder(location: Path | str) -> Path:
    if isinstance(location, Path):
        return location
    if not location:
        msg = "the folder of the snapshots has no name"
        raise InvalidUri(msg)
    parts = urlsplit(location)
    if not parts.scheme:
        return Path(location)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc or not path or parts.query or parts.fragment:
        msg = f"snapshots cannot be kept at {location!r}"
        raise InvalidUri(msg, hint="name a folder: a path, or file:///path")
    return Path(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- starting from a snapshot


def checked_against(log: EventLog, fold: Fold) -> Fold:
    """Return a restored fold if it can be of what a log holds.

    Compares the place where it ends with the log: its end, and the last accepted event where it can
    be looked up by its index and is still there. Blocks for two round trips.

    Raises:
        Corrupt: The log is shorter, or holds another event there: it was cut, or restored from a
            backup and written on.
    """
    end = log.next_position()
    if end < fold.next_position:
        msg = f"the log ends at {end}, before the snapshot at {fold.next_position}"
        raise Corrupt(msg, log=log.name, hint="was the log restored from a backup?")
    index = fold.last_accepted
    try:
        records = log.scan(index, 1)
    except Gone:
        return fold
    if not records or records[0].value is None:
        return fold
    value = records[0].value
    if value[: len(REPLICA_HEADER)] == REPLICA_HEADER:
        wrapped = decode_replica(value)
        found, value = wrapped.origin_index, wrapped.envelope
    else:
        found = records[0].position
    if found == index and fold.first_index(decode_event(value).event_id) != index:
        msg = "the log holds another event than the snapshot"
        raise Corrupt(msg, log=log.name, index=index, hint="was it restored from a backup?")
    return fold


def restore_fold(
    log: EventLog, identity: LogIdentity, store: SnapshotStore, *, keeps_root: bool = True
) -> tuple[SnapshotFile, Fold] | None:
    """Return the newest snapshot of a log with its fold, to go on from; None where there is none.

    Args:
        log: Initialized.
        identity: What opening it said.
        store: Where its snapshots are.
        keeps_root: As for `Fold`.

    Raises:
        Unavailable: The folder or the log cannot be read.
    """
    return store.newest_valid(
        identity.log_id,
        lambda reader: checked_against(log, reader.fold(keeps_root=keeps_root)),
        is_replica=identity.is_replica,
    )
