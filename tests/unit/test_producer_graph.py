"""Requests for partitions and builds of graphs: who makes what, and what a failure leaves."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from belog.producers import Producer
from belog.producers.coordination import (
    Available,
    Building,
    Delegated,
    request_partition,
    wait_until_made,
)
from belog.producers.dag import Graph
from belog.producers.graph import GraphReport, Work, run_graph
from belog.schemas.errors import Conflict, InvalidEvent, InvalidInput, NotOwner
from belog.schemas.events import PartitionAvailable, PartitionBuilding, PartitionScheduled
from belog.storage.memory import MemoryLog
from tests.examples import event
from tests.producing import Judgement


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.initialize()
    return made


@pytest.fixture
def producer(log: MemoryLog) -> Iterator[Producer]:
    with Producer(log, actor="graph") as made:
        yield made


def finish(producer: Producer, ref: str, build: str) -> int:
    steps = (PartitionScheduled, PartitionBuilding, PartitionAvailable)
    return [producer.append(step(build_request_id=build), ref).index for step in steps][-1]


def test_the_first_builds_the_next_are_delegated_the_last_finds_it(
    log: MemoryLog, producer: Producer
) -> None:
    assert request_partition(producer, "r", build_request_id="one") == Building("r", "one", 1)
    assert request_partition(producer, "r", build_request_id="one") == Building("r", "one", 1)
    assert log.next_position() == 2, "asking again writes nothing"
    assert request_partition(producer, "r", build_request_id="two") == Delegated("r", "one", 2)
    with pytest.raises(NotOwner, match="'one' is making it") as caught:
        request_partition(producer, "r", build_request_id="two", allow_delegation=False)
    assert (caught.value.owner, caught.value.state, caught.value.last_index) == (
        *("one", "requested"),
        2,
    )
    index = finish(producer, "r", "one")
    assert request_partition(producer, "r", build_request_id="two") == Available("r", index)
    with pytest.raises(InvalidEvent):
        request_partition(producer, "", build_request_id="two")


@pytest.mark.parametrize("after", ["failed", "stale", "removed"])
def test_what_is_not_there_is_built_anew(producer: Producer, after: str) -> None:
    request_partition(producer, "r", build_request_id="one")
    if after != "failed":
        finish(producer, "r", "one")
    body = {"build_request_id": "one"} if after == "failed" else {}
    end = producer.append(f"v1.partition.{after}", "r", body).index
    assert request_partition(producer, "r", build_request_id="two") == Building("r", "two", end + 1)


def test_of_many_at_once_exactly_one_builds(log: MemoryLog) -> None:
    answers: list[Building | Delegated | Available] = []
    start = threading.Barrier(6)

    def ask(number: int) -> None:
        with Producer(log, actor=f"p{number}") as producer:
            start.wait()
            answers.extend(
                request_partition(producer, f"r{k}", build_request_id=f"b{number}")
                for k in range(30)
            )

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(30):
        mine = [a for a in answers if a.ref == f"r{k}"]
        builders = [a.build_request_id for a in mine if isinstance(a, Building)]
        assert len(builders) == 1
        assert {a.build_request_id for a in mine if isinstance(a, Delegated)} == set(builders)
        assert len(mine) == 6


def test_waiting_for_a_partition(producer: Producer) -> None:
    assert wait_until_made(producer, "r", timeout_s=0.01) is None
    request_partition(producer, "r", build_request_id="one")
    assert wait_until_made(producer, "r", timeout_s=0.01) is None
    maker = threading.Thread(target=finish, args=(producer, "r", "one"))
    maker.start()
    state = wait_until_made(producer, "r", timeout_s=20)
    maker.join()
    assert state is not None
    assert state.state == "available"


# --- builds


def run(producer: Producer, graph: Graph, work: Work, build_id: str = "b") -> GraphReport:
    makers = {step: (graph.name, below) for step, below in graph.steps.items()}
    return run_graph(producer, graph, makers, build_request_id=build_id, work=work)


GRAPH = Graph("g", {"a": ("source",), "b": ("a", "c"), "c": ("a",)})


def test_a_build_makes_each_step_after_what_it_reads(log: MemoryLog, producer: Producer) -> None:
    made: list[str] = []

    def work(step: str, inputs: Sequence[str]) -> None:
        assert all(i == "source" or i in made for i in inputs)
        made.append(step)

    assert run(producer, GRAPH, work) == GraphReport("g", "b", 0, 0, 3, 1)
    assert made == ["a", "c", "b"]
    assert run(producer, GRAPH, work, "again") == GraphReport("g", "again", 3, 0, 0, 0)
    assert made == ["a", "c", "b"]
    judged = Judgement(log)
    assert judged.state("build:b") == judged.state("build:again") == "completed"
    assert len(judged.accepted) == log.next_position(), "nothing illegal was written"


def test_a_step_that_fails_is_given_free(log: MemoryLog, producer: Producer) -> None:
    def work(step: str, _: Sequence[str]) -> None:
        if step == "c":
            raise OSError("no room \udc80 for c" + "x" * 5_000)

    with pytest.raises(OSError, match="no room"):
        run(producer, GRAPH, work)
    judged = Judgement(log)
    assert [judged.state(f"partition:{r}") for r in "abc"] == ["available", "∅", "failed"]
    assert judged.state("build:b") == "failed"
    assert {s: p[-1] for s, p in judged.paths.items() if s.startswith("job_run")} == {
        "job_run:b/0": "v1.job.completed",
        "job_run:b/1": "v1.job.failed",
    }
    assert run(producer, GRAPH, lambda *_: None, "next") == GraphReport("g", "next", 1, 0, 2, 0)


def test_a_build_id_that_is_taken_harms_nobody(log: MemoryLog, producer: Producer) -> None:
    producer.append_event(event("v1.build.received", "b", n=1))
    before = log.next_position()
    with pytest.raises(Conflict):
        run(producer, GRAPH, lambda *_: None)
    assert log.next_position() == before
    assert Judgement(log).state("build:b") == "received"


def test_a_circle_is_refused_before_anything_is_written(log: MemoryLog, producer: Producer) -> None:
    with pytest.raises(InvalidInput, match="circle"):
        run(producer, Graph("g", {"a": ("b",), "b": ("a",)}), lambda *_: None)
    assert log.next_position() == 1


def test_a_build_waits_for_a_step_of_another(log: MemoryLog, producer: Producer) -> None:
    held, asked = threading.Event(), threading.Event()
    reports: list[GraphReport] = []

    def slowly(step: str, _: Sequence[str]) -> None:
        if step == "a":
            asked.set()
            assert held.wait(20)

    with Producer(log, actor="other") as second:
        first = threading.Thread(target=lambda: reports.append(run(producer, GRAPH, slowly, "b1")))
        first.start()
        assert asked.wait(20)
        other = threading.Thread(
            target=lambda: reports.append(run(second, GRAPH, lambda *_: None, "b2"))
        )
        other.start()
        while not any("joined" in e.event.event_type for e in log.read(0).events):
            log.wait(log.next_position(), 0.05)
        held.set()
        first.join()
        other.join()
    assert sum(r.built for r in reports) == 3
    assert {r.graph for r in reports} == {"g"}
    judged = Judgement(log)
    assert [
        p.count("v1.partition.available")
        for s, p in judged.paths.items()
        if s in {"partition:a", "partition:b", "partition:c"}
    ] == [1, 1, 1]
