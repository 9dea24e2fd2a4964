"""The contract suite: followers miss nothing, repeat nothing, and end when told to."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from belog.schemas.envelope import StoredEvent
from belog.schemas.filters import EventFilter
from belog.storage.interface import EventLog
from belog.storage.testing_base import WAIT_S, ContractBase, LogOpener, accepted, appended
from belog.storage.testing_events import observed

__all__ = ["FollowContract"]

PAST = 150
LIVE = 60


class Reader:
    """A follower in a thread of its own, until it has seen enough or its log says that is all."""

    def __init__(self, events: Iterator[StoredEvent]) -> None:
        """Start to follow."""
        self.seen: list[StoredEvent] = []
        self.errors: list[Exception] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(events,), daemon=True)
        self._thread.start()

    def _run(self, events: Iterator[StoredEvent]) -> None:
        try:
            for stored in events:
                with self._changed:
                    self.seen.append(stored)
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - told to the test by `ended`
            self.errors.append(error)

    def saw(self, count: int) -> bool:
        """Wait until `count` events were seen."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, WAIT_S)

    def ended(self) -> bool:
        """Wait for the end; whether it came, and without an error."""
        self._thread.join(WAIT_S)
        assert self.errors == []
        return not self._thread.is_alive()


class FollowContract(ContractBase):
    """How a log is followed."""

    def test_from_the_past_into_what_comes(self, log: EventLog) -> None:
        appended(log, [observed(n) for n in range(PAST)])
        stop = threading.Event()
        reader = Reader(log.follow(0, stop=stop))
        for n in range(PAST, PAST + LIVE):
            log.append(observed(n))
        assert reader.saw(1 + PAST + LIVE)
        stop.set()
        assert reader.ended()
        assert reader.seen == accepted(log)

    def test_begins_where_it_is_told_to(self, log: EventLog) -> None:
        appended(log, [observed(n) for n in range(10)])
        assert [s.index for s in islice(log.follow(7), 4)] == [7, 8, 9, 10]
        assert [s.index for s in islice(log.follow(0), 2)] == [0, 1]
        stop = threading.Event()
        reader = Reader(log.follow(11, stop=stop))
        log.append(observed(10))
        assert reader.saw(1)
        stop.set()
        assert reader.ended()
        assert [s.index for s in reader.seen] == [11]

    def test_filtered(self, log: EventLog) -> None:
        stop = threading.Event()
        wanted = EventFilter(partition_patterns=("even/*",))
        reader = Reader(log.follow(0, wanted, stop=stop))
        for n in range(LIVE):
            log.append(observed(n, f"even/{n}" if n % 2 == 0 else f"odd/{n}"))
        assert reader.saw(LIVE // 2)
        stop.set()
        assert reader.ended()
        assert [s.event.subject_id for s in reader.seen] == [f"even/{n}" for n in range(0, LIVE, 2)]

    def test_ends_when_the_log_is_closed(self, open_log: LogOpener) -> None:
        log = open_log()
        reader = Reader(log.follow())
        assert reader.saw(1)
        log.close()
        assert reader.ended()
        assert len(reader.seen) == 1

    def test_ends_when_it_is_stopped_before_it_began(self, log: EventLog) -> None:
        stop = threading.Event()
        stop.set()
        assert list(log.follow(0, stop=stop)) == []

    def test_several_at_once_with_several_writers(self, log: EventLog) -> None:
        stop = threading.Event()
        readers = [Reader(log.follow(0, stop=stop)) for _ in range(2)]

        def write(number: int) -> None:
            for n in range(LIVE):
                log.append(observed(number * 1000 + n, f"w{number}/{n % 5}"))

        writers = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(3)]
        for writer in writers:
            writer.start()
        assert all(reader.saw(1 + 3 * LIVE) for reader in readers)
        stop.set()
        assert all(reader.ended() for reader in readers)
        everything = accepted(log)
        assert len(everything) == 1 + 3 * LIVE
        for reader in readers:
            assert reader.seen == everything

    def test_while_another_process_writes(
        self, log: EventLog, request: pytest.FixtureRequest
    ) -> None:
        if not log.capabilities.shared:
            return  # LifeContract checks that a second opener is refused or apart
        uri: str = request.getfixturevalue("log_uri")
        stop = threading.Event()
        reader = Reader(log.follow(0, stop=stop))
        command = [sys.executable, "-m", "belog.storage.testing_writer", uri, "5000", str(LIVE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:  # noqa: S603
            for n in range(LIVE):
                log.append(observed(n))
            output, _ = other.communicate(timeout=WAIT_S)
        assert other.returncode == 0
        assert reader.saw(1 + 2 * LIVE)
        stop.set()
        assert reader.ended()
        everything = accepted(log)
        assert reader.seen == everything
        assert len(everything) == 1 + 2 * LIVE
        theirs = {observed(n).event_id for n in range(5000, 5000 + LIVE)}
        assert [s.index for s in everything if s.event.event_id in theirs] == [
            int(line) for line in output.split()
        ]
