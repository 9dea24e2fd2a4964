"""The pure parts of queries: cursors, walks, percentiles, plans of calling off, explanations."""

import pytest

from belog.processors.indexes import Where, index_names, upstream_of
from belog.processors.rows import Attempt, Availability, JobRunRow, PartitionRow
from belog.query.activity import first_since
from belog.query.answers import GraphEdge
from belog.query.cancelling import give_back, release
from belog.query.causes import Surroundings, clues, explanation
from belog.query.cursors import decode_cursor, encode_cursor
from belog.query.durations import metrics_of, percentile
from belog.query.lineage import Walk
from belog.query.log_events import count_range, read_range, types_of_states
from belog.query.refusals import Refusals
from belog.schemas.errors import Conflict, Gone, InvalidFilter
from belog.schemas.events import JobCancelled, PartitionFailed, PartitionRequested
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.interface import EventPage
from belog.storage.memory import MemoryLog
from tests.examples import T0, event


def partition(
    ref: str,
    state: str = "building",
    *,
    build: str = "b1",
    run: str | None = "r1",
    deps: tuple[str, ...] = (),
    read: tuple[str, ...] | None = None,
) -> PartitionRow:
    data = None if read is None else Availability(3, T0, "b0", "r0", None, read)
    attempt = Attempt(build, 5, T0, job_run_id=run, upstream_deps=deps)
    return PartitionRow(ref, state, 7, T0, 1, 3, attempt, data)


def job_run(run: str, state: str, *, start: int | None = None, end: int | None = None) -> JobRunRow:
    return JobRunRow(run, state, 1, T0, 1, 1, started_at=start, ended_at=end)


def test_a_cursor_keeps_its_place() -> None:
    where = Where(states=("available",), id_prefix="données/")
    cursor = encode_cursor("partition", where, "id", "idonnées/été")
    assert decode_cursor("partition", where, "id", cursor) == "idonnées/été"
    assert "donn" not in cursor
    assert decode_cursor("partition", where, "id", None) is None
    with pytest.raises(InvalidFilter):
        decode_cursor("partition", Where(states=("available",)), "id", cursor)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.01, 1), (0.5, 50), (0.95, 95), (0.951, 96), (1.0, 100)]
)
def test_percentiles_are_values_that_were_seen(share: float, expected: int) -> None:
    assert percentile(range(1, 101), share) == expected


def test_percentile_of_nothing() -> None:
    assert percentile([], 0.5) is None
    assert percentile([7], 0.01) == 7


def test_metrics_count_only_what_says_something() -> None:
    runs = [
        job_run("a", "completed", start=T0, end=T0 + 10),
        job_run("b", "completed", start=None, end=T0),
        job_run("c", "failed", start=T0, end=T0 + 99),
        job_run("d", "running", start=T0),
        job_run("e", "cancelled"),
    ]
    metrics = metrics_of("//l", runs, is_partial=True)
    assert metrics.success_rate == pytest.approx(2 / 3)
    assert (metrics.duration_p50_us, metrics.duration_p95_us) == (10, 10)
    assert metrics.by_state == {"cancelled": 1, "completed": 2, "failed": 1, "running": 1}
    assert metrics_of("//l", runs[3:], is_partial=False).success_rate is None


def test_dependents_are_found_by_attempt_and_data() -> None:
    row = partition("a", deps=("x", "y", "x"), read=("y", "z"))
    assert upstream_of(row) == ("x", "y", "z")
    assert {"dep:x", "dep:y", "dep:z"} <= set(index_names(row))
    assert upstream_of(partition("a", deps=("x", "x"))) == ("x",)
    assert upstream_of(partition("a", read=("x",))) == ("x",)


def test_a_walk_asks_level_by_level() -> None:
    rows = {
        "a": partition("a", deps=("b", "c")),
        "b": partition("b", "available", deps=("d",), read=("d",)),
        "z": partition("z", deps=("a",)),
    }
    walk = Walk("a", depth=2)
    asked = []
    while walk.go_on():
        asked.append((walk.to_load, walk.to_ask))
        walk.loaded([rows.get(ref) for ref in walk.to_load])
        for ref in walk.to_ask:
            walk.dependents([rows["z"]] if ref == "a" else [], is_whole=True)
        walk.next_level()
    assert asked == [(("a",), ("a",)), (("b", "c"), ("z",)), (("d",), ())]
    graph = walk.graph()
    assert [node.ref for node in graph.nodes] == ["a", "b", "c", "z", "d"]
    assert set(graph.edges) == {
        GraphEdge("a", "b", "DEPENDS_ON"),
        GraphEdge("a", "c", "DEPENDS_ON"),
        GraphEdge("b", "d", "DEPENDS_ON"),
        GraphEdge("d", "b", "PRODUCES"),
        GraphEdge("z", "a", "DEPENDS_ON"),
    }
    assert not graph.is_truncated


def test_a_release_ends_what_is_the_builds_own() -> None:
    steps = release(
        "b1",
        [job_run("r1", "running")],
        [
            partition("mine", run="r1"),
            partition("theirs", build="b2", run="r1"),
            partition("waiting", "requested", run=None),
        ],
        reason=None,
    )
    assert [(type(s.payload), s.subject_id, s.after) for s in steps] == [
        (JobCancelled, "r1", None),
        (PartitionFailed, "mine", 0),
        (PartitionFailed, "waiting", None),
    ]
    failed = steps[1].payload
    assert isinstance(failed, PartitionFailed)
    assert failed.reason == "build b1 was cancelled"


def test_only_what_the_run_was_at_is_given_back() -> None:
    rows = [
        partition("a"),
        partition("b", "scheduled"),
        partition("other", run="r2"),
        partition("made", "available"),
        partition("waiting", "requested"),
    ]
    steps = give_back("r1", rows)
    assert [s.subject_id for s in steps] == ["a", "b"]
    assert all(s.expected == 7 for s in steps), "it would start an attempt over new data"
    assert all(isinstance(s.payload, PartitionRequested) for s in steps)


def test_states_name_their_events() -> None:
    for state in LIFECYCLE_1.states("partition"):
        assert types_of_states((state,)), state
    assert types_of_states(()) == ()
    assert "v1.partition.joined" not in types_of_states(LIFECYCLE_1.states("partition"))
    with pytest.raises(InvalidFilter):
        types_of_states(("joined",))


@pytest.mark.parametrize("state", LIFECYCLE_1.states("partition"))
@pytest.mark.parametrize("whole", [True, False])
def test_every_state_is_explained(state: str, *, whole: bool) -> None:
    row = partition("a", state, read=() if whole else None)
    if not whole:
        row = PartitionRow("a", state, 7, T0, 1, 3)
    around = Surroundings(row=row)
    assert clues(around)[7] == "state"
    assert explanation(around, ()).summary.startswith(state)


def test_refusals_are_bounded() -> None:
    refusals = Refusals(2)
    error = Conflict("no", state="", last_index=-1, allowed=())
    for n in range(3):
        refusals.record(event("v1.partition.stale", n=n), error, at=n)
    assert [entry.at for entry in refusals.entries()] == [1, 2]


class Vacuumed(MemoryLog):
    """A log that gives nothing from before a horizon."""

    removed_below = 2_000

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        if since_idx < self.removed_below:
            msg = "removed"
            raise Gone(msg, horizon=self.removed_below)
        return super().read(since_idx, wanted, limit)


def test_what_a_vacuum_removed_is_left_out_or_an_error() -> None:
    log = Vacuumed()
    log.initialize()
    log.append_batch([event("v1.partition.observed", f"p{n}", {}, n=n) for n in range(3_000)])
    for newest_first in (False, True):
        page = read_range(
            log, ALL, (0, 3_001), limit=5_000, newest_first=newest_first, from_horizon=True
        )
        indices = [stored.index for stored in page.events]
        assert sorted(indices, reverse=newest_first) == indices
        assert set(indices) == set(range(2_000, 3_001))
        with pytest.raises(Gone):
            read_range(log, ALL, (0, 3_001), limit=5_000, newest_first=newest_first)
    assert count_range(log, ALL, (0, 3_001), from_horizon=True).value == 1_001
    assert read_range(log, ALL, (0, 1_500), from_horizon=True).events == ()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_a_window_begins_where_its_time_does(count: int) -> None:
    now = [T0]
    log = MemoryLog(clock=lambda: now[0])
    log.initialize()
    for n in range(count):
        now[0] = T0 + 10 * (n + 1)
        log.append(event("v1.partition.observed", f"p{n}", {}, n=n))
    end = log.next_position()
    for n in range(count + 1):
        since = T0 + 10 * n
        assert first_since(log, end, since) == n
        assert first_since(log, end, since + 1) == n + 1
    assert first_since(log, end, 0) == 0
