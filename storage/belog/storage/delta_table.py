"""A Delta table as the store of a log: the one place that knows deltalake.

A commit is tried once, for the version after the one that is loaded: the put-if-absent of its file
is the comparison, and the loser gets `CommitLost`. The writer's transaction identifiers in the
table (`txn` actions, which checkpoints keep) hold the last index and its ingest time, so that
neither costs a read of data. The table's `name` is "belog", its `description` the log's identity as
JSON.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Delta Log Entries",
"Transaction Identifiers", "Per-file Statistics").
"""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID

import deltalake
from arro3.core import Array, DataType, Field, Schema, Table
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from msgspec import Struct

from belog.schemas.errors import (
    BelogError,
    Corrupt,
    InvalidUri,
    LogReplaced,
    LogTruncated,
    NewerFormat,
    Unavailable,
)
from belog.schemas.filters import EventFilter
from belog.schemas.fold import Record
from belog.storage.delta_rows import COLUMNS, columns_of
from belog.storage.delta_uri import DeltaLocation
from belog.storage.interface import SCAN_RECORDS_MAX, LogIdentity

__all__ = ["CommitLost", "DeltaStore", "FileRange", "check_same_table", "index_bounds"]

FORMAT_VERSION: Final = 1
TABLE_NAME: Final = "belog"
APPEND_ONLY: Final = "delta.appendOnly"
LAST_INDEX: Final = "belog.last_index"
CREATED_AT: Final = "belog.created_at"
COMMIT_ID: Final = "belog.commit_id"
SECRET_CHARS_MIN: Final = 4
"""Option values shorter than this are not hidden in errors: "true" and "1" stand everywhere."""
STATISTICS_STEP_US: Final = 1_000
"""Delta keeps times of file statistics in milliseconds, cut off: comparisons are that wide."""

_MICROS: Final = DataType.timestamp("us", tz="UTC")
_TYPES: Final[Mapping[str, DataType]] = {
    **dict.fromkeys(COLUMNS, DataType.utf8()),
    **dict.fromkeys(("index", "expected"), DataType.int64()),
    **dict.fromkeys(("created_at", "occurred_at"), _MICROS),
    **dict.fromkeys(("value", "payload", "digest"), DataType.binary()),
    "day": DataType.date32(),
}
_PLAIN: Final = {
    "created_at": DataType.int64(),
    "occurred_at": DataType.int64(),
    "day": DataType.int32(),
}
"""What columns are made as, before they are cast."""
_NEVER_NULL: Final = frozenset({"index", "created_at", "value", "day"})
_SCHEMA: Final = Schema([Field(n, t, nullable=n not in _NEVER_NULL) for n, t in _TYPES.items()])
_CONFIGURATION: Final[Mapping[str, str | None]] = {
    APPEND_ONLY: "true",
    "delta.dataSkippingStatsColumns": "index,created_at",
}

Answer = TypeVar("Answer")


class CommitLost(Exception):
    """Another commit came first; nothing was written. Stays in this backend."""


class FileRange(Struct, frozen=True):
    """What one data file holds, by its statistics."""

    first_index: int
    last_index: int
    created_from: int
    created_to: int
    """Exclusive; both as wide as the statistics are coarse."""


class DeltaStore:
    """One loaded version of the table, and the way to newer ones. Thread-safe.

    Attributes:
        location: Where the table is.
    """

    def __init__(self, location: DeltaLocation) -> None:
        """Name a table; nothing is loaded before `load`."""
        self.location = location
        self._lock = threading.RLock()
        self._loaded: deltalake.DeltaTable | None = None
        self._identity: LogIdentity | None = None
        self._files: tuple[int, list[FileRange]] = (-1, [])

    def _call(self, action: Callable[[], Answer]) -> Answer:
        try:
            with self._lock:
                return action()
        except (BelogError, CommitFailedError, TableNotFoundError):
            raise
        except Exception as error:  # noqa: BLE001 - deltalake raises what its stores raise
            self._raise(error)

    def _raise(self, error: Exception) -> NoReturn:
        text = str(error)
        for secret in self.location.options.values():
            if len(secret) >= SECRET_CHARS_MIN:
                text = text.replace(secret, "***")
        name = self.location.name
        if isinstance(error, DeltaError) and "os error" not in text:
            if "Unsupported" in text and ("version" in text or "feature" in text):
                msg = f"the table's format is newer than this software: {text}"
                raise NewerFormat(msg, log=name, hint="update deltalake") from None
            if any(word in text for word in ("Parquet", "parquet", "Json", "JSON", "Arrow")):
                msg = f"the table is damaged: {text}"
                raise Corrupt(msg, log=name) from None
        msg = f"the table cannot be reached: {text}"
        raise Unavailable(msg, log=name, hint="look at the path, the rights and the room") from None

    # --- life

    def load(self) -> LogIdentity | None:
        """Load the newest version; return the log's identity, None where there is no table.

        Raises:
            InvalidUri: The table is of something else.
            NewerFormat: It was written by newer software.
        """
        try:
            table = self._call(self._open)
        except TableNotFoundError:
            return None
        with self._lock:
            self._loaded = table
            self._identity = self._identity_of(table)
            return self._identity

    def _open(self) -> deltalake.DeltaTable:
        uri, options = self.location.table_uri, dict(self.location.options)
        return deltalake.DeltaTable(uri, storage_options=options or None)

    def _identity_of(self, table: deltalake.DeltaTable) -> LogIdentity:
        metadata = table.metadata()
        name = self.location.name
        stored: dict[str, Any] = {}
        version = 0
        try:
            stored = json.loads(metadata.description or "")
            version = int(stored["format_version"])
        except (ValueError, TypeError, KeyError):
            version = 0
        if metadata.name != TABLE_NAME or not version:
            msg = "there is a Delta table of something else"
            raise InvalidUri(msg, log=name, hint="name a new path")
        if version > FORMAT_VERSION:
            msg = f"the table has format version {version}, known is {FORMAT_VERSION}"
            raise NewerFormat(msg, log=name, hint="open it with a newer belog")
        return LogIdentity(UUID(stored["log_id"]), stored["instance"], stored["replica"])

    def create(self, identity: LogIdentity, first: Sequence[tuple[int, int, bytes]]) -> bool:
        """Make the table with its first records in one commit; False if it is there already."""
        description = json.dumps(
            {
                "format_version": FORMAT_VERSION,
                "log_id": str(identity.log_id),
                "instance": identity.instance,
                "replica": identity.is_replica,
            }
        )
        location = self.location
        options = dict(location.options) or None
        properties = deltalake.CommitProperties(
            app_transactions=_marks(first[-1][0], first[-1][1]) if first else None,
            max_commit_retries=0,
        )

        def make() -> None:
            deltalake.write_deltalake(
                location.table_uri,
                _arrow(first),
                mode="error",
                partition_by=["day"],
                name=TABLE_NAME,
                description=description,
                configuration=_CONFIGURATION,
                storage_options=options,
                commit_properties=properties,
            )

        try:
            self._call(make)
        except CommitFailedError:
            return False
        except TableNotFoundError as error:
            # What it calls a folder that cannot be made.
            self._raise(error)
        except Unavailable:
            # Its message for a table that is there is not one of its own kind.
            if self.load() is None:
                raise
            return False
        self.sync(0)
        return True

    def refresh(self) -> bool:
        """Take up what was committed; whether there was anything."""
        table = self._table()
        before = table.version()
        self._call(table.update_incremental)
        if table.version() == before:
            return False
        with self._lock:
            self._identity = self._identity_of(table)
        return True

    def is_behind(self) -> bool:
        """Whether there is a newer version, as far as that is free to know: on a local disk."""
        return self.location.folder is not None and self._commit_file(self.version + 1).exists()

    def _commit_file(self, version: int) -> Path:
        return Path(self.location.table_uri) / "_delta_log" / f"{version:020d}.json"

    def _table(self) -> deltalake.DeltaTable:
        if self._loaded is None:
            msg = "the table is not loaded"
            raise Unavailable(msg, log=self.location.name)
        return self._loaded

    # --- what the loaded version says

    @property
    def version(self) -> int:
        """Number of the loaded version."""
        return self._table().version()

    @property
    def identity(self) -> LogIdentity | None:
        """The log's identity in the loaded version."""
        return self._identity

    @property
    def next_idx(self) -> int:
        """The log's next index in the loaded version."""
        last = self._call(lambda: self._table().transaction_version(LAST_INDEX))
        return 0 if last is None else last + 1

    @property
    def created_at(self) -> int:
        """Ingest time of the last record, 0 for none."""
        return self._call(lambda: self._table().transaction_version(CREATED_AT)) or 0

    def files(self) -> list[FileRange]:
        """Return what the data files hold, by first index."""
        with self._lock:
            table = self._table()
            if self._files[0] != table.version():
                self._files = (table.version(), self._call(lambda: _ranges(table)))
            return self._files[1]

    def records(self, first_index: int, last_index: int) -> list[Record]:
        """Return the records in a range of indices, both ends included, in order."""

        def read() -> list[Record]:
            reader = self._table().scan(
                columns=["index", "created_at", "value"],
                predicate=f"index >= {first_index} AND index <= {last_index}",
            )
            table = Table.from_arrow(reader)
            columns = [_cells(table, name) for name in ("index", "created_at", "value")]
            records = [Record(*row) for row in zip(*columns, strict=True)]
            records.sort(key=lambda record: record.position)
            return records

        return self._call(read)

    def scan(self, since: int, limit: int) -> list[Record]:
        """Return records from an index on, as the loaded version has them."""
        records: list[Record] = []
        end = self.next_idx
        width = limit
        while since < end and len(records) < limit:
            # Indices may skip: over holes between files at once, within one in growing steps.
            ahead = [r.first_index for r in self.files() if r.last_index >= since]
            if not ahead:
                break
            start = max(since, min(ahead))
            found = self.records(start, start + width - 1)
            records += found[: limit - len(records)]
            since = start + width
            width = min(width * 2, SCAN_RECORDS_MAX) if found else width * 2
        return records

    # --- writing

    def commit(self, records: Sequence[tuple[int, int, bytes]], commit_id: str) -> None:
        """Append records as the version after the loaded one.

        Raises:
            CommitLost: There is such a version already.
            Unavailable: The store failed; whether the commit is there `holds` can tell.
        """
        table = self._table()
        properties = deltalake.CommitProperties(
            custom_metadata={COMMIT_ID: commit_id},
            # With 0 it does not rebase: the version is ours or the commit fails.
            max_commit_retries=0,
            app_transactions=_marks(records[-1][0], records[-1][1]),
        )
        data = _arrow(records)

        def write() -> None:
            deltalake.write_deltalake(table, data, mode="append", commit_properties=properties)

        try:
            self._call(write)
        except CommitFailedError as error:
            raise CommitLost from error
        self.sync(table.version())

    def holds(self, commit_id: str, since_version: int) -> bool:
        """Whether a version after the given one is the commit of that id.

        A store's client that lost an answer repeats the put, and then takes its own commit for
        another's.
        """
        table = self._table()
        newer = table.version() - since_version
        if newer <= 0:
            return False
        entries = self._call(lambda: table.history(newer))
        return any(entry.get(COMMIT_ID) == commit_id for entry in entries)

    def sync(self, version: int) -> None:
        """Make a commit on a local disk durable; object stores have done so when they answer."""
        folder = self.location.folder
        if folder is None:
            return
        try:
            commit = self._commit_file(version)
            paths = [commit, commit.parent, folder]
            for line in commit.read_text(encoding="utf-8").splitlines():
                added = json.loads(line).get("add")
                if added:
                    data = folder / unquote(added["path"])
                    paths += [data, data.parent]
            for path in dict.fromkeys(paths):
                _sync_path(path)
        except OSError as error:
            self._raise(error)

    # --- care

    def set_append_only(self, *, wanted: bool) -> None:
        """Let the table take appends only, or deletions as well.

        Raises:
            CommitLost: Another commit came first.
        """
        table = self._table()
        value = "true" if wanted else "false"
        if table.metadata().configuration.get(APPEND_ONLY) == value:
            return
        self._change(lambda: table.alter.set_table_properties({APPEND_ONLY: value}))

    def delete(self, condition: str) -> None:
        """Delete the records that meet a condition, in one commit.

        Raises:
            CommitLost: Another commit came first.
        """
        table = self._table()
        self._change(lambda: table.delete(condition))

    def _change(self, commit: Callable[[], object]) -> None:
        before = self._table().version()
        try:
            self._call(commit)
        except CommitFailedError as error:
            raise CommitLost from error
        self._call(self._table().update_incremental)
        for version in range(before + 1, self._table().version() + 1):
            self.sync(version)

    def optimize(self) -> tuple[int, int]:
        """Write small files together; return how many were made and how many replaced."""
        table = self._table()
        try:
            report = self._call(table.optimize.compact)
        except CommitFailedError as error:
            raise CommitLost from error
        return int(report["numFilesAdded"]), int(report["numFilesRemoved"])

    def vacuum(self, retention_h: int, *, dry_run: bool) -> list[str]:
        """Delete files that no version of the last hours needs; return their paths."""
        table = self._table()
        return self._call(lambda: table.vacuum(retention_hours=retention_h, dry_run=dry_run))


def check_same_table(
    store: DeltaStore, identity: LogIdentity, next_idx: int, seen_idx: int
) -> None:
    """Refuse a table that is not the one that was read before.

    Where another one took its place, newer versions cannot be got from the one that is loaded: load
    the table anew then, and ask of that.

    Args:
        store: With a version loaded.
        identity: Of the log that was opened.
        next_idx: Of the loaded version.
        seen_idx: Index up to which the log was read.

    Raises:
        LogReplaced: It is another log.
        LogTruncated: It ends before what was read.
    """
    name = store.location.name
    if store.identity != identity:
        hint = "was it recreated? restart what has it open, also a service"
        raise LogReplaced("the table is another log now", log=name, hint=hint)
    if next_idx < seen_idx:
        msg = f"the log ends at {next_idx}, it was read up to {seen_idx}"
        raise LogTruncated(msg, log=name, hint="was it restored from a copy?")


def index_bounds(
    ranges: Sequence[FileRange], since_idx: int, end: int, wanted: EventFilter
) -> tuple[int, int]:
    """Return the range of indices that can hold events of the wanted ingest times."""
    start, stop = since_idx, end
    if wanted.created_from is not None:
        late = [r.first_index for r in ranges if r.created_to > wanted.created_from]
        start = max(start, min(late, default=end))
    if wanted.created_to is not None:
        early = [r.last_index + 1 for r in ranges if r.created_from < wanted.created_to]
        stop = min(stop, max(early, default=0))
    return start, stop


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _marks(last_index: int, created_at: int) -> list[deltalake.Transaction]:
    return [
        deltalake.Transaction(LAST_INDEX, last_index),
        deltalake.Transaction(CREATED_AT, created_at),
    ]


def _arrow(records: Sequence[tuple[int, int, bytes]]) -> Table:
    arrays: list[Array] = []
    for name, cells in columns_of(records).items():
        if name in _PLAIN:
            arrays.append(Array(cells, type=_PLAIN[name]).cast(_TYPES[name]))
        else:
            arrays.append(Array(cells, type=_TYPES[name]))
    return Table.from_arrays(arrays, schema=_SCHEMA)  # pyright: ignore[reportUnknownMemberType]


def _cells(table: Table, name: str) -> list[Any]:
    """Return a column as Python values, times as microseconds."""
    column = table.column(name)
    if name.endswith("created_at"):
        column = column.cast(DataType.int64())
    return cast("list[Any]", column.to_pylist())  # pyright: ignore[reportUnknownMemberType]


def _ranges(table: deltalake.DeltaTable) -> list[FileRange]:
    actions = Table.from_arrow(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    names = ("min.index", "max.index", "min.created_at", "max.created_at")
    rows = zip(*(_cells(actions, name) for name in names), strict=True)
    ranges = [FileRange(a, b, c, d + STATISTICS_STEP_US) for a, b, c, d in rows]
    return sorted(ranges, key=lambda r: r.first_index)
