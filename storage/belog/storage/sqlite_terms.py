"""The index of subjects in a SQLite file, beside the records; see `belog.storage.selective`.

Its tables are made by the first read that wants them, so a log that is only appended to has none,
and software that does not know them is not disturbed. They hold nothing that the records do not.
"""

import heapq
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Final, cast

from belog.schemas.errors import Unavailable, Unsupported
from belog.schemas.fold import Record
from belog.storage.term_store import Entries, IndexState, Name
from belog.storage.terms import COUNTED_ONLY, Field, PatternRange

__all__ = ["SqliteTerms"]

INDEX_VERSION: Final = 1

CACHE_KIB: Final = 65_536
"""Pages that the writing connection may keep while the index grows: its rows fall all over the
trees, and a page that leaves the cache within a step is written twice. 64 MiB is a tree of 5
million rows."""

_SCHEMA: Final = (
    """CREATE TABLE belog_index (
        version INTEGER NOT NULL,
        indexed_to INTEGER NOT NULL,
        events INTEGER NOT NULL,
        void INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    )""",
    """CREATE TABLE belog_names (
        name INTEGER PRIMARY KEY,
        field INTEGER NOT NULL,
        term TEXT NOT NULL,
        events INTEGER NOT NULL,
        first_run_idx INTEGER
    )""",
    "CREATE UNIQUE INDEX belog_names_by_term ON belog_names (field, term)",
    """CREATE TABLE belog_postings (
        name INTEGER NOT NULL,
        idx INTEGER NOT NULL,
        PRIMARY KEY (name, idx)
    ) WITHOUT ROWID""",
    "CREATE TABLE belog_ids (event_id BLOB PRIMARY KEY, idx INTEGER NOT NULL) WITHOUT ROWID",
)
_RECORD: Final = "SELECT idx, created_at, value FROM belog_records"
_STATE: Final = "SELECT version, indexed_to, events, void, bytes FROM belog_index"
_NAME: Final = """
INSERT INTO belog_names (field, term, events, first_run_idx) VALUES (?, ?, ?, ?)
ON CONFLICT (field, term) DO UPDATE SET
    events = events + excluded.events,
    first_run_idx = coalesce(first_run_idx, excluded.first_run_idx)
RETURNING name
"""
_NAMES: Final = """
SELECT name, term, events FROM belog_names
WHERE field = ? AND term IN (SELECT value FROM json_each(?))
"""
_WITHIN: Final = """
SELECT name, term, events FROM belog_names
WHERE field = ? AND term >= ? AND term < coalesce(?, x'ff') AND term LIKE ? ESCAPE '!'
LIMIT ?
"""
_POSTINGS: Final = (
    "SELECT idx FROM belog_postings WHERE name = ? AND idx >= ? AND idx < ? ORDER BY idx LIMIT ?"
)
_HAVING: Final = """
SELECT DISTINCT p.idx
FROM json_each(?) AS i CROSS JOIN json_each(?) AS n
    CROSS JOIN belog_postings AS p ON p.name = n.value AND p.idx = i.value
ORDER BY p.idx
"""


class SqliteTerms:
    """A `TermStore` over the connections of a log. Thread-safe as they are."""

    def __init__(
        self,
        name: str,
        reading: Callable[[], AbstractContextManager[sqlite3.Connection]],
        writing: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        """Open nothing yet.

        Args:
            name: The log's, for errors.
            reading: Gives the calling thread's connection for queries.
            writing: Opens a write transaction, and commits it when left.
        """
        self._name = name
        self._reading = reading
        self._writing = writing

    def _rows(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with self._reading() as connection:
            return connection.execute(sql, parameters).fetchall()

    # --- records

    def records(self, since: int, limit: int) -> Sequence[Record]:
        """See `TermStore.records`."""
        return self._records("WHERE idx >= ? ORDER BY idx LIMIT ?", since, limit)

    def records_at(self, indices: Sequence[int]) -> Sequence[Record]:
        """See `TermStore.records_at`."""
        where = "WHERE idx IN (SELECT value FROM json_each(?)) ORDER BY idx"
        return self._records(where, json.dumps(list(indices)))

    def _records(self, where: str, *parameters: object) -> list[Record]:
        rows = cast("list[tuple[int, int, bytes]]", self._rows(f"{_RECORD} {where}", *parameters))
        return [Record(*row) for row in rows]

    def index_at(self, created_at: int) -> int:
        """See `TermStore.index_at`."""
        last = self._records("ORDER BY idx DESC LIMIT 1")
        low, high = 0, last[0].position + 1 if last else 0
        while low < high:
            middle = (low + high) // 2
            (record,) = self.records(middle, 1)
            if record.created_at < created_at:
                low = record.position + 1
            else:
                high = middle
        return low

    # --- the index

    def state(self) -> IndexState:
        """See `TermStore.state`."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'belog_index'"):
            try:
                with self._writing() as connection:
                    self._create(connection)
            except Unavailable as error:
                raise self._unsupported(error) from error
        return self._state(self._rows(_STATE))

    @staticmethod
    def _create(connection: sqlite3.Connection) -> None:
        # Another process may have been faster between the look and the lock.
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'belog_index'").fetchone():
            return
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO belog_index VALUES (?, 0, 0, 0, 0)", (INDEX_VERSION,))

    def _state(self, rows: Sequence[tuple[object, ...]]) -> IndexState:
        version, *state = cast("tuple[int, ...]", rows[0])
        if version != INDEX_VERSION:
            msg = f"the index of subjects has version {version}, known is {INDEX_VERSION}"
            raise Unsupported(msg, log=self._name)
        return IndexState(*state)

    def _unsupported(self, error: Unavailable) -> Unavailable | Unsupported:
        """Tell a file that cannot take an index from one that is merely busy."""
        text = error.message
        if "readonly" not in text and "full" not in text:
            return error
        return Unsupported(f"the index of subjects cannot grow: {text}", log=self._name)

    def counts(self) -> tuple[IndexState, Mapping[str, int], Mapping[str, int]]:
        """See `TermStore.counts`."""
        # One statement is one snapshot.
        rows = self._rows(
            "SELECT field, term, n.events, version, indexed_to, i.events, void, bytes "
            "FROM belog_index AS i LEFT JOIN belog_names AS n ON field IN (?, ?)",
            Field.EVENT_TYPE,
            Field.SUBJECT_KIND,
        )
        named = cast("list[tuple[int, str, int]]", [row[:3] for row in rows])
        by_type = {term: n for field, term, n in named if field == Field.EVENT_TYPE}
        by_kind = {term: n for field, term, n in named if field == Field.SUBJECT_KIND}
        return self._state([row[3:] for row in rows]), by_type, by_kind

    def extend(self, since: int, entries: Entries) -> bool:
        """See `TermStore.extend`."""
        try:
            with self._writing() as connection:
                connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
                row = connection.execute("SELECT indexed_to FROM belog_index").fetchone()
                if row != (since,):
                    return False
                self._insert(connection, entries)
        except Unavailable as error:
            raise self._unsupported(error) from error
        return True

    @staticmethod
    def _insert(connection: sqlite3.Connection, entries: Entries) -> None:
        postings: list[tuple[int, int]] = []
        firsts = entries.first_runs
        for (field, term), indices in entries.indices.items():
            first_run = firsts.get(term) if field == Field.JOB_RUN else None
            (name,) = connection.execute(_NAME, (field, term, len(indices), first_run)).fetchone()
            if field not in COUNTED_ONLY:
                postings.extend((name, idx) for idx in indices)
        # In the order of the tree: neighbours go to one page.
        postings.sort()
        connection.executemany("INSERT INTO belog_postings VALUES (?, ?)", postings)
        connection.executemany("INSERT OR IGNORE INTO belog_ids VALUES (?, ?)", sorted(entries.ids))
        state = entries.state
        connection.execute(
            "UPDATE belog_index SET indexed_to = ?, events = ?, void = ?, bytes = ?",
            (state.indexed_to, state.events, state.void, state.bytes),
        )

    # --- looking up

    def names(self, field: Field, terms: Sequence[str]) -> Sequence[Name]:
        """See `TermStore.names`."""
        return self._names(_NAMES, field, json.dumps(list(terms)))

    def names_within(self, found: PatternRange, limit: int) -> Sequence[Name]:
        """See `TermStore.names_within`."""
        return self._names(_WITHIN, Field.PARTITION, found.low, found.high, found.like, limit)

    def _names(self, sql: str, *parameters: object) -> list[Name]:
        rows = cast("list[tuple[int, str, int]]", self._rows(sql, *parameters))
        return [Name(*row) for row in rows]

    def postings(self, names: Sequence[Name], since: int, until: int, limit: int) -> Sequence[int]:
        """See `TermStore.postings`."""
        with self._reading() as connection:
            # Each cursor is read only as far as the merge needs it.
            lists = [
                cast(
                    "Iterator[tuple[int]]",
                    connection.execute(_POSTINGS, (name.number, since, until, limit)),
                )
                for name in names
            ]
            if len(lists) == 1:
                return [idx for (idx,) in lists[0]]
            return list(islice(_distinct(heapq.merge(*lists)), limit))

    def having(self, indices: Sequence[int], names: Sequence[Name]) -> Sequence[int]:
        """See `TermStore.having`."""
        numbers = json.dumps([name.number for name in names])
        rows = cast("list[tuple[int]]", self._rows(_HAVING, json.dumps(list(indices)), numbers))
        return [idx for (idx,) in rows]

    def first_runs(self, names: Sequence[str]) -> Mapping[str, int]:
        """See `TermStore.first_runs`."""
        sql = (
            "SELECT term, first_run_idx FROM belog_names "
            "WHERE field = ? AND term = ? AND first_run_idx IS NOT NULL"
        )
        rows = [row for name in names for row in self._rows(sql, Field.JOB_RUN, name)]
        return dict(cast("list[tuple[str, int]]", rows))

    def index_of(self, event_id: bytes) -> int | None:
        """See `TermStore.index_of`."""
        rows = self._rows("SELECT idx FROM belog_ids WHERE event_id = ?", event_id)
        return cast("int", rows[0][0]) if rows else None


def _distinct(rows: Iterator[tuple[int]]) -> Iterator[int]:
    last = -1
    for (idx,) in rows:
        if idx != last:
            last = idx
            yield idx
