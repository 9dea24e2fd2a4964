"""Asking and calling off, as a user types it."""

import json
import threading
from pathlib import Path

import pytest

from tests.e2e.program import belog, running
from tests.servers import eventually

pytestmark = pytest.mark.e2e

LOG = ("--log", "sqlite:///builds.db")
RUN: dict[str, object] = {"build_request_id": "nightly", "job_run_id": "run-1"}


def append(folder: Path, *events: tuple[str, str, dict[str, object]]) -> None:
    lines = "\n".join(
        json.dumps({"event_type": f"v1.{name}", "subject_id": subject, "payload": payload})
        for name, subject, payload in events
    )
    belog("append", "--from", "-", *LOG, cwd=folder, stdin=lines).ok()


@pytest.fixture
def building(tmp_path: Path) -> Path:
    """A folder whose log holds a build that made one partition and is at work on the next."""
    append(
        tmp_path,
        ("build.received", "nightly", {"requested_partitions": ["raw", "sales"]}),
        ("partition.observed", "raw", {"source": "ftp"}),
        ("partition.requested", "sales", {"build_request_id": "nightly"}),
        (
            "job.scheduled",
            "run-1",
            {
                "build_request_id": "nightly",
                "task_id": "load",
                "job_label": "//jobs:load",
                "outputs": ["sales"],
            },
        ),
        ("partition.scheduled", "sales", {**RUN, "upstream_deps": ["raw"]}),
        ("job.running", "run-1", {"worker": "w"}),
        ("partition.building", "sales", RUN),
    )
    return tmp_path


def finish(folder: Path) -> None:
    append(
        folder,
        ("job.completed", "run-1", {}),
        ("partition.available", "sales", RUN),
        ("build.failed", "nightly", {"reason": "report"}),
    )


def test_one_who_asks_builds_and_the_next_waits(tmp_path: Path) -> None:
    first = belog(
        *("partition", "request", "sales", "--client", "ann", "--json"), *LOG, cwd=tmp_path
    ).ok()
    answer = first.json()[0]
    assert answer["answer"] == "building"
    build = str(answer["build_request_id"])
    listed = belog("build", "list", "--json", *LOG, cwd=tmp_path).ok().json()
    assert [(row["build_id"], row["client_id"]) for row in listed] == [(build, "ann")]
    second = belog("partition", "request", "sales", "--build", "b2", *LOG, cwd=tmp_path).ok()
    assert second.out.split()[:3] == ["delegated", "sales", build]
    refused = belog(
        *("partition", "request", "sales", "--build", "b3", "--no-delegation", "--json"),
        *LOG,
        cwd=tmp_path,
    )
    assert (refused.code, json.loads(refused.err)["error"]["owner"]) == (3, build)
    late = belog(
        *("partition", "request", "sales", "--build", "b2", "--timeout", "0.2"), *LOG, cwd=tmp_path
    )
    assert late.code == 5
    assert "was not made" in late.err


def test_who_gets_a_partition_to_build_does_not_wait_for_himself(tmp_path: Path) -> None:
    arguments = ("partition", "request", "mine", "--build", "b1", "--timeout", "60", *LOG, "--json")
    for _ in range(2):
        (answer,) = belog(*arguments, cwd=tmp_path).ok().json()
        assert (answer["answer"], answer["build_request_id"]) == ("building", "b1")
    # The build is there, said once, and so it can be called off.
    types = [event["event_type"] for event in belog("events", *LOG, "--json", cwd=tmp_path).json()]
    assert types[-2:] == ["v1.partition.requested", "v1.build.received"]
    belog("build", "cancel", "b1", *LOG, cwd=tmp_path).ok()
    again = belog(*arguments, cwd=tmp_path).ok().json()
    assert again[0]["answer"] == "building"


def test_a_request_that_waits_says_how_it_ended(building: Path) -> None:
    done: list[tuple[int, str]] = []

    def ask() -> None:
        asked = belog(
            *("partition", "request", "sales", "--build", "b2", "--timeout", "60"),
            *LOG,
            cwd=building,
        )
        done.append((asked.code, asked.out))

    asking = threading.Thread(target=ask)
    asking.start()

    def joined() -> bool:
        shown = belog("events", "--type", "v1.partition.joined", *LOG, cwd=building)
        return len(shown.lines()) == 1

    eventually(joined, "the second build joined", timeout_s=30)
    finish(building)
    asking.join(60)
    assert done[0][0] == 0
    assert done[0][1].split() == ["delegated", "sales", "nightly", "10", "available"]
    again = belog("partition", "request", "sales", *LOG, "--json", cwd=building).ok().json()
    assert again == [{"answer": "available", "ref": "sales", "index": 10}]
    assert len(belog("build", "list", "--json", *LOG, cwd=building).ok().lines()) == 1


def test_wait_ends_with_the_state_or_a_failure_or_the_time(building: Path) -> None:
    with running(
        ["partition", "wait", "sales", "available", "stale", "--timeout", "60", *LOG], cwd=building
    ) as wait:
        finish(building)
        assert wait.wait(60) == 0
        assert wait.stdout is not None
        assert wait.stdout.read() == "sales is available since index 9\n"
    over = belog("partition", "wait", "sales", "failed", "--timeout", "0.1", *LOG, cwd=building)
    assert (over.code, over.out) == (5, "")
    wrong = belog("partition", "wait", "sales", "done", *LOG, cwd=building)
    assert (wrong.code, wrong.out) == (2, "")
    shown = belog("partition", "wait", "sales", "--json", *LOG, cwd=building).ok().json()
    assert shown == [{"ref": "sales", "state": "available", "index": 9, "as_of": 11}]


def test_explain_and_graph(building: Path) -> None:
    told = belog("partition", "explain", "sales", *LOG, cwd=building).ok().lines()
    assert told[0] == "sales: building in build nightly (received): job run run-1 is running"
    assert told[1].split()[0] == "7"
    explained = belog("partition", "explain", "sales", "--json", *LOG, cwd=building).ok().json()[0]
    assert (explained["state"], explained["as_of"]) == ("building", 8)
    causes = explained["causes"]
    assert isinstance(causes, list)
    assert causes[-1]["event_type"] == "v1.build.received"
    assert causes[-1]["at"].endswith("Z")
    graph = belog("partition", "graph", "raw", "--json", *LOG, cwd=building).ok().json()[0]
    nodes, edges = graph["nodes"], graph["edges"]
    assert isinstance(nodes, list)
    assert [(node["ref"], node["status"]) for node in nodes] == [
        ("raw", "available"),
        ("sales", "building"),
    ]
    assert edges == [{"source": "sales", "target": "raw", "kind": "DEPENDS_ON"}]
    lines = belog("partition", "graph", "sales", "--depth", "0", *LOG, cwd=building).ok().lines()
    assert len(lines) == 2
    for command in ("explain", "graph"):
        arguments = ["--depth", "101"] if command == "graph" else []
        done = belog("partition", command, "nowhere", *arguments, *LOG, cwd=building)
        assert done.code == (2 if command == "graph" else 4)


def test_calling_off_a_build(building: Path) -> None:
    done = belog("build", "cancel", "nightly", "--reason", "wrong day", *LOG, cwd=building).ok()
    assert done.out == (
        "build nightly was cancelled at index 8; job runs ended: 1, partitions released: 1\n"
    )
    row = belog("partition", "show", "sales", "--json", *LOG, cwd=building).ok().json()[0]
    assert row["state"] == "failed"
    again = belog("build", "cancel", "nightly", "--json", *LOG, cwd=building).ok().json()[0]
    assert (again["was_cancelled"], again["job_runs"], again["partitions"]) == (True, 0, 0)
    assert belog("job", "list", "--active", "--json", *LOG, cwd=building).ok().lines() == []
    missing = belog("build", "cancel", "nowhere", *LOG, cwd=building)
    assert missing.code == 4


def test_calling_off_a_job_or_a_task(building: Path) -> None:
    done = belog("task", "cancel", "nightly", "load", "--json", *LOG, cwd=building).ok().json()
    assert [(d["subject_id"], d["partitions"]) for d in done] == [("run-1", 1)]
    again = belog("job", "cancel", "run-1", *LOG, cwd=building).ok()
    assert "was cancelled before at index 8" in again.out
    row = belog("partition", "show", "sales", "--json", *LOG, cwd=building).ok().json()[0]
    assert row["state"] == "requested"
    finished = belog("build", "list", "--json", *LOG, cwd=building).ok().json()
    assert finished[0]["state"] == "received"


def test_what_has_ended_is_not_called_off(building: Path) -> None:
    finish(building)
    for command in (
        ["build", "cancel", "nightly"],
        ["job", "cancel", "run-1"],
        ["task", "cancel", "nightly", "load"],
    ):
        done = belog(*command, *LOG, cwd=building)
        assert (done.code, done.out) == (3, ""), command


def test_metrics_activity_audit_and_stats(building: Path) -> None:
    finish(building)
    metrics = belog("job", "metrics", "//jobs:load", "--json", *LOG, cwd=building).ok().json()[0]
    assert (metrics["runs"], metrics["success_rate"]) == (1, 1.0)
    table = belog("job", "metrics", *LOG, cwd=building).ok().lines()
    assert table[1].split()[:3] == ["//jobs:load", "1", "100.0%"]
    assert belog("job", "metrics", "//never", *LOG, cwd=building).code == 4
    activity = belog("activity", "--json", *LOG, cwd=building).ok().json()[0]
    assert activity["lag"] == {"records": 0, "seconds": 0.0}
    rates = activity["rates"]
    assert isinstance(rates, dict)
    assert rates["events"] == 11
    assert "1 failed" in belog("activity", *LOG, cwd=building).ok().out
    audit = belog("audit", "--partition", "raw", "--json", *LOG, cwd=building).ok().json()
    assert [(entry["event_type"], entry["result"]) for entry in audit] == [
        ("v1.partition.observed", "accepted"),
        ("v1.build.received", "accepted"),
    ]
    first = belog("audit", "--oldest-first", "--limit", "1", *LOG, cwd=building).ok().lines()
    assert "v1.system.log_created" in first[1]
    two = belog("audit", "--partition", "raw", "--build", "nightly", *LOG, cwd=building)
    assert two.code == 2
    stats = belog("stats", "--json", *LOG, cwd=building).ok().json()[0]
    assert (stats["events"], stats["gaps"]) == (11, 0)
    assert "v1.job.completed" in belog("stats", *LOG, cwd=building).ok().out
