"""Replication from Kafka to Kafka, against a bare consumer and producer."""

import threading
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as RawProducer

from belog.producers import Producer
from belog.sink.run import run_sink
from belog.sink.verify import verify_replica
from belog.storage import open_log
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import Servers

EVENTS = 100_000
ROUNDS = 3


def run(servers: Servers) -> Iterator[Figure]:
    """Yield the rate of a sink."""
    origin = servers.topic_uri("origin")
    with open_log(origin) as log:
        log.initialize()
        with Producer(log, actor="bench", in_flight_max=50_000) as producer:
            for event in builds(servers.sized(EVENTS, STEPS) // STEPS):
                producer.submit_event(event)
            producer.flush()
        count = log.next_position()
    last: list[str] = []

    def ours() -> float:
        target = servers.topic_uri("replica")
        last[:] = [target]
        return rate(count, lambda: run_sink(origin, target, stop=threading.Event(), follow=False))

    pair = paired(ours, lambda: _copy(servers, origin, count), ROUNDS)
    with open_log(origin) as here, open_log(last[0]) as there:
        identity = here.initialize()
        there.initialize(log_id=identity.log_id, replica=True)
        verify_replica(here, there).require_equal()
    yield pair.figure(
        "replication Kafka → Kafka",
        "events/s",
        against="consume + produce of the same records",
        must=0.2,
        aim=0.5,
        checked="equal Merkle root",
    )


def _copy(servers: Servers, origin: str, count: int) -> float:
    topic = servers.topic_uri("copy").rpartition("/")[2]
    consumer = Consumer(
        {
            "bootstrap.servers": servers.broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(origin.rpartition("/")[2], 0, OFFSET_BEGINNING)])
    producer = RawProducer(
        {
            "bootstrap.servers": servers.broker.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def work() -> None:
        seen = 0
        while seen < count:
            for message in consumer.consume(min(10_000, count - seen), 5.0):
                producer.produce(topic, message.value(), key=message.key())
                seen += 1
            producer.poll(0)
        producer.flush()

    try:
        return rate(count, work)
    finally:
        consumer.close()
