"""What queries answer, whichever tables they ask: those of the process and those in Redis."""

import random
import threading
from collections.abc import Iterator

import pytest

from belog.processors.indexes import DEPS_INDEXED_MAX, Where
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow
from belog.producers import Producer
from belog.query import AuditQuery, PartitionEventQuery, QueryEngine, cancel_build
from belog.query.answers import GraphEdge
from belog.query.lineage import DEPTH_MAX, GRAPH_NODES_MAX
from belog.query.log_events import OFFSET_EVENTS_MAX
from belog.schemas.errors import (
    Conflict,
    InvalidFilter,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from tests.examples import T0, event
from tests.producing import Judgement
from tests.querying import World, world
from tests.servers import Redis

pytestmark = pytest.mark.integration


@pytest.fixture(params=["memory", "redis"])
def here(request: pytest.FixtureRequest) -> Iterator[World]:
    uri = ""
    if request.param == "redis":
        server: Redis = request.getfixturevalue("redis_server")
        uri = f"{server.uri}?prefix={request.getfixturevalue('redis_prefix')}"
    with world(request.param, uri) as made:
        yield made


def received(here: World, build: str, *refs: str, client: str = "ann") -> None:
    here.put("build.received", build, requested_partitions=list(refs), client_id=client)


# --- partitions


def test_statuses_come_in_the_order_asked_for(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    here.make("b", "b1", ["a"], run="r2", ok=False)
    here.catch_up()
    found = here.queries.latest_partition_statuses(["b", "nowhere", "a"])
    assert [None if row is None else row.state for row in found.value] == [
        "failed",
        None,
        "available",
    ]
    assert found.as_of == here.log.next_position()
    assert here.queries.latest_partition_status("nowhere").value is None


def test_a_writer_reads_its_own_write(here: World) -> None:
    index = here.put("partition.observed", "a")
    assert here.queries.latest_partition_status("a").value is None
    assert here.queries.wait_for(index) == index + 1
    assert here.queries.latest_partition_status("a").value is not None
    with pytest.raises(Unavailable, match=f"index {index + 1} was waited for"):
        here.queries.wait_for(index + 1, 0.02)


def test_a_wait_for_a_state_ends_with_it(here: World) -> None:
    here.put("partition.requested", "a", build_request_id="b1")
    here.put("partition.failed", "a", build_request_id="b1")
    here.catch_up()
    with pytest.raises(Conflict, match="the attempt failed") as caught:
        here.queries.wait_for_state("a", timeout_s=30)
    assert "partition request" in caught.value.hint
    assert here.queries.wait_for_state("a", ["failed"], timeout_s=0).value.state == "failed"
    with pytest.raises(InvalidFilter):
        here.queries.wait_for_state("a", ["done"], timeout_s=0)
    answers: list[str] = []

    def wait() -> None:
        answers.append(here.queries.wait_for_state("a", timeout_s=30).value.state)

    waiting = threading.Thread(target=wait)
    here.put("partition.requested", "a", build_request_id="b2")
    waiting.start()
    here.put("partition.scheduled", "a", build_request_id="b2")
    here.put("partition.building", "a", build_request_id="b2")
    here.put("partition.available", "a", build_request_id="b2")
    waiting.join(30)
    assert answers == ["available"]


def test_a_failure_that_tables_still_show_does_not_end_a_wait(here: World) -> None:
    here.put("partition.requested", "a", build_request_id="b1")
    here.put("partition.failed", "a", build_request_id="b1")
    here.catch_up()
    here.put("partition.requested", "a", build_request_id="b2")
    # Tables that another program brings up, as a worker does.
    behind = QueryEngine(here.queries.tables, here.log)
    with pytest.raises(Unavailable, match="is failed after"):
        behind.wait_for_state("a", timeout_s=0.02)
    following = threading.Timer(0.1, here.catch_up)
    following.start()
    with pytest.raises(Unavailable, match="is requested after"):
        behind.wait_for_state("a", timeout_s=0.5)
    following.join()


def test_a_new_failure_ends_a_wait(here: World) -> None:
    here.make("a", "b1", [], run="r1", ok=False)
    here.put("partition.requested", "a", build_request_id="b2")
    here.catch_up()
    failing = threading.Timer(
        0.1,
        lambda: here.put("partition.failed", "a", build_request_id="b2", reason="no disk"),
    )
    failing.start()
    with pytest.raises(Conflict, match="no disk") as caught:
        here.queries.wait_for_state("a", timeout_s=30)
    assert (caught.value.state, caught.value.owner) == ("failed", "b2")
    failing.join()


def test_active_builds_of_a_partition(here: World) -> None:
    received(here, "b1", "a")
    received(here, "b2", "a", client="bob")
    received(here, "b3", "a", client="cy")
    received(here, "b4", "a")
    received(here, "other", "z")
    here.put("partition.requested", "a", build_request_id="b1", requesting_clients=["ann"])
    here.put("partition.joined", "a", build_request_id="b2", requesting_clients=["bob"])
    here.put("partition.joined", "a", build_request_id="b4")
    here.put("partition.joined", "a", build_request_id="unheard-of")
    here.put("build.cancelled", "b4")
    here.catch_up()
    found = here.queries.active_builds_for_partition("a").value
    assert [(b.build_id, b.role, b.status, b.build_state) for b in found] == [
        ("b1", "owner", "requested", "received"),
        ("b2", "joined", "requested", "received"),
        ("unheard-of", "joined", "requested", None),
        ("b3", "asked", "requested", "received"),
    ]
    assert found[0].requesting_clients == ("ann", "bob")
    assert found[3].requesting_clients == ("cy",)
    assert here.queries.active_builds_for_partition("nowhere").value == ()


def test_active_builds_leave_out_what_is_made(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    here.put("partition.requested", "b", build_request_id="b1")
    here.put("partition.requested", "c", build_request_id="b2")
    here.catch_up()
    first, page = here.queries.active_builds(limit=1)
    assert [(b.partition, b.build_id) for b in first] == [("c", "b2")]
    second, page = here.queries.active_builds(limit=1, cursor=page.next_cursor)
    assert [(b.partition, b.build_id) for b in second] == [("b", "b1")]
    assert page.next_cursor is None


# --- builds


def test_a_summary_counts_what_became_of_a_build(here: World) -> None:
    received(here, "b1", "a", "b", "c", "d")
    here.make("a", "b1", [], run="r1")
    here.make("b", "b1", ["a"], run="r2", ok=False)
    here.make("c", "b2", [], run="r3")
    here.catch_up()
    here.clock.now += 5_000_000
    summary = here.queries.build_request_summary("b1").value
    assert summary is not None
    assert summary.requested == {"": 1, "available": 2, "failed": 1}
    assert summary.missing == ("b", "d")
    assert summary.partitions == {"available": 1, "failed": 1}
    assert summary.job_runs == {"completed": 1, "failed": 1}
    assert summary.tasks == {"completed": 1, "failed": 1}
    assert summary.duration_us == here.clock.now - (T0 + 1_000_000)
    assert not summary.is_partial
    assert here.queries.build_request_summary("nowhere").value is None


def test_builds_are_listed_by_conditions(here: World) -> None:
    for n in range(6):
        received(here, f"b{n}", f"p{n % 2}", client="ann" if n < 4 else "bob")
    here.put("build.failed", "b1")
    here.catch_up()
    listed = here.queries.list_build_requests

    def ids(**conditions: object) -> list[str]:
        return [row.build_id for row in listed(**conditions).rows]  # type: ignore[arg-type]

    assert ids() == ["b1", "b5", "b4", "b3", "b2", "b0"]
    assert ids(states=["failed"]) == ["b1"]
    assert ids(client_id="bob") == ["b5", "b4"]
    assert ids(partition="p1") == ["b1", "b5", "b3"]
    assert ids(since_us=T0 + 5_000_000) == ["b1", "b5", "b4"]
    assert ids(until_us=T0 + 2_000_000) == ["b0"]


# --- lists


def test_a_cursor_goes_on_with_its_own_list_only(here: World) -> None:
    for n in range(5):
        here.put("partition.observed", f"p{n}")
    here.catch_up()
    partitions = here.repositories.partitions
    page = partitions.list(limit=2)
    assert page.next_cursor is not None
    assert [row.ref for row in page.rows] == ["p4", "p3"]
    again = partitions.list(limit=2, cursor=page.next_cursor)
    assert [row.ref for row in again.rows] == ["p2", "p1"]
    for where, order in ((Where(states=("available",)), "recent"), (Where(), "id")):
        with pytest.raises(InvalidFilter, match="another list"):
            partitions.list(where, order=order, cursor=page.next_cursor)  # type: ignore[arg-type]
    with pytest.raises(InvalidFilter, match="another list"):
        here.repositories.builds.list(cursor=page.next_cursor)
    for odd in ("", "r5", "é", page.next_cursor[:-3], "A" * 10_000):
        with pytest.raises(InvalidFilter):
            partitions.list(cursor=odd)


def test_pages_by_id_hold_each_row_once_whatever_is_written(here: World, seed: int) -> None:
    rng = random.Random(seed)
    for n in range(40):
        here.put("partition.observed", f"p{n:03d}")
    here.catch_up()
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = here.repositories.partitions.list(order="id", cursor=cursor, limit=7)
        seen.extend(row.ref for row in page.rows)
        cursor = page.next_cursor
        if cursor is None:
            break
        for _ in range(5):
            here.put("partition.observed", f"p{rng.randrange(60):03d}")
        here.catch_up()
    assert len(seen) == len(set(seen))
    assert {f"p{n:03d}" for n in range(40)} <= set(seen)


def test_show_gives_the_row_and_its_events(here: World) -> None:
    received(here, "b1", "a")
    here.make("a", "b1", [], run="r1")
    here.catch_up()
    repositories = here.repositories
    shown = repositories.builds.show("b1")
    assert [s.event.event_type for s in shown.events][:2] == [
        "v1.build.received",
        "v1.partition.requested",
    ]
    assert len(shown.events) == 8
    assert not shown.has_more_events
    few = repositories.builds.show("b1", events=3)
    assert (few.events, few.has_more_events) == (shown.events[:3], True)
    assert repositories.builds.show("b1", events=0).events == ()
    run = repositories.jobs.show("r1")
    assert run.row.state == "completed"
    assert "v1.job.completed" in {s.event.event_type for s in run.events}
    assert repositories.tasks.show("b1", "make a").row.runs == ("r1",)
    assert repositories.partitions.show("a").row.state == "available"
    for missing in (repositories.partitions, repositories.builds, repositories.jobs):
        with pytest.raises(NotFound):
            missing.show("nowhere")
    with pytest.raises(NotFound):
        repositories.tasks.show("b1", "nothing")


def test_metrics_of_a_job(here: World) -> None:
    for n in range(10):
        here.make(f"p{n}", "b1", [], run=f"r{n}", ok=n != 4)
    here.put("job.scheduled", "odd", build_request_id="b1", job_label="//jobs:other")
    here.catch_up()
    jobs = here.repositories.jobs
    metrics = jobs.metrics("//jobs:make").value
    assert (metrics.runs, metrics.by_state) == (10, {"completed": 9, "failed": 1})
    assert metrics.success_rate == 0.9
    assert (metrics.duration_p50_us, metrics.duration_p95_us) == (2_000_000, 2_000_000)
    assert not metrics.is_partial
    late = jobs.metrics("//jobs:make", since_us=metrics.newest_at).value
    assert (late.runs, late.by_state) == (1, {"completed": 1})
    both = jobs.metrics_of_all().value
    assert [m.job_label for m in both] == ["//jobs:make", "//jobs:other"]
    assert both[1].success_rate is None
    with pytest.raises(NotFound):
        jobs.metrics("//never")


# --- graphs and causes


def test_a_graph_goes_both_ways_and_ends_with_circles(here: World) -> None:
    here.put("partition.observed", "src")
    here.make("left", "b1", ["src"], run="r1")
    here.make("right", "b1", ["src"], run="r2")
    here.make("mid", "b1", ["left", "right"], run="r3")
    here.make("end", "b2", ["mid"], run="r4", ok=False)
    here.make("aside", "b2", ["left"], run="r5")
    here.catch_up()
    graph = here.queries.dependency_graph("mid").value
    assert {node.ref for node in graph.nodes} == {"mid", "left", "right", "src", "end"}
    assert graph.nodes[0].ref == "mid"
    statuses = {node.ref: node.status for node in graph.nodes}
    assert (statuses["end"], statuses["src"]) == ("failed", "available")
    edges = set(graph.edges)
    assert GraphEdge("mid", "left", "DEPENDS_ON") in edges
    assert GraphEdge("left", "mid", "PRODUCES") in edges
    assert GraphEdge("end", "mid", "DEPENDS_ON") in edges
    # It failed, so nothing was made of it.
    assert GraphEdge("mid", "end", "PRODUCES") not in edges
    assert len(edges) == len(graph.edges) == 9
    assert not graph.is_truncated
    near = here.queries.dependency_graph("mid", 1).value
    assert {node.ref for node in near.nodes} == {"mid", "left", "right", "end"}
    assert [n.ref for n in here.queries.dependency_graph("mid", 0).value.nodes] == ["mid"]
    unseen = here.queries.dependency_graph("nowhere").value
    assert [(n.ref, n.status) for n in unseen.nodes] == [("nowhere", "")]

    here.make("src", "b3", ["mid"], run="r6")
    here.make("self", "b3", ["self"], run="r7")
    here.catch_up()
    circle = here.queries.dependency_graph("mid", DEPTH_MAX).value
    # Now everything comes from `mid`, round the circle.
    assert {node.ref for node in circle.nodes} == statuses.keys() | {"aside"}
    assert len(here.queries.dependency_graph("self").value.nodes) == 1
    for depth, error in ((-1, InvalidFilter), (DEPTH_MAX + 1, LimitExceeded)):
        with pytest.raises(error):
            here.queries.dependency_graph("mid", depth)


def test_a_graph_is_bounded(here: World) -> None:
    refs = [f"p{n}" for n in range(GRAPH_NODES_MAX + 10)]
    here.producer.append_batch(
        [
            here.producer.event("v1.partition.observed", ref, {"upstream_deps": ["hub"]})
            for ref in refs
        ]
    )
    here.put("partition.observed", "sum", upstream_deps=list(refs))
    here.catch_up()
    for root in ("hub", "sum"):
        graph = here.queries.dependency_graph(root).value
        assert len(graph.nodes) == GRAPH_NODES_MAX
        assert graph.is_truncated
    found = here.queries.list_rows(PartitionRow, Where(upstream=refs[0]))
    assert [row.ref for row in found.rows] == ["sum"]
    beyond = here.queries.list_rows(PartitionRow, Where(upstream=refs[DEPS_INDEXED_MAX]))
    assert beyond.rows == ()


def test_dependents_follow_what_partitions_are_made_from(here: World) -> None:
    here.make("a", "b1", ["x"], run="r1")
    here.make("a", "b2", ["y"], run="r2")
    here.catch_up()
    for dep, refs in (("x", []), ("y", ["a"])):
        page = here.queries.list_rows(PartitionRow, Where(upstream=dep))
        assert [row.ref for row in page.rows] == refs


def test_explain_follows_causes_to_the_request(here: World) -> None:
    received(here, "b1", "a")
    root = here.last_id
    here.put("partition.requested", "a", cause=root, build_request_id="b1")
    here.start("a", "b1", [], run="r1")
    here.put("job.failed", "r1", reason="disk full", exit_code=3)
    here.put("partition.failed", "a", cause=here.last_id, build_request_id="b1", job_run_id="r1")
    here.catch_up()
    found = here.queries.explain("a").value
    assert found is not None
    assert [(c.event_type, c.link) for c in found.causes] == [
        ("v1.partition.failed", "state"),
        ("v1.job.failed", "caused_by"),
        ("v1.job.scheduled", "job_run"),
        ("v1.partition.requested", "attempt"),
        ("v1.build.received", "build"),
    ]
    assert [c.index for c in found.causes] == [8, 7, 3, 2, 1]
    assert found.causes[1].reason == "disk full"
    assert found.summary == (
        "failed in build b1 (received): job run r1 is failed with exit code 3: disk full"
    )
    assert here.queries.explain("nowhere").value is None


def test_explain_says_what_made_it_stale_and_what_it_waits_for(here: World) -> None:
    here.make("src", "b1", [], run="r1")
    here.make("a", "b1", ["src"], run="r2")
    here.make("src", "b2", [], run="r3")
    here.put("partition.stale", "a", cause_partition="src", reason="src is newer")
    here.catch_up()
    stale = here.queries.explain("a").value
    assert stale is not None
    assert stale.summary == ("stale because of src: src is newer (made by build b1, job run r2)")
    upstream = [c for c in stale.causes if c.link == "upstream"]
    assert [(c.subject_id, c.event_type) for c in upstream] == [("src", "v1.partition.available")]
    here.put("partition.requested", "a", build_request_id="b3")
    here.put(
        "partition.scheduled", "a", build_request_id="b3", upstream_deps=["src", "more", "src"]
    )
    here.catch_up()
    waiting = here.queries.explain("a").value
    assert waiting is not None
    assert [(dep.ref, dep.state) for dep in waiting.waits_for] == [("more", "")]
    assert "not available upstream: more (never seen)" in waiting.summary
    assert "data from index" in waiting.summary


def test_explain_ends_with_causes_in_a_circle(here: World) -> None:
    first, second = event("v1.partition.observed", "a", {}, n=1).event_id, b"2" * 16
    here.producer.append(
        "v1.partition.observed", "a", {"source": "s"}, event_id=first, caused_by=second
    )
    here.producer.append("v1.partition.stale", "a", event_id=second, caused_by=first)
    here.catch_up()
    found = here.queries.explain("a").value
    assert found is not None
    assert [c.index for c in found.causes] == [2, 1]


# --- events


def test_events_of_partitions_by_conditions_in_both_orders(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    here.make("b", "b1", ["a"], run="r2", ok=False)
    here.make("a", "b2", [], run="r3")
    here.catch_up()
    query = here.queries.events.query
    of_a = PartitionEventQuery(partition_refs=("a",))
    names = [s.event.event_type.rpartition(".")[2] for s in query(of_a).events]
    assert names == ["requested", "scheduled", "building", "available"] * 2
    back = query(of_a, newest_first=True)
    assert back.events == query(of_a).events[::-1]
    assert not back.has_more
    middle = query(of_a, newest_first=True, offset=2, limit=3)
    assert (middle.events, middle.has_more) == (back.events[2:5], True)
    forwards = query(of_a, offset=6, limit=5)
    assert (forwards.events, forwards.has_more) == (back.events[::-1][6:], False)
    made = PartitionEventQuery(states=("available", "failed"))
    assert [s.event.subject_id for s in query(made).events] == ["a", "b", "a"]
    of_b2 = PartitionEventQuery(build_ids=("b2",), since_idx=10)
    assert {s.event.subject_id for s in query(of_b2).events} == {"a"}
    since = query(of_a).events[4].created_at
    late = PartitionEventQuery(partition_refs=("a",), created_from=since)
    assert query(late).events == query(of_a).events[4:]
    early = PartitionEventQuery(partition_refs=("a",), created_to=since)
    assert query(early, newest_first=True).events == query(of_a).events[:4][::-1]
    assert here.queries.events.count(of_a).value.value == 8
    assert query(PartitionEventQuery(partition_refs=("a", "nowhere"))).events == back.events[::-1]
    for offset, limit in ((-1, 1), (0, 0)):
        with pytest.raises(InvalidFilter):
            query(of_a, offset=offset, limit=limit)
    with pytest.raises(LimitExceeded):
        query(of_a, offset=OFFSET_EVENTS_MAX + 1)
    with pytest.raises(InvalidFilter, match="no state"):
        query(PartitionEventQuery(states=("joined",)))


def test_latest_events(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    index = here.put("partition.stale", "a")
    here.catch_up()
    found = here.queries.events.latest_of(["nowhere", "a"])
    assert found.value[0] is None
    assert found.value[1] is not None
    assert found.value[1].index == index
    latest = here.queries.events.latest("a").value
    assert latest == found.value[1]
    with pytest.raises(LimitExceeded):
        here.queries.events.latest_of(["x"] * 1_001)


def test_a_query_answers_as_of_the_tables(here: World) -> None:
    here.put("partition.observed", "a")
    here.catch_up()
    here.put("partition.stale", "a")
    of_a = PartitionEventQuery(partition_refs=("a",))
    for newest_first in (False, True):
        listed = here.queries.events.query(of_a, newest_first=newest_first)
        assert ([s.index for s in listed.events], listed.as_of) == ([1], 2)
    assert here.queries.events.count(of_a).value.value == 1


def test_a_stream_gives_what_was_and_what_comes(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    stop = threading.Event()
    wanted = PartitionEventQuery(partition_refs=("a",), states=("available", "stale"))
    stream = here.queries.events.stream(wanted, stop=stop)
    assert next(stream).event.event_type == "v1.partition.available"
    here.put("partition.observed", "b")
    index = here.put("partition.stale", "a")
    assert next(stream).index == index
    stop.set()
    assert list(stream) == []


def test_an_audit_says_who_did_what_with_what_result(here: World) -> None:
    here.make("a", "b1", [], run="r1")
    with Producer(here.log, actor="eve", clock=here.clock) as eve:
        here.clock.now += 1
        attempt = eve.event("v1.partition.building", "a", {"build_request_id": "b9"})
        with pytest.raises(Conflict) as caught:
            eve.append_event(attempt)
        here.refusals.record(attempt, caught.value, at=here.clock.now)
        here.clock.now += 1
        eve.append("v1.partition.stale", "a")
    here.catch_up()
    audit = here.queries.events.audit
    eves = audit(AuditQuery(actors=("eve",))).value
    assert [(e.event_type, e.result) for e in eves] == [
        ("v1.partition.stale", "accepted"),
        ("v1.partition.building", "illegal_transition"),
    ]
    of_a = audit(AuditQuery(subject_kind="partition", subject_id="a"), newest_first=False).value
    assert [e.result for e in of_a][-2:] == ["illegal_transition", "accepted"]
    # The build's and the job run's events that concern it are among them.
    assert {e.subject_kind for e in of_a} == {"partition", "job_run"}
    paged = [
        audit(AuditQuery(actors=("eve",)), offset=n, limit=1).value[0].event_type for n in range(2)
    ]
    assert paged == ["v1.partition.stale", "v1.partition.building"]
    early = audit(AuditQuery(created_to=T0 + 1_000_000, event_types=("v1.partition.stale",)))
    assert early.value == ()
    system = audit(AuditQuery(subject_kind="system")).value
    assert [e.event_type for e in system] == ["v1.system.log_created"]
    with pytest.raises(InvalidFilter):
        audit(AuditQuery(subject_id="a"))


def test_activity_counts_what_goes_on(here: World) -> None:
    received(here, "old", "z")
    here.make("z", "old", [], run="r0", ok=False)
    here.clock.now += 10_000 * 1_000_000
    received(here, "b1", "a", "b")
    here.make("a", "b1", [], run="r1")
    here.make("b", "b1", [], run="r2", ok=False)
    here.put("partition.requested", "c", build_request_id="b1")
    here.start("c", "b1", [], run="r3")
    here.catch_up()
    before = here.log.next_position()
    here.put("partition.observed", "late")
    here.clock.now += 2_000_000
    answer = here.queries.activity_summary()
    found = answer.value
    assert answer.as_of == before
    assert found.counts["partition"] == {"available": 1, "building": 1, "failed": 2}
    assert [run.job_run_id for run in found.running] == ["r3"]
    assert [build.build_id for build in found.builds] == ["b1", "old"]
    assert [row.ref for row in found.failed_partitions] == ["b"]
    assert [run.job_run_id for run in found.failed_job_runs] == ["r2"]
    rates = found.rates
    assert rates.events == 1 + 7 + 7 + 5 + 1
    assert (rates.partitions_available, rates.partitions_failed) == (1, 1)
    assert (rates.job_runs_completed, rates.job_runs_failed) == (1, 1)
    assert (found.lag.records, found.lag.seconds) == (1, 2.0)
    counted = [here.queries.tables.count_since("partition", "failed", n) for n in (0, 8, 22, 99)]
    assert counted == [2, 2, 1, 0]
    assert here.queries.tables.count_since("partition", "stale", 0) == 0
    whole = here.queries.activity_summary(1e9).value
    assert whole.rates.events == here.log.next_position()
    assert here.queries.activity_summary(0.5).value.rates.events == 0


# --- calling off


def under_way(here: World, build: str) -> list[str]:
    here.catch_up()
    mine = Where(build_id=build, active=True)
    runs = here.queries.all_rows(JobRunRow, mine)
    rows = here.queries.all_rows(PartitionRow, mine)
    owned = [row for row in rows if row.attempt is not None and row.attempt.build_id == build]
    return [*(run.job_run_id for run in runs), *(row.ref for row in owned)]


def test_cancelling_a_build_ends_what_it_has_under_way(here: World) -> None:
    received(here, "b1", "a", "b", "c", "d")
    received(here, "b2", "d")
    here.make("a", "b1", [], run="r1")
    here.put("partition.requested", "b", build_request_id="b1")
    here.start("b", "b1", [], run="r2")
    here.put("partition.requested", "c", build_request_id="b1")
    here.put("partition.requested", "d", build_request_id="b2")
    here.put("partition.joined", "d", build_request_id="b1")
    here.put("job.scheduled", "r3", build_request_id="b1")
    done = here.repositories.builds.cancel(here.producer, "b1", reason="wrong day")
    assert (done.job_runs, done.partitions, done.was_cancelled) == (2, 2, False)
    assert under_way(here, "b1") == []
    summary = here.queries.build_request_summary("b1").value
    assert summary is not None
    assert (summary.row.state, summary.row.reason) == ("cancelled", "wrong day")
    assert summary.requested == {"available": 1, "failed": 2, "requested": 1}
    assert under_way(here, "b2") == ["d"]
    explained = here.queries.explain("b").value
    assert explained is not None
    assert [(c.event_type, c.link) for c in explained.causes][:3] == [
        ("v1.partition.failed", "state"),
        ("v1.job.cancelled", "caused_by"),
        ("v1.build.cancelled", "caused_by"),
    ]
    end = here.log.next_position()
    again = here.repositories.builds.cancel(here.producer, "b1")
    assert (again.index, again.was_cancelled) == (done.index, True)
    assert (again.job_runs, again.partitions) == (0, 0)
    assert here.log.next_position() == end
    # Whoever wants the partitions can have them.
    here.make("b", "b2", [], run="r9")


def test_cancelling_goes_on_where_another_broke_off(here: World) -> None:
    received(here, "b1", "a")
    here.put("partition.requested", "a", build_request_id="b1")
    here.put("build.cancelled", "b1")
    done = here.repositories.builds.cancel(here.producer, "b1")
    assert (done.was_cancelled, done.partitions) == (True, 1)
    assert under_way(here, "b1") == []


def test_a_build_that_was_never_received_is_cancelled_by_its_work(here: World) -> None:
    here.put("partition.requested", "a", build_request_id="b1")
    here.put("partition.requested", "b", build_request_id="b2")
    here.put("partition.joined", "b", build_request_id="b3")
    done = here.repositories.builds.cancel(here.producer, "b1", reason="gone")
    assert (done.partitions, done.was_cancelled) == (1, False)
    assert under_way(here, "b1") == []
    row = here.queries.tables.get(BuildRow, "b1").value
    assert row is not None
    assert (row.state, row.requested_partitions, row.reason) == ("cancelled", ("a",), "gone")
    assert here.repositories.builds.cancel(here.producer, "b1").was_cancelled
    # Who only waits has nothing under way.
    end = here.log.next_position()
    with pytest.raises(NotFound):
        here.repositories.builds.cancel(here.producer, "b3")
    assert here.log.next_position() == end
    here.make("a", "b2", [], run="r1")


def test_what_cannot_be_cancelled(here: World) -> None:
    received(here, "b1")
    here.put("build.failed", "b1")
    here.make("a", "b1", [], run="r1")
    here.catch_up()
    end = here.log.next_position()
    repositories = here.repositories
    with pytest.raises(Conflict) as caught:
        repositories.builds.cancel(here.producer, "b1")
    assert caught.value.state == "failed"
    with pytest.raises(Conflict):
        repositories.jobs.cancel(here.producer, "r1")
    with pytest.raises(Conflict):
        repositories.tasks.cancel(here.producer, "b1", "make a")
    for missing in (repositories.builds, repositories.jobs):
        with pytest.raises(NotFound):
            missing.cancel(here.producer, "nowhere")
    with pytest.raises(NotFound):
        repositories.tasks.cancel(here.producer, "b1", "nothing")
    assert here.log.next_position() == end


def test_cancelling_a_job_gives_its_partitions_back(here: World) -> None:
    received(here, "b1", "a")
    here.make("b", "b1", [], run="r0")
    here.put("partition.requested", "a", build_request_id="b1")
    here.start("a", "b1", [], run="r1")
    done = here.repositories.jobs.cancel(here.producer, "r1")
    assert (done.job_runs, done.partitions) == (1, 1)
    here.catch_up()
    row = here.queries.latest_partition_status("a").value
    assert row is not None
    assert row.attempt is not None
    assert (row.state, row.attempt.build_id, row.attempt.job_run_id) == ("requested", "b1", None)
    again = here.repositories.jobs.cancel(here.producer, "r1")
    assert (again.was_cancelled, again.partitions) == (True, 0)
    # The build tries again with another run, which the task then calls off.
    here.start("a", "b1", [], run="r2")
    here.catch_up()
    (task,) = here.repositories.tasks.cancel(here.producer, "b1", "make a")
    assert (task.subject_id, task.partitions) == ("r2", 1)
    assert here.repositories.tasks.cancel(here.producer, "b1", "make a")[0].was_cancelled


def test_a_job_of_an_ended_build_gives_nothing_back_to_it(here: World) -> None:
    received(here, "b1", "a")
    here.put("partition.requested", "a", build_request_id="b1")
    here.start("a", "b1", [], run="r1")
    here.put("build.failed", "b1")
    done = here.repositories.jobs.cancel(here.producer, "r1")
    assert done.partitions == 1
    here.catch_up()
    row = here.queries.latest_partition_status("a").value
    assert row is not None
    assert row.state == "failed"


def test_a_build_that_goes_on_working_is_called_off_all_the_same(here: World, seed: int) -> None:
    """Two call it off at once, while its own process goes on; refused events tell that to stop."""
    received(here, "b1")
    for n in range(30):
        here.put("partition.requested", f"p{n}", build_request_id="b1")
    rng = random.Random(seed)
    working = Producer(here.log, actor="zombie")
    started = threading.Event()

    def work() -> None:
        for n in range(30):
            ref, run = f"p{n}", f"r{n}"
            mine = {"build_request_id": "b1", "job_run_id": run}
            try:
                working.append("v1.job.scheduled", run, {"build_request_id": "b1"})
                working.append("v1.partition.scheduled", ref, mine)
                working.append("v1.job.running", run)
                working.append("v1.partition.building", ref, mine)
                if rng.random() < 0.5:
                    working.append("v1.job.completed", run)
                    working.append("v1.partition.available", ref, mine)
            except Conflict:
                pass  # called off
            if n == 3:
                started.set()
        started.set()

    zombie = threading.Thread(target=work)
    zombie.start()
    assert started.wait(30)
    reports = []
    lock = threading.Lock()

    def call_off(name: str) -> None:
        with Producer(here.log, actor=name) as producer:
            report = cancel_build(here.queries, producer, "b1")
        with lock:
            reports.append(report)

    both = [threading.Thread(target=call_off, args=(name,)) for name in ("one", "two")]
    for thread in both:
        thread.start()
    for thread in (zombie, *both):
        thread.join(60)
    working.close()
    assert sorted(report.was_cancelled for report in reports) == [False, True]
    cancel_build(here.queries, here.producer, "b1")
    assert under_way(here, "b1") == []
    judged = Judgement(here.log)
    assert len(judged.accepted) == here.log.next_position(), "the log holds a void record"


def test_cancelling_waits_for_tables_that_another_keeps(here: World) -> None:
    received(here, "b1", "a")
    here.put("partition.requested", "a", build_request_id="b1")
    here.start("a", "b1", [], run="r1")
    here.catch_up()
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(0.3):
            here.catch_up()

    following = threading.Thread(target=follow)
    following.start()
    try:
        queries = QueryEngine(here.kept.reader, here.log)
        done = cancel_build(queries, here.producer, "b1")
    finally:
        stop.set()
        following.join()
    assert (done.job_runs, done.partitions) == (1, 1)
    assert under_way(here, "b1") == []
