"""Producers and brokers killed, paused and cut off: what was acknowledged is there, and once."""

import functools
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import OutcomeUnknown, Overloaded, Unavailable
from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from tests.chaos.racing import Course, Racer
from tests.examples import event
from tests.producing import Answer, settled, submitted
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(300)]

ENDLESS = 1_000_000
"""More events than a racer gets to before it is killed."""

KILLS = 6
TIMEOUT_MS = 1_500
"""Delivery time-out of the logs here: shorter than a broker needs to start again."""


@pytest.fixture(params=["sqlite", "kafka"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, topic_name: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kill.db"
    broker: Broker = request.getfixturevalue("broker")
    create_topic(made := f"{broker.uri}/{topic_name}")
    return made


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    """A broker for the tests here, which kill it."""
    with Broker.create() as server:
        yield server


@pytest.fixture
def mortal(one_broker: Broker) -> Broker:
    if not one_broker.is_ready():
        one_broker.start()
    return one_broker


@pytest.fixture
def mortal_uri(mortal: Broker, topic_name: str) -> str:
    create_topic(made := f"{mortal.uri}/{topic_name}")
    return f"{made}?delivery.timeout.ms={TIMEOUT_MS}"


@contextmanager
def opened(uri: str) -> Iterator[EventLog]:
    with open_log(uri) as log:
        log.initialize()
        yield log


def assert_true_and_once(log: EventLog, racers: list[Racer]) -> None:
    course = Course(log)
    for racer in racers:
        course.check(racer.said)
    ids = Counter(stored.event.event_id for stored in log.read(0).events)
    assert set(ids) == set(course.accepted)
    assert set(ids.values()) == {1}, "an event is there twice"


def started(uri: str, numbers: range, seed: str, count: int = ENDLESS) -> list[Racer]:
    racers = [Racer(uri, n, seed, count) for n in numbers]
    for racer in racers:
        racer.wait_ready()
        racer.go()
    return racers


def wait_for(racer: Racer, lines: int) -> None:
    eventually(lambda: len(racer.said) >= lines, f"{lines} events are decided", timeout_s=60)


def test_killed_producers_lose_and_double_nothing(uri: str, seed: int) -> None:
    chosen = random.Random(f"{seed}-kill-{uri[:5]}")
    with opened(uri) as log:
        running = started(uri, range(3), str(seed))
        racers = list(running)
        for kill in range(KILLS):
            victim = running.pop(chosen.randrange(len(running)))
            lines = len(victim.said) + chosen.randrange(1, 80)
            wait_for(victim, lines)
            victim.kill()
            if kill < KILLS - 3:
                running += started(uri, range(10 + kill, 11 + kill), str(seed))
                racers.append(running[-1])
        assert not running
        assert all(racer.process.returncode == -signal.SIGKILL for racer in racers)
        assert_true_and_once(log, racers)
        # What is left behind is no obstacle to others.
        (last,) = started(uri, range(50, 51), str(seed), 50)
        last.require_end()
        assert_true_and_once(log, [*racers, last])


def test_a_paused_producer_comes_back_into_another_world(uri: str, seed: int) -> None:
    chosen = random.Random(f"{seed}-pause-{uri[:5]}")
    with opened(uri) as log:
        racers = started(uri, range(3), str(seed), 300)
        sleeper, others = racers[0], racers[1:]
        for _ in range(3):
            lines = min(len(sleeper.said) + chosen.randrange(1, 30), 300)
            wait_for(sleeper, lines)
            sleeper.process.send_signal(signal.SIGSTOP)
            try:
                if uri.startswith("kafka"):  # else it may sleep with the lock of the file
                    for other in others:
                        wait_for(other, min(len(other.said) + 40, 300))
            finally:
                sleeper.process.send_signal(signal.SIGCONT)
        for racer in racers:
            racer.require_end()
            assert len(racer.said) == 300
        assert_true_and_once(log, racers)


def test_a_killed_broker_loses_and_doubles_nothing(
    mortal: Broker, mortal_uri: str, seed: int
) -> None:
    chosen = random.Random(f"{seed}-broker")
    with opened(mortal_uri) as log:
        # One that waits long enough for the broker, and others that give up and try again.
        patient = started(mortal_uri.partition("?")[0], range(1), str(seed), 120)
        racers = patient + started(mortal_uri, range(1, 3), str(seed), 120)
        for _ in range(2):
            racer = chosen.choice(racers)
            lines = min(len(racer.said) + chosen.randrange(1, 40), 120)
            wait_for(racer, lines)
            mortal.restart()
        for racer in racers:
            racer.require_end()
            assert len(racer.said) == 120
        assert_true_and_once(log, racers)


def observed(n: int) -> Event:
    return event("v1.partition.observed", f"r{n % 3}", n=n)


def test_a_producer_outlives_a_broker_that_was_gone(mortal: Broker, mortal_uri: str) -> None:
    with opened(mortal_uri) as log, Producer(log, actor="x", wait_s=3) as producer:
        for n in range(1, 20):
            producer.append_event(observed(n))
        mortal.kill()
        events = [observed(n) for n in range(20, 60)]
        answers: list[Answer] = [settled(p) for p in [submitted(producer, e) for e in events]]
        assert isinstance(answers[0], OutcomeUnknown)
        for what, answer in zip(events, answers, strict=True):
            assert isinstance(answer, OutcomeUnknown | Unavailable | Overloaded)
            if isinstance(answer, OutcomeUnknown):
                assert answer.event_id == what.event_id
        with pytest.raises(Unavailable):
            producer.append_event(observed(60))
        with pytest.raises(Unavailable):
            producer.state("partition", "r1")
        mortal.start()
        receipts = [
            eventually(
                functools.partial(producer.append_event, what),
                "the same producer works again",
                ignoring=(OutcomeUnknown, Unavailable, Overloaded),
            )
            for what in events
        ]
        assert len({receipt.index for receipt in receipts}) == len(events)
        ids = [stored.event.event_id for stored in log.read(1).events]
        assert sorted(ids) == sorted(observed(n).event_id for n in range(1, 60))
        assert [log.get(r.index).event for r in receipts] == events  # type: ignore[union-attr]


def test_a_slow_broker_holds_writers_back(mortal: Broker, topic_name: str) -> None:
    create_topic(uri := f"{mortal.uri}/{topic_name}")
    with opened(uri) as log, Producer(log, actor="x", in_flight_max=5, wait_s=0.3) as producer:
        producer.append_event(observed(1))
        mortal.pause()
        try:
            sent = [submitted(producer, observed(n)) for n in range(2, 9)]
            assert [type(s) for s in sent[5:]] == [Overloaded] * 2
            assert not any(p.done() for p in sent[:5] if isinstance(p, Pending))
            assert not producer.flush(0.1)
        finally:
            mortal.resume()
        assert [settled(p).index for p in sent[:5]] == [2, 3, 4, 5, 6]
        assert producer.append_event(observed(7)).index == 7


def test_closing_without_a_broker_answers_everybody(mortal: Broker, topic_name: str) -> None:
    create_topic(uri := f"{mortal.uri}/{topic_name}")
    with opened(uri) as log:
        producer = Producer(log, actor="x", wait_s=0.3)
        producer.append_event(observed(1))
        mortal.kill()
        sent = [producer.submit_event(observed(n)) for n in range(2, 9)]
        waiting: list[BaseException | None] = []
        waiter = threading.Thread(target=lambda: waiting.append(sent[0].exception()))
        waiter.start()
        producer.close()
        waiter.join(10)
        assert not waiter.is_alive()
        for pending, what in zip(sent, range(2, 9), strict=True):
            error = pending.exception(0)
            assert isinstance(error, OutcomeUnknown)
            assert error.event_id == observed(what).event_id
        assert waiting == [sent[0].exception(0)]
