"""Whatever is cut off, repeated or raced, a replica is a prefix of its origin."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from belog.schemas.envelope import Event
from belog.schemas.fold import Accepted, Fold, Record
from belog.schemas.replica import (
    REPLICA_HEADER,
    ReplicaEncoder,
    ReplicaRecord,
    decode_replica,
    encode_replica,
)
from belog.sink.protocol import EMPTY_TARGET, ReplicationProtocol, TargetEnd
from belog.storage.interface import CopiedRecord
from tests.examples import created, event, record

STEPS = ("observed", "removed", "requested", "scheduled", "building", "stale", "failed")


@st.composite
def origins(draw: st.DrawFn) -> list[Record]:
    """Logs with legal and illegal events, repeats, garbage and tombstones, and with holes."""
    values: list[Event | bytes | None] = [created()]
    for n in range(draw(st.integers(0, 40))):
        choice = draw(st.integers(0, 9))
        if choice == 0:
            values.append(draw(st.sampled_from([b"", b"garbage", None])))
        elif choice == 1:
            values.append(draw(st.sampled_from(values)))
        else:
            step, ref = draw(st.sampled_from(STEPS)), draw(st.sampled_from(["a", "b"]))
            body: dict[str, Any] = {"build_request_id": "b"} if step in STEPS[2:5] else {}
            if step == "failed":
                body = {"build_request_id": "b"}
            values.append(event(f"v1.partition.{step}", ref, body, n=n + 1))
    return [record(n, v) for n, v in enumerate(values) if n == 0 or draw(st.integers(0, 7))]


def accepted(records: list[Record]) -> list[tuple[int, bytes]]:
    fold = Fold()
    found: list[tuple[int, bytes]] = []
    for item in records:
        outcome = fold.apply(item)
        value = item.value
        if value is None or outcome is None or type(outcome.verdict) is not Accepted:
            continue
        if value[:10] == REPLICA_HEADER:
            value = decode_replica(value).envelope
        found.append((outcome.index, value))
    return found


class OrderedTarget:
    """A topic: takes every record, wherever it comes from, and only says where it landed."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, copied: CopiedRecord) -> int:
        self.records.append(Record(len(self.records), copied.created_at, copied.value))
        return len(self.records) - 1

    def end(self) -> TargetEnd:
        fold = Fold()
        for item in self.records:
            fold.apply(item)
        return TargetEnd(fold.last_accepted, fold.merkle.root())


class Sink:
    """A sink over the protocol: it writes without conditions and trusts nothing but the target."""

    def __init__(self, origin: list[Record], target: OrderedTarget) -> None:
        self.origin, self.target = origin, target
        self.start()

    def start(self) -> None:
        self.read_to = 0
        self.protocol = ReplicationProtocol(self.target.end())

    def step(self, count: int, *, cut: bool, look: bool) -> None:
        """Read or write some; `cut` loses the answer to the write."""
        if look:
            self.protocol.target_is(self.target.end())
        ready = self.protocol.ready(count)
        if ready is None:
            part = self.origin[self.read_to : self.read_to + count]
            self.read_to += len(part)
            self.protocol.receive(part)
        else:
            held_before = self.target.end().last_index
            for copied in ready.records:
                self.target.append(copied)
            if not cut and held_before == ready.after:
                self.protocol.written(ready.records[-1].index)
            elif not cut:
                self.protocol.target_is(self.target.end())


ACTIONS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 9)
    ),
    max_size=60,
)


@given(origins(), ACTIONS)
def test_two_sinks_that_crash_and_race_make_a_prefix(
    origin: list[Record], actions: list[tuple[int, int, bool, bool, int]]
) -> None:
    expected = accepted(origin)
    target = OrderedTarget()
    sinks = [Sink(origin, target), Sink(origin, target)]
    for who, count, cut, look, fate in actions:
        if fate == 0:
            sinks[who].start()
        sinks[who].step(count, cut=cut, look=look)
        held = accepted(target.records)
        assert held == expected[: len(held)]
    last = Sink(origin, target)
    for _ in range(2 * len(origin) + 2):
        last.step(10, cut=False, look=False)
    assert accepted(target.records) == expected
    fold = Fold()
    for item in origin:
        fold.apply(item)
    assert target.end() == TargetEnd(fold.last_accepted, fold.merkle.root())


@given(origins(), st.lists(st.integers(0, 10_000), max_size=60))
def test_records_in_any_order_and_number_make_a_prefix(
    origin: list[Record], picks: list[int]
) -> None:
    protocol = ReplicationProtocol(EMPTY_TARGET)
    protocol.receive(origin)
    ready = protocol.ready()
    assert ready is not None
    target = OrderedTarget()
    for pick in picks:
        target.append(ready.records[pick % len(ready.records)])
    held = accepted(target.records)
    assert held == accepted(origin)[: len(held)]


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.binary(min_size=16, max_size=16), INT64, st.lists(st.tuples(INT64, INT64, st.binary())))
def test_the_encoder_of_a_sequence_writes_what_the_plain_one_does(
    log_id: bytes, prev: int, events: list[tuple[int, int, bytes]]
) -> None:
    encoder = ReplicaEncoder(log_id, prev)
    for index, created_at, envelope in events:
        expected = encode_replica(ReplicaRecord(log_id, index, prev, created_at, envelope))
        assert encoder.encode(index, created_at, envelope) == expected
        prev = index
