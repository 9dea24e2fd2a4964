"""A local index of a topic: it answers as the log does, and is made anew where it does not fit."""

import logging
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import InvalidUri, LogTruncated, Unavailable
from belog.schemas.filters import EventFilter
from belog.storage import EventLog, open_log
from belog.storage.indexed import IndexedLog
from belog.storage.kafka_topic import create_topic
from belog.storage.sqlite import SqliteLog
from tests.examples import LOG_ID, event, id_bytes
from tests.servers import Broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

KILLS = 6
FILTERS = (
    EventFilter(),
    EventFilter(partition_refs=("data://p/3",)),
    EventFilter(partition_patterns=("data://p/1*",), event_types=("v1.partition.stale",)),
    EventFilter(actors=("tester",), subject_kinds=("system",)),
    EventFilter(partition_refs=("data://nowhere",)),
)

FILL = """
import sys
from belog.storage import open_log
with open_log(sys.argv[1]) as log:
    log.initialize()
    log.refresh(lambda position, end: print(position, flush=True))
"""


class Topic:
    """One topic, and logs over it that are closed at the end."""

    def __init__(self, uri: str, folder: Path, stack: ExitStack) -> None:
        self.uri, self.folder, self._stack = uri, folder, stack
        create_topic(uri)

    @property
    def path(self) -> Path:
        return self.folder / "index.db"

    def plain(self) -> EventLog:
        log = self._stack.enter_context(open_log(self.uri))
        log.initialize(log_id=LOG_ID)
        return log

    def indexed_uri(self) -> str:
        return f"{self.uri}?index={self.path}"

    def indexed(self) -> IndexedLog:
        log = self._stack.enter_context(open_log(self.indexed_uri()))
        log.initialize(log_id=LOG_ID)
        assert isinstance(log, IndexedLog)
        return log


@pytest.fixture
def make_topic(broker: Broker, topic_name: str, tmp_path: Path) -> Iterator[Callable[[str], Topic]]:
    with ExitStack() as stack:
        yield lambda name: Topic(f"{broker.uri}/{topic_name}-{name}", tmp_path, stack)


@pytest.fixture
def topic(make_topic: Callable[[str], Topic]) -> Topic:
    return make_topic("a")


def mixed(rng: random.Random, start: int, count: int) -> list[Event]:
    """Legal events, illegal ones, and repeats."""
    names = ("observed", "stale", "removed", "observed")
    made: list[Event] = []
    for n in range(start, start + count):
        if made and rng.random() < 0.1:
            made.append(rng.choice(made))
        else:
            ref = f"data://p/{rng.randrange(20)}"
            made.append(event(f"v1.partition.{rng.choice(names)}", ref, {}, n=n))
    return made


def pages(log: EventLog, wanted: EventFilter, limit: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    cursor = 0
    while True:
        page = log.read(cursor, wanted, limit)
        assert len(page.events) <= limit
        found += page.events
        assert page.next_idx > cursor or not page.has_more
        cursor = page.next_idx
        if not page.has_more:
            assert cursor == log.next_position()
            return found


def assert_alike(indexed: IndexedLog, plain: EventLog) -> None:
    for wanted in FILTERS:
        for limit in (1, 7, 1_000):
            assert pages(indexed, wanted, limit) == pages(plain, wanted, limit)
    for index in range(0, plain.next_position() + 1, 9):
        assert indexed.get(index) == plain.get(index)
    for number in range(1, 200, 17):
        assert indexed.get_by_id(id_bytes(number)) == plain.get_by_id(id_bytes(number))
    assert indexed.end() == plain.end()
    assert indexed.statistics() == plain.statistics()
    indexed.verify_index()


def test_answers_as_the_log_does(topic: Topic, seed: int) -> None:
    rng = random.Random(f"{seed}-index")
    plain, indexed = topic.plain(), topic.indexed()
    assert indexed.as_of == 0
    for start in (1, 200, 300):
        indexed.append_batch(mixed(rng, start, 100))
        assert_alike(indexed, plain)
        assert indexed.as_of == plain.next_position()
    assert plain.statistics().void > 0
    assert plain.statistics().duplicates > 0


def test_goes_on_where_it_ended(topic: Topic, seed: int) -> None:
    rng = random.Random(f"{seed}-again")
    plain = topic.plain()
    plain.append_batch(mixed(rng, 1, 100))
    first = topic.indexed()
    first.refresh()
    first.close()
    last = pages(plain, EventFilter(), 1_000)[-1].index
    plain.append_batch(mixed(rng, 200, 50))
    with sqlite3.connect(topic.path) as index:
        rows = index.execute("SELECT count(*), max(idx) FROM belog_records").fetchone()
    assert rows[1] == last
    again = topic.indexed()
    assert again.get(last) == plain.get(last)
    assert again.as_of == last + 1, "what the index covers is answered without the log"
    assert_alike(again, plain)
    with sqlite3.connect(topic.path) as index:
        kept = index.execute("SELECT count(*) FROM belog_records WHERE idx <= ?", [last])
        assert kept.fetchone()[0] == rows[0]


def test_survives_kill_9(topic: Topic, seed: int) -> None:
    rng = random.Random(f"{seed}-kill")
    plain = topic.plain()
    number = 1
    for _ in range(KILLS):
        plain.append_batch(mixed(rng, number, 3_000))
        number += 3_000
        command = [sys.executable, "-c", FILL, topic.indexed_uri()]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if rng.random() < 0.5:
                process.stdout.readline()
            try:
                process.wait(rng.uniform(0.3, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()
    indexed = topic.indexed()
    indexed.refresh()
    indexed.verify_index()
    assert indexed.end() == plain.end()
    assert pages(indexed, EventFilter(), 10_000) == pages(plain, EventFilter(), 10_000)


def test_several_fill_one_index(topic: Topic, seed: int) -> None:
    rng = random.Random(f"{seed}-several")
    plain = topic.plain()
    logs = [topic.indexed() for _ in range(3)]
    errors: list[BaseException] = []

    def read(log: IndexedLog) -> None:
        try:
            for n in range(30):
                pages(log, FILTERS[n % len(FILTERS)], 50)
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            errors.append(error)

    def pages(log: IndexedLog, wanted: EventFilter, limit: int) -> None:
        cursor, more = 0, True
        while more:
            page = log.read(cursor, wanted, limit)
            cursor, more = page.next_idx, page.has_more

    threads = [threading.Thread(target=read, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for start in range(1, 1_000, 50):
        plain.append_batch(mixed(rng, start, 50))
    for thread in threads:
        thread.join()
    assert errors == []
    for log in logs:
        assert_alike(log, plain)


def test_an_index_of_another_log_is_made_anew(
    topic: Topic, make_topic: Callable[[str], Topic], caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    rng = random.Random(f"{seed}-other")
    other = make_topic("b")
    with open_log(other.indexed_uri()) as log:
        log.initialize()
        log.append_batch(mixed(rng, 1, 50))
        log.read()
    topic.plain().append_batch(mixed(rng, 100, 50))
    with caplog.at_level(logging.WARNING, "belog.index"):
        assert_alike(topic.indexed(), topic.plain())
    assert "made anew" in caplog.text


@pytest.mark.parametrize("damage", ["value", "missing", "time", "bytes"])
def test_a_damaged_index_is_made_anew(
    topic: Topic, caplog: pytest.LogCaptureFixture, damage: str, seed: int
) -> None:
    plain = topic.plain()
    plain.append_batch(
        [event("v1.partition.observed", f"data://p/{n}", {}, n=n) for n in range(1, 90)]
    )
    first = topic.indexed()
    first.read()
    first.close()
    with sqlite3.connect(topic.path) as index:
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "value":
            value = encode_event(event("v1.partition.observed", "data://else", {}, n=999))
            index.execute("UPDATE belog_records SET value = ? WHERE idx = 89", [value])
        elif damage == "missing":
            index.execute("DELETE FROM belog_records WHERE idx = 0")
        elif damage == "time":
            index.execute("UPDATE belog_records SET created_at = 1 WHERE idx = 40")
    if damage == "bytes":
        data = bytearray(topic.path.read_bytes())
        rng = random.Random(f"{seed}-bytes")
        for _ in range(2_000):
            data[rng.randrange(8_192, len(data))] ^= 0xFF
        topic.path.write_bytes(data)
    with caplog.at_level(logging.WARNING, "belog.index"):
        assert_alike(topic.indexed(), plain)
    assert "made anew" in caplog.text


def test_one_in_use_is_not_made_anew(topic: Topic) -> None:
    plain = topic.plain()
    plain.append_batch([event("v1.partition.observed", n=n) for n in range(1, 9)])
    used = topic.indexed()
    used.read()
    with sqlite3.connect(topic.path) as index:
        index.execute("DELETE FROM belog_records WHERE idx = 0")
    with pytest.raises(Unavailable, match="another process uses it"):
        topic.indexed().read()
    used.close()
    assert_alike(topic.indexed(), plain)


def test_an_index_that_is_ahead_is_an_error(
    topic: Topic, make_topic: Callable[[str], Topic]
) -> None:
    events = [event("v1.partition.observed", n=n) for n in range(1, 9)]
    log = topic.indexed()
    log.append_batch(events)
    log.read()
    log.close()
    shorter = make_topic("b")
    shorter.plain().append_batch(events[:3])
    with pytest.raises(LogTruncated, match="its index"):
        shorter.indexed().read()
    assert topic.path.exists(), "it holds what the log lost"


def test_other_files_are_refused_and_left_alone(topic: Topic) -> None:
    topic.plain()
    with SqliteLog(topic.path) as log:
        log.initialize(log_id=LOG_ID)
    before = topic.path.read_bytes()
    with pytest.raises(InvalidUri, match="no index"):
        topic.indexed().read()
    assert topic.path.read_bytes() == before
    topic.path.write_text("something else" * 100)
    with pytest.raises(InvalidUri):
        topic.indexed().read()
    assert topic.path.read_text() == "something else" * 100
    shutil.rmtree(topic.folder)
    with pytest.raises(InvalidUri, match="folder"):
        topic.indexed().read()
