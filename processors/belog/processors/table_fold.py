"""The fold that carries the rows: records in, changes of rows out. No I/O.

`TableFold` applies the records of a log in order, judges each by the verdict, and keeps
the rows. What a batch of records did is a `Change`: the tables of this process, those in Redis and
the feed of changes are all written from it, and from nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from belog.processors.evolve import changed_rows, rows_after
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
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import NewerFormat
from belog.schemas.fold import Accepted, Confirmed, Fold, Outcome, Record

__all__ = [
    "TABLE_SCHEMA_VERSION",
    "Change",
    "Checkpoint",
    "RowChange",
    "RowMove",
    "Step",
    "TableFold",
]

TABLE_SCHEMA_VERSION: Final = 2
"""Version of the rows: raised whenever the same log folds to other rows, indexes or counters, so
that stored tables are made anew."""


class Checkpoint(Struct, frozen=True, gc=False):
    """A place between two records of a log."""

    position: int
    """Position of the next record."""
    next_idx: int
    """Index of the next event; differs from the position in a replica only."""


class RowChange(Struct, frozen=True, gc=False):
    """One row before and after."""

    before: Row | None
    after: Row


RowMove = tuple[str, Row | None, Row]
"""The id of a row, the row before, and after."""


class Step(Struct, frozen=True, gc=False):
    """The rows that one accepted event changed, as they are after it."""

    outcome: Outcome
    rows: tuple[Row, ...]


class Change(Struct, frozen=True):
    """What a batch of records did to the tables, from one checkpoint to the next."""

    log_id: str | None
    start: Checkpoint
    end: Checkpoint
    created_at: int
    """Ingest time of the last accepted event, microseconds."""
    steps: tuple[Step, ...]
    """Event by event, in order."""
    rows: tuple[RowChange, ...]
    """All steps in one: each row that changed, once, ordered by the index after."""

    def counts(self) -> dict[tuple[RowKind, str], int]:
        """Return by how much the number of rows of each kind and state changes, without zeros."""
        deltas: dict[tuple[RowKind, str], int] = {}
        for change in self.rows:
            after = change.after.kind, change.after.state
            if change.before is not None:
                before = change.before.kind, change.before.state
                if before == after:
                    continue
                deltas[before] = deltas.get(before, 0) - 1
            deltas[after] = deltas.get(after, 0) + 1
        return {key: delta for key, delta in deltas.items() if delta}

    def row_changes(self) -> Iterator[tuple[Outcome, tuple[RowChange, ...]]]:
        """Yield each event with the rows it changed, before and after, in order."""
        now: dict[tuple[RowKind, str], Row | None] = {
            (change.after.kind, change.after.row_id): change.before for change in self.rows
        }
        for step in self.steps:
            changes: list[RowChange] = []
            for row in step.rows:
                key = row.kind, row.row_id
                changes.append(RowChange(now[key], row))
                now[key] = row
            yield step.outcome, tuple(changes)

    def rest(self, start: Checkpoint) -> "Change":
        """Return the part of this change that comes after a checkpoint within it."""
        firsts: dict[tuple[RowKind, str], Row | None] = {}
        lasts: dict[tuple[RowKind, str], Row] = {}
        for outcome, changes in self.row_changes():
            if outcome.position < start.position:
                continue
            for change in changes:
                key = change.after.kind, change.after.row_id
                firsts.setdefault(key, change.before)
                lasts[key] = change.after
        rows = [RowChange(first, lasts[key]) for key, first in firsts.items()]
        rows.sort(key=_index_after)
        steps = tuple(s for s in self.steps if s.outcome.position >= start.position)
        return Change(self.log_id, start, self.end, self.created_at, steps, tuple(rows))


def _index_after(change: RowChange) -> int:
    return change.after.index


def _index_of_move(move: RowMove) -> int:
    return move[2].index


_Tables = dict[str, Any]
"""Rows of one kind by id. Which kind they are of, the type of the row says that is put in."""


class _Written:
    """Rows that a batch puts into the tables, each with what it was before the batch."""

    __slots__ = ("_places",)

    def __init__(self, tables: Mapping[Any, _Tables]) -> None:
        self._places = {kind: (table, dict[str, Row | None]()) for kind, table in tables.items()}

    def put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            table, first = self._places[type(row)]
            row_id = row.row_id
            if row_id not in first:
                first[row_id] = table.get(row_id)
            table[row_id] = row

    def moves(self) -> list[RowMove]:
        """Return each row that changed, once, ordered by the index after."""
        moves: list[RowMove] = [
            (row_id, before, table[row_id])
            for table, first in self._places.values()
            for row_id, before in first.items()
        ]
        moves.sort(key=_index_of_move)
        return moves


class TableFold:
    """The log up to some record, with its rows. Not thread-safe.

    The tables are read only for others.

    Attributes:
        fold: What verdicts need; only this object may change it.
    """

    __slots__ = ("_by_type", "builds", "fold", "job_runs", "partitions", "systems", "tasks")

    def __init__(self, fold: Fold | None = None, rows: Iterable[Row] = ()) -> None:
        """Start with the empty log, or with the fold and the rows of a snapshot."""
        self.fold = fold or Fold()
        self.partitions: dict[str, PartitionRow] = {}
        self.builds: dict[str, BuildRow] = {}
        self.job_runs: dict[str, JobRunRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.systems: dict[str, SystemRow] = {}
        self._by_type: dict[Any, _Tables] = {
            PartitionRow: self.partitions,
            BuildRow: self.builds,
            JobRunRow: self.job_runs,
            TaskRow: self.tasks,
            SystemRow: self.systems,
        }
        for row in rows:
            self._by_type[type(row)][row.row_id] = row

    @property
    def checkpoint(self) -> Checkpoint:
        """Where it is."""
        return Checkpoint(self.fold.next_position, self.fold.next_idx)

    @property
    def log_id(self) -> str | None:
        """The log's identity, None before its first event."""
        return None if self.fold.log_id is None else str(self.fold.log_id)

    def table(self, kind: type[R]) -> Mapping[str, R]:
        """Return the rows of a kind by id."""
        return self._by_type[kind]

    def rows_of(self, kind: RowKind) -> Mapping[str, Row]:
        """Return the rows of a kind by id, where the kind is known by its name only."""
        return self._by_type[ROW_TYPES[kind]]

    def rows(self) -> Iterator[Row]:
        """Yield all rows, kind by kind."""
        for table in self._by_type.values():
            yield from table.values()

    def apply(self, records: Sequence[Record], accepted: list[StoredEvent] | None = None) -> Change:
        """Take the next records; those that were taken already are passed over.

        Stops before a record that needs newer software, if others came before it in the batch: the
        change is whole up to there, and the next call raises.

        Args:
            records: In order of position.
            accepted: Gets the events among them, for who wants them too.

        Raises:
            NewerFormat: The first record needs newer software; nothing was applied.
        """
        fold = self.fold
        start = self.checkpoint
        steps: list[Step] = []
        written = _Written(self._by_type)
        for record in records:
            if record.position < fold.next_position:
                continue
            try:
                outcome = fold.apply(record)
            except NewerFormat:
                if fold.next_position == start.position:
                    raise
                break
            if outcome is None:
                continue
            if (
                accepted is not None
                and outcome.event is not None
                and isinstance(outcome.verdict, Accepted)
            ):
                accepted.append(StoredEvent(outcome.index, outcome.created_at, outcome.event))
            changed = changed_rows(self, outcome)
            if not changed:
                continue
            steps.append(Step(outcome, changed))
            written.put(changed)
        rows = tuple(RowChange(before, after) for _, before, after in written.moves())
        return Change(self.log_id, start, self.checkpoint, fold.created_at, tuple(steps), rows)

    def take(self, confirmed: Sequence[Confirmed], accepted: list[StoredEvent]) -> list[RowMove]:
        """Take the next records as `apply` does, where their writer judged them over the same log.

        It tells of the rows only what all of the records together did to them: the `rows` of the
        `Change` that `apply` returns.

        Args:
            confirmed: In order of position.
            accepted: Gets the events.

        Returns:
            Each row that changed, once, ordered by the index after.
        """
        position = self.fold.next_position
        run = [each for each in confirmed if each.position >= position]
        written = _Written(self._by_type)
        for each, created_at in zip(run, self.fold.confirm(run), strict=True):
            event, after = each.event, each.after
            accepted.append(StoredEvent(after.index, created_at, event))
            written.put(rows_after(self, event, after, created_at))
        return written.moves()
