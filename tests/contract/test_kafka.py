"""The contract, over a topic of a real broker."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from belog.storage.interface import EventLog, OrderedLog
from belog.storage.kafka import KafkaLog, from_uri
from belog.storage.kafka_topic import create_topic
from belog.storage.testing import Clock, LogContract, MakeLog
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

QUICK_COMPACTION = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "1000",
}


def compacted(log: EventLog, stack: ExitStack) -> EventLog:
    """Wait until compaction has removed what tombstones name; return a log that sees this."""
    assert isinstance(log, OrderedLog)
    named: set[bytes | None] = set()

    def look() -> EventLog | None:
        # Only a closed segment is compacted, and only an append closes one.
        log.tombstone([os.urandom(16)])
        # A log that was read before may have the records at hand.
        fresh = stack.enter_context(from_uri(log.name))
        fresh.initialize()
        records = fresh.scan_raw(0, 10_000)
        named.update(record.key for record in records if record.value is None)
        gone = all(record.key not in named for record in records if record.value is not None)
        return fresh if gone else None

    found = eventually(look, "compaction removes what is named", timeout_s=90)
    assert found is not None
    return found


class TestKafka(LogContract):
    @pytest.fixture
    def log_uri(self, broker: Broker, topic_name: str, request: pytest.FixtureRequest) -> str:
        uri = f"{broker.uri}/{topic_name}"
        # Only where events are removed: compaction is work for the broker.
        vacuums = "store" in request.fixturenames
        create_topic(uri, config=QUICK_COMPACTION if vacuums else None)
        return uri

    @pytest.fixture
    def make_log(self, log_uri: str) -> MakeLog:
        def make(clock: Clock | None = None) -> KafkaLog:
            assert clock is None
            return from_uri(log_uri)

        return make

    @pytest.fixture(autouse=True)
    def stack(self) -> Iterator[None]:
        with ExitStack() as self._stack:
            yield

    def settled(self, log: EventLog) -> EventLog:
        return compacted(log, self._stack)
