"""What readers ask of the tables, whoever keeps them: this process or Redis."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from msgspec import Struct

from belog.processors.indexes import ANY, Order, Where, encode_cursor, matches
from belog.processors.rows import R, RowKind, SystemRow
from belog.schemas.errors import InvalidFilter, LimitExceeded, LogTruncated
from belog.storage.interface import EventLog

__all__ = [
    "GET_ROWS_MAX",
    "IDS",
    "LIST_SCAN_ROWS_MAX",
    "PAGE_ROWS",
    "PAGE_ROWS_MAX",
    "Answer",
    "Counts",
    "IndexEntries",
    "Page",
    "Stale",
    "TableReader",
    "TablesStatus",
    "lost_end",
]

GET_ROWS_MAX: Final = 10_000
"""Rows of one `get_many`: as many as one build's largest list of refs."""

PAGE_ROWS: Final = 100
"""Rows of a page when nothing is said."""

PAGE_ROWS_MAX: Final = 1_000
"""Rows of one page: about 1 MB, and a few milliseconds of Redis's one thread."""

LIST_SCAN_ROWS_MAX: Final = 1_000
"""Rows looked at for one page, so that also conditions which few rows meet answer within 100 ms
from Redis; the page then holds less than its limit and says where to go on."""

T = TypeVar("T")

IDS: Final = "ids"
"""Name under which `TableReader.indexes` gives the ids of all rows of a kind, each with index 0."""

IndexEntries = tuple[tuple[int, str], ...]
"""Index of a row's last event, and the row's id, in ascending order."""

Counts = Mapping[RowKind, Mapping[str, int]]
"""Rows by kind and state; a state without rows is left out."""


class Answer(Struct, Generic[T], frozen=True):
    """A value, and what it is as of."""

    value: T
    applied: int
    """The tables held the effects of all events below this index, and of no other."""


class Page(Struct, Generic[T], frozen=True):
    """Some rows of a list."""

    rows: tuple[T, ...]
    next_cursor: str | None
    """Where the list goes on; None at its end. A page may hold less rows than asked for, or none,
    and still have a next one."""
    applied: int
    """What its first row is as of; later rows may be newer."""


class TablesStatus(Struct, frozen=True, kw_only=True):
    """How far tables are."""

    log_id: str | None
    """None: nothing was applied yet."""
    applied: int
    """Index of the first event that is not in the tables."""
    position: int
    """Position of the first record that is not; differs from `applied` in a replica only."""
    schema_version: int
    created_at: int
    """Ingest time of the last applied event, microseconds; 0 for none."""
    generation: str = ""
    """Changes when the tables are made anew; Redis only."""
    written_at: int | None = None
    """When the tables were last written, by the writer's clock, microseconds; Redis only."""


class Stale(Struct, frozen=True):
    """The tables are not where a batch starts from, so nothing was written."""

    status: TablesStatus
    """Where they are."""


def lost_end(log: EventLog, end_position: int, status: TablesStatus) -> LogTruncated:
    """Return the error of tables that know events which their log has lost.

    Args:
        log: The log.
        end_position: Where it ends, asked after the tables.
        status: How far they are.
    """
    msg = f"the log ends at {end_position}, the tables are at {status.position}"
    hint = "acknowledged events were lost: find them, or rebuild the tables (belog replay)"
    return LogTruncated(msg, log=log.name, index=status.applied, hint=hint)


class TableReader(ABC):
    """The tables. Thread-safe; every call may block for a round trip."""

    name: str
    """The tables' URI without secrets."""

    @abstractmethod
    def status(self) -> TablesStatus:
        """Return how far the tables are."""

    @abstractmethod
    def get_many(self, kind: type[R], row_ids: Sequence[str]) -> Answer[tuple[R | None, ...]]:
        """Return rows by id, all as of one index; None in place of one that is not there.

        Args:
            kind: Which table: the class of its rows.
            row_ids: At most `GET_ROWS_MAX`.

        Raises:
            LimitExceeded: More ids than that.
        """

    def get(self, kind: type[R], row_id: str) -> Answer[R | None]:
        """Return one row, None where it is not there."""
        found = self.get_many(kind, (row_id,))
        return Answer(found.value[0], found.applied)

    @abstractmethod
    def list_rows(
        self,
        kind: type[R],
        where: Where = ANY,
        *,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Page[R]:
        """Return a page of the rows that meet all conditions.

        In the order `id` a row that meets them all the while is on exactly one page, whatever is
        written meanwhile. In the order `recent` this holds for rows that do not change meanwhile;
        one that does moves to the front.

        Args:
            kind: Which table: the class of its rows.
            where: The conditions.
            order: See `Order`.
            cursor: `next_cursor` of the page before, None for the first.
            limit: Most rows to return, 1 to `PAGE_ROWS_MAX`.

        Raises:
            InvalidFilter: The cursor is not one of this order.
            LimitExceeded: `limit` is over its bound.
        """

    @abstractmethod
    def counts(self) -> Answer[Counts]:
        """Return how many rows there are, by kind and state."""

    @abstractmethod
    def count_since(self, kind: RowKind, state: str, index: int) -> int:
        """Return how many rows are in a state with their last event at or after an index.

        Makes no row: for Redis two round trips; in the process at most half of the state's rows are
        looked at.
        """

    @abstractmethod
    def indexes(self) -> Iterator[tuple[RowKind, str, IndexEntries]]:
        """Yield all secondary indexes with what they hold, for checks; not as of one index.

        An index that holds nothing may be left out. `IDS` is that of the order by id.
        """

    @abstractmethod
    def wait_for(self, index: int, timeout_s: float) -> bool:
        """Block until the event at `index` is in the tables, or until the time is over.

        Returns:
            Whether it is.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything; idempotent."""

    def applied(self) -> int:
        """Return the index of the first event that is not in the tables."""
        return self.status().applied

    def system(self) -> Answer[SystemRow | None]:
        """Return the row of the log itself."""
        log_id = self.status().log_id
        return Answer(None, 0) if log_id is None else self.get(SystemRow, log_id)

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def page_of(
    candidates: Iterable[tuple[R, int]], where: Where, *, order: Order, limit: int
) -> Page[R]:
    """Return the page that a list's candidates make, in their order.

    Args:
        candidates: Rows in the list's order from its cursor on, each with what it is as of. Not
            looked at past what the page needs.
        where: The conditions.
        order: The order.
        limit: Most rows of the page.
    """
    rows: list[R] = []
    last: R | None = None
    applied: int | None = None
    for looked_at, (row, as_of) in enumerate(candidates):
        applied = as_of if applied is None else applied
        if order == "recent" and where.since_us is not None and row.updated_at < where.since_us:
            break
        if last is not None and (len(rows) == limit or looked_at == LIST_SCAN_ROWS_MAX):
            return Page(tuple(rows), encode_cursor(order, last), applied)
        last = row
        if matches(row, where):
            rows.append(row)
    return Page(tuple(rows), None, -1 if applied is None else applied)


def check_ids(row_ids: Sequence[str]) -> None:
    """Refuse more ids than `GET_ROWS_MAX`.

    Raises:
        LimitExceeded: There are more.
    """
    if len(row_ids) > GET_ROWS_MAX:
        raise LimitExceeded(
            "rows", limit="GET_ROWS_MAX", limit_value=GET_ROWS_MAX, value=len(row_ids)
        )


def check_page_rows(limit: int, order: str) -> None:
    """Refuse a page size out of range or an order that is none.

    Raises:
        LimitExceeded: `limit` is over `PAGE_ROWS_MAX`.
        InvalidFilter: It is below 1, or there is no such order.
    """
    if limit > PAGE_ROWS_MAX:
        raise LimitExceeded("page", limit="PAGE_ROWS_MAX", limit_value=PAGE_ROWS_MAX, value=limit)
    if limit < 1:
        msg = f"a page of {limit} rows cannot be had"
        raise InvalidFilter(msg)
    if order not in {"recent", "id"}:
        msg = f"order {order!r} is neither 'recent' nor 'id'"
        raise InvalidFilter(msg)
