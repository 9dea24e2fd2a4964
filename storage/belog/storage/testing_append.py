"""The contract suite: appending, alone and against others."""

import time

import pytest

from belog.schemas.envelope import Event
from belog.schemas.errors import (
    IndexConflict,
    LimitExceeded,
    ReplicaRefused,
    Unsupported,
)
from belog.schemas.events import SnapshotTaken, new_event
from belog.schemas.limits import BATCH_EVENTS_MAX, EVENT_BYTES_MAX
from belog.storage.interface import ConditionalLog, EventLog, OrderedLog
from belog.storage.testing_base import (
    ContractBase,
    LogOpener,
    accepted,
    appended,
    in_threads,
)
from belog.storage.testing_events import observed
from belog.storage.touch import TOUCH_RECORDS_MAX

__all__ = ["AppendContract"]

THREADS = 6
APPENDS = 20


class AppendContract(ContractBase):
    """How events enter."""

    def test_receipts_say_where_and_when(self, log: EventLog) -> None:
        before = time.time_ns() // 1000
        receipt = log.append(observed(1))
        assert (receipt.index, receipt.event_id) == (1, observed(1).event_id)
        assert not receipt.duplicate
        stored = log.get(1)
        assert stored is not None
        assert (stored.index, stored.event) == (1, observed(1))
        assert stored.created_at == receipt.created_at
        # A server has a clock of its own: an hour apart would be a wrong unit, not a wrong clock.
        assert abs(receipt.created_at - before) < 3_600_000_000

    def test_a_batch_keeps_its_order(self, log: EventLog) -> None:
        events = [observed(n, f"r{n % 3}") for n in range(100)]
        receipts = appended(log, events)
        assert [r.index for r in receipts] == list(range(1, 101))
        assert [s.event for s in log.read(1).events] == events
        assert log.append_batch([]) == []
        assert log.next_position() == 101

    def test_batches_at_their_bound_and_over(self, log: EventLog) -> None:
        events = [observed(n, f"r{n % 7}") for n in range(BATCH_EVENTS_MAX + 1)]
        with pytest.raises(LimitExceeded):
            log.append_batch(events)
        assert log.next_position() == 1
        receipts = appended(log, events[:-1])
        assert [r.index for r in receipts] == list(range(1, BATCH_EVENTS_MAX + 1))
        assert log.next_position() == BATCH_EVENTS_MAX + 1

    def test_compare_and_append(self, log: EventLog) -> None:
        if not log.capabilities.conditional_append:
            with pytest.raises(Unsupported):
                log.append(observed(1), at=1)
            with pytest.raises(Unsupported):
                log.append_batch([observed(1), observed(2)], atomic=True)
            assert log.next_position() == 1
            return
        assert log.append(observed(1), at=1).index == 1
        for wrong in (0, 1, 3, 2**40):
            with pytest.raises(IndexConflict) as caught:
                log.append_batch([observed(2), observed(3)], at=wrong, atomic=True)
            assert caught.value.next_idx == 2
            assert log.next_position() == 2
        results = log.append_batch([observed(2), observed(3)], at=2, atomic=True)
        assert [r.index for r in results if not isinstance(r, Exception)] == [2, 3]

    def test_racing_on_one_index_lets_one_in(self, log: EventLog) -> None:
        if not log.capabilities.conditional_append:
            with pytest.raises(Unsupported):
                log.append(observed(1), at=1)
            return
        winners: list[int] = []

        def race(number: int) -> None:
            for at in range(1, 1 + APPENDS):
                while log.next_position() < at:
                    log.wait(at - 1, 1.0)
                try:
                    log.append(observed(number * 1000 + at), at=at)
                except IndexConflict:
                    continue
                winners.append(at)

        in_threads(3, race)
        assert sorted(winners) == list(range(1, 1 + APPENDS))
        assert [s.index for s in accepted(log)] == list(range(1 + APPENDS))

    def test_append_unless_touched(self, log: EventLog) -> None:
        if not isinstance(log, ConditionalLog):
            assert isinstance(log, OrderedLog)
            return
        appended(log, [observed(1, "a"), observed(2, "b")])
        seen = log.next_position()
        appended(log, [observed(3, "b")])
        # Another subject was written meanwhile: no matter.
        receipts = log.append_unless_touched([observed(4, "a"), observed(5, "c")], seen_idx=seen)
        assert [r.index for r in receipts] == [4, 5]
        end = log.next_position()
        for events, why in (
            ([observed(6, "b")], "the same subject"),
            ([observed(7, "x"), observed(8, "a")], "the same subject, further on"),
            ([observed(3, "z")], "the same event id"),
        ):
            with pytest.raises(IndexConflict) as caught:
                log.append_unless_touched(events, seen_idx=seen)
            assert caught.value.next_idx == end, why
            assert log.next_position() == end, why
        assert log.append_unless_touched([observed(6, "b")], seen_idx=end)[0].index == end
        assert log.append_unless_touched([], seen_idx=end + 1) == []

    def test_a_record_of_the_log_itself_touches_all(self, log: EventLog) -> None:
        if not isinstance(log, ConditionalLog):
            assert isinstance(log, OrderedLog)
            return
        seen = log.next_position()
        appended(log, [snapshot_taken(log)])
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(1)], seen_idx=seen)
        assert log.append_unless_touched([observed(1)], seen_idx=seen + 1)[0].index == seen + 1

    def test_too_much_in_between_is_not_looked_through(self, log: EventLog) -> None:
        if not isinstance(log, ConditionalLog):
            assert isinstance(log, OrderedLog)
            return
        seen = log.next_position()
        appended(log, [observed(n) for n in range(TOUCH_RECORDS_MAX)])
        assert log.append_unless_touched([observed(900_001)], seen_idx=seen)
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(900_002)], seen_idx=seen)

    def test_many_threads_append_at_once(self, log: EventLog) -> None:
        indices: dict[int, list[int]] = {n: [] for n in range(THREADS)}

        def write(number: int) -> None:
            for n in range(APPENDS):
                event = observed(number * 1000 + n, f"r{n % 4}/{number}")
                if n % 3:
                    indices[number].append(log.append(event).index)
                else:
                    indices[number] += [r.index for r in appended(log, [event])]

        in_threads(THREADS, write)
        everything = sorted(index for mine in indices.values() for index in mine)
        assert everything == list(range(1, 1 + THREADS * APPENDS))
        stored = log.read().events
        assert [s.index for s in stored] == list(range(1 + THREADS * APPENDS))
        by_index = {s.index: s.event for s in stored}
        for number, mine in indices.items():
            assert mine == sorted(mine)
            for n, index in enumerate(mine):
                assert by_index[index].event_id == observed(number * 1000 + n).event_id

    def test_two_objects_over_one_log(self, open_log: LogOpener) -> None:
        first = open_log()
        if not first.capabilities.shared:
            return  # LifeContract checks that a second one is refused or apart
        second = open_log()
        for n in range(20):
            writer, reader = (first, second) if n % 2 else (second, first)
            assert writer.append(observed(n)).index == n + 1
            assert reader.next_position() == n + 2
            stored = reader.get(n + 1)
            assert stored is not None
            assert stored.event == observed(n)
        assert first.end() == second.end()

    def test_ingest_time_never_goes_back(self, open_log: LogOpener) -> None:
        given: list[int] = []

        def clock() -> int:
            # Set back by an hour, then by less, between steps forward.
            steps = (0, 5, 10, -3_600, -3_595, 8, 20, -1)
            given.append(1_700_000_000_000_000 + steps[len(given) % 8] * 1_000_000 + len(given))
            return given[-1]

        log = open_log(clock=clock) if self.takes_clock else open_log()
        told = [log.append(observed(n)).created_at for n in range(20)]
        seen = [s.created_at for s in log.read().events]
        assert seen == sorted(seen)
        assert seen == [s.created_at for s in accepted(log)]
        if self.takes_clock:
            assert given != sorted(given)
            assert seen[-1] == max(given)
            assert seen[1:] == told
        for stored in log.read().events:
            assert log.get(stored.index) == stored

    def test_text_of_any_kind(self, log: EventLog) -> None:
        refs = [
            "ünï/çødé",
            "日本語/データ",
            "a b",
            "%2F?&#",
            "\U0001f600/🚀",
            "'; --",
            "\\x",
            "é" * 512,
        ]
        events = [observed(n, ref) for n, ref in enumerate(refs)]
        appended(log, events)
        assert [s.event.subject_id for s in log.read(1).events] == refs
        assert [s.event for s in log.read(1).events] == events

    def test_events_of_the_largest_size(self, log: EventLog) -> None:
        events = [large(n) for n in range(3)]
        appended(log, events)
        assert [s.event for s in log.read(1).events] == events
        stored = log.get(2)
        assert stored is not None
        assert stored.event == events[1]

    def test_a_replica_takes_no_appends(self, open_log: LogOpener) -> None:
        log = open_log(replica=True)
        with pytest.raises(ReplicaRefused):
            log.append(observed(1))
        with pytest.raises(ReplicaRefused):
            log.append_batch([observed(1)])
        if isinstance(log, ConditionalLog):
            with pytest.raises(ReplicaRefused):
                log.append_unless_touched([observed(1)], seen_idx=0)
        assert log.next_position() == 0


def snapshot_taken(log: EventLog) -> Event:
    """Return an event of the log itself."""
    return new_event(
        SnapshotTaken(index=1, location="nowhere"),
        str(log.initialize().log_id),
        event_id=b"s" * 16,
        actor="tester",
        occurred_at=1,
    )


def large(number: int) -> Event:
    """Return an event that is as large as one may be, but for a few bytes."""
    return new_event(
        "v2.partition.described",
        f"r{number}",
        {"text": "x" * (EVENT_BYTES_MAX - 200)},
        event_id=number.to_bytes(16, "big"),
        actor="tester",
        occurred_at=number,
    )
