"""What a sink sends next, decided without any I/O, and what stands in for a refused event."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from belog.schemas.envelope import Event, decode_event, encode_event
from belog.schemas.errors import Diverged, LimitExceeded, LogTruncated, NewerFormat, Unavailable
from belog.schemas.fold import Accepted, Duplicate, Fold, Record, Void
from belog.schemas.merkle import leaf_hash
from belog.schemas.payload import JsonValue, digest
from belog.schemas.replica import decode_replica
from belog.sink.dead_letters import DeadLetterFile
from belog.sink.omission import OMISSION_FIELD, OMITTED_TEXT_BYTES_MAX, is_omission_of, omit
from belog.sink.protocol import (
    EMPTY_TARGET,
    SEND_BYTES_MAX,
    Ready,
    ReplicationProtocol,
    TargetEnd,
)
from belog.storage.interface import CopiedRecord
from tests.examples import BUILD, LOG_ID, REF, T0, created, event, raw_event, record

TOO_LARGE = LimitExceeded("record", limit="RECORD_BYTES_MAX", limit_value=1, value=2)


def observed(n: int, ref: str = REF, message: str | None = None) -> Event:
    return event("v1.partition.observed", ref, {"message": message} if message else {}, n=n)


def origin(*, more: Sequence[Event] = ()) -> list[Record]:
    """A log as Kafka may hold it: events 0, 1, 4, 6 and 8 are accepted."""
    return [
        record(0, created()),
        record(1, observed(1)),
        record(2, b"garbage"),
        record(3, observed(1)),
        record(4, observed(4, "data://example/b"), T0 + 90),
        record(5, None),
        record(6, observed(6), T0 + 50),
        record(7, event("v1.partition.building", n=7)),
        record(8, event("v7.thing.happened", "thing", {"x": 1}, n=8, kind="partition")),
        *(record(9 + n, what) for n, what in enumerate(more)),
    ]


ACCEPTED = [0, 1, 4, 6, 8]


def end_of(records: Sequence[Record], last_index: int) -> TargetEnd:
    fold = Fold()
    for item in records:
        if item.position <= last_index:
            fold.apply(item)
    return TargetEnd(fold.last_accepted, fold.merkle.root())


def sent(protocol: ReplicationProtocol, records: Sequence[Record]) -> Ready:
    protocol.receive(records)
    ready = protocol.ready()
    assert ready is not None
    return ready


def as_records(copied: Sequence[CopiedRecord]) -> list[Record]:
    return [Record(c.index, c.created_at, c.value) for c in copied]


def test_only_accepted_events_are_sent_wrapped_byte_for_byte() -> None:
    records = origin()
    ready = sent(ReplicationProtocol(EMPTY_TARGET), records)
    assert ready.after == -1
    assert [r.index for r in ready.records] == ACCEPTED
    wrapped = [decode_replica(r.value) for r in ready.records]
    assert [w.origin_index for w in wrapped] == ACCEPTED
    assert [w.prev_origin_index for w in wrapped] == [-1, 0, 1, 4, 6]
    assert [w.envelope for w in wrapped] == [records[i].value for i in ACCEPTED]
    assert {w.origin_log_id for w in wrapped} == {LOG_ID.bytes}
    times = [T0, T0 + 1, T0 + 90, T0 + 90, T0 + 90]
    assert [w.origin_created_at for w in wrapped] == times, "the running maximum, as readers see it"
    assert [r.created_at for r in ready.records] == times


def test_a_replica_of_a_replica_passes_wrappers_through() -> None:
    first = sent(ReplicationProtocol(EMPTY_TARGET), origin()).records
    # As on Kafka: positions of their own, a repeat and a record that follows nothing in between.
    stored = [first[0], first[1], first[0], first[3], first[2], first[3], first[4]]
    records = [Record(n, T0 + 1000 + n, r.value) for n, r in enumerate(stored)]
    second = sent(ReplicationProtocol(EMPTY_TARGET), records).records
    assert second == first


def test_nothing_is_sent_twice_nor_before_it_was_asked_for() -> None:
    protocol = ReplicationProtocol(EMPTY_TARGET)
    assert protocol.ready() is None
    ready = sent(protocol, origin())
    assert protocol.ready() == ready, "until it was written it stays"
    protocol.written(4)
    rest = protocol.ready()
    assert rest is not None
    assert (rest.after, [r.index for r in rest.records]) == (4, [6, 8])
    protocol.written(8)
    assert protocol.ready() is None
    assert (protocol.target_index, protocol.queued) == (8, 0)


@pytest.mark.parametrize("last", ACCEPTED)
def test_it_resumes_behind_what_the_target_holds(last: int) -> None:
    records = origin()
    protocol = ReplicationProtocol(end_of(records, last))
    assert protocol.is_proving
    protocol.receive(records)
    assert not protocol.is_proving
    ready = protocol.ready()
    rest = [index for index in ACCEPTED if index > last]
    assert ([r.index for r in ready.records] if ready else []) == rest
    if ready is not None:
        assert ready.after == decode_replica(ready.records[0].value).prev_origin_index == last


def test_a_target_with_another_event_is_not_written_to() -> None:
    records = origin()
    other = [*records[:6], record(6, observed(66)), *records[7:]]
    protocol = ReplicationProtocol(end_of(other, 6))
    with pytest.raises(Diverged, match="at or before index 6"):
        protocol.receive(records)
    assert protocol.ready() is None


def test_a_target_with_an_event_where_the_origin_has_none_is_not_written_to() -> None:
    protocol = ReplicationProtocol(TargetEnd(5, end_of(origin(), 4).root))
    with pytest.raises(Diverged, match="an event at 5"):
        protocol.receive(origin())


def test_an_origin_shorter_than_its_replica_was_truncated() -> None:
    records = origin()
    protocol = ReplicationProtocol(end_of(records, 8))
    protocol.receive(records[:7])
    with pytest.raises(LogTruncated, match="last event is 6"):
        protocol.origin_ended()


def test_a_target_that_lost_what_it_held_was_truncated() -> None:
    records = origin()
    protocol = ReplicationProtocol(EMPTY_TARGET)
    sent(protocol, records)
    protocol.written(6)
    with pytest.raises(LogTruncated, match="held events up to 6, now up to 4"):
        protocol.target_is(end_of(records, 4))


def test_another_sink_that_is_ahead_is_followed() -> None:
    records = origin()
    protocol = ReplicationProtocol(EMPTY_TARGET)
    sent(protocol, records[:5])
    protocol.target_is(end_of(records, 1))
    ready = protocol.ready()
    assert ready is not None
    assert (ready.after, [r.index for r in ready.records]) == (1, [4])
    protocol.target_is(end_of(records, 6))
    assert protocol.ready() is None
    assert protocol.is_proving
    last = sent(protocol, records[5:])
    assert [decode_replica(r.value).prev_origin_index for r in last.records] == [last.after] == [6]


@pytest.mark.parametrize("last", [1, 4, 5, 8])
def test_another_sink_that_wrote_something_else_is_noticed(last: int) -> None:
    records = origin()
    protocol = ReplicationProtocol(EMPTY_TARGET)
    sent(protocol, records)
    with pytest.raises(Diverged):
        protocol.target_is(TargetEnd(last, end_of(records, 6).root))


def test_what_stands_before_a_newer_format_is_sent_first() -> None:
    newer = Record(9, T0 + 9, b"\xc3\x01" + b"\x07" * 40)
    protocol = ReplicationProtocol(EMPTY_TARGET)
    assert [r.index for r in sent(protocol, [*origin(), newer]).records] == ACCEPTED
    protocol.written(8)
    with pytest.raises(NewerFormat):
        protocol.receive([newer])
    with pytest.raises(NewerFormat):
        protocol.origin_ended()


def test_one_write_is_bounded_in_bytes_but_never_empty() -> None:
    large = [observed(n, message="x" * 16_000) for n in range(9, 1_500)]
    protocol = ReplicationProtocol(EMPTY_TARGET)
    ready = sent(protocol, origin(more=large))
    size = sum(len(r.value) for r in ready.records)
    assert SEND_BYTES_MAX - 20_000 < size <= SEND_BYTES_MAX
    single = protocol.ready(1)
    assert single is not None
    assert single.records == ready.records[:1]


# --- omissions


def manifest_event(n: int) -> Event:
    body: dict[str, JsonValue] = {
        "build_request_id": BUILD,
        "job_run_id": "run-1",
        "message": "m" * (OMITTED_TEXT_BYTES_MAX + 1),
        "manifest": {"outputs": [f"data://example/{i}" for i in range(900)]},
    }
    return event("v1.partition.available", REF, body, n=n)


def attempt() -> list[Record]:
    """An attempt whose `available` event is large."""
    steps = ["requested", "scheduled", "building"]
    return [
        record(0, created()),
        *(record(1 + n, event(f"v1.partition.{s}", n=1 + n)) for n, s in enumerate(steps)),
        record(4, manifest_event(4)),
        record(5, event("v1.partition.stale", REF, {}, n=5)),
    ]


def with_omission() -> tuple[ReplicationProtocol, list[Record]]:
    """A protocol whose event 4 was refused, and the records of the replica that it fills."""
    protocol = ReplicationProtocol(EMPTY_TARGET)
    held = list(sent(protocol, attempt()).records[:4])
    protocol.written(3)
    ready = protocol.ready()
    assert ready is not None
    protocol.replace_first(omit(ready.records[0], "too large"))
    ready = protocol.ready()
    assert ready is not None
    held += ready.records
    protocol.written(5)
    return protocol, as_records(held)


def test_an_omission_keeps_the_chain_and_every_state() -> None:
    _, held = with_omission()
    ours, theirs = Fold(), Fold()
    outcomes = [(ours.apply(a), theirs.apply(b)) for a, b in zip(attempt(), held, strict=True)]
    for mine, other in outcomes:
        assert mine is not None
        assert other is not None
        assert mine.verdict == other.verdict
        assert type(other.verdict) is Accepted
    assert ours.subjects == theirs.subjects
    assert ours.merkle.root() != theirs.merkle.root()


def test_an_omission_is_judged_as_its_event_was() -> None:
    owner = "b" * (2 * OMITTED_TEXT_BYTES_MAX)
    bodies = [{"build_request_id": owner}, {"build_request_id": owner}, {}]
    types = ["v1.partition.requested", "v1.partition.failed", "v9.partition.odd"]
    events = [
        raw_event(name, REF, body, n=n, kind="partition")
        for n, (name, body) in enumerate(zip(types, bodies, strict=True), 1)
    ]
    events[2] = msgspec.structs.replace(events[2], payload=b"no", payload_digest=digest(b"no"))
    records = [record(n, e) for n, e in enumerate([created(), *events])]
    copied = sent(ReplicationProtocol(EMPTY_TARGET), records).records
    replica = [omit(r, "too large") for r in copied]
    ours, theirs = Fold(), Fold()
    for mine, other in zip(records, as_records(replica), strict=True):
        outcome = ours.apply(mine)
        assert outcome is not None
        assert type(outcome.verdict) is Accepted
        again = theirs.apply(other)
        assert again is not None
        assert again.verdict == outcome.verdict


def test_an_omission_says_what_it_stands_for() -> None:
    _, held = with_omission()
    original = encode_event(manifest_event(4))
    wrapped = decode_replica(held[4].value or b"")
    short = decode_event(wrapped.envelope)
    body = short.body()
    mark = {"bytes": len(original), "leaf": leaf_hash(original), "reason": "too large"}
    assert body == {"build_request_id": BUILD, "job_run_id": "run-1", OMISSION_FIELD: mark}
    assert short.event_id == manifest_event(4).event_id
    assert is_omission_of(wrapped.envelope, original)
    assert not is_omission_of(wrapped.envelope, encode_event(observed(4)))
    assert not is_omission_of(original, original)


def test_the_target_root_is_tracked_over_an_omission() -> None:
    protocol, held = with_omission()
    fold = Fold()
    for item in held:
        fold.apply(item)
    protocol.target_is(TargetEnd(5, fold.merkle.root()))
    with pytest.raises(Diverged):
        protocol.target_is(TargetEnd(5, end_of(attempt(), 5).root))


def test_a_restart_knows_the_omissions_that_the_target_names() -> None:
    protocol, held = with_omission()
    fold = Fold()
    for item in held[:5]:
        fold.apply(item)
    end = TargetEnd(4, fold.merkle.root())
    with pytest.raises(Diverged):
        ReplicationProtocol(end).receive(attempt())
    again = ReplicationProtocol(end, omitted=protocol.omitted)
    assert [r.index for r in sent(again, attempt()).records] == [5]


# --- dead letters


def refused() -> CopiedRecord:
    return sent(ReplicationProtocol(EMPTY_TARGET), attempt()).records[4]


def test_a_dead_letter_holds_the_whole_event_once(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, clock=lambda: T0)
    letters.put(refused(), TOO_LARGE)
    letters.put(refused(), TOO_LARGE)
    DeadLetterFile(path).put(refused(), TOO_LARGE)
    (letter,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert base64.b64decode(letter.pop("envelope")) == encode_event(manifest_event(4))
    assert letter == {
        "at": T0,
        "origin_log_id": str(LOG_ID),
        "index": 4,
        "event_id": "00000000-0000-0000-0000-000000000004",
        "event_type": "v1.partition.available",
        "subject": f"partition:{REF}",
        "code": "limit_exceeded",
        "reason": TOO_LARGE.message,
    }


@pytest.mark.parametrize("cut", [1, 2, 40, 400])
def test_a_dead_letter_cut_off_by_a_crash_is_written_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_bytes(b'{"origin_log_id": "x", "index": 1}\n')
    DeadLetterFile(path, clock=lambda: T0).put(refused(), TOO_LARGE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    DeadLetterFile(path, clock=lambda: T0).put(refused(), TOO_LARGE)
    assert path.read_bytes() == whole


def test_a_dead_letter_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="dead letter"):
        DeadLetterFile(tmp_path / "missing" / "dead.jsonl").put(refused(), TOO_LARGE)


def test_what_the_example_origin_holds() -> None:
    fold = Fold()
    verdicts = [outcome.verdict for r in origin() if (outcome := fold.apply(r)) is not None]
    kinds = [type(v) for v in verdicts]
    assert (kinds.count(Accepted), kinds.count(Duplicate), kinds.count(Void)) == (5, 1, 2)
