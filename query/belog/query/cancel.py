"""Calling off builds, tasks and job runs, as legal events.

First the subject itself is `cancelled`; then what it has under way is looked up and ended, again
and again until nothing is left: a process that still works for it may add to it meanwhile. Nothing
is locked. An event that lost a race is a conflict, and means to look again. So it may be called
twice, by two at once, or again after a crash: the end is the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from belog.processors.indexes import Where
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, TaskRow, task_key
from belog.producers import Producer
from belog.query.cancelling import Step, give_back, release
from belog.query.table_queries import TableQueries
from belog.schemas.envelope import Event
from belog.schemas.errors import Conflict, NotFound, Unavailable
from belog.schemas.events import (
    BuildCancelled,
    BuildReceived,
    JobCancelled,
    PartitionFailed,
    Payload,
)
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import LIST_ITEMS_MAX
from belog.storage.interface import Receipt

__all__ = ["CANCEL_ROUNDS_MAX", "Cancelled", "cancel_build", "cancel_job", "cancel_task"]

CANCEL_ROUNDS_MAX: Final = 100
"""How often is looked again. Each time somebody added work to what was called off; a hundred times
in a row is a process that has to be stopped."""

STEPS_MAX: Final = 1_000
"""Events appended at once."""


class Cancelled(Struct, frozen=True, kw_only=True):
    """What calling off came to."""

    subject_kind: str
    subject_id: str
    index: int
    """Of the event that called it off."""
    was_cancelled: bool
    """It had been called off before; what was left of it is ended now."""
    job_runs: int
    """Job runs that were ended here."""
    partitions: int
    """Partitions that were failed, or given back."""


class _Counts:
    def __init__(self) -> None:
        self.job_runs = 0
        self.partitions = 0
        self.seen = -1
        """Index that the tables must hold before they are looked at again."""

    def took(self, kind: str, index: int) -> None:
        self.seen = max(self.seen, index)
        self.job_runs += kind == "job_run"
        self.partitions += kind == "partition"


def cancel_build(
    queries: TableQueries, producer: Producer, build_id: str, *, reason: str | None = None
) -> Cancelled:
    """Call off a build: cancel its unfinished job runs, fail the partitions of its attempts.

    Partitions that other builds make for it are left alone. A build that was never received, and
    has work under way all the same, is received first, so that it can be cancelled. Blocks until
    nothing is left.

    Args:
        queries: Of the log.
        producer: Of the same log.
        build_id: The build request.
        reason: Why; stands in every event.

    Raises:
        NotFound: There is no such build, and nothing is under way for it.
        Conflict: It has ended otherwise.
        Unavailable: The tables or the log cannot be reached or do not keep up, or something goes on
            working for it; call again.
    """
    mine = Where(build_id=build_id, active=True)

    def look() -> Sequence[Step]:
        runs = queries.all_rows(JobRunRow, mine)
        return release(build_id, runs, queries.all_rows(PartitionRow, mine), reason=reason)

    if producer.state("build", build_id) is None:
        queries.wait_for(producer.refresh() - 1)
        _receive(producer, build_id, look())
    index, cause, was_cancelled = _call_off(
        producer, "build", BuildCancelled(reason=reason), build_id
    )
    counts = _until_nothing_is_left(queries, producer, index, cause, look)
    return Cancelled(
        subject_kind="build",
        subject_id=build_id,
        index=index,
        was_cancelled=was_cancelled,
        job_runs=counts.job_runs,
        partitions=counts.partitions,
    )


def cancel_job(
    queries: TableQueries, producer: Producer, job_run_id: str, *, reason: str | None = None
) -> Cancelled:
    """Call off a job run: its partitions go back to its build, as `requested`.

    Where the build has ended they are failed instead: nobody would take them up again.

    Args:
        queries: Of the log.
        producer: Of the same log.
        job_run_id: The job run.
        reason: Why.

    Raises:
        NotFound: There is no such job run.
        Conflict: It has ended otherwise.
        Unavailable: As for `cancel_build`.
    """
    index, cause, was_cancelled = _call_off(
        producer, "job_run", JobCancelled(reason=reason), job_run_id
    )
    queries.wait_for(index)
    run = queries.tables.get(JobRunRow, job_run_id).value

    def look() -> Sequence[Step]:
        if run is None or run.build_id is None:
            return ()
        mine = Where(build_id=run.build_id, active=True)
        rows = [
            row
            for row in queries.all_rows(PartitionRow, mine)
            if row.attempt is not None and row.attempt.job_run_id == job_run_id
        ]
        build = queries.tables.get(BuildRow, run.build_id).value
        if build is not None and build.state in {"completed", "failed", "cancelled"}:
            return release(run.build_id, (), rows, reason=reason)
        return give_back(job_run_id, rows)

    counts = _until_nothing_is_left(queries, producer, index, cause, look)
    return Cancelled(
        subject_kind="job_run",
        subject_id=job_run_id,
        index=index,
        was_cancelled=was_cancelled,
        job_runs=0 if was_cancelled else 1,
        partitions=counts.partitions,
    )


def cancel_task(
    queries: TableQueries,
    producer: Producer,
    build_id: str,
    task_id: str,
    *,
    reason: str | None = None,
) -> tuple[Cancelled, ...]:
    """Call off the unfinished job runs of a task, as `cancel_job` does; usually that is one.

    Returns:
        What became of each; of the newest run alone where it was called off before.

    Raises:
        NotFound: There is no such task.
        Conflict: Its newest run has ended otherwise.
        Unavailable: As for `cancel_build`.
    """
    found = queries.tables.get(TaskRow, task_key(build_id, task_id))
    task = found.value
    if task is None:
        msg = f"build {build_id!r} has no task {task_id!r}"
        raise NotFound(msg, index=found.applied, hint="the tables are as of that index")
    runs = queries.by_id(JobRunRow, task.runs)
    active = [run for run in runs if runs[run].state in {"scheduled", "running"}]
    return tuple(
        cancel_job(queries, producer, run, reason=reason) for run in active or task.runs[-1:]
    )


def _receive(producer: Producer, build_id: str, under_way: Sequence[Step]) -> None:
    """Say that a build is there which has work under way; its owner did not."""
    if not under_way:
        return
    refs = [step.subject_id for step in under_way if isinstance(step.payload, PartitionFailed)]
    received = BuildReceived(
        requested_partitions=refs[:LIST_ITEMS_MAX], message="never received: found by its work"
    )
    try:
        producer.append(received, build_id)
    except Conflict:
        return  # somebody says so at the same time


def _call_off(
    producer: Producer, kind: SubjectKind, payload: Payload, subject_id: str
) -> tuple[int, bytes | None, bool]:
    """Append the first event; return its index, its id, and whether it was there before."""
    if producer.state(kind, subject_id) is None:
        msg = f"there is no {kind.replace('_', ' ')} {subject_id!r}"
        raise NotFound(msg, log=producer.log.name, subject=f"{kind}:{subject_id}")
    try:
        receipt = producer.append(payload, subject_id)
    except Conflict as conflict:
        if conflict.state != "cancelled":
            raise
        stored = producer.log.get(conflict.last_index)
        event_id = None if stored is None else stored.event.event_id
        return conflict.last_index, event_id, True
    return receipt.index, receipt.event_id, False


def _until_nothing_is_left(
    queries: TableQueries,
    producer: Producer,
    index: int,
    cause: bytes | None,
    look: Callable[[], Sequence[Step]],
) -> _Counts:
    counts = _Counts()
    counts.seen = index
    for _ in range(CANCEL_ROUNDS_MAX):
        queries.wait_for(counts.seen)
        steps = look()
        if not steps:
            return counts
        _append(producer, steps, cause, counts)
    msg = f"work went on to be added, {CANCEL_ROUNDS_MAX} times"
    raise Unavailable(msg, log=producer.log.name, index=index, hint="stop what works for it")


def _append(
    producer: Producer, steps: Sequence[Step], cause: bytes | None, counts: _Counts
) -> None:
    """Append a plan; what is caused by a step that lost a race is caused by the first event."""
    accepted: dict[int, bytes] = {}
    firsts = [n for n, step in enumerate(steps) if step.after is None]
    others = [n for n, step in enumerate(steps) if step.after is not None]
    for numbers in (firsts, others):
        for at in range(0, len(numbers), STEPS_MAX):
            chunk = numbers[at : at + STEPS_MAX]
            events = [_event(producer, steps[n], accepted, cause) for n in chunk]
            results = producer.append_batch(events)
            for n, event, result in zip(chunk, events, results, strict=True):
                if isinstance(result, Receipt):
                    accepted[n] = event.event_id
                    counts.took(event.subject_kind, result.index)
                elif isinstance(result, Conflict):
                    # Another writer was faster: look again once the tables hold what it wrote.
                    counts.seen = max(counts.seen, result.last_index)
                else:
                    raise result


def _event(
    producer: Producer, step: Step, accepted: Mapping[int, bytes], cause: bytes | None
) -> Event:
    if step.after is not None:
        cause = accepted.get(step.after, cause)
    return producer.event(step.payload, step.subject_id, caused_by=cause, expected=step.expected)
