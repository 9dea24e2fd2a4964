"""Importing a history of changes: a table of time, change and ref, such as `git log` gives.

`A` (added) and `M` (modified) become `v1.partition.observed`, `D` (deleted) `v1.partition.removed`.
The id of each event is made from its row, so that an import which was cut off, or is run again over
a longer history, adds just what is missing.
"""

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TextIO, cast
from uuid import UUID, uuid5

from msgspec import Struct

from belog.producers.producer import Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict, InvalidInput, LimitExceeded
from belog.schemas.events import PartitionObserved, PartitionRemoved, Payload

__all__ = ["HistoryReport", "HistoryRow", "Skipped", "import_history", "read_history"]

BATCH_EVENTS: Final = 1_000
"""Rows written at once: a few milliseconds of work, and the unit of the progress shown."""

LINE_CHARS_MAX: Final = 65_536
"""Longest line of a history, characters: a time, a hash and a ref of at most 1,024 bytes with room
to spare. A packed file of a few kilobytes could else hold one line of gigabytes."""

SKIPPED_KEPT_MAX: Final = 1_000
"""Rows passed by whose reason is kept; the rest are only counted."""

_NAMESPACE: Final = UUID("6c0b5f0e-8f0f-5a59-9d5c-3b6a6a1f2d11")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS: Final = {
    "time": "time",
    "commit_time": "time",
    "timestamp": "time",
    "change": "change",
    "ref": "ref",
    "path": "ref",
    "commit": "commit",
}


class HistoryRow(Struct, frozen=True):
    """One row of a history."""

    line: int
    """Line of the file, from 1."""
    occurred_at: int
    """Microseconds since the epoch, UTC."""
    change: str
    """`A`, `M` or `D`."""
    ref: str
    commit: str
    """Empty where the table has no such column."""


class Skipped(Struct, frozen=True):
    """A row that was passed by."""

    line: int
    ref: str
    reason: str


class HistoryReport(Struct, frozen=True):
    """What an import came to."""

    rows: int
    appended: int
    already_there: int
    skipped: int
    first_skipped: tuple[Skipped, ...]
    """At most `SKIPPED_KEPT_MAX` of them."""


def read_history(path: Path) -> Iterator[HistoryRow | Skipped]:
    """Read a tab-separated history; `.gz` files are unpacked on the way.

    With a header line the columns are found by name (time or commit_time, change, ref or path,
    commit); without one they are time, change, ref. Times are ISO 8601 with a zone.

    Yields:
        A row, or what is wrong with it.

    Raises:
        InvalidInput: The file cannot be read, or its header lacks a column.
    """
    try:
        with _open(path) as file:
            yield from _rows(_lines(file, str(path)), str(path))
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        msg = f"history {path} cannot be read: {error}"
        raise InvalidInput(msg) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, "rt", encoding="utf-8-sig"))
    return path.open(encoding="utf-8-sig")


def _lines(file: TextIO, name: str) -> Iterator[str]:
    while line := file.readline(LINE_CHARS_MAX + 1):
        if len(line) > LINE_CHARS_MAX:
            raise LimitExceeded(
                f"line of history {name}",
                limit="LINE_CHARS_MAX",
                limit_value=LINE_CHARS_MAX,
                value=len(line),
            )
        yield line


def _rows(lines: Iterable[str], name: str) -> Iterator[HistoryRow | Skipped]:
    columns = ["time", "change", "ref"]
    is_first = True
    for number, line in enumerate(lines, 1):
        cells = line.rstrip("\r\n").split("\t")
        if cells == [""]:
            continue
        if is_first and any(cell in _COLUMNS for cell in cells):
            columns = _header(cells, name)
        else:
            yield _row(number, columns, cells)
        is_first = False


def _header(cells: list[str], name: str) -> list[str]:
    columns = [_COLUMNS.get(cell, "") for cell in cells]
    known = [column for column in columns if column]
    missing = {"time", "change", "ref"} - set(known)
    if missing or len(set(known)) < len(known):
        flaw = f"no column for {', '.join(sorted(missing))}" if missing else "two columns of one"
        msg = f"history {name} has {flaw}"
        raise InvalidInput(msg, hint="columns: time, change, ref; separated by tabs")
    return columns


def _row(number: int, columns: list[str], cells: list[str]) -> HistoryRow | Skipped:
    if len(cells) != len(columns):
        return Skipped(number, "", f"it has {len(cells)} columns, not {len(columns)}")
    fields = dict(zip(columns, cells, strict=True))
    ref = fields["ref"]
    if fields["change"] not in _EVENTS:
        return Skipped(number, ref, f"change {fields['change']!r} is none of A, M, D")
    try:
        moment = datetime.fromisoformat(fields["time"])
    except ValueError:
        return Skipped(number, ref, f"time {fields['time']!r} is not ISO 8601")
    if moment.tzinfo is None:
        return Skipped(number, ref, f"time {fields['time']!r} has no zone")
    occurred_at = (moment - _EPOCH) // timedelta(microseconds=1)
    return HistoryRow(number, occurred_at, fields["change"], ref, fields.get("commit", ""))


def import_history(
    producer: Producer,
    rows: Iterable[HistoryRow | Skipped],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> HistoryReport:
    """Append what a history says and the log does not hold yet. Blocks until all is durable.

    Rows that cannot be events, or are not legal where they stand (histories of merged branches hold
    such), are passed by and reported.

    Args:
        producer: Of the log to import into.
        rows: In the order of their time.
        on_progress: Called with the number of rows dealt with.

    Raises:
        Unavailable: The log went away; run the import again to go on.
    """
    run = _Import(producer, list(rows))
    for start in range(0, len(run.rows), BATCH_EVENTS):
        run.write(run.rows[start : start + BATCH_EVENTS])
        if on_progress is not None:
            on_progress(min(start + BATCH_EVENTS, len(run.rows)))
    return HistoryReport(
        len(run.rows), run.appended, run.already_there, run.skipped, tuple(run.first_skipped)
    )


class _Import:
    def __init__(self, producer: Producer, rows: list[HistoryRow | Skipped]) -> None:
        self.producer = producer
        self.rows = rows
        self.appended = self.already_there = self.skipped = 0
        self.first_skipped: list[Skipped] = []
        self.ids = self._event_ids()
        self.done = self._rows_done()

    def _event_ids(self) -> dict[int, bytes]:
        """Name each row's event after the row, and after how often the same one stood before."""
        seen: Counter[tuple[object, ...]] = Counter()
        ids: dict[int, bytes] = {}
        for row in self.rows:
            if isinstance(row, HistoryRow):
                key = (row.occurred_at, row.commit, row.change, row.ref)
                ids[row.line] = uuid5(_NAMESPACE, "\t".join(map(str, (*key, seen[key])))).bytes
                seen[key] += 1
        return ids

    def _rows_done(self) -> dict[str, int]:
        """Return the last line of each ref that an earlier import has written.

        Rows of one ref are written in order, and the log remembers the last ids of every subject,
        so this is exact however long ago that import was.
        """
        self.producer.refresh()
        done: dict[str, int] = {}
        for row in self.rows:
            if isinstance(row, HistoryRow):
                state = self.producer.known_state("partition", row.ref)
                if state is not None and self.ids[row.line] in state.recent:
                    done[row.ref] = row.line
        return done

    def write(self, rows: list[HistoryRow | Skipped]) -> None:
        events: list[Event] = []
        sources: list[HistoryRow] = []
        for row in rows:
            if isinstance(row, Skipped):
                self._skip(row)
            elif row.line <= self.done.get(row.ref, 0):
                self.already_there += 1
            else:
                try:
                    events.append(self._event(row))
                except InvalidInput as error:
                    self._skip(Skipped(row.line, row.ref, str(error)))
                else:
                    sources.append(row)
        for row, result in zip(sources, self.producer.append_batch(events), strict=True):
            if isinstance(result, Conflict):
                self._skip(Skipped(row.line, row.ref, result.message))
            elif isinstance(result, BelogError):
                raise result
            elif result.duplicate:
                self.already_there += 1
            else:
                self.appended += 1

    def _event(self, row: HistoryRow) -> Event:
        return self.producer.event(
            _EVENTS[row.change](row.commit),
            row.ref,
            event_id=self.ids[row.line],
            occurred_at=row.occurred_at,
        )

    def _skip(self, skipped: Skipped) -> None:
        self.skipped += 1
        if len(self.first_skipped) < SKIPPED_KEPT_MAX:
            self.first_skipped.append(skipped)


def _observed(commit: str) -> Payload:
    return PartitionObserved(source=f"commit {commit}" if commit else "history")


def _removed(commit: str) -> Payload:
    return PartitionRemoved(reason=f"deleted by commit {commit}" if commit else "deleted")


_EVENTS: Final[Mapping[str, Callable[[str], Payload]]] = {
    "A": _observed,
    "M": _observed,
    "D": _removed,
}
