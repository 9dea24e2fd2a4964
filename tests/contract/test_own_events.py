"""Tables that take their process's own events from its producer equal those that read the log."""

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from belog.processors.memory_tables import MemoryTables
from belog.processors.own_events import OWN_EVENTS_MAX, OwnEvents
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.envelope import StoredEvent
from belog.schemas.fold import Confirmed, SubjectState
from belog.storage import EventLog
from belog.storage.interface import SCAN_RECORDS_MAX
from tests.examples import event
from tests.producing import BACKENDS, Place

STEPS = 120
TYPES = ("requested", "scheduled", "building", "available", "failed", "observed")


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, request, tmp_path)
    yield made
    made.close()


def read_plainly(log: EventLog) -> tuple[TableFold, list[StoredEvent]]:
    fold, events = TableFold(), list[StoredEvent]()
    while records := log.scan(fold.fold.next_position, SCAN_RECORDS_MAX):
        fold.apply(records, events)
    return fold, events


def test_own_and_foreign_events_make_the_tables_that_a_reader_makes(
    place: Place, seed: int
) -> None:
    chosen = random.Random(f"{seed}-own")
    own = OwnEvents()
    fold = TableFold()
    tables = MemoryTables(fold)
    followed: list[StoredEvent] = []
    confirmed = 0

    def put(what: Sequence[Confirmed]) -> None:
        nonlocal confirmed
        confirmed += len(what)
        # Else it was pushed out before it was taken.
        own.put([each for each in what if chosen.random() < 0.9])

    log, other = place.open(), place.open()
    with (
        Producer(log, actor="me", on_confirmed=put) as mine,
        Producer(other, actor="they") as theirs,
    ):
        for n in range(1, STEPS):
            producer = mine if chosen.random() < 0.7 else theirs
            kind = chosen.choice(TYPES)
            what = [
                event(f"v1.partition.{kind}", chosen.choice("abc"), n=3 * n + k)
                for k in range(chosen.choice((1, 1, 3)))
            ]
            producer.append_batch(what)
            if chosen.random() < 0.4:
                followed += tables.read_on(log, chosen.choice((1, 5, 1000)), own).events
        while more := tables.read_on(log, 1000, own).events:
            followed += more
        plain, events = read_plainly(log)
    assert confirmed > STEPS / 10
    assert followed == events
    assert list(fold.rows()) == list(plain.rows())
    assert fold.fold.merkle.root() == plain.fold.merkle.root()
    assert fold.fold.next_idx == plain.fold.next_idx
    assert fold.fold.window() == plain.fold.window()


def confirmed_at(position: int) -> Confirmed:
    after = SubjectState("available", position, None, b"")
    return Confirmed(position, 0, b"", event("v1.partition.observed", n=position), after)


def positions(events: list[Confirmed]) -> list[int]:
    return [e.position for e in events]


def test_only_events_in_a_row_are_taken() -> None:
    own = OwnEvents()
    own.put([confirmed_at(position) for position in (3, 4, 5, 7, 8)])
    assert positions(own.take(2, 10)) == []
    assert positions(own.take(3, 2)) == [3, 4]
    assert positions(own.take(5, 10)) == [5]
    assert positions(own.take(6, 10)) == []
    assert positions(own.take(8, 10)) == [8]
    assert not own.wait(8, 0)


def test_the_oldest_are_forgotten() -> None:
    own = OwnEvents()
    own.put([confirmed_at(position) for position in range(OWN_EVENTS_MAX + 5)])
    assert positions(own.take(0, 10)) == []
    assert positions(own.take(5, 3)) == [5, 6, 7]


def test_who_waits_is_woken() -> None:
    own = OwnEvents()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(own.wait(4, 30)))
    thread.start()
    for position in range(3, 5):
        own.put([confirmed_at(position)])
    thread.join(30)
    assert woken == [True]


def test_who_waits_is_told_to_look_elsewhere() -> None:
    own = OwnEvents()
    own.put([confirmed_at(3)])
    own.take(3, 1)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(own.wait(4, 30)))
    thread.start()
    own.miss()
    thread.join(30)
    own.miss()
    assert [*answers, own.wait(4, 30)] == [False, False], "also who waits afterwards, once"
    own.put([confirmed_at(4)])
    assert own.wait(4, 30)
    assert own.last_position == 4
