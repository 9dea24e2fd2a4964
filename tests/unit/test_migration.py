"""The planning of a migration: what is copied, how the beginning is proved, what is refused."""

import random

import pytest

from belog.schemas.envelope import encode_event
from belog.schemas.errors import Diverged, LogTruncated, Unsupported
from belog.schemas.fold import Fold, Record
from belog.sink.migration import WHOLE, Bound, Migration, RecordSum, Summary
from belog.storage.interface import CopiedRecord
from tests.examples import LOG_ID, T0, apply_all, created, event, record, replica_value


def records(count: int, start: int = 0) -> list[Record]:
    made = [
        created(),
        *(event("v1.partition.observed", f"data://p/{n}", n=n) for n in range(1, count)),
    ]
    return [record(n, what) for n, what in enumerate(made)][start:]


def summed(of: list[Record], *, judged: bool = False) -> Summary:
    whole = RecordSum(judged=judged)
    whole.take(of)
    return whole.summary()


NOTHING = summed([])


def migration(
    held: Summary = NOTHING,
    *,
    judged: bool = False,
    bound: Bound = WHOLE,
    is_replica: bool = False,
) -> Migration:
    read = RecordSum(judged=judged, bound=bound)
    return Migration(held, read, is_replica=is_replica, target="target")


def copied(of: list[Record]) -> list[CopiedRecord]:
    return [CopiedRecord(r.position, r.created_at, r.value or b"") for r in of]


@pytest.mark.parametrize("judged", [False, True])
def test_all_events_are_copied_with_place_and_time(*, judged: bool) -> None:
    log = records(20)
    core = migration(judged=judged)
    assert core.after == -1
    assert core.receive(log) == copied(log)
    core.origin_ended()
    fold = Fold()
    apply_all(fold, log)
    found = core.sum.summary()
    assert (found.events, found.last_index, found.root) == (20, 19, fold.merkle.root())


@pytest.mark.parametrize("judged", [False, True])
def test_goes_on_behind_what_the_target_holds(*, judged: bool, seed: int) -> None:
    log = records(40)
    rng = random.Random(f"{seed}-resume")
    for held in range(1, 40):
        core = migration(summed(log[:held]), judged=judged)
        got: list[CopiedRecord] = []
        at = 0
        while at < len(log):
            step = rng.randint(1, 7)
            part = core.receive(log[at : at + step])
            core.written(part)
            got += part
            at += step
        core.origin_ended()
        assert got == copied(log[held:])
        assert core.sum.summary() == summed(log)
        assert core.after == 39


def test_void_records_and_repeats_stay_behind() -> None:
    first, second = event("v1.partition.observed", "a", n=1), event("v1.partition.stale", "a", n=2)
    illegal = event("v1.partition.building", "b", n=3)
    log = [
        record(0, b"garbage"),
        record(1, created()),
        record(2, first),
        record(3, illegal),
        record(4, first),
        record(5, None),
        record(6, second),
    ]
    core = migration(judged=True)
    assert [r.index for r in core.receive(log)] == [1, 2, 6]
    assert core.sum.summary().events == 3


def test_times_that_went_back_are_copied_as_readers_saw_them() -> None:
    log = [record(0, created(), T0 + 9), record(1, event("v1.partition.observed", n=1), T0 + 3)]
    assert [r.created_at for r in migration(judged=True).receive(log)] == [T0 + 9, T0 + 9]


@pytest.mark.parametrize("judged", [False, True])
def test_a_bound_cuts_the_end_off(*, judged: bool) -> None:
    log = records(20)
    for bound in (Bound(index=7), Bound(created_us=T0 + 6), Bound(index=7, created_us=T0 + 99)):
        core = migration(judged=judged, bound=bound)
        assert core.receive(log[:5]) == copied(log[:5])
        assert not core.sum.is_past_bound
        assert core.receive(log[5:]) == copied(log[5:7])
        assert core.sum.is_past_bound
        assert core.sum.summary() == summed(log[:7])


@pytest.mark.parametrize("judged", [False, True])
def test_a_target_that_is_ahead_is_refused(*, judged: bool) -> None:
    log = records(20)
    core = migration(summed(log), judged=judged)
    assert core.receive(log[:15]) == []
    with pytest.raises(LogTruncated):
        core.origin_ended()
    core = migration(summed(log[:10]), judged=judged, bound=Bound(index=8))
    with pytest.raises(LogTruncated):
        core.receive(log)


@pytest.mark.parametrize("judged", [False, True])
def test_a_target_with_other_events_is_refused(*, judged: bool) -> None:
    log = records(20)
    other = [*log[:4], record(4, event("v1.partition.observed", "data://else", n=99)), *log[5:]]
    with pytest.raises(Diverged, match="differ"):
        migration(summed(other[:9]), judged=judged).receive(log)
    holes = [*log[:6], *log[7:12]]
    with pytest.raises(Diverged):
        migration(summed(holes), judged=judged).receive(log)
    with pytest.raises(Diverged, match="its origin none"):
        migration(summed(log[:7]), judged=judged).receive([*log[:6], *log[7:]])


def test_positions_that_are_used_up_are_refused() -> None:
    tombstones = summed([record(n, None) for n in range(3)], judged=True)
    assert (tombstones.events, tombstones.next_position) == (0, 3)
    with pytest.raises(Diverged, match="used up"):
        migration(tombstones).receive(records(5))
    late = [record(3, created()), record(5, event("v1.partition.observed", n=1))]
    core = migration(tombstones)
    assert core.after == 2
    assert core.receive(late) == copied(late)


def test_a_vacuumed_origin_is_refused() -> None:
    vacuumed = event("v1.system.vacuumed", str(LOG_ID), n=7)
    log = [*records(3), record(3, vacuumed)]
    for judged in (False, True):
        with pytest.raises(Unsupported, match="vacuumed"):
            migration(judged=judged).receive(log)
    talks = event("v1.partition.observed", body={"message": "like v1.system.vacuumed"}, n=7)
    assert len(migration().receive([*records(3), record(3, talks)])) == 4


@pytest.mark.parametrize("judged", [False, True])
def test_a_replica_is_copied_by_the_origins_indices(*, judged: bool) -> None:
    plain = [r for r in records(12) if r.position % 3 == 0]
    wrapped: list[Record] = []
    previous = -1
    for n, (each, what) in enumerate(
        zip(
            plain,
            [created(), *(event("v1.partition.observed", f"data://p/{n}", n=n) for n in (3, 6, 9))],
            strict=True,
        )
    ):
        value = replica_value(what, each.position, previous)
        # In a topic positions are not indices; elsewhere they are.
        wrapped.append(record(n if judged else each.position, value, T0 + each.position))
        previous = each.position
    core = migration(judged=judged, is_replica=True)
    got = core.receive(wrapped)
    assert [r.index for r in got] == [0, 3, 6, 9]
    assert [r.value for r in got] == [r.value for r in wrapped]
    found = core.sum.summary()
    assert (found.root, found.indices) == (summed(plain).root, summed(plain).indices)
    again = migration(found, judged=judged, is_replica=True)
    assert again.after == 9
    assert again.receive(wrapped) == []
    again.origin_ended()


@pytest.mark.parametrize("what", ["events", "indices", "values", "times"])
def test_what_is_read_back_must_be_what_was_copied(what: str) -> None:
    log = records(8)
    core = migration()
    core.receive(log)
    back = {
        "events": log[:-1],
        "indices": [*log[:-1], Record(9, log[-1].created_at, log[-1].value)],
        "values": [*log[:-1], Record(7, log[-1].created_at, encode_event(created()))],
        "times": [*log[:-1], Record(7, T0, log[-1].value)],
    }[what]
    core.check_copied(summed(log), keeps_times=True)
    with pytest.raises(Diverged):
        core.check_copied(summed(back), keeps_times=True)
    if what == "times":
        core.check_copied(summed(back), keeps_times=False)
