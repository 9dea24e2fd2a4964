"""Rows by their conditions, with opaque cursors, and waiting for what was written."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from belog.processors.indexes import ANY, Order, Where
from belog.processors.rows import PartitionRow, R
from belog.processors.tables import PAGE_ROWS, PAGE_ROWS_MAX, TableReader
from belog.query.answers import Answer, Listing
from belog.query.cursors import decode_cursor, encode_cursor
from belog.query.log_queries import LogQueries
from belog.query.refusals import Refusals
from belog.schemas.errors import Conflict, InvalidFilter, Unavailable
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.storage.interface import EventLog

__all__ = ["WAIT_S", "TableQueries"]

WAIT_S: Final = 10.0
"""Longest wait for an index when nothing is said, seconds: tables that are further behind are out
of order."""

WAIT_SLICE_S: Final = 0.5
"""Longest single wait of one that has to look again, seconds."""


def _now_us() -> int:
    return time.time_ns() // 1000


class TableQueries:
    """Answers of one log's tables. Thread-safe; every call blocks for its round trips.

    Attributes:
        tables: Where rows come from.
        log: Where events come from.
        events: Queries of the log itself.
        clock: Gives the time, microseconds since the epoch, UTC.
    """

    def __init__(
        self,
        tables: TableReader,
        log: EventLog,
        *,
        catch_up: Callable[[], object] | None = None,
        clock: Callable[[], int] = _now_us,
        refusals: Refusals | None = None,
    ) -> None:
        """Ask these tables and this log; both stay the caller's to close.

        Args:
            tables: Of that log.
            log: Initialized.
            catch_up: Brings the tables up with the log, where nobody else does: for tables of this
                process.
            clock: Gives the time, microseconds since the epoch, UTC.
            refusals: What a service refused, for audits.
        """
        self.tables = tables
        self.log = log
        self.events = LogQueries(tables, log, refusals)
        self._catch_up = catch_up
        self.clock = clock

    # --- being up to date

    def wait_for(self, index: int, timeout_s: float = WAIT_S) -> int:
        """Wait until the event at an index is in the tables; then every answer holds it.

        So a writer that passes the index of its receipt reads its own writes.

        Returns:
            What answers are as of now, at least.

        Raises:
            Unavailable: They did not come that far in time.
        """
        if not self._reaches(index, time.monotonic() + timeout_s):
            applied = self.tables.applied()
            msg = f"the tables are at {applied}, index {index} was waited for {timeout_s:g} s"
            raise Unavailable(msg, log=self.log.name, index=applied, hint="is a worker running?")
        return self.tables.applied()

    def _reaches(self, index: int, deadline: float) -> bool:
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._catch_up is None:
                return self.tables.wait_for(index, left)
            self._catch_up()
            if self.tables.applied() > index:
                return True
            if not left:
                return False
            self.log.wait(self.tables.status().position, min(left, WAIT_SLICE_S))

    def wait_for_state(
        self, ref: str, states: Sequence[str] = ("available",), *, timeout_s: float
    ) -> Answer[PartitionRow]:
        """Wait until a partition is in one of some states.

        Args:
            ref: The partition.
            states: Those that are waited for.
            timeout_s: Longest wait, seconds.

        Raises:
            Conflict: It is failed, or becomes so, and `failed` is not waited for: nobody is making
                it, by all that the log holds.
            Unavailable: The time was over before.
            InvalidFilter: There is no such state.
        """
        _check_states(states)
        deadline = time.monotonic() + timeout_s
        if self._catch_up is not None:
            self._catch_up()
        is_current = self._catch_up is not None
        while True:
            answer = self.tables.get(PartitionRow, ref)
            row = answer.value
            if row is not None and row.state in states:
                return Answer(row, answer.applied)
            if row is not None and row.state == "failed":
                if is_current:
                    raise _failed(row, self.log.name)
                # It may have been asked for again, and the tables do not show it yet.
                is_current = self._reaches_end(deadline)
                if is_current:
                    continue
            if time.monotonic() >= deadline:
                state = "never seen" if row is None else row.state
                msg = f"{ref!r} is {state} after {timeout_s:g} s, not {' or '.join(states)}"
                raise Unavailable(
                    msg, log=self.log.name, index=answer.applied, subject=f"partition:{ref}"
                )
            self._reaches(answer.applied, min(deadline, time.monotonic() + WAIT_SLICE_S))

    def _reaches_end(self, deadline: float) -> bool:
        """Wait until the tables hold all that the log holds now."""
        end = self.log.next_position()
        while (status := self.tables.status()).position < end:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            # What is left may be void, and moves the position alone.
            self.tables.wait_for(status.applied, min(left, WAIT_SLICE_S))
        return True

    # --- rows

    def list_rows(
        self,
        kind: type[R],
        where: Where = ANY,
        *,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Listing[R]:
        """Return a page of rows, with an opaque cursor; see `TableReader.list_rows`."""
        place = decode_cursor(kind.kind, where, order, cursor)
        page = self.tables.list_rows(kind, where, order=order, cursor=place, limit=limit)
        following = page.next_cursor
        if following is not None:
            following = encode_cursor(kind.kind, where, order, following)
        return Listing(page.rows, following, page.applied)

    def all_rows(self, kind: type[R], where: Where) -> Iterator[R]:
        """Yield all rows that meet conditions, page by page, the latest change first."""
        cursor: str | None = None
        while True:
            page = self.tables.list_rows(kind, where, cursor=cursor, limit=PAGE_ROWS_MAX)
            yield from page.rows
            cursor = page.next_cursor
            if cursor is None:
                return

    def by_id(self, kind: type[R], row_ids: Sequence[str]) -> Mapping[str, R]:
        """Return rows by id, however many; those that are not there are left out."""
        found: dict[str, R] = {}
        wanted = tuple(dict.fromkeys(row_ids))
        for at in range(0, len(wanted), PAGE_ROWS_MAX):
            rows = self.tables.get_many(kind, wanted[at : at + PAGE_ROWS_MAX]).value
            found |= {row.row_id: row for row in rows if row is not None}
        return found


def _check_states(states: Sequence[str]) -> None:
    known = LIFECYCLE_1.states("partition")
    for state in states:
        if state not in known:
            msg = f"{state!r} is no state of a partition"
            raise InvalidFilter(msg, hint=f"one of {', '.join(known)}")


def _failed(row: PartitionRow, log: str) -> Conflict:
    reason = row.attempt.failure_reason if row.attempt is not None else None
    return Conflict(
        f"the attempt failed{': ' + reason if reason else ''}",
        state=row.state,
        last_index=row.index,
        allowed=LIFECYCLE_1.allowed("partition", row.state),
        owner=None if row.attempt is None else row.attempt.build_id,
        hint="belog partition explain says why, belog partition request begins anew",
        log=log,
        index=row.index,
        subject=f"partition:{row.ref}",
    )
