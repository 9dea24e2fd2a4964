"""Publishing one graph's build: steps requested, made where nobody else makes them, reported.

Steps are taken one after the other, each after what it depends on, and requested only when their
turn comes. So a build owns an attempt only while it works on it, all that an attempt needs is
there already, and two builds can wait for each other's steps without ever waiting in a circle.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from belog.producers.coordination import (
    Available,
    Building,
    Delegated,
    Requested,
    request_partition,
    wait_until_made,
)
from belog.producers.dag import Graph, build_order
from belog.producers.producer import Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict, Unavailable
from belog.schemas.events import (
    BuildAnalysisCompleted,
    BuildCompleted,
    BuildExecuting,
    BuildFailed,
    BuildPlanning,
    BuildReceived,
    JobCompleted,
    JobFailed,
    JobRunning,
    JobScheduled,
    Manifest,
    ManifestInput,
    PartitionAvailable,
    PartitionBuilding,
    PartitionFailed,
    PartitionObserved,
    PartitionScheduled,
)

__all__ = ["GraphReport", "Work", "run_graph"]

DELEGATED_WAIT_S: Final = 600.0
"""Longest wait for a step that another build makes, seconds."""

TRIES_MAX: Final = 10
"""How often a step is asked for again after the build that made it failed."""

REASON_CHARS_MAX: Final = 1_000
"""How much of an error's text becomes the reason of a failure, characters."""

Work = Callable[[str, Sequence[str]], None]
"""Makes a step: its ref, and the refs it reads. What it raises fails the step and the build."""


class GraphReport(Struct, frozen=True):
    """What one build of a graph came to."""

    graph: str
    build_request_id: str
    available: int
    """Steps that were there already."""
    delegated: int
    """Steps that other builds made."""
    built: int
    observed: int
    """Sources that no graph makes, found for the first time."""


def run_graph(
    producer: Producer,
    graph: Graph,
    makers: Mapping[str, tuple[str, tuple[str, ...]]],
    *,
    build_request_id: str,
    work: Work,
    on_answer: Callable[[Requested], None] | None = None,
) -> GraphReport:
    """Publish one build of a graph, from `received` to `completed`. Blocks until it ended.

    Args:
        producer: Of the log that owns the partitions.
        graph: What to build.
        makers: Every step of all graphs → the graph it belongs to, and what it depends on. Steps
            that are in none are taken for sources, and observed.
        build_request_id: Id of the new build request.
        work: Makes a step.
        on_answer: Called with the answer to every request.

    Raises:
        InvalidInput: The steps depend on each other in a circle; nothing was written.
        Conflict: There is a build of that id; nothing was written.
        Unavailable: Another build took longer than `DELEGATED_WAIT_S` with a step.
        BelogError: What an append raises. The build is `failed` in the log where that could be
            written.
    """
    dependencies = {step: below for step, (_, below) in makers.items()}
    order = build_order(graph.steps, dependencies)
    build = _Build(producer, graph, makers, build_request_id, work, on_answer)
    # On its own: where the id is taken, nothing may befall the build that has it.
    producer.append_event(build.received)
    try:
        build.start(order)
        for step in order:
            if step in makers:
                build.make(step)
            else:
                build.observe(step)
    except BaseException as error:
        # Also where a person interrupts it: nobody should have to wait for this build then.
        build.fail(error)
        raise
    producer.append(BuildCompleted(), build_request_id)
    return GraphReport(
        graph.name,
        build_request_id,
        build.counts["available"],
        build.counts["delegated"],
        build.counts["built"],
        build.counts["observed"],
    )


class _Build:
    """One build under way."""

    def __init__(  # noqa: PLR0917 - private, one caller
        self,
        producer: Producer,
        graph: Graph,
        makers: Mapping[str, tuple[str, tuple[str, ...]]],
        build_request_id: str,
        work: Work,
        on_answer: Callable[[Requested], None] | None,
    ) -> None:
        self.producer = producer
        self.graph = graph
        self.makers = makers
        self.id = build_request_id
        self.work = work
        self.on_answer = on_answer
        self.counts = dict.fromkeys(("available", "delegated", "built", "observed"), 0)
        self.received = producer.event(
            BuildReceived(requested_partitions=list(graph.steps), client_id=graph.name), self.id
        )

    def start(self, order: Sequence[str]) -> None:
        count = len(order)
        self._append(
            self.producer.event(BuildPlanning(), self.id),
            self.producer.event(
                BuildAnalysisCompleted(
                    task_count=sum(step in self.makers for step in order), partition_count=count
                ),
                self.id,
            ),
            self.producer.event(BuildExecuting(), self.id),
        )

    def _append(self, *events: Event) -> None:
        for result in self.producer.append_batch(events):
            if isinstance(result, BelogError):
                raise result

    def observe(self, source: str) -> None:
        state = self.producer.state("partition", source)
        if state is not None and state.state == "available":
            return
        try:
            self.producer.append(
                PartitionObserved(source=self.graph.name),
                source,
                caused_by=self.received.event_id,
                expected=-1 if state is None else state.index,
            )
        except Conflict:
            return  # another graph found it at the same time
        self.counts["observed"] += 1

    def make(self, step: str) -> None:
        for _ in range(TRIES_MAX):
            answer = request_partition(
                self.producer, step, build_request_id=self.id, clients=[self.graph.name]
            )
            if self.on_answer is not None:
                self.on_answer(answer)
            if isinstance(answer, Available):
                self.counts["available"] += 1
                return
            if isinstance(answer, Building):
                self._build(step)
                self.counts["built"] += 1
                return
            if self._wait_for(answer):
                self.counts["delegated"] += 1
                return
        msg = f"step {step!r} failed {TRIES_MAX} times with the builds that made it"
        raise Unavailable(msg, log=self.producer.log.name, subject=f"partition:{step}")

    def _wait_for(self, answer: Delegated) -> bool:
        state = wait_until_made(self.producer, answer.ref, timeout_s=DELEGATED_WAIT_S)
        if state is None:
            msg = f"build {answer.build_request_id!r} took over {DELEGATED_WAIT_S} s"
            raise Unavailable(
                msg,
                log=self.producer.log.name,
                subject=f"partition:{answer.ref}",
                hint="look at that build; cancel it if its process is gone",
            )
        return state.state == "available"

    def _build(self, step: str) -> None:
        graph, inputs = self.makers[step]
        event = self.producer.event
        task_id = f"{self.id}/{step}"[:256]
        run_id = f"{self.id}/{self.counts['built']}"
        label = f"{graph}:{step.partition('://')[0]}"
        scheduled = event(
            JobScheduled(
                build_request_id=self.id,
                task_id=task_id,
                job_label=label,
                outputs=[step],
                inputs=list(inputs),
            ),
            run_id,
            caused_by=self.received.event_id,
        )
        running = event(JobRunning(worker=graph), run_id, caused_by=scheduled.event_id)
        self._append(
            scheduled,
            event(
                PartitionScheduled(
                    build_request_id=self.id,
                    job_run_id=run_id,
                    task_id=task_id,
                    job_label=label,
                    upstream_deps=list(inputs),
                ),
                step,
                caused_by=scheduled.event_id,
            ),
            running,
            event(
                PartitionBuilding(build_request_id=self.id, job_run_id=run_id),
                step,
                caused_by=running.event_id,
            ),
        )
        try:
            self.work(step, inputs)
        except BaseException as error:
            self._fail_step(step, run_id, error)
            raise
        completed = event(JobCompleted(), run_id, caused_by=running.event_id)
        manifest = Manifest(
            outputs=[step],
            inputs=[ManifestInput(ref) for ref in inputs],
            start_time=running.occurred_at,
            end_time=completed.occurred_at,
            task_id=task_id,
        )
        self._append(
            completed,
            event(
                PartitionAvailable(build_request_id=self.id, job_run_id=run_id, manifest=manifest),
                step,
                caused_by=completed.event_id,
            ),
        )

    def _fail_step(self, step: str, run_id: str, error: BaseException) -> None:
        """Give the step free for others, where the log can still be written."""
        reason = _reason(error)
        failed = self.producer.event(JobFailed(reason=reason), run_id)
        self._append_failure(
            error,
            failed,
            self.producer.event(
                PartitionFailed(build_request_id=self.id, job_run_id=run_id, reason=reason),
                step,
                caused_by=failed.event_id,
            ),
        )

    def fail(self, error: BaseException) -> None:
        """Say in the log that the build failed, where the log can still be written."""
        self._append_failure(
            error, self.producer.event(BuildFailed(reason=_reason(error)), self.id)
        )

    def _append_failure(self, error: BaseException, *events: Event) -> None:
        try:
            self._append(*events)
        except BelogError as second:
            error.add_note(f"the failure could not be written either: {second}")


def _reason(error: BaseException) -> str:
    # What no UTF-8 can hold is written out: a failure must not fail for its own text.
    text = str(error).encode("utf-8", "backslashreplace").decode()
    return text[:REASON_CHARS_MAX] or type(error).__name__
