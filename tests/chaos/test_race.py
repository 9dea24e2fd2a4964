"""Eight processes race for the same partitions: the log stays legal, each is told the truth."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from belog.schemas.fold import Fold
from belog.storage import EventLog, open_log
from belog.storage.interface import fold_log
from belog.storage.kafka_target import parse_uri
from belog.storage.kafka_topic import create_topic
from tests.chaos.racing import Course, Racer
from tests.examples import event, state_of
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.integration]

PROCESSES = 8
EVENTS = 500

FAST_COMPACTION = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "1000",
}


@pytest.fixture(params=["sqlite", "kafka"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, topic_name: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/race.db"
    broker: Broker = request.getfixturevalue("broker")
    return f"{broker.uri}/{topic_name}"


def raced(uri: str, seed: int) -> list[Racer]:
    racers = [Racer(uri, n, str(seed), EVENTS) for n in range(PROCESSES)]
    for racer in racers:
        racer.wait_ready()
    for racer in racers:
        racer.go()
    for racer in racers:
        racer.require_end()
    return racers


def opened(stack: ExitStack, uri: str) -> EventLog:
    log = stack.enter_context(open_log(uri))
    log.initialize()
    return log


def compact_fast(uri: str) -> None:
    target = parse_uri(uri)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in FAST_COMPACTION.items()
    ]
    resource = ConfigResource("topic", target.topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": target.servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.timeout(300)
def test_racers_are_told_the_truth_and_void_records_vanish(uri: str, seed: int) -> None:
    is_kafka = uri.startswith("kafka")
    if is_kafka:
        create_topic(uri)
    with ExitStack() as stack:
        log = opened(stack, uri)
        racers = raced(uri, seed)
        course = Course(log)
        for racer in racers:
            assert len(racer.said) == EVENTS
            course.check(racer.said)
        accepted = sum("index" in answer for racer in racers for answer in racer.said)
        assert len(course.accepted) == accepted + 1
        assert len(course.courses) == 5
        assert accepted > 200, "most were refused: this was no race"
        statistics = log.statistics()
        if not is_kafka:
            assert log.next_position() == accepted + 1
            assert (statistics.void, statistics.gaps) == (0, 0)
            return
        assert statistics.void > 20, "nobody lost: this was no race"
        end = log.next_position()
        before = fold_log(log, Fold(), until_position=end)
        root = log.end().root
        compact_fast(uri)
        number = iter(range(1, 10_000))

        def is_clean() -> bool:
            # The newest segment is never cleaned: go on writing until the race lies in older ones.
            log.append(event("v1.partition.observed", "data://tick", n=next(number)))
            records = opened(stack, uri).scan(0)
            mine = [record for record in records if record.position < end]
            return len(mine) == accepted + 1

        eventually(is_clean, "void records and their tombstones are gone", timeout_s=120)
        fresh = opened(stack, uri)
        after = fold_log(fresh, Fold(), until_position=end)
        assert after.merkle.root() == before.merkle.root() == root
        told = state_of(after)
        # Where the last records of the race were tombstones, they are not read any more.
        told["position"], told["index"] = end, end
        assert told == state_of(before)
        assert Course(fresh).courses == {
            **course.courses,
            "data://tick": Course(fresh).courses["data://tick"],
        }
