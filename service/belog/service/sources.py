"""What commands ask of a log, whether they have it in their hands or reach it through a service.

Two do it: `belog.service.log_source` with the log and its tables, `belog.service.service_source`
with a client of a service. Both give the same values, so a command shows the same whichever it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Unpack

from msgspec import Struct

from belog.processors.indexes import Order, Where
from belog.processors.replay import Until
from belog.processors.rows import R
from belog.query import AuditQuery, Cancelled
from belog.query.answers import Activity, Answer, AuditEntry, Explanation, Graph, JobMetrics
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Conflict, NotFound, Unavailable
from belog.schemas.filters import EventFilter
from belog.schemas.payload import JsonValue
from belog.schemas.receipts import EventPage, Receipt
from belog.storage.interface import Statistics

if TYPE_CHECKING:
    # Importing a client takes longer than most commands on a log.
    from belog.client.making import EventOptions

__all__ = [
    "Appender",
    "Asked",
    "Asking",
    "InState",
    "Source",
    "Standing",
    "end_of_attempt",
    "not_there",
]


class InState(Struct, frozen=True):
    """What was waited for."""

    state: str
    index: int
    """Of the event that led to it."""


class Asking(Struct, frozen=True, kw_only=True):
    """A request for a partition."""

    ref: str
    build_id: str | None
    """The build that asks; a new one, which is received with it, where None."""
    clients: tuple[str, ...]
    delegation: bool
    timeout_s: float
    """How long to wait until it was made, seconds; 0 to answer at once."""


class Asked(Struct, frozen=True, kw_only=True):
    """What was answered to it."""

    answer: str
    """`available`, `delegated` or `building`."""
    ref: str
    build_request_id: str | None = None
    """Who makes it."""
    index: int
    state: str | None = None
    """Where it was waited for: what became of it."""


class Standing(Struct, frozen=True, kw_only=True):
    """Which log is there, where it ends, and how far its tables are."""

    log: str
    log_id: str | None
    instance: str | None = None
    replica: bool | None = None
    next_position: int | None = None
    next_idx: int | None = None
    root: str | None = None
    tables: str | None = None
    """None where no tables were looked at; then there is none of the following either."""
    applied: int = 0
    lag_records: int = 0
    applied_created_at: int = 0
    """Microseconds since the epoch."""


class Appender(Protocol):
    """Writes to the log."""

    def make(
        self,
        payload: str,
        subject_id: str,
        body: Mapping[str, JsonValue],
        **options: Unpack["EventOptions"],
    ) -> Event:
        """Make an event; see `belog.schemas.events.new_event`."""
        ...

    def append(self, event: Event) -> Receipt:
        """Append one event and wait until it is durable."""
        ...

    def append_batch(self, events: Sequence[Event]) -> Sequence[Receipt | BelogError]:
        """Append events in order, each judged over those before it."""
        ...


class Source(Protocol):
    """One log. Every call blocks; errors are those of `belog.schemas.errors`."""

    def rows(
        self, kind: type[R], where: Where, *, order: Order, limit: int, until: Until
    ) -> tuple[Sequence[R], bool]:
        """Return rows, and whether there are more; with a bound, as they were then.

        Raises:
            InvalidInput: A bound, where the tables can only be had as they are now.
        """
        ...

    def row(self, kind: type[R], *key: str) -> R:
        """Return one row.

        Args:
            kind: Of which kind.
            key: Its id; of a task, its build and its id.

        Raises:
            NotFound: There is none.
        """
        ...

    def history(self, wanted: EventFilter) -> tuple[Sequence[StoredEvent], int]:
        """Return all events that a filter matches, and the vacuum horizon (0 for none)."""
        ...

    def page(self, since: int, wanted: EventFilter, limit: int) -> EventPage:
        """Return a page of events.

        Raises:
            LogTruncated: The log ends before `since`, and is no replica.
        """
        ...

    def follow(self, since: int, wanted: EventFilter) -> Iterator[StoredEvent]:
        """Yield events from an index on, then live ones, none missed; for ever.

        Raises:
            LogTruncated: The log ends before `since`, and is no replica.
        """
        ...

    def wait(self, ref: str, states: Sequence[str], timeout_s: float) -> Answer[InState]:
        """Wait for a state; see `belog.query.QueryEngine.wait_for_state`."""
        ...

    def request(self, asking: Asking, *, actor: str | None, instance: str) -> Asked:
        """Ask for a partition.

        Raises:
            NotOwner: Another build makes it, and delegation is not allowed.
            Conflict: It was waited for, and it was not made.
            Unavailable: It was waited for, and the time is over.
        """
        ...

    def explain(self, ref: str) -> Answer[Explanation]:
        """Return why a partition is in its state.

        Raises:
            NotFound: It was never seen.
        """
        ...

    def graph(self, ref: str, depth: int) -> Answer[Graph]:
        """Return what a partition is made from, and what is made from it."""
        ...

    def metrics(self, label: str | None, since_us: int | None) -> Sequence[JobMetrics]:
        """Return how the newest runs of one job, or of all, went."""
        ...

    def cancel(
        self, kind: type[R], *key: str, reason: str | None, actor: str | None
    ) -> Sequence[Cancelled]:
        """Call off a build, a job run, or a task; see `row` for the key."""
        ...

    def activity(self, window_s: float) -> Answer[Activity]:
        """Return what goes on."""
        ...

    def audit(self, query: AuditQuery, *, newest_first: bool, limit: int) -> Sequence[AuditEntry]:
        """Return who did what."""
        ...

    def statistics(self) -> Statistics:
        """Return what the log holds."""
        ...

    def standing(self, *, root: bool, ready: bool) -> Standing:
        """Return which log is there and how far its tables are.

        Raises:
            Unavailable: With `ready`, where the tables do not follow the log.
        """
        ...

    def appender(self, actor: str | None, instance: str) -> AbstractContextManager[Appender]:
        """Open what appends.

        Args:
            actor: Who writes; None for whoever it is by default.
            instance: Name of the instance, for a log that is made.
        """
        ...


def not_there(kind: str, row_id: str, as_of: int) -> NotFound:
    """Return the error of a row that is not there."""
    msg = f"there is no {kind.replace('_', ' ')} {row_id!r}"
    return NotFound(msg, index=as_of, hint="the tables are as of that index")


def end_of_attempt(
    ref: str, ended: tuple[str, int] | None, timeout_s: float, *, log: str
) -> tuple[str, int]:
    """Return the state and its index that an attempt which was waited for ended in.

    Args:
        ref: The partition.
        ended: State and index; None when the time was over before.
        timeout_s: How long it was waited for, seconds.
        log: For errors.

    Raises:
        Unavailable: It did not end.
        Conflict: It ended, and not well.
    """
    if ended is None:
        msg = f"{ref!r} was not made in {timeout_s:g} s"
        raise Unavailable(msg, log=log, subject=f"partition:{ref}")
    state, index = ended
    if state != "available":
        raise Conflict(
            f"{ref!r} is {state}",
            state=state,
            last_index=index,
            allowed=(),
            index=index,
            subject=f"partition:{ref}",
            hint="belog partition explain says why",
        )
    return ended
