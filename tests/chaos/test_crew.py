"""Runs side by side: all are told of, and what breaks the harness is bad and stops no others."""

from pathlib import Path

import pytest

from tests.chaos.crew import Task, reports
from tests.chaos.running import plan_of


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("go_on", [True, False])
def test_a_run_that_cannot_be_done_is_bad(tmp_path: Path, jobs: int, *, go_on: bool) -> None:
    # A run makes its folder itself, and refuses one that is there.
    tasks = [Task(plan_of(str(n), "sqlite"), tmp_path) for n in range(4)]
    told = list(reports(iter(tasks), jobs, go_on=go_on))
    assert [report.contradictions[0].rule for report in told] == ["harness"] * len(told)
    assert "FileExistsError" in told[0].text()
    seeds = sorted(report.plan.seed for report in told)
    assert seeds == (["0", "1", "2", "3"] if go_on else [str(n) for n in range(jobs)])
