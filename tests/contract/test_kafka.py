"""The contract, over a topic of a real broker."""

import pytest

from belog.storage.kafka import KafkaLog, from_uri
from belog.storage.kafka_topic import create_topic
from belog.storage.testing import Clock, LogContract, MakeLog
from tests.servers import Broker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class TestKafka(LogContract):
    @pytest.fixture
    def log_uri(self, broker: Broker, topic_name: str) -> str:
        uri = f"{broker.uri}/{topic_name}"
        create_topic(uri)
        return uri

    @pytest.fixture
    def make_log(self, log_uri: str) -> MakeLog:
        def make(clock: Clock | None = None) -> KafkaLog:
            assert clock is None
            return from_uri(log_uri)

        return make
