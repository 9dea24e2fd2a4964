"""Calling off over every log: a build ends though its own process goes on and others call, too."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from belog.processors.indexes import Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow
from belog.producers import Producer
from belog.query import Cancelled, PartitionEventQuery, QueryEngine, cancel_build
from belog.schemas.errors import Conflict
from belog.schemas.payload import JsonValue
from tests.producing import BACKENDS, Judgement, Place

STEPS = 40


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, request, tmp_path)
    yield made
    made.close()


def work(producer: Producer, started: threading.Event) -> None:
    """Make partition after partition of build `b`, whatever is refused."""
    for n in range(STEPS):
        run: dict[str, JsonValue] = {"build_request_id": "b", "job_run_id": f"r{n}"}
        for event_type, subject, body in (
            ("v1.partition.requested", f"p{n}", {"build_request_id": "b"}),
            ("v1.job.scheduled", f"r{n}", {"build_request_id": "b"}),
            ("v1.partition.scheduled", f"p{n}", run),
            ("v1.job.running", f"r{n}", {}),
            ("v1.partition.building", f"p{n}", run),
        ):
            try:
                producer.append(event_type, subject, body)
            except Conflict:
                break  # called off in between
        if n == STEPS // 4:
            started.set()


def test_a_build_ends_for_good_on_every_log(place: Place) -> None:
    log = place.open()
    tables = MemoryTables()
    queries = QueryEngine(tables, log, catch_up=lambda: tables.catch_up(log))
    started = threading.Event()
    reports: list[Cancelled] = []
    with Producer(log, actor="graph") as graph, Producer(place.open(), actor="ops") as ops:
        graph.append("v1.build.received", "b", {"requested_partitions": ["p0"]})
        working = threading.Thread(target=work, args=(graph, started))
        calling = [
            threading.Thread(target=lambda: reports.append(cancel_build(queries, ops, "b")))
            for _ in range(2)
        ]
        working.start()
        assert started.wait(60)
        for thread in calling:
            thread.start()
        for thread in (working, *calling):
            thread.join(60)
        last = cancel_build(queries, ops, "b", reason="the rest")
        assert last.was_cancelled
        assert sorted(report.was_cancelled for report in reports) == [False, True]
        queries.wait_for(ops.refresh() - 1)
    mine = Where(build_id="b", active=True)
    assert list(queries.all_rows(JobRunRow, mine)) == []
    assert list(queries.all_rows(PartitionRow, mine)) == []
    build = queries.tables.get(BuildRow, "b").value
    assert build is not None
    assert build.state == "cancelled"
    judged = Judgement(log)
    assert {judged.state(f"partition:p{n}") for n in range(STEPS)} == {"failed"}
    assert {judged.state(f"job_run:r{n}") for n in range(STEPS)} <= {"cancelled", "∅"}
    failed = PartitionEventQuery(states=("failed",))
    assert queries.events.count(failed).value.value == build.counts.failed >= STEPS
    assert queries.explain("p0").value is not None
    tables.close()
