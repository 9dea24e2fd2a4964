"""The checker catches every deliberate fault of a copy of the code, and none in the code as it is.

A fault whose text is no longer there is a failure, too: it would catch nothing.
"""

from pathlib import Path

import pytest

from tests.chaos.mutations import MUTATIONS, Mutation, mutated, plan_for
from tests.chaos.running import run
from tests.chaos.systems import Servers

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(400)]

TRIES_MAX = 8
"""Runs of one fault, some seconds each: whether a race is met is the machine's choice."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_fault_of_the_code_is_caught(
    mutation: Mutation, chaos_servers: Servers, tmp_path: Path, seed: int
) -> None:
    broken: list[str] = []
    for n in range(TRIES_MAX):
        plan = plan_for(mutation, f"{seed}-{n}")
        with mutated(mutation, plan, tmp_path / f"copy-{n}") as changed:
            report = run(changed, tmp_path / f"run-{n}", chaos_servers)
        broken += [contradiction.rule for contradiction in report.contradictions]
        if mutation.caught_by & set(broken):
            return
    raise AssertionError(f"{mutation.name} was not caught; broken: {sorted(set(broken))}")


def test_the_code_as_it_is_breaks_no_rule(
    chaos_servers: Servers, tmp_path: Path, seed: int
) -> None:
    (mutation,) = (m for m in MUTATIONS if m.name == "verdict-skipped")
    report = run(plan_for(mutation, str(seed)), tmp_path / "run", chaos_servers)
    assert report.is_good, report.text()
    assert report.refused > 10, "nothing was refused: this was no race"
