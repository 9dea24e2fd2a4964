"""Both clients ask a service whatever it answers, by the same names."""

import asyncio
import inspect
from pathlib import Path

import pytest

from belog.client import AsyncClient, Client
from belog.client.questions import AsyncQuestions, Questions
from belog.schemas.errors import NotFound
from tests.http_serving import served


def public(kind: type) -> dict[str, list[str]]:
    """The methods of a class, with the names of what they take."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: list(inspect.signature(method).parameters)
        for name, method in found
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods() -> None:
    assert public(Questions) == public(AsyncQuestions)
    assert public(Client).keys() == public(AsyncClient).keys()


def test_what_is_asked_is_answered(tmp_path: Path) -> None:
    run = {"build_request_id": "nightly", "task_id": "load", "job_label": "//jobs:load"}
    with served(tmp_path) as server, Client(server.url) as client:
        client.append("v1.build.received", "nightly", {"requested_partitions": ["sales"]})
        client.append("v1.job.scheduled", "run-1", {**run, "outputs": ["sales"]})
        receipt = client.append("v1.job.running", "run-1")
        client.status(min_index=receipt.index)
        assert client.task("nightly", "load").runs == ["run-1"]
        assert [task.task_id for task in client.tasks(state=["running"]).tasks] == ["load"]
        assert [run.job_run_id for run in client.jobs(job_label="//jobs:load").job_runs] == [
            "run-1"
        ]
        assert client.job_metrics("//jobs:load").runs == 1
        assert [job.job_label for job in client.metrics_of_jobs()] == ["//jobs:load"]
        assert client.activity(window_s=60).rates.window_s == 60
        assert client.statistics().by_type["v1.job.running"] == 1
        assert [e.index for e in client.audit(event_type="v1.job.running").entries] == [3]
        (called_off,) = client.cancel_task("nightly", "load", "wrong day").runs
        assert (called_off.subject_id, called_off.was_cancelled) == ("run-1", False)
        with pytest.raises(NotFound):
            client.task("nightly", "nothing")

        async def again() -> None:
            async with AsyncClient(server.url) as other:
                assert (await other.task("nightly", "load")).state == "cancelled"
                assert [job.runs for job in await other.metrics_of_jobs()] == [1]
                (before,) = (await other.cancel_task("nightly", "load")).runs
                assert before.was_cancelled

        asyncio.run(again())
