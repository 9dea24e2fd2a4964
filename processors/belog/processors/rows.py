"""The rows of the tables. Pure data; `belog.processors.evolve` makes them from accepted events.

A row is what the log says of one subject: a partition, a build request, a job run, a task, and the
log itself.

A partition's row keeps two things apart: its current or last attempt, and the data that was last
there. An attempt that fails leaves the data as it is.

Every row has `index` (the last event of its subject), `updated_at` (its ingest time, microseconds
since the epoch, UTC), `first_seen` (the index of the event that made the row) and `version` (how
often the row changed, from 1). A build's row also counts events of other subjects that name it:
these move its `version` and not its `index`.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Protocol, TypeVar

from msgspec import Struct

__all__ = [
    "ATTEMPT_LIST_MAX",
    "ROW_TYPES",
    "TASK_RUNS_MAX",
    "Attempt",
    "Availability",
    "BuildCounts",
    "BuildRow",
    "JobRunRow",
    "PartitionRow",
    "R",
    "Row",
    "RowKind",
    "RowView",
    "SystemRow",
    "TaskRow",
    "task_key",
]

RowKind = Literal["partition", "build", "job_run", "task", "system"]

ATTEMPT_LIST_MAX: Final = 1_000
"""Builds, and clients, that one attempt's row lists, the first to come: a row stays below what one
reads in a moment, and as many joins on one attempt were never seen."""

TASK_RUNS_MAX: Final = 100
"""Job run ids that a task's row lists, the newest; a task that is retried for ever stays small."""


class Attempt(Struct, frozen=True, gc=False, omit_defaults=True):
    """The current or last attempt to make a partition."""

    build_id: str
    """The build that owns it."""
    requested_index: int
    requested_at: int
    requesting_clients: tuple[str, ...] = ()
    """Of the owner and of all who joined, in order of arrival, each once."""
    joined_builds: tuple[str, ...] = ()
    """Builds that wait for it, in order of arrival, without the owner."""
    job_run_id: str | None = None
    task_id: str | None = None
    job_label: str | None = None
    upstream_deps: tuple[str, ...] = ()
    delegated_to_log: str | None = None
    delegated_to_build: str | None = None
    failure_reason: str | None = None


class Availability(Struct, frozen=True, gc=False, omit_defaults=True):
    """The data that was last there, and what has become of it since."""

    index: int
    """Index of the event that said so."""
    at: int
    """Its ingest time, microseconds."""
    build_id: str | None = None
    job_run_id: str | None = None
    job_label: str | None = None
    upstream_deps: tuple[str, ...] = ()
    source: str | None = None
    """Who found it, where it was made outside any graph here."""
    manifest: str | None = None
    """The manifest as JSON."""
    stale_index: int | None = None
    """Index of the event that called it stale."""
    removed_index: int | None = None
    """Index of the event that removed it; the data is gone."""
    reason: str | None = None
    """Why it is stale or removed."""
    cause_partition: str | None = None
    """The partition that made it stale."""


class PartitionRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A partition."""

    kind: ClassVar[RowKind] = "partition"

    ref: str
    state: str
    index: int
    updated_at: int
    first_seen: int
    version: int
    attempt: Attempt | None = None
    available: Availability | None = None
    message: str | None = None

    @property
    def row_id(self) -> str:
        """The ref."""
        return self.ref

    @property
    def has_data(self) -> bool:
        """Whether data is there, whatever the current attempt does; it may be stale."""
        return self.available is not None and self.available.removed_index is None


class BuildCounts(Struct, frozen=True, gc=False, omit_defaults=True):
    """Events of other subjects that name a build."""

    requested: int = 0
    """Attempts it started."""
    joined: int = 0
    """Attempts of others it waits for."""
    available: int = 0
    """Its attempts that ended well."""
    failed: int = 0
    """Its attempts that ended badly."""
    delegated: int = 0
    """Its attempts that were handed to another instance."""
    job_runs: int = 0


class BuildRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A build request. A time is None until the build was in that state."""

    kind: ClassVar[RowKind] = "build"

    build_id: str
    state: str
    index: int
    updated_at: int
    first_seen: int
    version: int
    client_id: str | None = None
    comment: str | None = None
    requested_partitions: tuple[str, ...] = ()
    received_at: int | None = None
    planning_at: int | None = None
    analysis_completed_at: int | None = None
    executing_at: int | None = None
    ended_at: int | None = None
    task_count: int | None = None
    partition_count: int | None = None
    reason: str | None = None
    counts: BuildCounts = BuildCounts()
    message: str | None = None

    @property
    def row_id(self) -> str:
        """The build request id."""
        return self.build_id


class JobRunRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A job run: one try of a task."""

    kind: ClassVar[RowKind] = "job_run"

    job_run_id: str
    state: str
    index: int
    updated_at: int
    first_seen: int
    version: int
    build_id: str | None = None
    task_id: str | None = None
    job_label: str | None = None
    attempt: int = 1
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    worker: str | None = None
    heartbeats: int = 0
    """`running` events after the first."""
    heartbeat_at: int | None = None
    """When it was last heard of while running."""
    started_at: int | None = None
    ended_at: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    available_from_build: str | None = None
    message: str | None = None

    @property
    def row_id(self) -> str:
        """The job run id."""
        return self.job_run_id


class TaskRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A task: a planned unit of work of a build, which keeps its id over retries."""

    kind: ClassVar[RowKind] = "task"

    build_id: str
    task_id: str
    state: str
    """That of its newest run."""
    index: int
    updated_at: int
    first_seen: int
    version: int
    job_label: str | None = None
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Its job runs, the newest last; at most `TASK_RUNS_MAX`."""
    run_count: int = 0

    @property
    def row_id(self) -> str:
        """Build and task id in one; see `task_key`."""
        return task_key(self.build_id, self.task_id)


class SystemRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The log itself."""

    kind: ClassVar[RowKind] = "system"

    log_id: str
    state: str
    index: int
    updated_at: int
    first_seen: int
    version: int
    instance: str | None = None
    lifecycle_version: int | None = None
    snapshot_count: int = 0
    snapshot_index: int | None = None
    """What the newest snapshot holds: everything below this index."""
    snapshot_location: str | None = None
    snapshot_at: int | None = None
    vacuum_horizon: int | None = None
    vacuum_snapshot: str | None = None
    removed_count: int = 0
    """Events removed by all vacuums together."""
    message: str | None = None

    @property
    def row_id(self) -> str:
        """The log id."""
        return self.log_id


Row = PartitionRow | BuildRow | JobRunRow | TaskRow | SystemRow
R = TypeVar("R", bound=Row)

ROW_TYPES: Final[Mapping[RowKind, type[Row]]] = {
    cls.kind: cls for cls in (PartitionRow, BuildRow, JobRunRow, TaskRow, SystemRow)
}


def task_key(build_id: str, task_id: str) -> str:
    """Return the id of a task's row; no two tasks share one.

    >>> task_key("nightly/7", "load")
    'nightly%2F7/load'
    """
    if "/" in build_id or "%" in build_id:
        build_id = build_id.replace("%", "%25").replace("/", "%2F")
    return f"{build_id}/{task_id}"


class RowView(Protocol):
    """The rows before an event; read only."""

    @property
    def partitions(self) -> Mapping[str, PartitionRow]:
        """By ref."""
        ...

    @property
    def builds(self) -> Mapping[str, BuildRow]:
        """By build request id."""
        ...

    @property
    def job_runs(self) -> Mapping[str, JobRunRow]:
        """By job run id."""
        ...

    @property
    def tasks(self) -> Mapping[str, TaskRow]:
        """By `task_key`."""
        ...

    @property
    def systems(self) -> Mapping[str, SystemRow]:
        """By log id."""
        ...
