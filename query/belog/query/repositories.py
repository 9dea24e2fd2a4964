"""One door per kind of row: list, show with its events, call off, and metrics of jobs."""

from collections.abc import Sequence
from typing import Final, Generic

from belog.processors.indexes import ANY, Order, Where
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow, task_key
from belog.processors.tables import PAGE_ROWS
from belog.producers import Producer
from belog.query.answers import Answer, JobMetrics, Listing, Shown
from belog.query.cancel import Cancelled, cancel_build, cancel_job, cancel_task
from belog.query.durations import METRIC_RUNS_MAX, by_label, metrics_of
from belog.query.log_events import read_range
from belog.query.table_queries import TableQueries
from belog.schemas.errors import NotFound
from belog.schemas.filters import EventFilter

__all__ = [
    "SHOWN_EVENTS",
    "BuildRepository",
    "JobRepository",
    "PartitionRepository",
    "Repositories",
    "TaskRepository",
]

SHOWN_EVENTS: Final = 100
"""Events shown with a row when nothing is said."""


class _Repository(Generic[R]):
    def __init__(self, queries: TableQueries, kind: type[R]) -> None:
        self._queries = queries
        self._kind = kind

    def list(
        self,
        where: Where = ANY,
        *,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Listing[R]:
        """Return a page of rows.

        In the order `id` a row that meets the conditions all the while is on exactly one page,
        whatever is written meanwhile; in the order `recent` one that changes moves to the front.

        Args:
            where: Conditions, all of which must hold.
            order: See `Order`.
            cursor: `next_cursor` of the page before, None for the first.
            limit: Most rows, 1 to `PAGE_ROWS_MAX`.

        Raises:
            InvalidFilter: The cursor is one of another list.
            LimitExceeded: `limit` is over its bound.
        """
        return self._queries.list_rows(self._kind, where, order=order, cursor=cursor, limit=limit)

    def _show(self, row_id: str, wanted: EventFilter, events: int) -> Shown[R]:
        found = self._queries.tables.get(self._kind, row_id)
        row = found.value
        if row is None:
            msg = f"there is no {self._kind.kind.replace('_', ' ')} {row_id!r}"
            raise NotFound(msg, index=found.applied, hint="the tables are as of that index")
        if not events:
            return Shown(row, (), has_more_events=True, as_of=found.applied)
        indices = row.first_seen, found.applied
        listed = read_range(self._queries.log, wanted, indices, limit=events, from_horizon=True)
        return Shown(row, listed.events, listed.has_more, found.applied)


class PartitionRepository(_Repository[PartitionRow]):
    """Partitions."""

    def show(self, ref: str, *, events: int = SHOWN_EVENTS) -> Shown[PartitionRow]:
        """Return a partition with the events that concern it, from its own first on.

        What a vacuum removed is left out.
        What it costs to find them: see `belog.query.log_events`.

        Args:
            ref: The partition.
            events: Most events, 0 to `PAGE_EVENTS_MAX`; 0 reads no log.

        Raises:
            NotFound: It was never seen.
        """
        return self._show(ref, EventFilter(partition_refs=(ref,)), events)


class BuildRepository(_Repository[BuildRow]):
    """Build requests."""

    def show(self, build_id: str, *, events: int = SHOWN_EVENTS) -> Shown[BuildRow]:
        """Return a build request with the events that concern it; see `PartitionRepository.show`.

        Raises:
            NotFound: There is none.
        """
        return self._show(build_id, EventFilter(build_request_ids=(build_id,)), events)

    def cancel(self, producer: Producer, build_id: str, *, reason: str | None = None) -> Cancelled:
        """Call off a build; see `belog.query.cancel.cancel_build`."""
        return cancel_build(self._queries, producer, build_id, reason=reason)


class JobRepository(_Repository[JobRunRow]):
    """Job runs."""

    def show(self, job_run_id: str, *, events: int = SHOWN_EVENTS) -> Shown[JobRunRow]:
        """Return a job run with the events that concern it; see `PartitionRepository.show`.

        Raises:
            NotFound: There is none.
        """
        return self._show(job_run_id, EventFilter(job_run_ids=(job_run_id,)), events)

    def cancel(
        self, producer: Producer, job_run_id: str, *, reason: str | None = None
    ) -> Cancelled:
        """Call off a job run; see `belog.query.cancel.cancel_job`."""
        return cancel_job(self._queries, producer, job_run_id, reason=reason)

    def metrics(self, label: str, *, since_us: int | None = None) -> Answer[JobMetrics]:
        """Return how the newest runs of a job went, at most `METRIC_RUNS_MAX`.

        One look at the index of job runs by label.

        Args:
            label: The job's label.
            since_us: Only runs whose last event was ingested since, microseconds.

        Raises:
            NotFound: There is no such run.
        """
        where = Where(job_label=label, since_us=since_us)
        page = self._queries.list_rows(JobRunRow, where, limit=METRIC_RUNS_MAX)
        if not page.rows:
            msg = f"no job with label {label!r} was run"
            raise NotFound(msg, index=page.as_of, hint="belog job metrics lists labels")
        is_partial = page.next_cursor is not None
        return Answer(metrics_of(label, page.rows, is_partial=is_partial), page.as_of)

    def metrics_of_all(self, *, since_us: int | None = None) -> Answer[Sequence[JobMetrics]]:
        """Return how the newest `METRIC_RUNS_MAX` runs of all jobs together went, by label.

        A label that is not among them is left out; `metrics` knows it.
        """
        where = Where(since_us=since_us)
        page = self._queries.list_rows(JobRunRow, where, limit=METRIC_RUNS_MAX)
        is_partial = page.next_cursor is not None
        found = tuple(
            metrics_of(label, runs, is_partial=is_partial)
            for label, runs in by_label(page.rows).items()
        )
        return Answer(found, page.as_of)


class TaskRepository(_Repository[TaskRow]):
    """Tasks."""

    def show(self, build_id: str, task_id: str, *, events: int = SHOWN_EVENTS) -> Shown[TaskRow]:
        """Return a task with the events that concern it; see `PartitionRepository.show`.

        Raises:
            NotFound: The build has no such task.
        """
        wanted = EventFilter(build_request_ids=(build_id,), task_ids=(task_id,))
        return self._show(task_key(build_id, task_id), wanted, events)

    def cancel(
        self, producer: Producer, build_id: str, task_id: str, *, reason: str | None = None
    ) -> tuple[Cancelled, ...]:
        """Call off a task's unfinished runs; see `belog.query.cancel.cancel_task`."""
        return cancel_task(self._queries, producer, build_id, task_id, reason=reason)


class Repositories:
    """All of one log.

    Attributes:
        partitions: Partitions.
        builds: Build requests.
        jobs: Job runs.
        tasks: Tasks.
    """

    def __init__(self, queries: TableQueries) -> None:
        """Ask through these queries; a `QueryEngine` is one."""
        self.partitions = PartitionRepository(queries, PartitionRow)
        self.builds = BuildRepository(queries, BuildRow)
        self.jobs = JobRepository(queries, JobRunRow)
        self.tasks = TaskRepository(queries, TaskRow)
