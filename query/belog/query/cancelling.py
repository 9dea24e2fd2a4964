"""Which events call off a build, a task or a job run. Pure.

A build that is called off gives nothing back to be tried again: its job runs are `cancelled`, the
partitions of its attempts `failed`, so that others may request them. A job run that is called off
alone gives its partitions back to its build, as `requested`.

Nothing here asks for an order among writers. A partition is given back only if it is still at the
event that was looked at (`expected`), because `requested` would also be legal over new data; it is
failed without that, because only the owner's attempt can fail.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from belog.processors.rows import JobRunRow, PartitionRow
from belog.schemas.events import JobCancelled, PartitionFailed, PartitionRequested, Payload

__all__ = ["Step", "give_back", "release"]


class Step(Struct, frozen=True):
    """An event to append."""

    payload: Payload
    subject_id: str
    after: int | None = None
    """The step of the same plan that causes it; None for what the caller began with."""
    expected: int | None = None


def release(
    build_id: str,
    runs: Iterable[JobRunRow],
    partitions: Iterable[PartitionRow],
    *,
    reason: str | None,
) -> Sequence[Step]:
    """Return what ends everything that a build has under way.

    Args:
        build_id: The build that was called off.
        runs: Its job runs that are not ended.
        partitions: Partitions that have to do with it; of others' attempts nothing becomes.
        reason: Why.
    """
    steps: list[Step] = []
    ended: dict[str, int] = {}
    for run in runs:
        ended[run.job_run_id] = len(steps)
        steps.append(Step(JobCancelled(reason=reason), run.job_run_id))
    for row in partitions:
        attempt = row.attempt
        if attempt is None or attempt.build_id != build_id:
            continue
        run_id = attempt.job_run_id
        failed = PartitionFailed(
            build_request_id=build_id,
            job_run_id=run_id,
            reason=reason or f"build {build_id} was cancelled",
        )
        steps.append(Step(failed, row.ref, ended.get(run_id) if run_id else None))
    return steps


def give_back(job_run_id: str, partitions: Iterable[PartitionRow]) -> Sequence[Step]:
    """Return what gives the partitions of a job run back to the build that owns them.

    Args:
        job_run_id: The run that was called off.
        partitions: Partitions that may have to do with it.
    """
    return [
        Step(
            PartitionRequested(build_request_id=row.attempt.build_id),
            row.ref,
            expected=row.index,
        )
        for row in partitions
        if row.attempt is not None
        and row.attempt.job_run_id == job_run_id
        and row.state in {"scheduled", "building"}
    ]
