"""The contract, over a topic of a real broker with a local index of it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.testing import Clock, MakeLog
from belog.storage.testing_append import AppendContract
from belog.storage.testing_copy import CopyContract
from belog.storage.testing_follow import FollowContract
from belog.storage.testing_life import LifeContract
from belog.storage.testing_read import ReadContract
from belog.storage.testing_vacuum import VacuumContract
from tests.contract.test_kafka import QUICK_COMPACTION, compacted
from tests.servers import Broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class TestKafkaIndexed(
    LifeContract, AppendContract, ReadContract, FollowContract, CopyContract, VacuumContract
):
    keeps_vacuumed = True

    @pytest.fixture
    def log_uri(
        self, broker: Broker, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> str:
        vacuums = "store" in request.fixturenames
        create_topic(f"{broker.uri}/{topic_name}", config=QUICK_COMPACTION if vacuums else None)
        return f"{broker.uri}/{topic_name}?index={tmp_path / 'index.db'}"

    @pytest.fixture
    def make_log(self, log_uri: str) -> MakeLog:
        def make(clock: Clock | None = None) -> EventLog:
            assert clock is None
            return open_log(log_uri)

        return make

    @pytest.fixture(autouse=True)
    def stack(self, log_uri: str) -> Iterator[None]:
        self._uri = log_uri
        with ExitStack() as self._stack:
            yield

    def settled(self, log: EventLog) -> EventLog:
        compacted(log, self._stack).close()
        again = self._stack.enter_context(open_log(self._uri))
        again.initialize()
        return again
