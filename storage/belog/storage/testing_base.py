"""What the parts of the contract suite share: the fixtures, and looks at a log from outside."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, Protocol
from uuid import UUID

import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError
from belog.schemas.fold import Accepted, Fold
from belog.storage.interface import Capabilities, EventLog, Receipt

__all__ = [
    "ORIGIN_ID",
    "WAIT_S",
    "Clock",
    "ContractBase",
    "LogOpener",
    "MakeLog",
    "accepted",
    "appended",
    "folded",
    "in_threads",
]

WAIT_S: Final = 30.0
"""How long the suite waits for what must happen soon, seconds: a bound, not a measure."""

ORIGIN_ID: Final = UUID("0b5e0f6e-2f1c-4c0e-9b61-7d1f6f3c0a01")
"""The log that the suite's replicas are of."""

Clock = Callable[[], int]
"""Gives the ingest time, microseconds since the epoch."""


class MakeLog(Protocol):
    """Makes an object over the test's own log, the same log at each call; not initialized."""

    def __call__(self, clock: Clock | None = None) -> EventLog:
        """Return the log; a clock is given only where `takes_clock` says so."""
        ...


class LogOpener(Protocol):
    """Opens the test's own log, the same at each call; it is closed when the test ends."""

    def __call__(self, *, replica: bool = False, clock: Clock | None = None) -> EventLog:
        """Return the initialized log."""
        ...


class ContractBase:
    """The fixtures of the suite."""

    takes_clock = False
    """Whether `make_log` takes a clock."""

    @pytest.fixture
    def make_log(self) -> MakeLog:
        """Give objects over one log that only this test uses. A backend's test file says how."""
        raise NotImplementedError

    @pytest.fixture
    def log_uri(self) -> str:
        """Name the same log by its URI; asked for only where logs can be shared."""
        raise NotImplementedError

    @pytest.fixture
    def open_log(self, make_log: MakeLog) -> Iterator[LogOpener]:
        """Open the test's log, once or several times."""
        with ExitStack() as stack:

            def opened(*, replica: bool = False, clock: Clock | None = None) -> EventLog:
                log = stack.enter_context(make_log(clock) if clock else make_log())
                log.initialize(log_id=ORIGIN_ID if replica else None, replica=replica)
                return log

            yield opened

    @pytest.fixture
    def log(self, open_log: LogOpener) -> EventLog:
        """Open the test's log."""
        return open_log()

    @pytest.fixture
    def capabilities(self, log: EventLog) -> Capabilities:
        """Say what the backend can do."""
        return log.capabilities


def appended(log: EventLog, events: Sequence[Event]) -> list[Receipt]:
    """Append events and return their receipts."""
    receipts: list[Receipt] = []
    for result in log.append_batch(events):
        assert isinstance(result, Receipt), result
        receipts.append(result)
    assert [r.event_id for r in receipts] == [e.event_id for e in events]
    return receipts


def folded(log: EventLog) -> tuple[Fold, list[StoredEvent]]:
    """Fold what a scan of the log gives, record by record."""
    fold = Fold()
    found: list[StoredEvent] = []
    while records := log.scan(fold.next_position, 1_000):
        for record in records:
            outcome = fold.apply(record)
            if outcome is not None and isinstance(outcome.verdict, Accepted):
                assert outcome.event is not None
                found.append(StoredEvent(outcome.index, outcome.created_at, outcome.event))
    return fold, found


def accepted(log: EventLog) -> list[StoredEvent]:
    """Return the accepted events of a log, found without its own reads."""
    return folded(log)[1]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(n)` in `count` threads at once; raise what one of them raised."""
    start = threading.Barrier(count)
    errors: list[BelogError | AssertionError | ValueError] = []

    def run(number: int) -> None:
        start.wait(WAIT_S)
        try:
            work(number)
        except (BelogError, AssertionError, ValueError) as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "a thread did not end"
    if errors:
        raise errors[0]
