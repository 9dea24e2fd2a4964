"""Producers under pressure, and over logs that are cut or replaced while they run."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Conflict,
    EventIdReused,
    LogTruncated,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
    WrongLog,
)
from belog.storage import Receipt, open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from tests.examples import event
from tests.producing import (
    DOORS,
    Answer,
    Judgement,
    Place,
    assert_told_the_truth,
    settled,
    submitted,
)
from tests.servers import Broker, eventually

every_door = pytest.mark.parametrize("door", DOORS)


def observed(n: int, ref: str = "r") -> Event:
    return event("v1.partition.observed", ref, n=n)


class GatedLog(MemoryLog):
    """A log that takes nothing while its gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.fault: BaseException | None = None

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        self.waiting.set()
        assert self.gate.wait(30)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        return super().append_unless_touched(events, seen_idx=seen_idx)


@pytest.fixture
def gated() -> GatedLog:
    log = GatedLog()
    log.initialize()
    return log


# --- pressure


def test_only_so_many_are_in_flight(gated: GatedLog) -> None:
    with Producer(gated, actor="x", in_flight_max=3, wait_s=0.05) as producer:
        gated.gate.clear()
        sent = [producer.submit_event(observed(1))]
        assert gated.waiting.wait(10)  # the first is being written, three more may wait
        sent += [producer.submit_event(observed(n)) for n in (2, 3, 4)]
        began = time.monotonic()
        with pytest.raises(Overloaded, match="3 events"):
            producer.submit_event(observed(5))
        assert 0.05 <= time.monotonic() - began < 5
        assert not any(pending.done() for pending in sent)
        assert not producer.flush(0.01)
        gated.gate.set()
        assert [pending.result().index for pending in sent] == [1, 2, 3, 4]
        assert producer.append_event(observed(5)).index == 5


def test_who_waits_for_room_gets_it(gated: GatedLog) -> None:
    with Producer(gated, actor="x", in_flight_max=2) as producer:
        gated.gate.clear()
        answers: list[Answer] = []

        def write() -> None:
            answers.extend(settled(submitted(producer, observed(n))) for n in range(1, 50))

        writers = [threading.Thread(target=write) for _ in range(3)]
        for writer in writers:
            writer.start()
        gated.gate.set()
        for writer in writers:
            writer.join()
    assert len(answers) == 147
    assert {a.index for a in answers if isinstance(a, Receipt)} == set(range(1, 50))


@pytest.mark.integration
@pytest.mark.parametrize("in_flight_max", [1, 2, 7])
def test_a_small_bound_on_kafka_only_slows(
    broker: Broker, topic_name: str, in_flight_max: int
) -> None:
    uri = f"{broker.uri}/{topic_name}"
    create_topic(uri)
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="x", in_flight_max=in_flight_max) as producer:
            sent = [producer.submit_event(observed(n)) for n in range(1, 100)]
            assert [pending.result().index for pending in sent] == list(range(1, 100))


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'l.db'}") as log:
        log.initialize()
        with Producer(log, actor="x", in_flight_max=2, wait_s=0.05) as producer:
            locking = sqlite3.connect(tmp_path / "l.db", isolation_level=None)
            locking.execute("BEGIN IMMEDIATE")
            sent = [submitted(producer, observed(n)) for n in range(1, 9)]
            assert {type(e) for e in sent[4:]} == {Overloaded}
            locking.execute("ROLLBACK")
            locking.close()
            assert producer.flush()
            taken = [p.result().index for p in sent if isinstance(p, Pending)]
            assert len(taken) in {2, 3, 4}
            assert taken == list(range(1, log.next_position()))


# --- faults of the writing thread


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError("a fault")])
def test_nobody_waits_for_a_thread_that_was_stopped(gated: GatedLog, fault: BaseException) -> None:
    with Producer(gated, actor="x") as producer:
        gated.gate.clear()
        gated.fault = fault
        raised: list[BaseException] = []

        def lead() -> None:
            try:
                producer.append_event(observed(1))
            except BaseException as error:  # noqa: BLE001 - looked at below
                raised.append(error)

        leading = threading.Thread(target=lead)
        leading.start()
        assert gated.waiting.wait(10)
        followers = [
            threading.Thread(target=lambda n=n: producer.append_event(observed(n, str(n))))
            for n in (2, 3)
        ]
        for follower in followers:
            follower.start()
        gated.gate.set()
        for thread in (leading, *followers):
            thread.join(20)
            assert not thread.is_alive()
        assert raised == [fault]
        again = producer.append_event(observed(1))
        assert not again.duplicate
        assert Judgement(gated).accepted.keys() >= {observed(n).event_id for n in (1, 2, 3)}


def test_a_lost_answer_is_unknown_for_each_event_by_its_own_id(gated: GatedLog) -> None:
    with Producer(gated, actor="x") as producer:
        gated.fault = OutcomeUnknown("the connection broke", event_id=observed(1).event_id)
        answers = producer.append_batch([observed(n, str(n)) for n in (1, 2, 3)])
        assert [a.event_id for a in answers if isinstance(a, OutcomeUnknown)] == [
            observed(n).event_id for n in (1, 2, 3)
        ]
        gated.fault = Unavailable("away")
        (answer,) = producer.append_batch([observed(4)])
        assert isinstance(answer, Unavailable)
        gated.fault = Unavailable("away")
        with pytest.raises(Unavailable):
            producer.append_batch([observed(4)], atomic=True)
        retried = producer.append_batch([observed(n, str(n)) for n in (1, 2, 3)])
        assert [a.index for a in retried if isinstance(a, Receipt)] == [1, 2, 3]


# --- writers in between


class MeddledLog(MemoryLog):
    """A log in which another writer is always a little faster, elsewhere."""

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        self.append(observed(1_000 + seen_idx, "elsewhere"))
        return super().append_unless_touched(events, seen_idx=seen_idx)


def test_a_refusal_names_where_things_landed() -> None:
    log = MeddledLog()
    log.initialize()
    scheduled = event("v1.partition.scheduled", "r", n=2)
    with Producer(log, actor="x") as producer:
        batch = [
            event("v1.partition.requested", "r", n=1),
            observed(3),
            msgspec.structs.replace(scheduled, expected=99),
            msgspec.structs.replace(observed(1), subject_id="r"),
            observed(4, "q"),
            event("v1.partition.building", "q", n=5),
            event("v1.partition.building", "never", n=6),
        ]
        answers = producer.append_batch(batch)
    assert [a.index for a in answers if isinstance(a, Receipt)] == [2, 3], "1 was the other's"
    illegal, mismatch, reused, other, never = (a for a in answers if isinstance(a, Conflict))
    assert (illegal.state, illegal.last_index, illegal.index) == ("requested", 2, 3)
    assert (mismatch.state, mismatch.last_index, mismatch.index) == ("requested", 2, 3)
    assert "it is 2" in mismatch.message
    assert isinstance(reused, EventIdReused)
    assert (reused.last_index, reused.index) == (2, 2)
    assert (other.state, other.last_index, other.index) == ("available", 3, 4)
    assert (never.state, never.last_index, never.index) == ("", -1, 1), "as it was looked at"


# --- cut and replaced logs


def assert_nothing_acknowledged(answer: Answer) -> None:
    assert isinstance(answer, BelogError)
    assert not answer.retriable, answer


@pytest.fixture(params=["memory", "sqlite"])
def cut(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Place, Callable[[], None]]]:
    """A log, and what takes away all but its first three records."""
    place = Place(request.param, request, tmp_path)

    def cut_now() -> None:
        if place.backend == "sqlite":
            with sqlite3.connect(tmp_path / "log.db") as connection:
                connection.execute("DELETE FROM belog_records WHERE idx >= 3")
            connection.close()
        else:
            log = place.open()
            assert isinstance(log, MemoryLog)
            del log._records[3:]  # noqa: SLF001 - nobody else can

    yield place, cut_now
    place.close()


@every_door
def test_a_log_that_was_cut_takes_nothing(
    cut: tuple[Place, Callable[[], None]], door: Callable[[Producer, Event], Answer]
) -> None:
    place, cut_now = cut
    log = place.open()
    with Producer(log, actor="x") as producer:
        producer.append_batch([observed(n) for n in range(1, 9)])
        cut_now()
        for n in (20, 21):
            answer = door(producer, observed(n))
            assert isinstance(answer, LogTruncated)
            assert_nothing_acknowledged(answer)
        assert log.next_position() == 3


@pytest.mark.integration
class TestKafka:
    """A topic that is deleted, or made anew, under a producer."""

    @pytest.fixture
    def uri(self, broker: Broker, topic_name: str) -> str:
        uri = f"{broker.uri}/{topic_name}"
        create_topic(uri)
        return uri + "?delivery.timeout.ms=4000"

    @staticmethod
    def delete(broker: Broker, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_topics([topic]).values():
            future.result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=5).topics, "it is deleted")

    @pytest.mark.parametrize("grown", [0, 3, 40])
    def test_a_topic_made_anew(
        self,
        broker: Broker,
        topic_name: str,
        uri: str,
        monkeypatch: pytest.MonkeyPatch,
        *,
        grown: int,
    ) -> None:
        # Asked at each read, not every few seconds: within those a new topic could grow unseen.
        monkeypatch.setattr("belog.storage.kafka.TOPIC_CHECK_S", 0.0)
        with open_log(uri) as log:
            log.initialize()
            with Producer(log, actor="x", wait_s=10) as producer:
                before = [producer.submit_event(observed(n)) for n in range(1, 21)]
                assert [p.result().index for p in before] == list(range(1, 21))
                self.delete(broker, topic_name)
                create_topic(uri.partition("?")[0])
                if grown:
                    with open_log(uri) as other:
                        other.initialize()
                        with Producer(other, actor="y") as second:
                            second.append_batch([observed(n + 500) for n in range(grown)])
                sent = [
                    (observed(100 + n), submitted(producer, observed(100 + n))) for n in range(5)
                ]
                answers = [(e, settled(p)) for e, p in sent]
                for _, answer in answers:
                    assert isinstance(answer, BelogError), f"acknowledged: {answer}"
                with pytest.raises((WrongLog, OutcomeUnknown, Unavailable, Overloaded)):
                    producer.append_event(observed(200))

                def stopped() -> bool:
                    answer = settled(submitted(producer, observed(300)))
                    assert isinstance(answer, BelogError)
                    return isinstance(answer, WrongLog)

                eventually(stopped, "the producer stops for good", timeout_s=60)
                began = time.monotonic()
                with pytest.raises(WrongLog):
                    producer.append_event(observed(301))
                assert time.monotonic() - began < 1

    def test_a_topic_that_was_deleted(self, broker: Broker, topic_name: str, uri: str) -> None:
        with open_log(uri) as log:
            log.initialize()
            with Producer(log, actor="x", wait_s=10) as producer:
                producer.append_event(observed(1))
                self.delete(broker, topic_name)

                def stopped() -> bool:
                    answer = settled(submitted(producer, observed(2)))
                    assert isinstance(answer, BelogError)
                    return isinstance(answer, WrongLog)

                eventually(stopped, "the producer stops for good", timeout_s=60)


def test_a_file_put_in_place_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with open_log(f"sqlite:///{path}") as log:
        log.initialize()
        with Producer(log, actor="x") as producer:
            producer.append_batch([observed(n) for n in range(1, 9)])
            with open_log(f"sqlite:///{tmp_path / 'other.db'}") as other:
                other.initialize()
            for ending in ("-wal", "-shm"):
                (tmp_path / f"log.db{ending}").unlink(missing_ok=True)
            shutil.move(tmp_path / "other.db", path)
            answers = producer.append_batch([observed(20)])
            assert_nothing_acknowledged(answers[0])
    with open_log(f"sqlite:///{path}") as log:
        log.initialize()
        assert_told_the_truth(Judgement(log), [])
        assert log.next_position() == 1
