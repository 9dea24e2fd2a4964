"""The feed of changes holds what the tables hold, and how they came to it, whatever cuts it off."""

import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import BuildRow, PartitionRow
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.errors import Diverged, LogReplaced, NotFound
from belog.schemas.fold import Record
from belog.sink import changes
from belog.sink.changes import BuildChange, ChangeFeed, PartitionChange, codec_of, topic_uris
from belog.storage import EventLog, open_log
from belog.storage.kafka_keyed import KeyedTopic
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from tests.e2e.program import belog
from tests.examples import LOG_ID, event
from tests.servers import Broker, eventually
from tests.table_logs import random_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

KINDS: dict[type, Any] = {PartitionChange: PartitionRow, BuildChange: BuildRow}


@pytest.fixture
def uri(broker: Broker, topic_name: str) -> str:
    found = f"{broker.uri}/{topic_name}"
    for topic in topic_uris(found):
        create_topic(topic)
    return found


class Written(MemoryLog):
    """A log of records that were drawn."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__()
        self.records = records
        self.shown = len(records)

    def scan(self, since_position: int, limit: int = 100) -> list[Record]:
        return [r for r in self.records[: self.shown] if r.position >= since_position][:limit]


def expected(log: EventLog) -> dict[type, list[tuple[bytes, bytes]]]:
    tables = TableFold()
    found: dict[type, list[tuple[bytes, bytes]]] = {kind: [] for kind in KINDS}
    for outcome, rows in tables.apply(log.scan(0, 10_000)).row_changes():
        for row in rows:
            record = changes.change_of(tables.log_id or "", outcome, row)
            if record is not None:
                found[type(record)].append(changes.encoded(record))
    return found


def held(uri: str) -> dict[type, list[tuple[bytes | None, bytes | None]]]:
    found: dict[type, list[tuple[bytes | None, bytes | None]]] = {}
    for topic, kind in zip(topic_uris(uri), KINDS, strict=True):
        with KeyedTopic(topic) as keyed:
            found[kind] = [(r.key, r.value) for r in keyed.tail(10_000)]
    return found


@contextmanager
def producing(log: EventLog) -> Iterator[Producer]:
    log.initialize()
    with Producer(log, actor="x") as producer:
        yield producer


def test_a_feed_that_is_cut_off_anywhere_writes_every_change_once_in_order(
    uri: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(changes, "PUT_RECORDS_MAX", 7)
    put = KeyedTopic.put
    left = [0]

    def cut_off(self: KeyedTopic, keys: list[bytes], values: list[bytes]) -> None:
        count = min(len(keys), max(0, left[0]))
        left[0] -= len(keys)
        put(self, keys[:count], values[:count])
        if count < len(keys):
            msg = "cut off"
            raise ConnectionError(msg)

    monkeypatch.setattr(KeyedTopic, "put", cut_off)
    with Written(random_records(rng, 400)) as log:
        log.initialize(log_id=LOG_ID)
        stop = threading.Event()
        done = False
        while not done:
            left[0] = rng.randint(0, 120)
            log.shown = rng.randint(1, len(log.records)) if left[0] % 3 else len(log.records)
            feed = ChangeFeed(log, uri)
            try:
                feed.run_once(stop)
                done = log.shown == len(log.records)
            except ConnectionError:
                pass
            finally:
                feed.close()
        wanted = expected(log)
    assert sum(map(len, wanted.values())) > 100
    assert held(uri) == wanted


def test_what_readers_make_of_it_are_the_tables(tmp_path: Path, uri: str) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log, producing(log) as producer:
        for n in range(20):
            producer.append_event(event("v1.partition.requested", f"data://x/{n}", n=n))
        feed, stop = ChangeFeed(log, uri), threading.Event()
        running = threading.Thread(target=feed.run, args=(stop,))
        running.start()
        producer.append_event(event("v1.partition.scheduled", "data://x/3", n=100))
        ends = [KeyedTopic(topic) for topic in topic_uris(uri)]
        try:
            eventually(lambda: len(ends[0].tail(100)) == 21, "the last change is there")
        finally:
            stop.set()
            running.join()
            feed.close()
            for end in ends:
                end.close()
        with MemoryTables() as tables:
            tables.catch_up(log)
            for kind, row_type in KINDS.items():
                newest = {
                    key: codec_of(kind).decode(value)["after"]
                    for key, value in held(uri)[kind]
                    if value is not None
                }
                rows = tables.list_rows(row_type, limit=1_000).rows
                assert {row.row_id.encode() for row in rows} == set(newest)
                for row in rows:
                    assert msgspec.convert(newest[row.row_id.encode()], row_type) == row


def test_topics_of_another_log_or_none_are_refused(
    tmp_path: Path, broker: Broker, topic_name: str, uri: str
) -> None:
    stop = threading.Event()
    for name in ("a", "b"):
        with open_log(f"sqlite:///{tmp_path / name}.db") as log, producing(log) as producer:
            producer.append_event(event("v1.partition.requested", "data://x", n=1))
            feed = ChangeFeed(log, uri)
            try:
                if name == "a":
                    assert feed.run_once(stop).written == 1
                else:
                    with pytest.raises(LogReplaced, match="changes of log"):
                        feed.run_once(stop)
            finally:
                feed.close()
            with pytest.raises(NotFound, match="no topic"):
                ChangeFeed(log, f"{broker.uri}/{topic_name}-other")


def test_a_second_writer_is_noticed_and_the_topic_goes_on_from_its_end(
    tmp_path: Path, uri: str
) -> None:
    stop = threading.Event()
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log, producing(log) as producer:
        first, second = ChangeFeed(log, uri), ChangeFeed(log, uri)
        try:
            for n, feed in enumerate((first, second, first, second)):
                producer.append_event(event("v1.partition.requested", f"data://x/{n}", n=n))
                try:
                    feed.run_once(stop)
                except Diverged:
                    feed.run_once(stop)
            wanted = expected(log)
            for kind, pairs in held(uri).items():
                # A record may be there twice; the index says which to take.
                assert list(dict.fromkeys(pairs)) == wanted[kind]
        finally:
            first.close()
            second.close()


def test_the_commands_of_the_page_do_what_it_says(
    tmp_path: Path, broker: Broker, topic_name: str
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "changes.md").read_text()
    names = {"kafka://localhost:9092": broker.uri, "/tables": f"/{topic_name}-tables"}
    log = f"{broker.uri}/{topic_name}"
    create_topic(log)
    belog("append", "v1.partition.observed", "sales/1", "--log", log, cwd=tmp_path).ok()
    for line in re.findall(r"^\$ belog (.*)$", page, re.MULTILINE):
        for shown, real in names.items():
            line = line.replace(shown, real)  # noqa: PLW2901 - as a reader would
        arguments = line.replace(f"{broker.uri}/builds", log).split()
        once = ["--once"] if arguments[0] == "changes" else []
        belog(*arguments, *once, cwd=tmp_path).ok()
    found = held(f"{log}-tables")[PartitionChange]
    assert [key for key, _ in found] == [b"sales/1"]
