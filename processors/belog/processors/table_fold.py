"""The fold that carries the rows: records in, changes of rows out. No I/O.

`TableFold` applies the records of a log in order, judges each (`belog.schemas.fold.Fold`), and keeps
the rows. What a batch of records did is a `Change`: the tables of this process, those in Redis and
the feed of changes are all written from it, and from nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from belog.processors.evolve import changed_rows
from belog.processors.rows import ROW_TYPES, R, Row, RowKind
from belog.schemas.errors import NewerFormat
from belog.schemas.fold import Fold, Outcome, Record

__all__ = ["TABLE_SCHEMA_VERSION", "Change", "Checkpoint", "RowChange", "Step", "TableFold"]

TABLE_SCHEMA_VERSION: Final = 1
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


class Step(Struct, frozen=True, gc=False):
    """The rows that one accepted event changed."""

    outcome: Outcome
    rows: tuple[RowChange, ...]


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

    def rest(self, start: Checkpoint) -> "Change":
        """Return the part of this change that comes after a checkpoint within it."""
        steps = tuple(s for s in self.steps if s.outcome.position >= start.position)
        return Change(self.log_id, start, self.end, self.created_at, steps, _in_one(steps))


def _in_one(steps: Iterable[Step]) -> tuple[RowChange, ...]:
    firsts: dict[tuple[RowKind, str], RowChange] = {}
    lasts: dict[tuple[RowKind, str], Row] = {}
    for step in steps:
        for change in step.rows:
            after = change.after
            key = after.kind, after.row_id
            if key not in firsts:
                firsts[key] = change
            lasts[key] = after
    changes = [
        first if first.after is lasts[key] else RowChange(first.before, lasts[key])
        for key, first in firsts.items()
    ]
    changes.sort(key=_index_after)
    return tuple(changes)


def _index_after(change: RowChange) -> int:
    return change.after.index


class TableFold:
    """The log up to some record, with its rows. Not thread-safe.

    Attributes:
        fold: What verdicts need; only this object may change it.
        tables: The rows by kind and id; read only.
    """

    __slots__ = ("_by_type", "fold", "tables")

    def __init__(self, fold: Fold | None = None, rows: Iterable[Row] = ()) -> None:
        """Start with the empty log, or with the fold and the rows of a snapshot."""
        self.fold = fold or Fold()
        self._by_type: dict[type[Row], dict[str, Row]] = {t: {} for t in ROW_TYPES.values()}
        self.tables: Mapping[RowKind, Mapping[str, Row]] = {
            kind: self._by_type[row_type] for kind, row_type in ROW_TYPES.items()
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

    def row(self, kind: type[R], row_id: str) -> R | None:
        """Return one row, None where there is none."""
        return cast("R | None", self._by_type[kind].get(row_id))

    def apply(self, records: Sequence[Record]) -> Change:
        """Take the next records; those that were taken already are passed over.

        Stops before a record that needs newer software, if others came before it in the batch: the
        change is whole up to there, and the next call raises.

        Raises:
            NewerFormat: The first record needs newer software; nothing was applied.
        """
        fold = self.fold
        start = self.checkpoint
        steps: list[Step] = []
        applied_any = False
        for record in records:
            if record.position < fold.next_position:
                continue
            try:
                outcome = fold.apply(record)
            except NewerFormat:
                if not applied_any:
                    raise
                break
            applied_any = True
            if outcome is None:
                continue
            changed = changed_rows(self, outcome)
            if changed:
                steps.append(Step(outcome, tuple(self._put(row) for row in changed)))
        return Change(
            self.log_id, start, self.checkpoint, fold.created_at, tuple(steps), _in_one(steps)
        )

    def _put(self, row: Row) -> RowChange:
        table = self._by_type[type(row)]
        row_id = row.row_id
        change = RowChange(table.get(row_id), row)
        table[row_id] = row
        return change
