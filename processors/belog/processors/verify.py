"""The invariant of the tables: they equal what the log folds to. Folds afresh and compares."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from belog.processors.indexes import index_names
from belog.processors.replay import BATCH_RECORDS
from belog.processors.rows import (
    ROW_TYPES,
    BuildRow,
    JobRunRow,
    PartitionRow,
    R,
    Row,
    RowKind,
    SystemRow,
    TaskRow,
)
from belog.processors.table_fold import TableFold
from belog.processors.tables import IDS, PAGE_ROWS_MAX, Counts, IndexEntries, TableReader
from belog.schemas.errors import LogReplaced, LogTruncated, Overloaded
from belog.schemas.fold import Fold
from belog.storage.interface import EventLog

__all__ = ["DIFFERENCES_MAX", "Difference", "verify_tables"]

DIFFERENCES_MAX: Final = 1_000
"""Differences that one check returns: who has more makes the tables anew."""

QUIET_TRIES: Final = 5
"""How often tables are read again that were written while they were read."""


class Difference(Struct, frozen=True):
    """One place where tables are not what the log folds to."""

    kind: RowKind
    what: str
    """`missing`, `unexpected`, `row`, `count` or `index`."""
    name: str
    """The row's id, the state that is counted, or the index."""
    expected: str
    found: str
    index: int
    """Index of the last event of the row concerned; -1 where there is none."""


def _nothing() -> TableFold:
    return TableFold(Fold(keeps_root=False))


class _Read(Struct, frozen=True):
    rows: dict[RowKind, dict[str, Row]]
    counts: Counts
    indexes: dict[tuple[RowKind, str], IndexEntries]


def verify_tables(
    log: EventLog, tables: TableReader, *, start: Callable[[], TableFold] = _nothing
) -> list[Difference]:
    """Compare tables with a fresh fold of their log up to where they are.

    Every row, every counter, and every secondary index. Blocks for a whole replay, and holds all
    rows in memory twice.

    Args:
        log: An opened log.
        tables: The tables; best not written meanwhile.
        start: Gives where to begin; with nothing, unless the log was vacuumed.

    Returns:
        Where they differ, the lowest index first, at most `DIFFERENCES_MAX`.

    Raises:
        LogReplaced: The tables are of another log.
        LogTruncated: The log is shorter than the tables.
        Overloaded: The tables were written all the time.
    """
    fold = start()
    for _ in range(QUIET_TRIES):
        status = tables.status()
        if status.position < fold.fold.next_position:
            fold = start()
        _fold_to(log, fold, status.position)
        if status.position and status.log_id != fold.log_id:
            msg = f"the tables are of log {status.log_id}, not of {fold.log_id}"
            raise LogReplaced(msg, log=tables.name, hint="make the tables anew")
        read = _read(tables)
        again = tables.status()
        if (again.position, again.generation) == (status.position, status.generation):
            found = [*_rows(fold, read), *_counts(fold, read), *_indexes(fold, read)]
            found.sort(key=lambda difference: difference.index)
            return found[:DIFFERENCES_MAX]
    msg = "the tables were written all the time they were read"
    raise Overloaded(msg, log=tables.name, hint="stop the worker, then verify")


def _fold_to(log: EventLog, fold: TableFold, position: int) -> None:
    end = log.next_position()
    if end < position:
        msg = f"the log ends at {end}, the tables are at {position}"
        raise LogTruncated(msg, log=log.name)
    while (at := fold.fold.next_position) < position:
        records = [r for r in log.scan(at, BATCH_RECORDS) if r.position < position]
        if not records:
            return
        fold.apply(records)


def _read(tables: TableReader) -> _Read:
    rows: dict[RowKind, dict[str, Row]] = {
        "partition": {row.row_id: row for row in _all_rows(tables, PartitionRow)},
        "build": {row.row_id: row for row in _all_rows(tables, BuildRow)},
        "job_run": {row.row_id: row for row in _all_rows(tables, JobRunRow)},
        "task": {row.row_id: row for row in _all_rows(tables, TaskRow)},
        "system": {row.row_id: row for row in _all_rows(tables, SystemRow)},
    }
    indexes: dict[tuple[RowKind, str], IndexEntries] = {}
    for kind, name, entries in tables.indexes():
        indexes[kind, name] = entries
    return _Read(rows, tables.counts().value, indexes)


def _all_rows(tables: TableReader, kind: type[R]) -> Iterator[R]:
    cursor: str | None = None
    while True:
        page = tables.list_rows(kind, order="id", cursor=cursor, limit=PAGE_ROWS_MAX)
        yield from page.rows
        cursor = page.next_cursor
        if cursor is None:
            return


def _rows(fold: TableFold, read: _Read) -> Iterator[Difference]:
    for kind in ROW_TYPES:
        found_rows = read.rows[kind]
        expected_rows = fold.rows_of(kind)
        for row_id, expected in expected_rows.items():
            found = found_rows.get(row_id)
            if found is None:
                yield Difference(kind, "missing", row_id, repr(expected), "", expected.index)
            elif found != expected:
                yield Difference(kind, "row", row_id, repr(expected), repr(found), expected.index)
        for row_id, found in found_rows.items():
            if row_id not in expected_rows:
                yield Difference(kind, "unexpected", row_id, "", repr(found), found.index)


def _counts(fold: TableFold, read: _Read) -> Iterator[Difference]:
    for kind in ROW_TYPES:
        expected: dict[str, int] = {}
        for row in fold.rows_of(kind).values():
            expected[row.state] = expected.get(row.state, 0) + 1
        found = read.counts.get(kind, {})
        for state in sorted(expected.keys() | found.keys()):
            want, have = expected.get(state, 0), found.get(state, 0)
            if want != have:
                yield Difference(kind, "count", state, str(want), str(have), -1)


def _indexes(fold: TableFold, read: _Read) -> Iterator[Difference]:
    expected: dict[tuple[RowKind, str], set[tuple[int, str]]] = {}
    for row in fold.rows():
        for name in index_names(row):
            expected.setdefault((row.kind, name), set()).add((row.index, row.row_id))
        expected.setdefault((row.kind, IDS), set()).add((0, row.row_id))
    for key in sorted(expected.keys() | read.indexes.keys()):
        kind, name = key
        want, have = expected.get(key, set()), set(read.indexes.get(key, ()))
        if want != have:
            index = min((at for at, _ in want ^ have), default=-1)
            yield Difference(kind, "index", name, _some(want - have), _some(have - want), index)


def _some(entries: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{row_id} at {index}" for index, row_id in sorted(entries)[:3])
