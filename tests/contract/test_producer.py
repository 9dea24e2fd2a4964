"""What a producer answers, the same over every backend of the log."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Closed,
    EventIdReused,
    ExpectedMismatch,
    IllegalTransition,
    InvalidEvent,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NotOwner,
    ReplicaRefused,
    Unsupported,
)
from belog.schemas.events import SnapshotTaken
from belog.schemas.fold import Fold
from belog.schemas.lifecycle import LIFECYCLE_1, LIFECYCLES, Lifecycle, Row
from belog.schemas.limits import BATCH_EVENTS_MAX
from belog.schemas.payload import digest
from belog.storage import EventLog, OrderedLog, Receipt, open_log
from belog.storage.interface import fold_log
from belog.storage.memory import MemoryLog
from tests.examples import BUILD, LOG_ID, REF, event
from tests.producing import (
    BACKENDS,
    DOORS,
    Answer,
    Judgement,
    Place,
    assert_told_the_truth,
    by_submit,
    settled,
    submitted,
)

Door = Callable[[Producer, Event], Answer]

every_door = pytest.mark.parametrize("door", DOORS)


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture
def log(place: Place) -> EventLog:
    return place.open()


@pytest.fixture
def producer(log: EventLog) -> Iterator[Producer]:
    with Producer(log, actor="tester") as made:
        yield made


@pytest.fixture
def other(place: Place) -> Iterator[Producer]:
    """A second writer, in another object over the same log."""
    with Producer(place.open(), actor="other") as made:
        yield made


def requested(n: int, ref: str = REF, build: str = BUILD) -> Event:
    return event("v1.partition.requested", ref, {"build_request_id": build}, n=n)


def scheduled(n: int, ref: str = REF, build: str = BUILD) -> Event:
    return event("v1.partition.scheduled", ref, {"build_request_id": build}, n=n)


def observed(n: int, ref: str = REF) -> Event:
    return event("v1.partition.observed", ref, n=n)


def of(what: Event, expected: int) -> Event:
    return msgspec.structs.replace(what, expected=expected)


# --- accepted


@every_door
def test_an_accepted_event_is_where_its_receipt_says(
    log: EventLog, producer: Producer, door: Door
) -> None:
    for n in range(1, 6):
        what = observed(n, f"{REF}/{n % 2}")
        receipt = door(producer, what)
        assert isinstance(receipt, Receipt)
        assert (receipt.index, receipt.event_id, receipt.duplicate) == (n, what.event_id, False)
        stored = log.get(n)
        assert stored is not None
        assert stored.event == what
        assert stored.created_at == receipt.created_at
        state = producer.known_state("partition", what.subject_id)
        assert state is not None
        assert (state.state, state.index) == ("available", n)


def test_a_batch_is_judged_event_by_event(log: EventLog, producer: Producer) -> None:
    batch = [
        requested(1),
        scheduled(2),
        scheduled(3),
        scheduled(4, build="another"),
        requested(5, "b"),
        requested(1),
        of(observed(7, "c"), -1),
    ]
    answers = producer.append_batch(batch)
    assert [type(a) for a in answers] == [
        *(Receipt, Receipt, IllegalTransition, IllegalTransition),
        *(Receipt, Receipt, Receipt),
    ]
    first, twin = answers[0], answers[5]
    assert isinstance(first, Receipt)
    assert twin == msgspec.structs.replace(first, duplicate=True)
    judged = Judgement(log)
    assert_told_the_truth(judged, zip(batch, answers, strict=True))
    assert len(judged.accepted) == 5, "four of the batch, and the log's first"
    assert producer.append_batch([]) == []


# --- refused


@every_door
def test_an_illegal_event_is_refused_with_what_would_be_legal(
    log: EventLog, producer: Producer, door: Door
) -> None:
    assert isinstance(door(producer, requested(1)), Receipt)
    assert isinstance(door(producer, scheduled(2)), Receipt)
    before = log.next_position()
    answer = door(producer, observed(3))
    assert isinstance(answer, IllegalTransition)
    assert (answer.state, answer.last_index, answer.index) == ("scheduled", 2, 3)
    assert answer.allowed == (
        "v1.partition.requested",
        "v1.partition.joined",
        "v1.partition.building",
        "v1.partition.failed",
    )
    assert answer.owner == BUILD
    assert answer.subject == f"partition:{REF}"
    assert answer.log == log.name
    never = door(producer, event("v1.build.planning", "b", n=4))
    assert isinstance(never, IllegalTransition)
    assert (never.state, never.last_index, never.allowed) == ("", -1, ("v1.build.received",))
    assert log.next_position() == before, "nothing was written"


@every_door
def test_another_builds_attempt_is_not_moved(log: EventLog, producer: Producer, door: Door) -> None:
    door(producer, requested(1))
    answer = door(producer, scheduled(2, build="zombie"))
    assert isinstance(answer, NotOwner)
    assert (answer.owner, answer.state, answer.last_index) == (BUILD, "requested", 1)
    joined = event("v1.partition.joined", REF, {"build_request_id": "friend"}, n=3)
    assert isinstance(door(producer, joined), Receipt)
    assert log.next_position() == 3


@every_door
def test_what_was_expected_is_compared(log: EventLog, producer: Producer, door: Door) -> None:
    assert isinstance(door(producer, of(observed(1), -1)), Receipt)
    for n, wrong in enumerate((-1, 0, 2, 99), 2):
        answer = door(producer, of(observed(n), wrong))
        assert isinstance(answer, ExpectedMismatch)
        assert (answer.last_index, answer.state) == (1, "available")
    assert isinstance(door(producer, of(observed(9), 1)), Receipt)
    assert log.next_position() == 3


@every_door
def test_an_event_that_cannot_be_is_refused(log: EventLog, producer: Producer, door: Door) -> None:
    if door is DOORS[0]:
        with pytest.raises(InvalidEvent):
            producer.append("v1.partition.observed", "", {})
        return
    wrong = msgspec.structs.replace(observed(1), payload_digest=bytes(32))
    with pytest.raises(InvalidEvent, match="digest"):
        raise_error(door(producer, wrong))
    no_map = msgspec.structs.replace(requested(2), payload=b"\x01")
    no_map = msgspec.structs.replace(no_map, payload_digest=digest(no_map.payload))
    with pytest.raises(InvalidEvent, match="map"):
        raise_error(door(producer, no_map))
    assert log.next_position() == 1
    assert isinstance(door(producer, observed(3)), Receipt), "the producer goes on"


def raise_error(answer: Answer) -> None:
    if isinstance(answer, BelogError):
        raise answer


def test_a_batch_has_a_bound(producer: Producer) -> None:
    with pytest.raises(LimitExceeded, match="BATCH_EVENTS_MAX"):
        producer.append_batch([observed(1)] * (BATCH_EVENTS_MAX + 1))


# --- repeated


@every_door
def test_a_repeat_is_answered_with_the_first_index(
    place: Place, log: EventLog, producer: Producer, door: Door
) -> None:
    first = door(producer, requested(1))
    assert isinstance(first, Receipt)
    for n in range(2, 9):
        assert isinstance(door(producer, observed(n, f"{REF}/{n}")), Receipt)
    before = log.next_position()
    again = door(producer, requested(1))
    assert again == msgspec.structs.replace(first, duplicate=True)
    with Producer(place.open(), actor="restarted") as later:
        retried = msgspec.structs.replace(requested(1), occurred_at=5, actor="restarted")
        assert door(later, retried) == msgspec.structs.replace(first, duplicate=True)
    assert log.next_position() == before


@every_door
def test_an_id_is_not_taken_for_another_event(
    log: EventLog, producer: Producer, door: Door
) -> None:
    door(producer, observed(1))
    for what in (observed(1, "b"), event("v1.build.received", REF, n=1), requested(1)):
        answer = door(producer, what)
        assert isinstance(answer, EventIdReused)
        assert (answer.index, answer.last_index) == (1, 1)
    assert log.next_position() == 2


def test_twins_within_a_batch(log: EventLog, producer: Producer) -> None:
    answers = producer.append_batch(
        [observed(1), observed(2, "b"), observed(1), observed(1, "c"), observed(2, "b")]
    )
    assert [a.index for a in answers if isinstance(a, Receipt)] == [1, 2, 1, 2]
    assert [a.duplicate for a in answers if isinstance(a, Receipt)] == [False, False, True, True]
    assert isinstance(answers[3], EventIdReused)
    assert log.next_position() == 3


def test_twins_in_flight(log: EventLog, producer: Producer) -> None:
    for n in range(1, 100):
        sent = [submitted(producer, observed(n, f"{REF}/{n % 3}")) for _ in range(3)]
        sent.append(submitted(producer, observed(n, "another")))
        answers = [settled(pending) for pending in sent]
        assert [a.index for a in answers if isinstance(a, Receipt)] == [n, n, n]
        assert [a.duplicate for a in answers if isinstance(a, Receipt)] == [False, True, True]
        assert isinstance(answers[3], EventIdReused)
    assert log.next_position() == 100


# --- expected within a batch, and atomic batches


def test_expected_may_name_an_event_of_the_same_batch(
    log: EventLog, producer: Producer, other: Producer
) -> None:
    answers = producer.append_batch([requested(1), of(scheduled(2), 1)])
    assert [a.index for a in answers if isinstance(a, Receipt)] == [1, 2]
    other.append_event(observed(3, "elsewhere"))
    # Judged as if at 3 and 4, while another event stands at 3 by now.
    answers = producer.append_batch([requested(4, "b"), of(scheduled(5, "b"), 3)])
    judged = Judgement(log)
    assert_told_the_truth(
        judged, zip([requested(4, "b"), of(scheduled(5, "b"), 3)], answers, strict=True)
    )
    assert isinstance(answers[0], Receipt)
    assert isinstance(answers[1], ExpectedMismatch)
    end = log.next_position()
    answers = producer.append_batch([requested(6, "c"), of(scheduled(7, "c"), end + 1)])
    assert isinstance(answers[1], ExpectedMismatch)


def test_an_atomic_batch_is_all_or_nothing(log: EventLog, producer: Producer) -> None:
    good = [requested(1), scheduled(2), of(observed(3, "b"), -1)]
    if isinstance(log, OrderedLog):
        with pytest.raises(Unsupported):
            producer.append_batch(good, atomic=True)
        assert log.next_position() == 1
        (one,) = producer.append_batch(good[:1], atomic=True)
        assert isinstance(one, Receipt)
        return
    with pytest.raises(IllegalTransition):
        producer.append_batch([*good, observed(4)], atomic=True)
    assert log.next_position() == 1
    answers = producer.append_batch(good, atomic=True)
    assert [a.index for a in answers if isinstance(a, Receipt)] == [1, 2, 3]


# --- pipelining


def test_a_pipeline_keeps_its_order(log: EventLog, producer: Producer) -> None:
    events = [observed(n, f"{REF}/{n % 20}") for n in range(1, 2_001)]
    receipts = [pending.result() for pending in map(producer.submit_event, events)]
    assert [r.index for r in receipts] == list(range(1, 2_001))
    assert [e.event.event_id for e in log.read(1).events] == [e.event_id for e in events]
    assert [e.created_at for e in log.read(1).events] == [r.created_at for r in receipts]


def test_ways_to_append_keep_their_order_among_each_other(
    log: EventLog, producer: Producer
) -> None:
    build = [
        event(f"v1.build.{name}", "b", n=n)
        for n, name in enumerate(
            ("received", "planning", "analysis_completed", "executing", "completed"), 1
        )
    ]
    first = [producer.submit_event(observed(100 + n, str(n))) for n in range(50)]
    pending = [producer.submit_event(build[0]), producer.submit_event(build[1])]
    (third,) = producer.append_batch([build[2]])
    pending.append(producer.submit_event(build[3]))
    fifth = producer.append_event(build[4])
    pending += first
    assert isinstance(third, Receipt), third
    indices = [p.result().index for p in pending[:2]] + [third.index, pending[2].result().index]
    assert [*indices, fifth.index] == sorted([*indices, fifth.index])
    assert Judgement(log).paths["build:b"] == [e.event_type for e in build]


def test_the_state_shows_what_was_submitted(producer: Producer) -> None:
    pending = producer.submit_event(observed(1))
    state = producer.state("partition", REF)
    assert state is not None
    assert (state.state, state.index) == ("available", pending.result().index)


def test_what_is_flushed_is_decided(producer: Producer) -> None:
    for start in range(0, 2_000, 20):
        sent = [producer.submit_event(observed(start + n + 1)) for n in range(20)]
        assert producer.flush()
        assert all(pending.done() for pending in sent)


def test_a_callback_that_fails_harms_nobody(producer: Producer) -> None:
    seen: list[int] = []

    def fail(pending: Pending) -> None:
        seen.append(pending.result().index)
        raise RuntimeError("of the callback")

    sent: list[Pending] = []
    for n in range(1, 200):
        sent.append(producer.submit_event(observed(n, str(n))))
        with contextlib.suppress(RuntimeError):  # it is decided already: the caller's own
            sent[-1].on_done(fail)
    assert [p.result().index for p in sent] == list(range(1, 200))
    assert producer.append_event(observed(500)).index == 200
    assert producer.flush()


def test_threads_share_a_producer(log: EventLog, producer: Producer, seed: int) -> None:
    answers: list[tuple[Event, Answer]] = []

    def write(thread: int) -> None:
        chosen = random.Random(f"{seed}-{thread}")
        for k in range(60):
            ref = f"r{chosen.randrange(3)}"
            make = chosen.choice([requested, scheduled, observed])
            what = make(1 + thread * 1_000 + k, ref)
            door = chosen.choice(DOORS)
            answers.append((what, door(producer, what)))
            if k % 20 == 0:
                producer.state("partition", ref)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 240
    assert_told_the_truth(Judgement(log), answers)


# --- other writers


@every_door
def test_a_stale_producer_is_not_refused_wrongly(
    log: EventLog, producer: Producer, other: Producer, door: Door
) -> None:
    other.append_event(requested(1))
    answer = door(producer, scheduled(2))
    assert isinstance(answer, Receipt), "not legal over what was read, legal over what is there"
    other.append_event(event("v1.partition.building", REF, n=3))
    other.append_event(event("v1.partition.available", REF, n=4))
    answer = door(producer, of(requested(5, build="next"), 4))
    assert isinstance(answer, Receipt)
    assert_told_the_truth(Judgement(log), [(requested(5), answer)])


@every_door
def test_the_loser_of_a_race_learns_who_won(
    log: EventLog, producer: Producer, other: Producer, door: Door
) -> None:
    for n in range(5):
        ref = f"{REF}/{n}"
        won = other.append_event(requested(2 * n + 1, ref, "winner"))
        lost = door(producer, requested(2 * n + 2, ref, "loser"))
        assert isinstance(lost, IllegalTransition | NotOwner)
        assert (lost.state, lost.owner, lost.last_index) == ("requested", "winner", won.index)
    assert len(Judgement(log).accepted) == 6


def test_a_repeat_of_another_writers_event(producer: Producer, other: Producer) -> None:
    first = other.append_event(observed(1))
    again = producer.append_event(observed(1))
    assert again == msgspec.structs.replace(first, duplicate=True)
    assert isinstance(by_submit(producer, observed(1, "b")), EventIdReused)


def test_two_pipelines_at_once(log: EventLog, producer: Producer, other: Producer) -> None:
    answers: list[tuple[Event, Answer]] = []
    for n in range(1, 50):
        ref = f"r{n % 7}"
        one, two = requested(2 * n, ref, "one"), requested(2 * n + 1, ref, "two")
        sent = [(one, submitted(producer, one)), (two, submitted(other, two))]
        ends = [
            (p, event("v1.partition.failed", ref, {"build_request_id": b}, n=10_000 + 2 * n + k))
            for k, (p, b) in enumerate(((producer, "one"), (other, "two")))
        ]
        sent += [(e, submitted(p, e)) for p, e in ends]
        answers += [(e, settled(p)) for e, p in sent]
    assert_told_the_truth(Judgement(log), answers)


# --- ending


def test_closing_decides_what_was_submitted(log: EventLog, producer: Producer) -> None:
    sent = [producer.submit_event(observed(n, str(n))) for n in range(1, 200)]
    producer.close()
    assert [p.result(0).index for p in sent] == list(range(1, 200))
    producer.close()
    for call in (
        lambda: producer.append_event(observed(900)),
        lambda: producer.submit_event(observed(900)),
        lambda: producer.append_batch([observed(900)]),
        producer.refresh,
        lambda: producer.state("partition", REF),
    ):
        with pytest.raises(Closed):
            call()
    assert log.next_position() == 200, "the log stays open"


def test_a_log_closed_under_its_producer_is_an_error(log: EventLog, producer: Producer) -> None:
    producer.append_event(observed(1))
    log.close()
    answer = by_submit(producer, observed(2))
    assert isinstance(answer, Closed)
    (answer,) = producer.append_batch([observed(3)])
    assert isinstance(answer, Closed)


# --- events of the log itself


def test_a_snapshot_is_noted(log: EventLog, producer: Producer) -> None:
    log_id = str(log.end().log_id)
    sent = [producer.submit_event(observed(n)) for n in range(1, 4)]
    sent.append(producer.submit_event(producer.event(SnapshotTaken(index=3, location="s"), log_id)))
    sent.append(producer.submit_event(observed(5)))
    assert [p.result().index for p in sent] == [1, 2, 3, 4, 5]
    elsewhere = producer.event(SnapshotTaken(index=3, location="s"), str(LOG_ID))
    assert isinstance(by_submit(producer, elsewhere), IllegalTransition)


@every_door
def test_a_lifecycle_that_nobody_here_knows_is_not_adopted(
    log: EventLog, producer: Producer, door: Door
) -> None:
    log_id = str(log.end().log_id)
    adopted = event("v1.system.lifecycle_adopted", log_id, {"lifecycle_version": 99}, n=1)
    answer = door(producer, adopted)
    assert isinstance(answer, InvalidEvent)
    assert "99" in answer.message
    same = event("v1.system.lifecycle_adopted", log_id, {"lifecycle_version": 1}, n=2)
    assert isinstance(door(producer, same), IllegalTransition), "it is no newer one"
    second = event(
        "v1.system.log_created",
        str(LOG_ID),
        {"log_id": str(LOG_ID), "instance": "i", "lifecycle_version": 1},
        n=3,
    )
    assert isinstance(door(producer, second), IllegalTransition)
    assert log.next_position() == 1
    assert isinstance(door(producer, observed(4)), Receipt)


def test_what_follows_an_adoption_is_judged_by_what_it_adopted(
    log: EventLog, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = {**LIFECYCLE_1.machines, "build": (Row("v1.build.received", ("",), "done"),)}
    second = Lifecycle(
        2, machines, LIFECYCLE_1.owned_states, LIFECYCLE_1.attempt_events, frozenset()
    )
    monkeypatch.setitem(cast("dict[int, Lifecycle]", LIFECYCLES), 2, second)
    adopted = event(
        "v1.system.lifecycle_adopted", str(log.end().log_id), {"lifecycle_version": 2}, n=1
    )
    received = event("v1.build.received", "b", n=2)
    planning = event("v1.build.planning", "b", n=3)
    sent = [submitted(producer, e) for e in (adopted, received, planning)]
    answers = [settled(pending) for pending in sent]
    assert isinstance(answers[0], Receipt)
    assert isinstance(answers[1], Receipt)
    # A type that the second lifecycle does not know is taken as it is, and moves nothing.
    assert isinstance(answers[2], Receipt)
    state = producer.state("build", "b")
    assert state is not None
    assert state.state == "done"
    assert fold_log(log, Fold()).subject("build", "b") == state


# --- beginning


def test_a_producer_starts_from_a_fold(place: Place, log: EventLog, producer: Producer) -> None:
    producer.append_batch([observed(n, str(n)) for n in range(1, 50)])
    fold = fold_log(log, Fold(keeps_root=False), until_position=25)
    producer.append_batch([requested(100, "1"), observed(101, "2")])
    with Producer(place.open(), actor="later", fold=fold) as later:
        again = later.append_event(observed(10, "10"))
        assert (again.index, again.duplicate) == (10, True)
        assert isinstance(by_submit(later, observed(102, "1")), IllegalTransition)
        assert later.append_event(scheduled(103, "1")).index == 52


def test_a_fold_of_another_log_is_refused(log: EventLog) -> None:
    elsewhere = MemoryLog()
    elsewhere.initialize()
    with pytest.raises(LogReplaced, match="the fold is of log"):
        Producer(log, actor="x", fold=fold_log(elsewhere, Fold()))


def test_a_fold_that_has_read_more_is_refused(log: EventLog, producer: Producer) -> None:
    producer.append_batch([observed(n) for n in range(1, 5)])
    fold = fold_log(log, Fold())
    fold.next_position = fold.next_idx = 9
    with pytest.raises(LogTruncated, match="ends at 5"):
        Producer(log, actor="x", fold=fold)


def test_a_replica_takes_no_producer(place: Place) -> None:
    replica = MemoryLog() if place.backend == "memory" else open_log(place.uri)
    with replica:
        replica.initialize(log_id=LOG_ID, replica=True)
        with pytest.raises(ReplicaRefused):
            Producer(replica, actor="x")
