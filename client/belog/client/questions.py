"""What a service is asked beyond events and requests: rows, reasons, the whole; and calling off.

Each question is one route. Answers are the messages of `belog.v1`; lists take the parameters of
their routes as keywords (docs/api.md), where None leaves one out and a list gives it several times.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from belog.client.catalog import M
from belog.v1 import catalog_pb2, http_pb2

__all__ = ["AsyncQuestions", "Questions"]


class Questions(ABC):
    """The questions of `belog.client.Client`."""

    @abstractmethod
    def ask(self, kind: type[M], *segments: str, **query: object) -> M:
        """Ask for any of the service's answers.

        Args:
            kind: The message that is answered.
            segments: Of the path, not encoded.
            query: Parameters.

        Raises:
            NotFound: There is no such thing.
            Unavailable: The service cannot be reached.
        """

    @abstractmethod
    def call_off(self, kind: type[M], *segments: str, reason: str | None) -> M:
        """Call what a path names off; see `cancel_build`."""

    # --- partitions

    def partitions(self, **query: object) -> catalog_pb2.ListPartitionsResponse:
        """Return a page of partitions; pass its `next_page_token` as `cursor` for the next.

        Args:
            query: Parameters of `GET /partitions`; a list gives one several times.
        """
        return self.ask(catalog_pb2.ListPartitionsResponse, "partitions", **query)

    def explain(self, ref: str) -> http_pb2.Explanation:
        """Return why a partition is in its state."""
        return self.ask(http_pb2.Explanation, "partitions", ref, "explain")

    def graph(self, ref: str, *, depth: int | None = None) -> catalog_pb2.DependencyGraph:
        """Return what a partition is made from, and what is made from it."""
        return self.ask(catalog_pb2.DependencyGraph, "partitions", ref, "graph", depth=depth)

    # --- builds, job runs, tasks

    def build(self, build_request_id: str) -> http_pb2.BuildSummary:
        """Return a build request with what became of its parts.

        Raises:
            NotFound: It was never seen.
        """
        return self.ask(http_pb2.BuildSummary, "builds", build_request_id)

    def builds(self, **query: object) -> http_pb2.ListBuildsResponse:
        """Return a page of build requests; see `partitions` and `GET /builds`."""
        return self.ask(http_pb2.ListBuildsResponse, "builds", **query)

    def cancel_build(
        self, build_request_id: str, reason: str | None = None
    ) -> http_pb2.CancelResponse:
        """Call a build off, with all it has under way. Safe to repeat."""
        kind = http_pb2.CancelResponse
        return self.call_off(kind, "builds", build_request_id, reason=reason)

    def active_builds(self, ref: str | None = None) -> http_pb2.ListActiveBuildsResponse:
        """Return who makes what now; of one partition also who waits for it."""
        return self.ask(http_pb2.ListActiveBuildsResponse, "active-builds", partition_ref=ref)

    def job(self, job_run_id: str) -> http_pb2.JobRun:
        """Return a job run.

        Raises:
            NotFound: It was never seen.
        """
        return self.ask(http_pb2.JobRun, "jobs", job_run_id)

    def jobs(self, **query: object) -> http_pb2.ListJobRunsResponse:
        """Return a page of job runs; see `partitions` and `GET /jobs`."""
        return self.ask(http_pb2.ListJobRunsResponse, "jobs", **query)

    def cancel_job(self, job_run_id: str, reason: str | None = None) -> http_pb2.CancelResponse:
        """Call a job run off; its partitions go back to its build. Safe to repeat."""
        return self.call_off(http_pb2.CancelResponse, "jobs", job_run_id, reason=reason)

    def job_metrics(self, label: str, *, since_time: int | None = None) -> http_pb2.JobMetrics:
        """Return how the newest runs of a job went.

        Args:
            label: The job's.
            since_time: Only runs heard of since then, microseconds since the epoch.

        Raises:
            NotFound: There is no such run.
        """
        path = ("jobs", "labels", label, "metrics")
        return self.ask(http_pb2.JobMetrics, *path, since_time=since_time)

    def metrics_of_jobs(self, *, since_time: int | None = None) -> Sequence[http_pb2.JobMetrics]:
        """Return how the newest runs of all jobs together went, by label; see `job_metrics`."""
        kind = http_pb2.ListJobMetricsResponse
        return self.ask(kind, "jobs", "labels", since_time=since_time).jobs

    def task(self, build_request_id: str, task_id: str) -> http_pb2.Task:
        """Return a task of a build.

        Raises:
            NotFound: It was never seen.
        """
        return self.ask(http_pb2.Task, "tasks", build_request_id, task_id)

    def tasks(self, **query: object) -> http_pb2.ListTasksResponse:
        """Return a page of tasks; see `partitions` and `GET /tasks`."""
        return self.ask(http_pb2.ListTasksResponse, "tasks", **query)

    def cancel_task(
        self, build_request_id: str, task_id: str, reason: str | None = None
    ) -> http_pb2.CancelTaskResponse:
        """Call the unfinished runs of a task off. Safe to repeat."""
        kind = http_pb2.CancelTaskResponse
        return self.call_off(kind, "tasks", build_request_id, task_id, reason=reason)

    # --- the whole

    def activity(self, *, window_s: float | None = None) -> http_pb2.Activity:
        """Return what goes on: counts, what runs, what failed lately, rates, lag.

        Args:
            window_s: How far back "lately" goes, seconds; the service's where None.
        """
        window = None if window_s is None else f"{window_s:.6f}"
        return self.ask(http_pb2.Activity, "activity", window_s=window)

    def audit(self, **query: object) -> http_pb2.AuditResponse:
        """Return who did what, with what result; see `GET /audit`."""
        return self.ask(http_pb2.AuditResponse, "audit", **query)

    def statistics(self) -> http_pb2.LogStatistics:
        """Return what the log holds."""
        return self.ask(http_pb2.LogStatistics, "statistics")


class AsyncQuestions(ABC):
    """The questions of `belog.client.AsyncClient`: the same, awaited."""

    @abstractmethod
    async def ask(self, kind: type[M], *segments: str, **query: object) -> M:
        """See `Questions.ask`."""

    @abstractmethod
    async def call_off(self, kind: type[M], *segments: str, reason: str | None) -> M:
        """See `Questions.call_off`."""

    # --- partitions

    async def partitions(self, **query: object) -> catalog_pb2.ListPartitionsResponse:
        """See `Questions.partitions`."""
        return await self.ask(catalog_pb2.ListPartitionsResponse, "partitions", **query)

    async def explain(self, ref: str) -> http_pb2.Explanation:
        """See `Questions.explain`."""
        return await self.ask(http_pb2.Explanation, "partitions", ref, "explain")

    async def graph(self, ref: str, *, depth: int | None = None) -> catalog_pb2.DependencyGraph:
        """See `Questions.graph`."""
        return await self.ask(catalog_pb2.DependencyGraph, "partitions", ref, "graph", depth=depth)

    # --- builds, job runs, tasks

    async def build(self, build_request_id: str) -> http_pb2.BuildSummary:
        """See `Questions.build`."""
        return await self.ask(http_pb2.BuildSummary, "builds", build_request_id)

    async def builds(self, **query: object) -> http_pb2.ListBuildsResponse:
        """See `Questions.builds`."""
        return await self.ask(http_pb2.ListBuildsResponse, "builds", **query)

    async def cancel_build(
        self, build_request_id: str, reason: str | None = None
    ) -> http_pb2.CancelResponse:
        """See `Questions.cancel_build`."""
        kind = http_pb2.CancelResponse
        return await self.call_off(kind, "builds", build_request_id, reason=reason)

    async def active_builds(self, ref: str | None = None) -> http_pb2.ListActiveBuildsResponse:
        """See `Questions.active_builds`."""
        return await self.ask(http_pb2.ListActiveBuildsResponse, "active-builds", partition_ref=ref)

    async def job(self, job_run_id: str) -> http_pb2.JobRun:
        """See `Questions.job`."""
        return await self.ask(http_pb2.JobRun, "jobs", job_run_id)

    async def jobs(self, **query: object) -> http_pb2.ListJobRunsResponse:
        """See `Questions.jobs`."""
        return await self.ask(http_pb2.ListJobRunsResponse, "jobs", **query)

    async def cancel_job(
        self, job_run_id: str, reason: str | None = None
    ) -> http_pb2.CancelResponse:
        """See `Questions.cancel_job`."""
        return await self.call_off(http_pb2.CancelResponse, "jobs", job_run_id, reason=reason)

    async def job_metrics(
        self, label: str, *, since_time: int | None = None
    ) -> http_pb2.JobMetrics:
        """See `Questions.job_metrics`."""
        path = ("jobs", "labels", label, "metrics")
        return await self.ask(http_pb2.JobMetrics, *path, since_time=since_time)

    async def metrics_of_jobs(
        self, *, since_time: int | None = None
    ) -> Sequence[http_pb2.JobMetrics]:
        """See `Questions.metrics_of_jobs`."""
        kind = http_pb2.ListJobMetricsResponse
        return (await self.ask(kind, "jobs", "labels", since_time=since_time)).jobs

    async def task(self, build_request_id: str, task_id: str) -> http_pb2.Task:
        """See `Questions.task`."""
        return await self.ask(http_pb2.Task, "tasks", build_request_id, task_id)

    async def tasks(self, **query: object) -> http_pb2.ListTasksResponse:
        """See `Questions.tasks`."""
        return await self.ask(http_pb2.ListTasksResponse, "tasks", **query)

    async def cancel_task(
        self, build_request_id: str, task_id: str, reason: str | None = None
    ) -> http_pb2.CancelTaskResponse:
        """See `Questions.cancel_task`."""
        kind = http_pb2.CancelTaskResponse
        return await self.call_off(kind, "tasks", build_request_id, task_id, reason=reason)

    # --- the whole

    async def activity(self, *, window_s: float | None = None) -> http_pb2.Activity:
        """See `Questions.activity`."""
        window = None if window_s is None else f"{window_s:.6f}"
        return await self.ask(http_pb2.Activity, "activity", window_s=window)

    async def audit(self, **query: object) -> http_pb2.AuditResponse:
        """See `Questions.audit`."""
        return await self.ask(http_pb2.AuditResponse, "audit", **query)

    async def statistics(self) -> http_pb2.LogStatistics:
        """See `Questions.statistics`."""
        return await self.ask(http_pb2.LogStatistics, "statistics")
