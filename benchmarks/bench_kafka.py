"""Validated appends to Kafka, against a bare producer sending the same bytes."""

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from typing import Self

from confluent_kafka import Message
from confluent_kafka import Producer as RawProducer

from belog.producers import Pending, Producer
from belog.schemas.envelope import encode_event
from belog.storage import open_log
from benchmarks.counting import Tally, tally_log, total
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate, timed
from benchmarks.servers import Servers

PIPELINED = 50_000
SINGLES = 1_000


def run(servers: Servers) -> Iterator[Figure]:
    """Yield pipelined and single appends."""
    numbers = count()
    tallies: list[Tally] = []
    pipelined = servers.sized(PIPELINED, STEPS)

    def ours() -> float:
        events = list(builds(pipelined // STEPS, tag=f"{next(numbers)}-"))
        with open_log(servers.topic_uri("ours")) as log:
            log.initialize()
            with Producer(log, actor="bench", in_flight_max=50_000) as producer:

                def work() -> None:
                    pending.extend([producer.submit_event(e) for e in events])
                    producer.flush()

                pending: list[Pending] = []
                result = rate(len(events), work)
                indices = [p.result().index for p in pending]
            assert all(a < b for a, b in pairwise(indices))
            tallies.append(tally_log(log, [events]))
        return result

    def theirs() -> float:
        values = [encode_event(e) for e in builds(pipelined // STEPS, tag=f"{next(numbers)}-")]
        with RawSender(servers) as sender:
            return rate(len(values), lambda: sender.send_all(values))

    yield paired(ours, theirs).figure(
        "Kafka, pipelined validated append",
        "events/s",
        against="confluent-kafka with delivery callbacks, same bytes",
        must=0.2,
        aim=0.5,
        checked=str(total(tallies)),
    )
    tallies.clear()
    yield paired(
        lambda: _single_ours(servers, f"{next(numbers)}-", tallies),
        lambda: _single_theirs(servers, f"{next(numbers)}-"),
    ).figure(
        "Kafka, one validated append, acknowledged, p50",
        "ms",
        against="produce and wait for the ack",
        must=1.5,
        aim=1.2,
        better="lower",
        checked=str(total(tallies)),
    )


def _single_ours(servers: Servers, tag: str, tallies: list[Tally]) -> float:
    events = list(builds(servers.sized(SINGLES, STEPS) // STEPS, tag=tag))
    with open_log(servers.topic_uri("single")) as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            result = _p50_ms(len(events), lambda n: producer.append_event(events[n]))
        tallies.append(tally_log(log, [events]))
    return result


def _single_theirs(servers: Servers, tag: str) -> float:
    values = [encode_event(e) for e in builds(servers.sized(SINGLES, STEPS) // STEPS, tag=tag)]
    with RawSender(servers) as sender:
        return _p50_ms(len(values), lambda n: sender.send_one(values[n]))


def _p50_ms(count: int, call: Callable[[int], object]) -> float:
    return statistics.median(timed(partial(call, n)) for n in range(count)) * 1e3


class RawSender:
    """confluent-kafka and nothing else: idempotent, all acks, a callback each."""

    def __init__(self, servers: Servers) -> None:
        self.topic = servers.topic_uri("raw").rpartition("/")[2]
        self.producer = RawProducer(
            {
                "bootstrap.servers": servers.broker.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.producer.list_topics(self.topic)
        self.reported = 0
        self.answered = threading.Event()

    def __enter__(self) -> Self:
        """Connect before the clock starts."""
        self.send_one(b"first")
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is in flight."""
        self.producer.flush()

    def on_delivery(self, error: object, _message: Message) -> None:
        """Count a report."""
        if error is not None:
            raise AssertionError(error)
        self.reported += 1
        self.answered.set()

    def send_all(self, values: list[bytes]) -> None:
        """Send values without waiting for each, then wait for all."""
        for value in values:
            self.producer.produce(
                self.topic, value, key=os.urandom(16), on_delivery=self.on_delivery
            )
            self.producer.poll(0)
        self.producer.flush()

    def send_one(self, value: bytes) -> None:
        """Send a value and wait for its report."""
        self.answered.clear()
        self.producer.produce(self.topic, value, key=os.urandom(16), on_delivery=self.on_delivery)
        while not self.answered.is_set():
            self.producer.poll(1.0)
