"""The contract, over a topic of a real broker with a local index of it."""

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
from tests.servers import Broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class TestKafkaIndexed(LifeContract, AppendContract, ReadContract, FollowContract, CopyContract):
    @pytest.fixture
    def log_uri(self, broker: Broker, topic_name: str, tmp_path: Path) -> str:
        create_topic(f"{broker.uri}/{topic_name}")
        return f"{broker.uri}/{topic_name}?index={tmp_path / 'index.db'}"

    @pytest.fixture
    def make_log(self, log_uri: str) -> MakeLog:
        def make(clock: Clock | None = None) -> EventLog:
            assert clock is None
            return open_log(log_uri)

        return make
