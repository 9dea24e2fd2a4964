"""What is done to a topic behind the log's back: settings, removal, an older copy of its broker."""

import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import ClassVar, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from belog.schemas.errors import Misconfigured, NotFound, Unavailable
from belog.storage.kafka_topic import create_topic
from tests.chaos.deployment import Allowance, Deployment, Part
from tests.chaos.faults.basis import BaseFault, local_server
from tests.servers import Broker, eventually

__all__ = [
    "FAST_COMPACTION",
    "BrokerOlder",
    "FastCompaction",
    "TopicRecreated",
    "alter_topic",
    "broker_of",
    "go_back",
    "recreate_topic",
    "set_aside",
    "topic_end",
]

FAST_COMPACTION: Final = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "max.compaction.lag.ms": "1000",
}
"""As fast as the broker will: a segment a second, and every closed one is cleaned."""

ANSWER_S: Final = 10.0
"""Bound of one administrative request, seconds."""

ALTER_S: Final = 60.0
"""Bound of all tries to alter a topic, seconds."""

MOVE_S: Final = 5.0
"""How long a fault waits for the log to grow past an older copy; it may be that nobody writes."""

ASIDE: Final = "log-set-aside"
"""Where an older copy of a broker's data is kept, beside the data."""


def broker_of(deployment: Deployment) -> tuple[Part, Broker]:
    """Return the broker of a deployment.

    Raises:
        LookupError: It has none.
    """
    for part in deployment.of_kind("broker"):
        if isinstance(part.server, Broker):
            return part, part.server
    raise LookupError("no broker in this deployment")


def alter_topic(bootstrap: str, topic: str, settings: Mapping[str, str | None]) -> None:
    """Set a topic's settings; None takes one back to the broker's."""
    entries = [
        ConfigEntry(
            name,
            value,
            incremental_operation=AlterConfigOpType.DELETE
            if value is None
            else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def alter() -> bool:
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(ANSWER_S)
        return True

    # A broker on a machine that is busy with other runs may let one request wait for too long.
    eventually(
        alter, "the topic is altered", timeout_s=ALTER_S, ignoring=(KafkaException, TimeoutError)
    )


def topic_end(bootstrap: str, topic: str) -> int:
    """Return the offset that the next record gets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "chaos", "log_level": 0})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_S)
        return int(end)
    finally:
        consumer.close()


def recreate_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and make it again, empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(ANSWER_S)
    # While the old one is being removed the name is taken, or is there without its partition.
    eventually(
        lambda: create_topic(f"kafka://{bootstrap}/{topic}"),
        "the topic is made anew",
        ignoring=(NotFound, Unavailable, Misconfigured),
    )
    eventually(lambda: topic_end(bootstrap, topic) == 0, "it is empty", ignoring=(KafkaException,))


def set_aside(broker: Broker) -> None:
    """Keep a copy of the data of a broker that does not run."""
    data = broker.runner.dir  # type: ignore[attr-defined]
    subprocess.run(["cp", "-a", data / "log", data / ASIDE], check=True)


def go_back(broker: Broker) -> None:
    """Put the copy in place of the data of a broker that does not run."""
    data = broker.runner.dir  # type: ignore[attr-defined]
    shutil.rmtree(data / "log")
    (data / ASIDE).rename(data / "log")


class FastCompaction(BaseFault):
    """The topic is compacted as fast as the broker can: indices stay, only void records go."""

    name = "compaction-fast"
    does: ClassVar[str] = "the topic is compacted as fast as the broker can"
    hold_s = (2.0, 6.0)

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.backend == "kafka" and deployment.topic is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        del rng
        self._alter(deployment, FAST_COMPACTION)

    def heal(self, deployment: Deployment) -> None:
        self._alter(deployment, dict.fromkeys(FAST_COMPACTION))

    def _alter(self, deployment: Deployment, settings: Mapping[str, str | None]) -> None:
        part, broker = broker_of(deployment)
        if part.is_alive() and deployment.topic is not None:
            alter_topic(broker.bootstrap, deployment.topic, settings)


class TopicRecreated(BaseFault):
    """The topic is deleted and made anew under the same name."""

    name = "topic-recreated"
    does: ClassVar[str] = "the topic is deleted and made anew under the same name"
    allows: frozenset[Allowance] = frozenset({"replaced", "stops"})

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.backend == "kafka" and deployment.topic is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        del rng
        part, broker = broker_of(deployment)
        if part.is_alive() and deployment.topic is not None:
            recreate_topic(broker.bootstrap, deployment.topic)


class BrokerOlder(BaseFault):
    """The broker comes back with a data directory of some seconds before."""

    name = "broker-older"
    does: ClassVar[str] = "the broker comes back with a data directory of some seconds before"
    allows: frozenset[Allowance] = frozenset({"lost_tail", "stops"})

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.topic is not None and local_server(deployment, "broker") is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        part, broker = broker_of(deployment)
        topic = deployment.topic or ""
        part.kill9()
        set_aside(broker)
        part.start()
        wanted = topic_end(broker.bootstrap, topic) + rng.randrange(1, 200)
        deadline = time.monotonic() + MOVE_S
        eventually(
            lambda: time.monotonic() > deadline or topic_end(broker.bootstrap, topic) >= wanted,
            "the log has grown, or nobody writes",
            ignoring=(KafkaException,),
        )
        part.kill9()
        go_back(broker)
