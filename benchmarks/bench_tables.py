"""Redis tables: rebuilding them, and how soon an event shows in them."""

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as RawProducer

from belog.processors.factory import open_tables
from belog.processors.redis_follower import follower_from_uri
from belog.processors.tables import TableReader
from belog.processors.verify import verify_tables
from belog.producers import Producer
from belog.schemas.events import PartitionObserved
from belog.storage import open_log
from benchmarks.events import STEPS, builds
from benchmarks.measure import Constant, Figure, absolute, paired, rate
from benchmarks.servers import Servers

EVENTS = 100_000
LATENCY_EVENTS = 500
TAILED = 20_000
"""Events that come at once to a worker that follows."""
ROUNDS = 3


def run(servers: Servers) -> Iterator[Figure | Constant]:
    """Yield the rebuild and the latency."""
    uri = servers.topic_uri("tables")
    partitions = servers.sized(EVENTS, STEPS) // STEPS
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="bench", in_flight_max=50_000) as producer:
            for event in builds(partitions):
                producer.submit_event(event)
            producer.flush()
        count = log.next_position()
    differences: list[str] = []
    yield paired(
        lambda: _rebuild(servers, uri, count, differences),
        lambda: _consume(servers, uri, count),
        ROUNDS,
    ).figure(
        "Redis tables rebuilt from Kafka",
        "events/s",
        against="consume() of the same topic",
        must=0.4,
        aim=0.7,
        checked=f"{len(differences)} rows differ from a fold of the log",
    )
    ours, worker_rate = _visible(servers)
    yield Constant(
        key="worker_events_s",
        unit="events/s",
        value=worker_rate,
        how=f"{servers.sized(TAILED, STEPS):,} events appended at once before a worker that "
        "follows, until the last is in Redis",
    )
    raw = _round_trip_ms(servers)
    against = f"produce → consume, p50 {statistics.median(raw):.1f} ms"
    for name, quantile, must, aim in (("p50", 0.5, 20.0, 8.0), ("p99", 0.99, 100.0, 40.0)):
        value = ours[int(quantile * (len(ours) - 1))]
        yield absolute(
            f"append → row visible in Redis through Faust, {name} ({against})",
            "ms",
            [value],
            must=must,
            aim=aim,
            better="lower",
            checked=f"0 of {len(ours)} missed",
        )


def _rebuild(servers: Servers, uri: str, count: int, differences: list[str]) -> float:
    tables = f"{servers.redis.uri}?prefix=bench-{uuid.uuid4().hex[:8]}"
    with open_log(uri) as log:
        identity = log.initialize()
        follower = follower_from_uri(log, tables, identity)
        try:
            follower.start()
            result = rate(count, follower.catch_up)
            if not differences:
                with open_tables(tables) as reader:
                    differences += map(str, verify_tables(log, reader))
            return result
        finally:
            follower.close()
            servers.redis.flush()


def _consume(servers: Servers, uri: str, count: int) -> float:
    consumer = _consumer(servers, uri, OFFSET_BEGINNING)
    try:

        def work() -> None:
            seen = 0
            while seen < count:
                for message in consumer.consume(min(10_000, count - seen), 5.0):
                    message.value()
                    seen += 1

        return rate(count, work)
    finally:
        consumer.close()


def _consumer(servers: Servers, uri: str, offset: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers.broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(uri.rpartition("/")[2], 0, offset)])
    return consumer


@contextmanager
def _worker(uri: str, tables: str) -> Generator[None]:
    program = Path(sys.executable).with_name("belog")
    process = subprocess.Popen(
        [program, "worker", "--log", uri, "--tables", tables], stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _visible(servers: Servers) -> tuple[list[float], float]:
    """Return how long events take to show, ms, sorted; and the rate of a worker that follows."""
    uri = servers.topic_uri("visible")
    tables_uri = f"{servers.redis.uri}?prefix=bench-visible"
    with open_log(uri) as log:
        log.initialize()
        with (
            Producer(log, actor="bench") as producer,
            _worker(uri, tables_uri),
            open_tables(tables_uri) as tables,
        ):
            _append_and_wait(producer, tables, 60)  # until the worker tails
            for _ in range(20):
                _append_and_wait(producer, tables, 10)
            count = servers.sized(LATENCY_EVENTS)
            taken = sorted(_append_and_wait(producer, tables, 10) for _ in range(count))
            many = servers.sized(TAILED, STEPS)
            return taken, rate(many, lambda: _append_many(producer, tables, many))


def _append_many(producer: Producer, tables: TableReader, count: int) -> None:
    pending = [producer.submit_event(event) for event in builds(count // STEPS)]
    producer.flush()
    assert tables.wait_for(pending[-1].result().index, 120)


def _append_and_wait(producer: Producer, tables: TableReader, timeout_s: float) -> float:
    start = time.perf_counter()
    receipt = producer.append(PartitionObserved(source="bench"), "visible/1")
    if not tables.wait_for(receipt.index, timeout_s):
        raise AssertionError(receipt)
    return (time.perf_counter() - start) * 1e3


def _round_trip_ms(servers: Servers) -> list[float]:
    uri = servers.topic_uri("round-trip")
    count = servers.sized(LATENCY_EVENTS)
    topic = uri.rpartition("/")[2]
    producer = RawProducer({"bootstrap.servers": servers.broker.bootstrap, "linger.ms": 0})
    consumer = _consumer(servers, uri, 0)
    taken: list[float] = []
    for number in range(count + 20):
        start = time.perf_counter()
        producer.produce(topic, b"x" * 250, key=b"k")
        producer.poll(0)
        # One message at a time: a batch would wait until it is full.
        while (message := consumer.poll(5.0)) is None or message.error():
            pass
        if number >= 20:
            taken.append((time.perf_counter() - start) * 1e3)
    producer.flush()
    consumer.close()
    return sorted(taken)
