"""How the runs of jobs went, from their rows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final

from belog.processors.rows import JobRunRow
from belog.query.answers import JobMetrics

__all__ = ["METRIC_RUNS_MAX", "by_label", "metrics_of", "percentile"]

METRIC_RUNS_MAX: Final = 400
"""Job runs that metrics are made of, the newest: the job run index gives them in one look, so
nothing is kept for them; a p95 rests on twenty of them, and old runs say little of the next."""


def percentile(values: Sequence[int], share: float) -> int | None:
    """Return the nearest-rank percentile: the least value that `share` of all do not exceed.

    Args:
        values: In ascending order.
        share: Above 0, up to 1.

    >>> percentile([10, 20, 30, 40], 0.5)
    20
    """
    return values[max(1, ceil(share * len(values))) - 1] if values else None


def metrics_of(label: str, runs: Sequence[JobRunRow], *, is_partial: bool) -> JobMetrics:
    """Return the metrics of some runs of a job.

    Args:
        label: The job's label.
        runs: Its newest runs, at least one.
        is_partial: Whether there are older ones.
    """
    states = Counter(run.state for run in runs)
    ended = states["completed"] + states["failed"]
    durations = sorted(
        run.ended_at - run.started_at
        for run in runs
        if run.state == "completed" and run.ended_at is not None and run.started_at is not None
    )
    times = [run.updated_at for run in runs]
    return JobMetrics(
        job_label=label,
        runs=len(runs),
        by_state=dict(sorted(states.items())),
        success_rate=states["completed"] / ended if ended else None,
        duration_p50_us=percentile(durations, 0.5),
        duration_p95_us=percentile(durations, 0.95),
        oldest_at=min(times),
        newest_at=max(times),
        is_partial=is_partial,
    )


def by_label(runs: Iterable[JobRunRow]) -> Mapping[str, list[JobRunRow]]:
    """Return runs by label, labels in order; runs without one are left out."""
    found: dict[str, list[JobRunRow]] = {}
    for run in runs:
        if run.job_label is not None:
            found.setdefault(run.job_label, []).append(run)
    return dict(sorted(found.items()))
