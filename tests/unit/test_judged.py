"""Reads over raw records: what is void is passed over, time never goes back, pages move on."""

import random

import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Accepted, Fold, Record
from belog.storage import judged
from belog.storage.judged import JudgedView
from tests.examples import T0, created, event, record, replica_value


def view_over(records: list[Record]) -> JudgedView:
    def scan(since: int, limit: int) -> list[Record]:
        return [r for r in records if r.position >= since][:limit]

    return JudgedView(scan, "list")


def observed(number: int) -> Event:
    return event("v1.partition.observed", f"r{number % 3}", n=number)


def expected(records: list[Record]) -> list[StoredEvent]:
    fold = Fold()
    outcomes = [fold.apply(r) for r in records]
    return [
        StoredEvent(o.index, o.created_at, o.event)
        for o in outcomes
        if o is not None and o.event is not None and isinstance(o.verdict, Accepted)
    ]


def a_log(seed: int) -> list[Record]:
    """Records with garbage, tombstones, repeats, gaps, and a clock that is set back and forth."""
    rng = random.Random(seed)
    records = [record(0, created())]
    position = 0
    for n in range(1, 120):
        position += rng.choice((1, 1, 1, 2, 5))
        what = rng.choice((observed(n), observed(n), observed(n // 2), b"garbage", None))
        records.append(record(position, what, T0 + rng.randrange(-1000, 1000) + n))
    return records


@pytest.mark.parametrize("log_seed", range(5))
def test_pages_and_single_events_are_those_of_the_fold(log_seed: int) -> None:
    records = a_log(log_seed)
    wanted = expected(records)
    times = [stored.created_at for stored in wanted]
    assert times == sorted(times)
    end = records[-1].position + 1
    view = view_over(records)
    for limit in (1, 7, 1000):
        found: list[StoredEvent] = []
        cursor = 0
        while True:
            page = view.read(cursor, ALL, limit)
            found += page.events
            cursor = page.next_idx
            if not page.has_more:
                break
        assert found == wanted
        assert cursor == end
    by_index = {stored.index: stored for stored in wanted}
    for index in range(end + 2):
        assert view.get(index) == by_index.get(index)


def test_what_comes_later_is_taken_in() -> None:
    records = a_log(9)
    growing = records[:1]
    view = view_over(growing)
    for size in range(2, len(records), 7):
        growing[:] = records[:size]
        assert view.read(0, ALL, 1000).events == tuple(expected(growing))
    counted = view.statistics()
    seen = counted.events + counted.void + counted.duplicates + counted.tombstones
    assert seen == len(growing)
    assert counted.gaps == growing[-1].position + 1 - len(growing)


def a_replica(count: int) -> list[Record]:
    """A replica's records, each also sent by a zombie whose copies are all void."""
    records: list[Record] = []
    previous = -1
    for n in range(count):
        value = replica_value(
            created() if n == 0 else observed(n), n * 4, previous, created_at=T0 + 100 - n % 7
        )
        previous = n * 4
        records += [record(len(records), value), record(len(records) + 1, value)]
    return records


def test_a_replica_on_a_log_with_positions_of_its_own() -> None:
    records = a_replica(30)
    wanted = expected(records)
    assert [stored.index for stored in wanted] == list(range(0, 120, 4))
    view = view_over(records)
    assert view.read(0, ALL, 1000).events == tuple(wanted)
    assert view.read(41, ALL, 2).events == tuple(wanted[11:13])
    assert view.read(41, ALL, 2).next_idx == wanted[12].index + 1
    assert view.get(40) == wanted[10]
    assert view.get(41) is None


def test_a_page_that_stops_early_has_moved_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "PAGE_SCAN_RECORDS_MAX", 5)
    nobody = EventFilter(actors=("nobody",))
    first = a_replica(1)[0]
    garbage = [record(n, b"garbage") for n in range(1, 40)]
    last = record(40, replica_value(observed(1), 8, 0))
    for records in (a_log(3), a_replica(30), [first, *garbage, last]):
        view = view_over(records)
        cursor = 0
        while True:
            page = view.read(cursor, nobody, 10)
            assert page.events == ()
            if not page.has_more:
                break
            assert page.next_idx > cursor
            cursor = page.next_idx
        assert page.next_idx == view.catch_up().next_idx
