"""Producers over a log of which the test decides what lands when, and what is answered."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pytest

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import (
    BelogError,
    Conflict,
    IllegalTransition,
    LimitExceeded,
    LogTruncated,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from belog.schemas.fold import Record
from belog.storage import Capabilities, OrderedLog, Receipt, SendReport
from belog.storage.interface import SCAN_RECORDS_MAX
from belog.storage.memory import MemoryLog
from tests.examples import event
from tests.producing import settled
from tests.servers import eventually

Report = Callable[[SendReport], None]


class HandLog(OrderedLog):
    """A log in memory that orders as Kafka does, and lets the test play the broker."""

    capabilities = Capabilities(conditional_append=False, explicit_index=False)

    def __init__(self) -> None:
        self.name = "hand:"
        self.base = MemoryLog(self.name)
        self.sent: deque[tuple[bytes, bytes, Report]] = deque()
        self.tombstones: list[bytes] = []
        self.room = 100
        self.faults: deque[BaseException] = deque()
        self.tombstone_faults: deque[BelogError] = deque()
        # What is not played by the test is the log in memory's.
        self.next_position = self.base.next_position  # type: ignore[method-assign]
        self.append_batch = self.base.append_batch  # type: ignore[method-assign]
        self.initialize = self.base.initialize  # type: ignore[method-assign]
        self.identify = self.base.identify  # type: ignore[method-assign]
        self.wait = self.base.wait  # type: ignore[method-assign]

    def send(self, key: bytes, value: bytes, on_report: Report) -> None:
        if len(self.sent) >= self.room:
            raise Overloaded("full", log=self.name)
        self.sent.append((key, value, on_report))

    def tombstone(self, keys: Sequence[bytes]) -> None:
        if self.tombstone_faults:
            raise self.tombstone_faults.popleft()
        self.tombstones += keys
        for key in keys:
            self.base._records.append(Record(self.next_position(), 1, None, key))  # noqa: SLF001

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        if self.faults:
            raise self.faults.popleft()
        return self.base.scan(since_position, limit)

    def land(self, count: int = 1) -> None:
        """Let what was sent first land, and report it."""
        for _ in range(count):
            _, value, report = self.sent.popleft()
            (receipt,) = self.append_batch([decode_event(value)])
            assert isinstance(receipt, Receipt)
            report(SendReport(receipt.index, receipt.created_at))

    def fail(self, error: BelogError) -> None:
        """Answer what was sent first with an error."""
        self.sent.popleft()[2](SendReport(-1, 0, error))


@pytest.fixture
def log() -> HandLog:
    HandLog.__abstractmethods__ = frozenset()  # what is missing is never called
    made = HandLog()  # type: ignore[abstract]
    made.initialize()
    return made


@pytest.fixture
def producer(log: HandLog) -> Iterator[Producer]:
    with Producer(log, actor="x", wait_s=10) as made:
        yield made


def requested(n: int, ref: str = "r", build: str = "b") -> Event:
    return event("v1.partition.requested", ref, {"build_request_id": build}, n=n)


def scheduled(n: int, ref: str = "r", build: str = "b") -> Event:
    return event("v1.partition.scheduled", ref, {"build_request_id": build}, n=n)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except BelogError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_what_lands_as_predicted_is_never_read(log: HandLog, producer: Producer) -> None:
    sent = [producer.submit_event(e) for e in (requested(1), scheduled(2))]
    log.faults.append(AssertionError("read"))
    log.land(2)
    assert [p.result(0).index for p in sent] == [1, 2]
    log.faults.clear()


def test_what_was_lost_takes_what_rests_on_it_along(log: HandLog, producer: Producer) -> None:
    sent = [producer.submit_event(e) for e in (requested(1), scheduled(2), requested(3, "q"))]
    keys = [key for key, _, _ in log.sent]
    log.append(requested(9, build="faster"))
    log.land(3)
    answers = [settled(p) for p in sent]
    assert [type(a).__name__ for a in answers] == ["IllegalTransition", "NotOwner", "Receipt"]
    assert eventually(lambda: log.tombstones == keys[:2], "void records are tombstoned")
    assert producer.refresh() == 7, "five records and two tombstones"


def test_an_error_in_the_middle_is_its_own(log: HandLog, producer: Producer) -> None:
    sent = [producer.submit_event(e) for e in (requested(1), scheduled(2), requested(3, "q"))]
    too_large = LimitExceeded("record", limit="X", limit_value=1, value=2)
    log.fail(too_large)
    log.land(2)
    assert settled(sent[0]) is too_large
    refused = settled(sent[1])
    assert isinstance(refused, IllegalTransition)
    assert (refused.state, refused.index) == ("", 1)
    assert isinstance(settled(sent[2]), Receipt)


def test_a_refusal_rests_on_nothing_in_flight(
    log: HandLog, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(requested(8, build="earlier"))
    producer.refresh()
    log.append(event("v1.partition.failed", "r", {"build_request_id": "earlier"}, n=9))
    appender = producer._appender  # noqa: SLF001 - to be another thread at the worst moment
    read_to_end = appender._read_to_end  # type: ignore[attr-defined] # noqa: SLF001
    others: list[Pending] = []

    def read_and_be_overtaken() -> None:
        read_to_end()
        if not others:
            others.append(producer.submit_event(requested(7, build="other")))

    monkeypatch.setattr(appender, "_read_to_end", read_and_be_overtaken)
    thread, found = in_thread(lambda: producer.submit_event(requested(2, build="mine")))
    eventually(lambda: bool(others), "another thread has sent")
    # What would make it illegal never comes to be.
    log.fail(OutcomeUnknown("lost", event_id=requested(7).event_id))
    thread.join(10)
    (pending,) = found
    assert isinstance(pending, Pending), pending
    log.land()
    assert pending.result().index == 3
    assert isinstance(settled(others[0]), OutcomeUnknown)


def test_tombstones_that_failed_are_written_later(log: HandLog, producer: Producer) -> None:
    pending = producer.submit_event(requested(1))
    key = log.sent[0][0]
    log.append(requested(9, build="faster"))
    log.tombstone_faults.append(Unavailable("away"))
    log.land()
    assert isinstance(settled(pending), Conflict)
    assert eventually(lambda: log.tombstones == [key], "the void record is tombstoned after all")


def test_what_cannot_be_read_back_is_unknown_and_then_goes_on(
    log: HandLog, producer: Producer
) -> None:
    pending = producer.submit_event(requested(1))
    log.append(requested(9, "elsewhere"))
    log.faults.append(Unavailable("away"))
    log.land()
    answer = settled(pending)
    assert isinstance(answer, OutcomeUnknown)
    assert answer.event_id == requested(1).event_id
    again = producer.append_event(requested(1))
    assert (again.index, again.duplicate) == (2, True)


def test_a_log_that_was_cut_stops_the_producer(log: HandLog, producer: Producer) -> None:
    sent = [producer.submit_event(requested(n, str(n))) for n in range(1, 4)]
    log.land()
    assert sent[0].result().index == 1
    _, _, report = log.sent.popleft()
    report(SendReport(0, 1))
    assert all(isinstance(settled(p), LogTruncated) for p in sent[1:])
    # What comes in afterwards changes nothing, whatever it is.
    log.fail(OutcomeUnknown("late", event_id=b""))
    for _ in range(2):
        with pytest.raises(LogTruncated):
            producer.append_event(requested(9))
    with pytest.raises(LogTruncated):
        producer.refresh()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_while_judging_leaves_nobody_waiting(log: HandLog, producer: Producer) -> None:
    pending = producer.submit_event(requested(1))
    log.append(requested(9, "elsewhere"))
    log.faults.append(ValueError("a fault"))
    log.land()
    with pytest.raises(BelogError, match="a fault"):
        pending.result(10)
    with pytest.raises(BelogError, match="a fault"):
        producer.append_event(requested(2))


def test_many_threads_read_to_the_end_at_once(log: HandLog, producer: Producer) -> None:
    log.append(requested(1))
    running = [in_thread(producer.refresh) for _ in range(16)]
    for thread, _ in running:
        thread.join(20)
    assert [found for _, found in running] == [[2]] * 16


def test_closing_answers_for_what_is_in_flight(log: HandLog) -> None:
    producer = Producer(log, actor="x", wait_s=0.05)
    sent = [producer.submit_event(requested(n, str(n))) for n in (1, 2)]
    producer.close()
    for n, pending in enumerate(sent, 1):
        answer = settled(pending)
        assert isinstance(answer, OutcomeUnknown)
        assert answer.event_id == requested(n).event_id
    log.land(2)  # reports that come too late
    assert all(isinstance(settled(p), OutcomeUnknown) for p in sent)


# --- batches


def batch_of(producer: Producer, events: list[Event]) -> tuple[threading.Thread, list[object]]:
    """Append a batch in a thread; what it answers stands in the list."""

    def run() -> None:
        answers.extend(producer.append_batch(events))

    answers: list[object] = []
    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def kinds(answers: list[object]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


def test_a_batch_that_lands_as_predicted_is_never_read(log: HandLog, producer: Producer) -> None:
    log.faults.append(AssertionError("read"))
    thread, answers = batch_of(producer, [requested(1), scheduled(2), requested(3, "q")])
    eventually(lambda: len(log.sent) == 3, "all were sent")
    log.land(2)
    assert not producer.flush(0), "told of together"
    log.land()
    thread.join(10)
    assert [answer.index for answer in answers] == [1, 2, 3]  # type: ignore[attr-defined]
    assert producer.known_state("partition", "r") is not None
    log.faults.clear()
    assert producer.refresh() == 4


@pytest.mark.parametrize("landed", range(4))
def test_a_batch_that_is_overtaken_is_judged_where_it_stands(
    log: HandLog, producer: Producer, landed: int
) -> None:
    events = [requested(1), requested(2, "p"), scheduled(3), requested(4, "q")]
    thread, answers = batch_of(producer, events)
    eventually(lambda: len(log.sent) == 4, "all were sent")
    log.land(landed)
    log.append(requested(9, "p" if landed < 2 else "q", build="faster"))
    log.land(4 - landed)
    thread.join(10)
    late = 1 if landed < 2 else 3
    assert kinds(answers) == ["IllegalTransition" if n == late else "Receipt" for n in range(4)]
    indices = [a.index for a in answers if isinstance(a, Receipt)]
    assert indices == [n + 1 + (n >= landed) for n in range(4) if n != late]


@pytest.mark.parametrize("lost", range(3))
def test_a_loss_in_a_batch_is_its_own(log: HandLog, producer: Producer, lost: int) -> None:
    events = [requested(n, str(n)) for n in range(1, 4)]
    thread, answers = batch_of(producer, events)
    eventually(lambda: len(log.sent) == 3, "all were sent")
    log.land(lost)
    log.fail(OutcomeUnknown("lost", event_id=b""))
    log.land(2 - lost)
    thread.join(10)
    assert kinds(answers) == ["OutcomeUnknown" if n == lost else "Receipt" for n in range(3)]


def test_a_refusal_in_a_batch_leaves_the_rest(log: HandLog, producer: Producer) -> None:
    events = [requested(1), requested(2), scheduled(3), scheduled(1, "q"), requested(4, "q")]
    thread, answers = batch_of(producer, events)
    # The second is refused by what is in the log alone.
    eventually(lambda: len(log.sent) == 1, "the first was sent")
    log.land()
    eventually(lambda: len(log.sent) == 2, "the third and the last were sent")
    log.land(2)
    thread.join(10)
    assert kinds(answers) == ["Receipt", "IllegalTransition", "Receipt", "EventIdReused", "Receipt"]


def test_an_event_twice_in_a_batch_has_one_outcome(log: HandLog, producer: Producer) -> None:
    thread, answers = batch_of(producer, [requested(1), scheduled(2), requested(1)])
    eventually(lambda: len(log.sent) == 2, "each was sent once")
    log.land(2)
    thread.join(10)
    assert [(a.index, a.duplicate) for a in answers] == [(1, False), (2, False), (1, True)]  # type: ignore[attr-defined]


def test_what_was_not_sent_counts_for_nothing(log: HandLog, producer: Producer) -> None:
    log.room = 2
    events = [
        requested(1),
        requested(2, "q"),
        scheduled(3),
        event("v1.partition.building", "r", n=4),
    ]
    thread, answers = batch_of(producer, events)
    eventually(lambda: len(log.sent) == 2, "two were sent")
    log.append(requested(9, "r", build="faster"))
    log.room = 100
    log.land(2)
    eventually(lambda: bool(answers) or bool(log.sent), "the rest was sent or refused")
    log.land(len(log.sent))
    thread.join(10)
    assert kinds(answers)[:3] == ["IllegalTransition", "Receipt", "NotOwner"]


def test_a_batch_waits_for_room(log: HandLog, producer: Producer) -> None:
    log.room = 2
    thread, answers = batch_of(producer, [requested(n, str(n)) for n in range(5)])
    for _ in range(5):
        eventually(lambda: bool(log.sent), "something was sent")
        log.land()
    thread.join(10)
    assert [answer.index for answer in answers] == [1, 2, 3, 4, 5]  # type: ignore[attr-defined]


def test_a_batch_is_larger_than_what_may_be_in_flight(log: HandLog) -> None:
    with Producer(log, actor="x", in_flight_max=2, wait_s=10) as producer:
        thread, answers = batch_of(producer, [requested(n, str(n)) for n in range(5)])
        for _ in range(5):
            eventually(lambda: bool(log.sent), "something was sent")
            assert len(log.sent) <= 2
            log.land()
        thread.join(10)
    assert [answer.index for answer in answers] == [1, 2, 3, 4, 5]  # type: ignore[attr-defined]


def test_closing_answers_for_a_batch_in_flight(log: HandLog) -> None:
    producer = Producer(log, actor="x", wait_s=0.05)
    thread, answers = batch_of(producer, [requested(n, str(n)) for n in (1, 2)])
    eventually(lambda: len(log.sent) == 2, "all were sent")
    producer.close()
    thread.join(10)
    log.land(2)  # reports that come too late
    assert kinds(answers) == ["OutcomeUnknown"] * 2
