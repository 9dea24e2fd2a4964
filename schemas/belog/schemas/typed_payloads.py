"""The typed payloads of lifecycle version 1: one class for each event type."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

__all__ = [
    "PAYLOADS",
    "BuildAnalysisCompleted",
    "BuildCancelled",
    "BuildCompleted",
    "BuildExecuting",
    "BuildFailed",
    "BuildPlanning",
    "BuildReceived",
    "JobCancelled",
    "JobCompleted",
    "JobFailed",
    "JobRunning",
    "JobScheduled",
    "JobSkipped",
    "LifecycleAdopted",
    "LogCreated",
    "Manifest",
    "ManifestInput",
    "PartitionAvailable",
    "PartitionBuilding",
    "PartitionDelegated",
    "PartitionFailed",
    "PartitionJoined",
    "PartitionObserved",
    "PartitionRemoved",
    "PartitionRequested",
    "PartitionScheduled",
    "PartitionStale",
    "Payload",
    "SnapshotTaken",
    "Vacuumed",
]

Ref = Annotated[str, Meta(min_length=1, description="partition ref")]
BuildId = Annotated[str, Meta(min_length=1, description="build request id")]
JobRunId = Annotated[str, Meta(min_length=1, description="job run id")]
Count = Annotated[int, Meta(ge=0)]
Micros = Annotated[int, Meta(description="microseconds since the epoch, UTC")]


class Payload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every payload may carry. A field at its default is not written."""

    event_type: ClassVar[str] = ""

    message: str | None = None
    """Text for people."""


class ManifestInput(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A partition that was read, and the index of the log at which it was."""

    ref: Ref
    index: int | None = None


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was made, from what, when and where."""

    outputs: list[Ref] = []
    inputs: list[ManifestInput] = []
    start_time: Micros | None = None
    end_time: Micros | None = None
    task_id: str | None = None
    uri: str | None = None
    size_bytes: Count | None = None
    row_count: Count | None = None
    content_digest: str | None = None
    metadata: dict[str, str] = {}


class BuildReceived(Payload, frozen=True, kw_only=True):
    """A build request arrived."""

    event_type = "v1.build.received"
    requested_partitions: list[Ref] = []
    client_id: str | None = None
    comment: str | None = None


class BuildPlanning(Payload, frozen=True, kw_only=True):
    """The graph works out what to run."""

    event_type = "v1.build.planning"


class BuildAnalysisCompleted(Payload, frozen=True, kw_only=True):
    """The plan stands."""

    event_type = "v1.build.analysis_completed"
    task_count: Count | None = None
    partition_count: Count | None = None


class BuildExecuting(Payload, frozen=True, kw_only=True):
    """The first job was started."""

    event_type = "v1.build.executing"


class BuildCompleted(Payload, frozen=True, kw_only=True):
    """All requested partitions are there."""

    event_type = "v1.build.completed"


class BuildFailed(Payload, frozen=True, kw_only=True):
    """The build ended without all it was asked for."""

    event_type = "v1.build.failed"
    reason: str | None = None


class BuildCancelled(Payload, frozen=True, kw_only=True):
    """The build was called off."""

    event_type = "v1.build.cancelled"
    reason: str | None = None


class JobScheduled(Payload, frozen=True, kw_only=True):
    """A job run is to be started; a retry of a task is a run of its own."""

    event_type = "v1.job.scheduled"
    build_request_id: BuildId
    task_id: str | None = None
    job_label: str | None = None
    outputs: list[Ref] = []
    inputs: list[Ref] = []
    attempt: Annotated[int, Meta(ge=1)] = 1


class JobSkipped(Payload, frozen=True, kw_only=True):
    """The run was not needed: an earlier build already made its outputs."""

    event_type = "v1.job.skipped"
    build_request_id: BuildId
    task_id: str | None = None
    job_label: str | None = None
    outputs: list[Ref] = []
    inputs: list[Ref] = []
    attempt: Annotated[int, Meta(ge=1)] = 1
    reason: str | None = None
    available_from_build: BuildId | None = None


class JobRunning(Payload, frozen=True, kw_only=True):
    """The run started; each further one is a heartbeat."""

    event_type = "v1.job.running"
    worker: str | None = None


class JobCompleted(Payload, frozen=True, kw_only=True):
    """The run ended well."""

    event_type = "v1.job.completed"


class JobFailed(Payload, frozen=True, kw_only=True):
    """The run ended badly."""

    event_type = "v1.job.failed"
    reason: str | None = None
    exit_code: int | None = None


class JobCancelled(Payload, frozen=True, kw_only=True):
    """The run was called off."""

    event_type = "v1.job.cancelled"
    reason: str | None = None


class PartitionRequested(Payload, frozen=True, kw_only=True):
    """A build starts an attempt at a partition and owns it; or gives a step of it back."""

    event_type = "v1.partition.requested"
    build_request_id: BuildId
    requesting_clients: list[str] = []


class PartitionJoined(Payload, frozen=True, kw_only=True):
    """Another build waits for the attempt under way."""

    event_type = "v1.partition.joined"
    build_request_id: BuildId
    requesting_clients: list[str] = []


class PartitionScheduled(Payload, frozen=True, kw_only=True):
    """A job run was chosen that will make the partition."""

    event_type = "v1.partition.scheduled"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    task_id: str | None = None
    job_label: str | None = None
    upstream_deps: list[Ref] = []


class PartitionBuilding(Payload, frozen=True, kw_only=True):
    """The job run writes the partition."""

    event_type = "v1.partition.building"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None


class PartitionAvailable(Payload, frozen=True, kw_only=True):
    """The partition can be read."""

    event_type = "v1.partition.available"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    manifest: Manifest | None = None


class PartitionDelegated(Payload, frozen=True, kw_only=True):
    """Another instance makes it."""

    event_type = "v1.partition.delegated"
    build_request_id: BuildId
    delegated_to_log: str
    delegated_to_build: BuildId | None = None


class PartitionFailed(Payload, frozen=True, kw_only=True):
    """The attempt ended badly."""

    event_type = "v1.partition.failed"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    reason: str | None = None


class PartitionStale(Payload, frozen=True, kw_only=True):
    """What is there is older than what it was made from."""

    event_type = "v1.partition.stale"
    reason: str | None = None
    cause_partition: Ref | None = None


class PartitionRemoved(Payload, frozen=True, kw_only=True):
    """The data is gone."""

    event_type = "v1.partition.removed"
    reason: str | None = None


class PartitionObserved(Payload, frozen=True, kw_only=True):
    """A partition made outside any graph here was found."""

    event_type = "v1.partition.observed"
    manifest: Manifest | None = None
    source: str | None = None
    upstream_deps: list[Ref] = []


class LogCreated(Payload, frozen=True, kw_only=True):
    """Record 0 of every log."""

    event_type = "v1.system.log_created"
    log_id: str
    instance: str
    lifecycle_version: Annotated[int, Meta(ge=1)]


class LifecycleAdopted(Payload, frozen=True, kw_only=True):
    """From the next index on another lifecycle governs."""

    event_type = "v1.system.lifecycle_adopted"
    lifecycle_version: Annotated[int, Meta(ge=1)]


class SnapshotTaken(Payload, frozen=True, kw_only=True):
    """A snapshot of everything below an index exists."""

    event_type = "v1.system.snapshot_taken"
    index: Count
    location: str
    content_digest: str | None = None


class Vacuumed(Payload, frozen=True, kw_only=True):
    """Superseded events below the horizon were removed."""

    event_type = "v1.system.vacuumed"
    horizon: Count
    removed_count: Count
    snapshot: str


PAYLOADS: Final[Mapping[str, type[Payload]]] = {
    cls.event_type: cls for cls in Payload.__subclasses__()
}
"""Payload class of every event type of lifecycle version 1."""
