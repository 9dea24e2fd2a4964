"""A Kafka log whose broker dies, stands still or comes back."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack
from functools import partial

import pytest

from belog.producers import Producer
from belog.schemas.errors import Closed, OutcomeUnknown, Overloaded, Unavailable
from belog.storage.interface import Receipt, SendReport
from belog.storage.kafka import KafkaLog, from_uri
from belog.storage.kafka_topic import create_topic
from tests.examples import event
from tests.servers import Broker, eventually

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(300)]

DELIVERY_S = 3.0
RESTARTS = 3


@pytest.fixture
def own_broker(new_broker: Callable[..., Broker]) -> Broker:
    return new_broker()


@pytest.fixture
def opened(own_broker: Broker, topic_name: str) -> Iterator[Callable[..., KafkaLog]]:
    uri = f"{own_broker.uri}/{topic_name}"
    create_topic(uri)
    with ExitStack() as stack:

        def make(settings: str = "") -> KafkaLog:
            log = stack.enter_context(from_uri(uri + settings))
            log.initialize()
            return log

        yield make


def observe(log: KafkaLog, number: int) -> Exception | None:
    sent = event("v1.partition.observed", f"data://example/{number}", n=number + 1)
    (result,) = log.append_batch([sent])
    return result if isinstance(result, Exception) else None


def has(items: Sized, count: int) -> bool:
    return len(items) >= count


def test_nothing_acknowledged_is_lost_or_doubled_over_kills(
    own_broker: Broker, opened: Callable[..., KafkaLog], seed: int
) -> None:
    # Longer than the broker is away, or some outcomes would be unknown, and rightly so.
    log, reader = opened("?delivery.timeout.ms=200000"), opened()
    draw = random.Random(seed)
    reports: dict[bytes, SendReport] = {}
    sent: list[bytes] = []
    stop = threading.Event()
    followed: list[bytes | None] = []

    def take(key: bytes, report: SendReport) -> None:
        assert key not in reports
        reports[key] = report

    def send() -> None:
        for n in itertools.count():
            if stop.wait(0.0005):
                return
            key = n.to_bytes(16)
            log.send(key, os.urandom(250), partial(take, key))
            sent.append(key)

    def follow() -> None:
        position = 1
        while not (stop.is_set() and len(reports) == len(sent) <= len(followed)):
            try:
                records = reader.scan(position)
                followed.extend(record.key for record in records)
                position = records[-1].position + 1 if records else position
                reader.wait(position, 0.2)
            except Unavailable:
                continue

    threads = [threading.Thread(target=send), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    for _ in range(RESTARTS):
        goal = len(reports) + draw.randrange(200, 2_000)
        eventually(partial(has, reports, goal), "sends are acknowledged", timeout_s=60)
        own_broker.restart()
    stop.set()
    threads[0].join()
    eventually(lambda: len(reports) == len(sent), "every send is reported", timeout_s=60)
    threads[1].join(60)
    assert {str(report.error) for report in reports.values()} == {"None"}
    assert [reports[key].position for key in sent] == list(range(1, len(sent) + 1))
    assert [record.key for record in opened().scan(1)] == sent[:10_000]
    assert followed == sent


def test_silent_broker_makes_outcomes_unknown_within_the_bound(
    own_broker: Broker, opened: Callable[..., KafkaLog]
) -> None:
    log = opened(f"?delivery.timeout.ms={DELIVERY_S * 1000:.0f}")
    observe(log, 0)
    log.end()
    own_broker.pause()
    try:
        started = time.monotonic()
        result = observe(log, 1)
        assert isinstance(result, OutcomeUnknown)
        assert result.event_id == (2).to_bytes(16, "big")
        assert time.monotonic() - started < DELIVERY_S + 3
        for call in (log.next_position, lambda: log.scan(2), lambda: log.wait(2, 1)):
            started = time.monotonic()
            with pytest.raises(Unavailable):
                call()
            assert time.monotonic() - started < 10
        fresh = from_uri(log.name)
        with pytest.raises(Unavailable, match=own_broker.bootstrap):
            fresh.initialize()
        fresh.close()
    finally:
        own_broker.resume()
    eventually(lambda: observe(log, 2) is None, "appends go on")
    # Whether the second was written is known now, and it was at most once.
    found = [stored.event.subject_id for stored in log.read(1).events]
    assert found.count("data://example/1") <= 1
    assert found.count("data://example/0") == found.count("data://example/2") == 1


def test_dead_broker_is_said_and_the_log_goes_on_when_it_is_back(
    own_broker: Broker, opened: Callable[..., KafkaLog], capfd: pytest.CaptureFixture[str]
) -> None:
    log = opened(f"?delivery.timeout.ms={DELIVERY_S * 1000:.0f}")
    own_broker.kill()
    assert isinstance(observe(log, 0), OutcomeUnknown)
    started = time.monotonic()
    with pytest.raises(Unavailable):
        log.scan(1)
    assert time.monotonic() - started < 10
    own_broker.start()
    eventually(lambda: observe(log, 1) is None, "appends go on")
    assert log.scan(1)[-1].value is not None
    assert capfd.readouterr().err == ""


def test_full_buffer_is_overload_and_empties_again(
    own_broker: Broker, opened: Callable[..., KafkaLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belog.storage.kafka_sender.SEND_BUFFER_RECORDS_MAX", 100)
    log = opened()
    reports: list[SendReport] = []
    own_broker.kill()
    for n in range(100):
        log.send(n.to_bytes(16), b"x", reports.append)
    with pytest.raises(Overloaded):
        log.send(bytes(16), b"x", reports.append)
    own_broker.start()
    eventually(lambda: len(reports) == 100, "the buffer empties")
    batch = [event("v1.partition.observed", f"data://x/{n}", n=n + 1) for n in range(1_000)]
    assert all(not isinstance(result, Exception) for result in log.append_batch(batch))


def test_batches_over_an_outage_are_answered_by_where_each_event_landed(
    own_broker: Broker, opened: Callable[..., KafkaLog], seed: int
) -> None:
    """Some are given up before they are sent; what lands after them is not taken for them."""
    chosen = random.Random(f"{seed}-batches")
    log = opened(f"?delivery.timeout.ms={DELIVERY_S * 1000:.0f}")
    numbers = itertools.count(1)
    answers: list[tuple[bytes, object]] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            batch = [
                event("v1.partition.observed", f"data://x/{chosen.randrange(50)}", n=next(numbers))
                for _ in range(chosen.randrange(2, 400))
            ]
            results = producer.append_batch(batch)
            answers.extend(zip((sent.event_id for sent in batch), results, strict=True))

    with Producer(log, actor="x", wait_s=60) as producer:
        writing = [threading.Thread(target=write) for _ in range(2)]
        for thread in writing:
            thread.start()
        for outage in range(RESTARTS):
            eventually(partial(has, answers, len(answers) + 1_000), "batches are written")
            # By and over the delivery time-out, so that some are given up and others are not.
            pause_s = DELIVERY_S * (0.5, 1.0, 1.5)[outage % 3]
            own_broker.pause()
            threading.Event().wait(pause_s)
            own_broker.resume()
        eventually(partial(has, answers, len(answers) + 1_000), "batches are written again")
        stop.set()
        for thread in writing:
            thread.join(120)
    landed: dict[bytes, int] = {}
    cursor = 0
    while (page := log.read(cursor)).events or page.has_more:
        landed |= {stored.event.event_id: stored.index for stored in page.events}
        cursor = page.next_idx
    receipts = [(event_id, r.index) for event_id, r in answers if isinstance(r, Receipt)]
    assert receipts == [(event_id, landed[event_id]) for event_id, _ in receipts]
    others = {type(answer) for _, answer in answers} - {Receipt}
    assert others <= {OutcomeUnknown, Unavailable, Overloaded}, others


def test_close_reports_what_is_pending_as_unknown(
    own_broker: Broker, opened: Callable[..., KafkaLog]
) -> None:
    log = opened()
    observe(log, 0)
    reports: list[SendReport] = []
    waits: list[type[Exception]] = []

    def wait() -> None:
        try:
            log.wait(600, 60)
        except (Closed, Unavailable) as error:
            waits.append(type(error))

    own_broker.kill()
    for n in range(500):
        log.send(n.to_bytes(16), b"x", reports.append)
    waiting = threading.Thread(target=wait)
    waiting.start()
    started = time.monotonic()
    log.close()
    waiting.join(10)
    assert waits == [Closed]
    assert time.monotonic() - started < 3
    assert len(reports) == 500
    assert {type(report.error) for report in reports} == {OutcomeUnknown}
    with pytest.raises(Closed):
        log.send(bytes(16), b"x", reports.append)
