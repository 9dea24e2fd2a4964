"""The index of subjects in PostgreSQL, beside the records; see `belog.storage.selective`.

A step takes the row lock of its log in `belog_index` and nothing that an append waits for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from belog.schemas.fold import Record
from belog.storage.postgres_client import Connection, Pool
from belog.storage.postgres_durable import Durable
from belog.storage.postgres_rows import records_of
from belog.storage.postgres_uri import Target
from belog.storage.postgres_values import ByteaArray, TextArray, copy_pairs
from belog.storage.term_store import Entries, IndexState, Name
from belog.storage.terms import COUNTED_ONLY, Field, PatternRange

__all__ = ["PostgresTerms"]

T = TypeVar("T")

_ROWS: Final = """
SELECT r.idx, r.created_at, r.ends, r.value, e.next_idx
FROM {schema}.belog_ends e
    JOIN {schema}.belog_records r ON r.log = e.log
WHERE e.log = %s
    AND r.idx >= coalesce(
        (SELECT max(b.idx) FROM {schema}.belog_records b WHERE b.log = %s AND b.idx <= %s), 0
    )
    AND r.idx < %s
ORDER BY r.idx
"""
_SCAN: Final = "SELECT *, 0 FROM {schema}.belog_scan(%s, %s, %s)"
_RECORDS_AT: Final = """
SELECT
    wanted.idx, r.created_at,
    CASE
        WHEN r.ends IS NULL THEN r.value
        ELSE substring(
            r.value FROM coalesce(r.ends[wanted.idx - r.idx], 0) + 1
            FOR r.ends[wanted.idx - r.idx + 1] - coalesce(r.ends[wanted.idx - r.idx], 0)
        )
    END
FROM unnest(%s::bigint[]) AS wanted (idx)
    CROSS JOIN LATERAL (
        SELECT * FROM {schema}.belog_records
        WHERE log = %s AND idx <= wanted.idx
        ORDER BY idx DESC
        LIMIT 1
    ) r
WHERE wanted.idx < r.idx + coalesce(cardinality(r.ends), 1)
ORDER BY wanted.idx
"""
_COUNTS: Final = """
SELECT i.indexed_to, i.events, i.void, i.bytes, n.field, n.term, n.events
FROM {schema}.belog_index i
    LEFT JOIN {schema}.belog_names n ON n.log = i.log AND n.field = ANY(%s::smallint[])
WHERE i.log = %s
"""
_INSERT_NAMES: Final = """
INSERT INTO {schema}.belog_names AS n (log, field, term, events, first_run_idx)
SELECT %s, u.field, u.term, u.events, u.first_run_idx
FROM unnest(%s::smallint[], %b::text[], %s::bigint[], %s::bigint[])
    AS u (field, term, events, first_run_idx)
ON CONFLICT (log, field, term) DO UPDATE SET
    events = n.events + excluded.events,
    first_run_idx = coalesce(n.first_run_idx, excluded.first_run_idx)
RETURNING field, term, name
"""
_INSERT_IDS: Final = """
INSERT INTO {schema}.belog_ids (log, event_id, idx)
SELECT %s, u.event_id, u.idx FROM unnest(%b::bytea[], %s::bigint[]) AS u (event_id, idx)
ON CONFLICT DO NOTHING
"""
_NAMES: Final = """
SELECT name, term, events FROM {schema}.belog_names
WHERE log = %s AND field = %s AND term = ANY(%b::text[])
"""
_WITHIN: Final = """
SELECT name, term, events FROM {schema}.belog_names
WHERE log = %s AND field = %s AND term >= %s AND term LIKE %s ESCAPE '!' {below} LIMIT %s
"""
_POSTINGS: Final = """
SELECT DISTINCT p.idx
FROM unnest(%s::bigint[]) AS n (name)
    CROSS JOIN LATERAL (
        SELECT idx FROM {schema}.belog_postings
        WHERE name = n.name AND idx >= %s AND idx < %s
        ORDER BY idx
        LIMIT %s
    ) p
ORDER BY p.idx
LIMIT %s
"""
_HAVING: Final = """
SELECT i.idx FROM unnest(%s::bigint[]) AS i (idx)
WHERE EXISTS (
    SELECT 1 FROM {schema}.belog_postings p
    WHERE p.name = ANY(%s::bigint[]) AND p.idx = i.idx
)
ORDER BY i.idx
"""
_FIRST_RUNS: Final = """
SELECT term, first_run_idx FROM {schema}.belog_names
WHERE log = %s AND field = %s AND term = ANY(%b::text[]) AND first_run_idx IS NOT NULL
"""


class PostgresTerms:
    """A `TermStore` over the connections of a log. Thread-safe."""

    def __init__(
        self, target: Target, pool: Pool, durable: Durable, number: Callable[[], int]
    ) -> None:
        """Open nothing yet.

        Args:
            target: Which log.
            pool: Its connections.
            durable: How far it is durable.
            number: Returns the log's key in the tables.
        """
        self._target = target
        self._pool = pool
        self._durable = durable
        self._number = number

    def _rows(self, sql: str, *parameters: object, binary: bool = False) -> list[tuple[Any, ...]]:
        statement = self._target.sql(sql)
        return self._pool.repeat(
            lambda connection: connection.execute(statement, parameters, binary=binary).fetchall()
        )

    # --- records

    def records(self, since: int, limit: int) -> list[Record]:
        """See `TermStore.records`; returns when they are durable."""
        return self._pool.repeat(lambda connection: self._records(connection, since, limit))

    def _records(self, connection: Connection, since: int, limit: int) -> list[Record]:
        sql, number = self._target.sql, self._number()
        until = since + limit
        rows = connection.execute(
            sql(_ROWS), [number, number, since, until], binary=True
        ).fetchall()
        records = records_of(rows, since, limit)
        if len(records) < limit and not (rows and rows[-1][-1] <= until):
            # There are holes, and something behind that range.
            rows = connection.execute(sql(_SCAN), [number, since, limit], binary=True).fetchall()
            records = records_of(rows, since, limit)
        if records:
            self._durable.require(connection, number, records[-1].position + 1)
        return records

    def records_at(self, indices: Sequence[int]) -> Sequence[Record]:
        """See `TermStore.records_at`."""
        rows = self._rows(_RECORDS_AT, list(indices), self._number(), binary=True)
        return [Record(*row) for row in rows]

    def index_at(self, created_at: int) -> int:
        """See `TermStore.index_at`."""
        (row,) = self._rows(
            "SELECT {schema}.belog_index_at(%s, %s::bigint)", self._number(), created_at
        )
        return cast("int", row[0])

    # --- the index

    def state(self) -> IndexState:
        """See `TermStore.state`."""
        return self.counts()[0]

    def counts(self) -> tuple[IndexState, Mapping[str, int], Mapping[str, int]]:
        """See `TermStore.counts`."""
        fields = [int(Field.EVENT_TYPE), int(Field.SUBJECT_KIND)]
        rows = self._rows(_COUNTS, fields, self._number())
        by_type = {term: n for *_, field, term, n in rows if field == Field.EVENT_TYPE}
        by_kind = {term: n for *_, field, term, n in rows if field == Field.SUBJECT_KIND}
        return IndexState(*rows[0][:4]), by_type, by_kind

    def extend(self, since: int, entries: Entries) -> bool:
        """See `TermStore.extend`."""
        # Done twice it does nothing: the second time the index ends elsewhere.
        return self._pool.repeat(lambda connection: self._extend(connection, since, entries))

    def _extend(self, connection: Connection, since: int, entries: Entries) -> bool:
        sql, number = self._target.sql, self._number()
        with connection.transaction():
            row = connection.execute(
                sql("SELECT indexed_to FROM {schema}.belog_index WHERE log = %s FOR UPDATE"),
                [number],
            ).fetchone()
            if row != (since,):
                return False
            names = self._insert_names(connection, entries)
            pairs = sorted(
                (names[key], idx)
                for key, indices in entries.indices.items()
                if key[0] not in COUNTED_ONLY
                for idx in indices
            )
            copy_in = "COPY {schema}.belog_postings (name, idx) FROM STDIN (FORMAT binary)"
            with connection.cursor().copy(self._target.script(copy_in)) as copy:
                copy.write(copy_pairs(pairs))
            ids = sorted(entries.ids)
            connection.execute(
                sql(_INSERT_IDS),
                [number, ByteaArray([i for i, _ in ids]), [idx for _, idx in ids]],
            )
            state = entries.state
            connection.execute(
                sql(
                    "UPDATE {schema}.belog_index"
                    " SET indexed_to = %s, events = %s, void = %s, bytes = %s WHERE log = %s"
                ),
                [state.indexed_to, state.events, state.void, state.bytes, number],
            )
        return True

    def _insert_names(
        self, connection: Connection, entries: Entries
    ) -> Mapping[tuple[Field, str], int]:
        keys = list(entries.indices)
        firsts = [
            entries.first_runs.get(term) if field == Field.JOB_RUN else None for field, term in keys
        ]
        rows = connection.execute(
            self._target.sql(_INSERT_NAMES),
            [
                self._number(),
                [int(field) for field, _ in keys],
                TextArray([term for _, term in keys]),
                [len(entries.indices[key]) for key in keys],
                firsts,
            ],
        ).fetchall()
        return {(Field(field), term): name for field, term, name in rows}

    # --- looking up

    def names(self, field: Field, terms: Sequence[str]) -> Sequence[Name]:
        """See `TermStore.names`."""
        rows = self._rows(_NAMES, self._number(), int(field), TextArray(terms))
        return [Name(*row) for row in rows]

    def names_within(self, found: PatternRange, limit: int) -> Sequence[Name]:
        """See `TermStore.names_within`."""
        parameters: list[object] = [self._number(), int(Field.PARTITION), found.low, found.like]
        below = ""
        if found.high is not None:
            below = "AND term < %s"
            parameters.append(found.high)
        sql = _WITHIN.replace("{below}", below)
        return [Name(*row) for row in self._rows(sql, *parameters, limit)]

    def postings(self, names: Sequence[Name], since: int, until: int, limit: int) -> Sequence[int]:
        """See `TermStore.postings`."""
        numbers = [name.number for name in names]
        rows = self._rows(_POSTINGS, numbers, since, until, limit, limit)
        return [idx for (idx,) in rows]

    def having(self, indices: Sequence[int], names: Sequence[Name]) -> Sequence[int]:
        """See `TermStore.having`."""
        rows = self._rows(_HAVING, list(indices), [name.number for name in names])
        return [idx for (idx,) in rows]

    def first_runs(self, names: Sequence[str]) -> Mapping[str, int]:
        """See `TermStore.first_runs`."""
        rows = self._rows(_FIRST_RUNS, self._number(), int(Field.JOB_RUN), TextArray(names))
        return dict(cast("list[tuple[str, int]]", rows))

    def index_of(self, event_id: bytes) -> int | None:
        """See `TermStore.index_of`."""
        rows = self._rows(
            "SELECT idx FROM {schema}.belog_ids WHERE log = %s AND event_id = %s",
            self._number(),
            event_id,
        )
        return cast("int", rows[0][0]) if rows else None
