"""When the feed of a service looks into the log although its own appends are under way."""

import threading

import pytest

from belog.processors.memory_tables import MemoryTables
from belog.producers import Producer
from belog.schemas.errors import BelogError, Unavailable
from belog.service.bridge import AppendQueue
from belog.service.following import Following
from belog.storage.interface import Receipt
from belog.storage.memory import MemoryLog
from tests.examples import event


class Busy(AppendQueue):
    """A queue that always has something under way."""

    def __init__(self) -> None:
        """Start no thread."""

    @property
    def is_busy(self) -> bool:
        return True


@pytest.fixture
def following() -> Following:
    log = MemoryLog()
    log.initialize()
    tables = MemoryTables()
    made = Following(log, tables)
    made.appends = Busy()
    with Producer(log, actor="x", on_confirmed=made.own.put) as producer:
        producer.append_event(event("v1.partition.observed", n=1))
    return made


def receipt(index: int) -> Receipt:
    return Receipt(index, 0, b"")


@pytest.mark.parametrize(
    "outcomes",
    [
        [[receipt(1)], [receipt(2)]],
        [[receipt(1), Unavailable("away")]],
        [BelogError("all of them")],
    ],
)
def test_what_others_wrote_is_looked_for_once_the_own_group_is_written(
    following: Following, outcomes: list[list[Receipt | BelogError] | Exception]
) -> None:
    woken = threading.Thread(target=following.own.wait, args=(2, 30))
    woken.start()
    following.written(outcomes)
    woken.join(10)
    assert not woken.is_alive()


def test_what_was_confirmed_is_nothing_to_look_for(following: Following) -> None:
    following.written([[receipt(1)], [receipt(0)]])
    assert not following.own.wait(2, 0)
    woken = threading.Thread(target=following.own.wait, args=(2, 30))
    woken.start()
    woken.join(0.1)
    assert woken.is_alive()
    following.own.miss()
    woken.join(10)
    assert not woken.is_alive()
