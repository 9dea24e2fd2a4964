"""What the verdict says beyond the tables: owners, expectations, repeats, identity, formats."""

from uuid import UUID

import pytest

from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import (
    Conflict,
    ExpectedMismatch,
    IllegalTransition,
    NewerFormat,
    NotOwner,
)
from belog.schemas.fold import (
    Accepted,
    Confirmed,
    Duplicate,
    Fold,
    Outcome,
    Void,
    conflict_of,
    judge,
)
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import DUPLICATE_SUBJECT_EVENTS, DUPLICATE_WINDOW_EVENTS, REF_BYTES_MAX
from belog.schemas.payload import digest
from belog.schemas.replica import ReplicaRecord, encode_replica
from tests.examples import (
    LOG_ID,
    OTHER_LOG_ID,
    REF,
    T0,
    created,
    event,
    id_bytes,
    opened,
    put,
    raw_event,
    record,
    replica_value,
    state_of,
)


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome.verdict, Void), outcome.verdict
    return outcome.verdict.reason


def accepted(outcome: Outcome) -> bool:
    return type(outcome.verdict) is Accepted


def by(build: str) -> dict[str, str]:
    return {"build_request_id": build}


def step(fold: Fold, name: str, build: str, n: int) -> Outcome:
    return put(fold, event(f"v1.partition.{name}", body={"build_request_id": build}, n=n))


# --- ownership


def test_zombie_of_yesterdays_build_moves_nothing() -> None:
    fold = opened()
    for n, name in enumerate(("requested", "scheduled", "building", "failed")):
        assert accepted(step(fold, name, "yesterday", n))
    for n, name in enumerate(("requested", "scheduled", "building"), 10):
        assert accepted(step(fold, name, "today", n))
    outcome = step(fold, "available", "yesterday", 20)
    assert reason(outcome) == "not_owner"
    assert isinstance(outcome.verdict, Void)
    assert outcome.verdict.owner == "today"
    assert outcome.event is not None
    conflict = conflict_of(outcome.event, outcome.verdict, index=outcome.index)
    assert isinstance(conflict, NotOwner)
    assert (conflict.owner, conflict.state) == ("today", "building")
    assert accepted(step(fold, "available", "today", 21))


def test_any_build_joins_and_none_takes_over() -> None:
    fold = opened()
    assert accepted(step(fold, "requested", "a", 1))
    assert accepted(step(fold, "joined", "b", 2))
    assert reason(step(fold, "scheduled", "b", 3)) == "not_owner"
    known = fold.subject("partition", REF)
    assert known is not None
    assert (known.owner, known.state) == ("a", "requested")


@pytest.mark.parametrize("steps", [("scheduled",), ("scheduled", "building"), ("delegated",)])
def test_only_the_owner_gives_a_step_back(steps: tuple[str, ...]) -> None:
    fold = opened()
    assert accepted(step(fold, "requested", "a", 1))
    for n, name in enumerate(steps, 2):
        body = {"build_request_id": "a"}
        if name == "delegated":
            body["delegated_to_log"] = str(OTHER_LOG_ID)
        assert accepted(put(fold, event(f"v1.partition.{name}", body={**body}, n=n)))
    assert reason(step(fold, "requested", "b", 10)) == "not_owner"
    assert accepted(step(fold, "requested", "a", 11))


def test_new_attempt_has_a_new_owner() -> None:
    fold = opened()
    step(fold, "requested", "a", 1)
    assert accepted(step(fold, "failed", "a", 2))
    assert accepted(step(fold, "requested", "b", 3))
    known = fold.subject("partition", REF)
    assert known is not None
    assert known.owner == "b"


@pytest.mark.parametrize("body", [{}, {"build_request_id": 7}, {"build_request_id": ""}])
def test_attempt_that_names_no_build_is_void(body: dict[str, str | int]) -> None:
    fold = opened()
    event_of_nobody = raw_event("v1.partition.requested", REF, {**body}, n=1, kind="partition")
    assert reason(put(fold, event_of_nobody)) == "bad_payload"


# --- expected


def test_expected_is_the_index_of_the_subjects_last_accepted_event() -> None:
    fold = opened()
    observed = "v1.partition.observed"
    assert reason(put(fold, event(observed, n=1, expected=0))) == "expected_mismatch"
    assert accepted(put(fold, event(observed, n=2, expected=-1)))
    outcome = put(fold, event(observed, n=3, expected=-1))
    assert reason(outcome) == "expected_mismatch"
    assert isinstance(outcome.verdict, Void)
    assert outcome.verdict.last_index == 2
    assert outcome.event is not None
    assert isinstance(conflict_of(outcome.event, outcome.verdict, index=3), ExpectedMismatch)
    assert accepted(put(fold, event(observed, n=4, expected=2)))
    assert accepted(put(fold, event(observed, n=5, expected=None)))


# --- repeats


def test_repeat_within_the_window_is_a_duplicate_whatever_it_says_now() -> None:
    fold = opened()
    first = event("v1.partition.observed", n=1)
    assert accepted(put(fold, first))
    assert put(fold, first).verdict == Duplicate(1)
    other = event("v1.build.received", "b", n=1)
    assert put(fold, other).verdict == Duplicate(1)
    assert fold.merkle.size == 2


def test_window_ends_after_exactly_its_events() -> None:
    fold = opened()
    first = event("v1.partition.observed", "watched", n=1)
    put(fold, first)
    for n in range(DUPLICATE_WINDOW_EVENTS - 1):
        put(fold, event("v1.partition.observed", f"p{n % 50}", n=100 + n))
    assert fold.first_index(first.event_id) == 1
    put(fold, event("v1.partition.observed", "p", n=90))
    assert fold.first_index(first.event_id) is None
    assert len(fold.window()) == DUPLICATE_WINDOW_EVENTS
    # Out of the window, and still one of the subject's last four.
    assert put(fold, first).verdict == Duplicate(1)
    for n in range(DUPLICATE_SUBJECT_EVENTS - 1):
        put(fold, event("v1.partition.observed", "watched", n=10 + n))
    assert put(fold, first).verdict == Duplicate(1)
    put(fold, event("v1.partition.observed", "watched", n=20))
    # Beyond both it is judged anew, and legal.
    again = put(fold, first)
    assert accepted(again)
    assert fold.first_index(first.event_id) == again.index


def test_void_records_are_not_remembered() -> None:
    fold = opened()
    early = event("v1.build.planning", "b", n=1)
    assert reason(put(fold, early)) == "illegal_transition"
    put(fold, event("v1.build.received", "b", n=2))
    assert accepted(put(fold, early))


# --- the log itself


def test_nothing_is_accepted_before_log_created() -> None:
    fold = Fold()
    assert reason(put(fold, event("v1.partition.observed", n=1))) == "log_not_open"
    assert accepted(put(fold, created()))
    assert fold.log_id == LOG_ID
    assert accepted(put(fold, event("v1.partition.observed", n=1)))


def test_a_second_log_created_is_void() -> None:
    fold = opened()
    for log_id in (LOG_ID, OTHER_LOG_ID):
        assert reason(put(fold, created(log_id, n=7))) == "illegal_transition"
    assert fold.log_id == LOG_ID


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.0])
def test_log_created_needs_a_version(version: float | str | None) -> None:
    fold = Fold()
    body = {"lifecycle_version": version}
    first = raw_event("v1.system.log_created", str(LOG_ID), {**body}, n=1, kind="system")
    assert reason(put(fold, first)) == "bad_payload"


@pytest.mark.parametrize("log_id", ["log", str(LOG_ID).upper(), LOG_ID.hex])
def test_log_created_needs_a_uuid(log_id: str) -> None:
    fold = Fold()
    body = {"lifecycle_version": 1}
    first = raw_event("v1.system.log_created", log_id, {**body}, n=1, kind="system")
    assert reason(put(fold, first)) == "bad_payload"


def test_newer_lifecycle_stops_before_anything_is_applied() -> None:
    fold = opened()
    put(fold, event("v1.partition.observed", n=1))
    before = state_of(fold)
    adopts = event("v1.system.lifecycle_adopted", str(LOG_ID), n=2)
    with pytest.raises(NewerFormat) as caught:
        put(fold, adopts)
    assert caught.value.index == 2
    assert state_of(fold) == before
    with pytest.raises(NewerFormat):
        put(Fold(), created(version=2))


def test_adopting_no_newer_lifecycle_is_void() -> None:
    fold = opened()
    same = event("v1.system.lifecycle_adopted", str(LOG_ID), {"lifecycle_version": 1}, n=2)
    assert reason(put(fold, same)) == "bad_payload"


def test_newer_envelope_stops_before_anything_is_applied() -> None:
    fold = opened()
    before = state_of(fold)
    with pytest.raises(NewerFormat) as caught:
        put(fold, b"\xc3\x01" + bytes(8) + b"whatever")
    assert caught.value.index == 1
    wrapped = encode_replica(ReplicaRecord(LOG_ID.bytes, 0, -1, T0, b"\xc3\x01" + bytes(8) + b"x"))
    replica = Fold()
    with pytest.raises(NewerFormat):
        put(replica, wrapped)
    assert state_of(fold) == before
    assert state_of(replica) == state_of(Fold())


# --- unknown types, garbage


def test_unknown_types_are_accepted_and_change_no_state() -> None:
    fold = opened()
    put(fold, event("v1.partition.observed", n=1))
    unknown = raw_event("v1.partition.blessed", REF, {"x": 1}, n=2, kind="partition")
    assert accepted(put(fold, unknown))
    known = fold.subject("partition", REF)
    assert known is not None
    assert (known.state, known.index) == ("available", 2)
    assert fold.merkle.size == 3
    assert put(fold, unknown).verdict == Duplicate(2)
    stranger = raw_event("v9.moon.rose", "m", {}, n=3, kind="system")
    assert accepted(put(fold, stranger))
    # An unknown type before the first known one leaves the subject as never seen.
    put(fold, raw_event("v1.build.pondered", "b", {}, n=4, kind="build"))
    assert accepted(put(fold, event("v1.build.received", "b", n=5)))


def test_unknown_type_is_accepted_without_a_look_at_its_payload() -> None:
    fold = opened()
    data = b"\xff\xff"
    kinds: tuple[SubjectKind, ...] = ("partition", "system")
    for n, kind in enumerate(kinds, 1):
        odd = Event(id_bytes(n), "v1.odd.one", kind, "s", "x", T0, data, digest(data))
        assert accepted(put(fold, odd))


@pytest.mark.parametrize("value", [b"", b"\x00", b"\xc3\x01", b"\xc3\x01\x00", b"garbage" * 9])
def test_garbage_is_void(value: bytes) -> None:
    fold = opened()
    before = state_of(fold)
    assert reason(put(fold, value)) == "not_an_event"
    assert {**state_of(fold), "position": 1, "index": 1} == before


def test_wrong_digest_is_void() -> None:
    fold = opened()
    value = bytearray(encode_event(event("v1.partition.observed", n=1)))
    value[-3] ^= 1
    assert reason(put(fold, bytes(value))) == "wrong_digest"


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x01", b"\xa1\x01\x02", b"\xa1aa\xf7"])
def test_payload_that_is_no_map_is_void_where_the_verdict_needs_it(data: bytes) -> None:
    fold = opened()
    requested = "v1.partition.requested"
    bad = Event(id_bytes(1), requested, "partition", "s", "x", T0, data, digest(data))
    assert reason(put(fold, bad)) == "bad_payload"
    taken = Event(
        id_bytes(2), "v1.system.vacuumed", "system", str(LOG_ID), "x", T0, data, digest(data)
    )
    assert judge(fold, taken, None, 2) == put(fold, taken).verdict


@pytest.mark.parametrize("subject", ["", "a\nb", "x" * (REF_BYTES_MAX + 1), "\x7f"])
def test_subject_that_cannot_be_is_void(subject: str) -> None:
    bad = raw_event("v1.partition.observed", subject, {}, n=1, kind="partition")
    assert reason(put(opened(), bad)) == "bad_subject"


def test_subject_at_its_bound_is_accepted() -> None:
    fits = raw_event("v1.partition.observed", "x" * REF_BYTES_MAX, {}, n=1, kind="partition")
    assert accepted(put(opened(), fits))


def test_judge_agrees_with_the_fold_and_changes_nothing() -> None:
    fold = opened()
    before = state_of(fold)
    requested = event("v1.partition.requested", n=1)
    verdict = judge(fold, requested, requested.body(), 1)
    assert state_of(fold) == before
    assert put(fold, requested).verdict == verdict


def test_conflict_names_state_and_what_is_allowed() -> None:
    fold = opened()
    outcome = put(fold, event("v1.build.planning", "b", n=1))
    assert isinstance(outcome.verdict, Void)
    assert outcome.event is not None
    conflict: Conflict = conflict_of(outcome.event, outcome.verdict, index=1, log="here")
    assert type(conflict) is IllegalTransition
    assert (conflict.state, conflict.last_index, conflict.index) == ("", -1, 1)
    assert conflict.allowed == ("v1.build.received",)
    assert "build:b" in str(conflict)


# --- time, tombstones


def test_time_never_goes_back() -> None:
    fold = opened()
    for n, at in enumerate((T0 + 50, T0 + 10, T0 + 60, T0), 1):
        seen = put(fold, event("v1.partition.observed", n=n), created_at=at).created_at
        assert seen == max(T0 + 50, at) if n < 3 else T0 + 60
    void = put(fold, b"garbage", created_at=T0 + 10_000)
    assert void.created_at == T0 + 60
    # A void record may be compacted away: its time must leave no trace.
    late = put(fold, event("v1.build.planning", "b", n=8), created_at=T0 + 10_000)
    assert reason(late) == "illegal_transition"
    assert put(fold, event("v1.partition.observed", n=9), created_at=T0).created_at == T0 + 60


def test_tombstones_and_gaps_only_move_the_position() -> None:
    fold = opened()
    assert fold.apply(record(1, None)) is None
    assert accepted(put(fold, event("v1.partition.observed", n=1)))
    fold.apply(record(10, event("v1.partition.observed", n=2)))
    assert (fold.next_position, fold.next_idx, fold.last_accepted) == (11, 11, 10)
    assert fold.merkle.size == 3


# --- replicas


def replica_of(*indices: int) -> Fold:
    """The fold of a replica that holds the origin's events at these indices."""
    fold = Fold()
    previous = -1
    for index in indices:
        what = created() if index == indices[0] else event("v1.partition.observed", n=index)
        assert accepted(put(fold, replica_value(what, index, previous)))
        previous = index
    return fold


def test_replica_keeps_the_origins_indices_and_root() -> None:
    fold = replica_of(0, 2, 5)
    assert (fold.is_replica, fold.next_position, fold.next_idx) == (True, 3, 6)
    origin = opened()
    origin.apply(record(2, event("v1.partition.observed", n=2)))
    origin.apply(record(5, event("v1.partition.observed", n=5)))
    assert fold.merkle.root() == origin.merkle.root()
    assert fold.subjects == origin.subjects
    assert fold.created_at == origin.created_at


@pytest.mark.parametrize(
    ("index", "previous"),
    [
        pytest.param(5, 2, id="repeat"),
        pytest.param(9, 7, id="hole"),
        pytest.param(3, 2, id="older"),
        pytest.param(5, 5, id="same index"),
        pytest.param(3, 5, id="goes back"),
        pytest.param(-7, 5, id="negative"),
        pytest.param(9, -1, id="a first one again"),
    ],
)
def test_replica_refuses_what_does_not_follow(index: int, previous: int) -> None:
    fold = replica_of(0, 2, 5)
    before = state_of(fold)
    outcome = put(fold, replica_value(event("v1.partition.observed", n=99), index, previous))
    assert reason(outcome) == "not_of_replica"
    assert {**state_of(fold), "position": 3} == before


def test_replica_refuses_another_origin_and_plain_records() -> None:
    fold = replica_of(0, 2)
    other = replica_value(event("v1.partition.observed", n=9), 3, 2, log_id=OTHER_LOG_ID)
    assert reason(put(fold, other)) == "not_of_replica"
    assert reason(put(fold, event("v1.partition.observed", n=9))) == "not_of_replica"
    first = replica_value(created(OTHER_LOG_ID), 0, -1, log_id=LOG_ID)
    assert reason(put(Fold(), first)) == "not_of_replica"


def test_first_record_with_an_impossible_index_is_void_not_an_error() -> None:
    for index in (-1, -(2**63)):
        assert reason(put(Fold(), replica_value(created(), index, -1))) == "not_of_replica"
    assert accepted(put(Fold(), replica_value(created(), 2**63 - 1, -1, created_at=T0)))


def test_replica_record_in_a_primary_log_is_void() -> None:
    fold = opened()
    assert reason(put(fold, replica_value(event("v1.partition.observed", n=9), 1, 0))) == (
        "not_an_event"
    )
    assert accepted(put(fold, event("v1.partition.observed", n=9)))


def test_replica_record_within_another_is_void() -> None:
    inner = replica_value(event("v1.partition.observed", n=9), 3, 2)
    outer = encode_replica(ReplicaRecord(LOG_ID.bytes, 3, 2, T0, inner))
    assert reason(put(replica_of(0, 2), outer)) == "not_an_event"


def test_origins_event_is_judged_in_the_replica_too() -> None:
    fold = replica_of(0, 2)
    illegal = replica_value(event("v1.build.planning", "b", n=9), 3, 2)
    assert reason(put(fold, illegal)) == "illegal_transition"
    assert fold.last_accepted == 2
    assert accepted(put(fold, replica_value(event("v1.build.received", "b", n=9), 4, 2)))


def test_confirm_is_apply() -> None:
    applied, confirmed, judging = opened(), opened(), opened()
    run: list[Confirmed] = []
    seen: list[int] = []
    for n, created_at in ((1, T0 - 5), (2, T0 + 9), (3, T0 + 2)):
        requested = event("v1.partition.requested", f"r{n}", {"build_request_id": "b"}, n=n)
        verdict = judge(judging, requested, requested.body(), n)
        assert isinstance(verdict, Accepted)
        value = encode_event(requested)
        run.append(Confirmed(n, created_at, value, requested, verdict.after))
        put(judging, requested, created_at=created_at)
        seen.append(put(applied, requested, created_at=created_at).created_at)
    assert confirmed.confirm([]) == []
    assert confirmed.confirm(run[:1]) + confirmed.confirm(run[1:]) == seen
    assert state_of(confirmed) == state_of(applied)
    assert confirmed.merkle.root() == applied.merkle.root()
    for wrong in (run[:1], run[2:]):
        with pytest.raises(ValueError, match="does not follow"):
            confirmed.confirm(wrong)
    assert state_of(confirmed) == state_of(applied)


def test_log_ids_are_uuids() -> None:
    assert isinstance(opened().log_id, UUID)
