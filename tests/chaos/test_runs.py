"""Chaos runs over all backends: fixed ones that meet each kind of fault, one of today's seed.

More of them by hand: `make soak`, or `python -m tests.chaos soak --hours 8`.
"""

import random
from pathlib import Path

import pytest

from tests.chaos.deployment import Backend
from tests.chaos.running import plan_of, run
from tests.chaos.systems import BACKENDS, Servers

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(400)]

WORK_S = 2.5

FIXED: dict[str, tuple[Backend, tuple[str, ...]]] = {
    "1": ("sqlite", ("writer-killed", "writer-frozen", "sink-killed", "clocks-off")),
    "2": ("file", ("writer-killed", "reader-killed", "writer-killed")),
    "3": ("postgres", ("connections-cut", "postgres-killed", "writer-frozen")),
    "4": ("delta", ("writer-killed", "writer-frozen")),
    "5": (
        "kafka",
        ("writer-killed", "worker-killed", "redis-killed", "sink-killed", "redis-flushed"),
    ),
    "6": ("kafka", ("two-workers", "garbage-records", "broker-killed", "connections-half-open")),
}
"""Seed → what it meets."""


@pytest.mark.parametrize("fixed", FIXED, ids=lambda seed: f"{seed}-{FIXED[seed][0]}")
def test_every_answer_is_true(fixed: str, chaos_servers: Servers, tmp_path: Path) -> None:
    backend, faults = FIXED[fixed]
    report = run(plan_of(fixed, backend, faults, WORK_S), tmp_path / "run", chaos_servers)
    assert report.is_good, report.text()
    assert report.faults == list(faults)
    assert report.events > 20, "hardly anything was done: this was no run"


def test_every_answer_is_true_today(chaos_servers: Servers, tmp_path: Path, seed: int) -> None:
    backend = random.Random(f"{seed}/backend").choice(BACKENDS)
    report = run(plan_of(str(seed), backend, None, WORK_S), tmp_path / "run", chaos_servers)
    assert report.is_good, report.text()
