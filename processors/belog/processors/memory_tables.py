"""The tables in the memory of one process: those of the embedded mode."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import Final

from belog.processors.indexes import (
    ANY,
    Order,
    Where,
    decode_cursor,
    driving_names,
    index_names,
    state_index,
)
from belog.processors.own_events import OwnEvents
from belog.processors.rows import ROW_TYPES, R, Row, RowKind
from belog.processors.table_fold import TABLE_SCHEMA_VERSION, Change, RowMove, TableFold
from belog.processors.tables import (
    IDS,
    PAGE_ROWS,
    Answer,
    Counts,
    IndexEntries,
    Page,
    TableReader,
    TablesStatus,
    check_ids,
    check_page_rows,
    page_of,
)
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Closed, LogReplaced, LogTruncated
from belog.schemas.fold import Fold, Record
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog, EventPage, LogEnd

__all__ = ["MemoryTables"]

COMPACT_ENTRIES_MIN: Final = 64
"""Entries of an index below which entries that no longer hold are not worth removing."""


_Entry = tuple[int, int, str]
"""Index and ingest time of a row's last event, and the row's id; one for all indexes of the row."""

_index_of: Final = itemgetter(0)
_time_of: Final = itemgetter(1)


class _Index:
    """The rows of one index name, as entries in the order of their last events.

    Each change of a row appends an entry, so the order needs no sorting; one whose row has moved on
    no longer holds, and is removed when such entries are in the majority.
    """

    __slots__ = ("entries", "row_count")

    def __init__(self, first: _Entry) -> None:
        self.entries = [first]
        self.row_count = 1

    def compact(self, table: Mapping[str, Row]) -> None:
        if len(self.entries) < max(COMPACT_ENTRIES_MIN, 2 * self.row_count):
            return
        self.entries = [entry for entry in self.entries if table[entry[2]].index == entry[0]]

    def live(self, table: Mapping[str, Row]) -> IndexEntries:
        return tuple(
            (index, row_id) for index, _, row_id in self.entries if table[row_id].index == index
        )

    def count_since(self, index: int, table: Mapping[str, Row]) -> int:
        # Nearly all of an index mostly holds, so the shorter side of it is looked through.
        start, count = bisect_left(self.entries, index, key=_index_of), len(self.entries)
        if count == self.row_count:
            return count - start
        if start < count // 2:
            return self.row_count - self._live_count(table, 0, start)
        return self._live_count(table, start, count)

    def _live_count(self, table: Mapping[str, Row], start: int, end: int) -> int:
        entries = self.entries[start:end]
        return sum(table[row_id].index == index for index, _, row_id in entries)

    def backwards(self, below: int | None, until_us: int | None) -> Iterator[tuple[int, str]]:
        at = len(self.entries)
        if below is not None:
            at = bisect_left(self.entries, below, key=_index_of)
        if until_us is not None:
            at = min(at, bisect_left(self.entries, until_us, key=_time_of))
        for n in range(at - 1, -1, -1):
            index, _, row_id = self.entries[n]
            yield index, row_id


class MemoryTables(TableReader):
    """See the module's docstring. Thread-safe; readers see whole batches only."""

    def __init__(self, start: TableFold | None = None, *, name: str = "memory:") -> None:
        """Start with nothing, or with a fold that has rows already.

        Args:
            start: Where to start; this object's own from then on.
            name: What errors show.
        """
        self.name = name
        self._fold = start or TableFold()
        self._changed = threading.Condition()
        self._catching_up = threading.Lock()
        self._closed = False
        self._indexes: dict[RowKind, dict[str, _Index]] = {kind: {} for kind in ROW_TYPES}
        self._counts: dict[tuple[RowKind, str], int] = {}
        self._ids: dict[RowKind, list[str]] = {kind: [] for kind in ROW_TYPES}
        self._ids_sorted: dict[RowKind, int] = dict.fromkeys(ROW_TYPES, 0)
        # What is there already is entered kind by kind when it is first asked for: who starts from
        # a snapshot and looks at a few rows needs no index.
        self._entered: set[RowKind] = set(ROW_TYPES) if start is None else set()

    # --- writing

    def apply(self, records: Sequence[Record], accepted: list[StoredEvent] | None = None) -> Change:
        """Take the next records of the log, all at once; see `TableFold.apply`."""
        with self._changed:
            self._check_open()
            change = self._fold.apply(records, accepted)
            self._take_in([(each.after.row_id, each.before, each.after) for each in change.rows])
            return change

    def _take_in(self, moves: Sequence[RowMove]) -> None:
        if self._entered:
            self._enter(moves)
        self._changed.notify_all()

    def catch_up(self, log: EventLog) -> int:
        """Apply what the log holds now; blocks for as long as that takes.

        Returns:
            The index of the first event that is not applied.

        Raises:
            LogTruncated: The log is shorter than what was applied.
            LogReplaced: It is another log.
            NewerFormat: A record needs newer software; everything before it was applied.
        """
        with self._catching_up:
            while True:
                position = self._fold.fold.next_position
                records = log.scan(position, SCAN_RECORDS_MAX)
                if records:
                    self.apply(records)
                    continue
                next_position = self._end_of(log, position)
                if next_position == position or not log.scan(position, 1):
                    return self._fold.fold.next_idx

    def read_on(
        self, log: EventLog, limit: int = SCAN_RECORDS_MAX, own: OwnEvents | None = None
    ) -> EventPage:
        """Apply the next records of the log and return the events among them, read once for both.

        Args:
            log: Of these tables.
            limit: Most records to take.
            own: What this process wrote to the log; events that are there are not read.

        Returns:
            A page; its `next_idx` is that of the tables.

        Raises:
            LogTruncated: The log is shorter than what was applied.
            NewerFormat: A record needs newer software; everything before it was applied.
        """
        with self._catching_up:
            position = self._fold.fold.next_position
            events: list[StoredEvent] = []
            if own is not None and (confirmed := own.take(position, limit)):
                with self._changed:
                    self._check_open()
                    self._take_in(self._fold.take(confirmed, events))
                # Not whether the page is full: what stands in the log behind it may be confirmed in
                # a moment, and would be read and judged until then.
                has_more = own.has(self._fold.fold.next_position)
                return EventPage(tuple(events), self._fold.fold.next_idx, has_more)
            records = log.scan(position, limit)
            if records:
                self.apply(records, events)
            else:
                self._end_of(log, position)
            return EventPage(tuple(events), self._fold.fold.next_idx, len(records) == limit)

    @staticmethod
    def _end_of(log: EventLog, position: int) -> int:
        next_position = log.next_position()
        if next_position < position:
            msg = f"the log ends at {next_position}, the tables are at {position}"
            raise LogTruncated(msg, log=log.name, hint="make the tables anew")
        return next_position

    def check_log(self, log_id: str) -> None:
        """Refuse to go on with another log than the one that was applied.

        Raises:
            LogReplaced: The tables are of another one.
        """
        own = self._fold.log_id
        if own is not None and own != log_id:
            msg = f"the tables are of log {own}, not of {log_id}"
            raise LogReplaced(msg, log=self.name, hint="make the tables anew")

    def _enter_all(self, kinds: Iterable[RowKind] = ROW_TYPES) -> None:
        for kind in kinds:
            if kind not in self._entered:
                self._enter_kind(kind)
                self._entered.add(kind)

    def _enter_kind(self, kind: RowKind) -> None:
        """Enter the rows of a kind that are there; what `_enter` does for changes, in bulk."""
        rows = self._fold.rows_of(kind)
        ids = list(rows)
        self._ids[kind] = ids
        self._ids_sorted[kind] = 0
        states: dict[str, int] = {}
        indexes = self._indexes[kind]
        order = sorted(range(len(ids)), key=[row.index for row in rows.values()].__getitem__)
        for n in order:
            row_id = ids[n]
            row = rows[row_id]
            state = row.state
            states[state] = states.get(state, 0) + 1
            entry = row.index, row.updated_at, row_id
            for name in index_names(row):
                index = indexes.get(name)
                if index is None:
                    indexes[name] = _Index(entry)
                else:
                    index.entries.append(entry)
                    index.row_count += 1
        for state, count in states.items():
            self._counts[kind, state] = count

    def _enter(self, moves: Sequence[RowMove]) -> None:
        touched: set[tuple[RowKind, str]] = set()
        for row_id, before, after in moves:
            kind = after.kind
            if kind not in self._entered:
                continue
            if before is None:
                self._ids[kind].append(row_id)
                self._count(kind, after.state, 1)
                old_names: tuple[str, ...] = ()
            else:
                if before.state != after.state:
                    self._count(kind, before.state, -1)
                    self._count(kind, after.state, 1)
                if before.index == after.index:
                    continue
                old_names = index_names(before)
            entry = after.index, after.updated_at, row_id
            names = index_names(after)
            indexes = self._indexes[kind]
            for name in names:
                index = indexes.get(name)
                if index is None:
                    indexes[name] = _Index(entry)
                    continue
                index.entries.append(entry)
                if name in old_names:
                    touched.add((kind, name))
                else:
                    index.row_count += 1
            for name in old_names:
                if name not in names:
                    indexes[name].row_count -= 1
                    touched.add((kind, name))
        # Where rows were only added, as many entries hold as before.
        for kind, name in touched:
            self._tidy(kind, name)

    def _count(self, kind: RowKind, state: str, delta: int) -> None:
        self._counts[kind, state] = self._counts.get((kind, state), 0) + delta

    def _tidy(self, kind: RowKind, name: str) -> None:
        index = self._indexes[kind][name]
        if not index.row_count:
            del self._indexes[kind][name]
            return
        index.compact(self._fold.rows_of(kind))

    # --- reading

    def _check_open(self) -> None:
        if self._closed:
            msg = "the tables were closed"
            raise Closed(msg, log=self.name)

    def status(self) -> TablesStatus:
        """See `TableReader.status`."""
        with self._changed:
            self._check_open()
            checkpoint = self._fold.checkpoint
            return TablesStatus(
                log_id=self._fold.log_id,
                applied=checkpoint.next_idx,
                position=checkpoint.position,
                schema_version=TABLE_SCHEMA_VERSION,
                created_at=self._fold.fold.created_at,
            )

    @property
    def keeps_root(self) -> bool:
        """Whether they keep the Merkle root of what was applied."""
        return self._fold.fold.keeps_root

    def end(self) -> LogEnd | None:
        """Return how far the log was applied, with its Merkle root there.

        Returns:
            None where they keep no root, or nothing was applied.
        """
        with self._changed:
            self._check_open()
            fold = self._fold.fold
            if not fold.keeps_root or fold.log_id is None:
                return None
            return LogEnd(fold.next_idx, fold.merkle.root(), fold.log_id)

    def fold(self) -> Fold:
        """Return a fold at the same place that goes on by itself; takes milliseconds."""
        with self._changed:
            self._check_open()
            return self._fold.fold.copy()

    def get_many(self, kind: type[R], row_ids: Sequence[str]) -> Answer[tuple[R | None, ...]]:
        """See `TableReader.get_many`."""
        check_ids(row_ids)
        with self._changed:
            self._check_open()
            table = self._fold.table(kind)
            found = tuple(table.get(row_id) for row_id in row_ids)
            return Answer(found, self._fold.fold.next_idx)

    def list_rows(
        self,
        kind: type[R],
        where: Where = ANY,
        *,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Page[R]:
        """See `TableReader.list_rows`."""
        check_page_rows(limit, order)
        after = decode_cursor(order, cursor)
        with self._changed:
            self._check_open()
            self._enter_all((kind.kind,))
            applied = self._fold.fold.next_idx
            if order == "id":
                candidates = self._by_id(kind, where, after)
            else:
                candidates = self._recent(kind, where, after)
            page = page_of(((row, applied) for row in candidates), where, order=order, limit=limit)
            return Page(page.rows, page.next_cursor, applied)

    def _recent(self, kind: type[R], where: Where, after: str | None) -> Iterator[R]:
        table = self._fold.table(kind)
        indexes = self._indexes[kind.kind]
        below = None if after is None else int(after)
        found = [indexes[n] for n in driving_names(kind.kind, where) if n in indexes]
        entries = merge(*(ix.backwards(below, where.until_us) for ix in found), reverse=True)
        for index, row_id in entries:
            row = table[row_id]
            if row.index != index:
                continue
            yield row

    def _by_id(self, kind: type[R], where: Where, after: str | None) -> Iterator[R]:
        ids = self._ids[kind.kind]
        if self._ids_sorted[kind.kind] != len(ids):
            # Two sorted runs merge in linear time, and most lists find nothing new.
            ids.sort()
            self._ids_sorted[kind.kind] = len(ids)
        table = self._fold.table(kind)
        at = bisect_left(ids, where.id_prefix)
        if after is not None:
            at = max(at, bisect_right(ids, after))
        for n in range(at, len(ids)):
            if not ids[n].startswith(where.id_prefix):
                return
            yield table[ids[n]]

    def counts(self) -> Answer[Counts]:
        """See `TableReader.counts`."""
        with self._changed:
            self._check_open()
            self._enter_all()
            by_kind: dict[RowKind, dict[str, int]] = {kind: {} for kind in ROW_TYPES}
            for (kind, state), count in self._counts.items():
                if count:
                    by_kind[kind][state] = count
            return Answer(by_kind, self._fold.fold.next_idx)

    def count_since(self, kind: RowKind, state: str, index: int) -> int:
        """See `TableReader.count_since`."""
        with self._changed:
            self._check_open()
            self._enter_all((kind,))
            found = self._indexes[kind].get(state_index(state))
            return 0 if found is None else found.count_since(index, self._fold.rows_of(kind))

    def indexes(self) -> Iterator[tuple[RowKind, str, IndexEntries]]:
        """See `TableReader.indexes`."""
        found: list[tuple[RowKind, str, IndexEntries]] = []
        with self._changed:
            self._check_open()
            self._enter_all()
            for kind, indexes in self._indexes.items():
                table = self._fold.rows_of(kind)
                found.append((kind, IDS, tuple((0, row_id) for row_id in sorted(self._ids[kind]))))
                found.extend((kind, name, index.live(table)) for name, index in indexes.items())
        yield from (entry for entry in found if entry[2])

    def wait_for(self, index: int, timeout_s: float) -> bool:
        """See `TableReader.wait_for`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has(index), timeout_s)
            self._check_open()
            return self._has(index)

    def _has(self, index: int) -> bool:
        return self._fold.fold.next_idx > index

    def close(self) -> None:
        """See `TableReader.close`; waiting readers end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
