"""Laws of the fold, over logs of any kind of record."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import NewerFormat
from belog.schemas.fold import Accepted, Fold, Overlay, Record, judge, needs_body
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.merkle import MerkleRange
from tests.examples import (
    ALL_TYPES,
    REQUIRED,
    T0,
    apply_all,
    created,
    opened,
    put,
    raw_event,
    record,
    replica_value,
    state_of,
)
from tests.strategies import KINDS, events

SUBJECTS = ("s", "t")
BUILDS = ("a", "b")
STEPS = tuple(t for t in ALL_TYPES if not t.startswith("v1.system"))


@st.composite
def raw_events(draw: st.DrawFn) -> Event:
    """Events that often are legal, often are not, and often repeat an id."""
    event_type = draw(st.sampled_from((*STEPS, "v1.partition.odd")))
    kind = LIFECYCLE_1.kinds.get(event_type, "partition")
    if draw(st.integers(0, 20)) == 0:
        kind = draw(st.sampled_from(KINDS))
    body = dict(REQUIRED.get(event_type, {}))
    if "build_request_id" in body:
        body["build_request_id"] = draw(st.sampled_from(BUILDS))
    n = draw(st.integers(0, 400))
    made = raw_event(event_type, draw(st.sampled_from(SUBJECTS)), body, n=n, kind=kind)
    if draw(st.integers(0, 5)) == 0:
        return Event(
            made.event_id,
            made.event_type,
            made.subject_kind,
            made.subject_id,
            made.actor,
            made.occurred_at,
            made.payload,
            made.payload_digest,
            None,
            draw(st.integers(-1, 30)),
        )
    return made


VALUES = st.one_of(
    raw_events().map(encode_event),
    raw_events().map(encode_event),
    raw_events().map(encode_event),
    st.binary(max_size=40),
    st.none(),
    st.builds(lambda e, i: replica_value(e, i, i - 1), raw_events(), st.integers(0, 9)),
    st.just(encode_event(created(n=5))),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    records = [record(0, created())]
    position = 1
    for value in draw(st.lists(VALUES, max_size=40)):
        position += draw(st.integers(0, 2))
        at = T0 + draw(st.integers(-100, 100))
        records.append(Record(position, at, value))
        position += 1
    return records


@given(logs(), st.data())
def test_fold_of_a_then_b_is_fold_of_both(log: list[Record], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, first = Fold(), Fold()
    outcomes = apply_all(whole, log)
    head = apply_all(first, log[:cut])
    restored = Fold()
    restored.next_position, restored.next_idx = first.next_position, first.next_idx
    restored.last_accepted, restored.created_at = first.last_accepted, first.created_at
    restored.log_id, restored.is_replica = first.log_id, first.is_replica
    restored.lifecycle = first.lifecycle
    restored.merkle = MerkleRange(first.merkle.size, first.merkle.peaks)
    restored.subjects = {kind: dict(states) for kind, states in first.subjects.items()}
    restored.restore_window(first.window())
    assert head + apply_all(first, log[cut:]) == outcomes
    assert head + apply_all(restored, log[cut:]) == outcomes
    assert state_of(whole) == state_of(first) == state_of(restored)


@given(logs())
def test_records_that_are_not_accepted_leave_no_trace(log: list[Record]) -> None:
    whole, compacted = Fold(), Fold()
    outcomes = apply_all(whole, log)
    kept = [
        item
        for item, outcome in zip(log, outcomes, strict=True)
        if outcome is not None and type(outcome.verdict) is Accepted
    ]
    kept_outcomes = apply_all(compacted, kept)
    accepted = [o for o in outcomes if o is not None and type(o.verdict) is Accepted]
    assert kept_outcomes == accepted
    assert compacted.merkle.root() == whole.merkle.root()
    assert compacted.subjects == whole.subjects
    assert compacted.window() == whole.window()
    assert compacted.created_at == whole.created_at
    times = [o.created_at for o in accepted]
    assert times == sorted(times)


@given(logs())
def test_replica_of_the_accepted_events_equals_its_origin(log: list[Record]) -> None:
    origin, replica = Fold(), Fold()
    previous = -1
    for item in log:
        outcome = origin.apply(item)
        if outcome is None or type(outcome.verdict) is not Accepted:
            continue
        assert outcome.event is not None
        value = replica_value(outcome.event, outcome.index, previous, created_at=outcome.created_at)
        assert type(put(replica, value, created_at=1).verdict) is Accepted
        # A second sink repeats everything, and changes nothing.
        assert type(put(replica, value, created_at=1).verdict) is not Accepted
        previous = outcome.index
    assert replica.merkle.root() == origin.merkle.root()
    assert replica.subjects == origin.subjects
    assert replica.created_at == origin.created_at
    assert replica.last_accepted == origin.last_accepted


@given(st.lists(raw_events(), max_size=40))
def test_overlay_equals_folding(steps: Sequence[Event]) -> None:
    base, folded = opened(), opened()
    overlay = Overlay(base)
    sent: list[Event] = []
    for what in steps:
        index = folded.next_position
        body = what.body() if needs_body(overlay.lifecycle, what.event_type) else None
        verdict = judge(overlay, what, body, index)
        if what.subject_kind == "system":
            continue  # such events are written one at a time, never in flight
        assert verdict == judge(folded, what, body, index)
        if type(verdict) is not Accepted:
            continue
        assert put(folded, what).verdict == verdict
        overlay.add(what, verdict.after)
        sent.append(what)
    assert bool(overlay) == bool(sent)
    # Confirmed one after the other, the overlay drains and the base becomes the fold.
    for what in sent:
        outcome = put(base, what)
        overlay.discard(what, outcome.index)
        for kind in KINDS:
            for subject in SUBJECTS:
                assert overlay.subject(kind, subject) == folded.subject(kind, subject)
    assert not overlay
    assert state_of(base) == state_of(folded)


@given(st.lists(st.one_of(events(), raw_events()).map(encode_event) | st.binary(max_size=200)))
def test_verdict_is_total(values: list[bytes]) -> None:
    for start in (Fold(), opened()):
        for value in values:
            before = state_of(start)
            try:
                put(start, value)
            except NewerFormat:
                assert state_of(start) == before


@given(st.lists(events(), max_size=8), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
def test_verdict_on_replica_records_is_total(steps: list[Event], index: int, previous: int) -> None:
    fold = Fold()
    put(fold, replica_value(created(), 0, -1))
    for what in steps:
        try:
            put(fold, replica_value(what, index, previous, created_at=index))
            put(
                fold,
                replica_value(what, fold.last_accepted + 1, fold.last_accepted, created_at=index),
            )
        except NewerFormat:
            continue
        assert fold.next_idx == fold.last_accepted + 1


@given(logs(), st.data())
def test_a_copy_goes_on_by_itself_to_where_the_original_would(
    log: list[Record], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, first = Fold(), Fold()
    outcomes = apply_all(whole, log)
    head = apply_all(first, log[:cut])
    before = state_of(first)
    copied = first.copy()
    assert head + apply_all(copied, log[cut:]) == outcomes
    assert state_of(copied) == state_of(whole)
    assert state_of(first) == before
