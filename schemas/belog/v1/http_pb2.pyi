from belog.v1 import catalog_pb2 as _catalog_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HttpProblem(_message.Message):
    __slots__ = ("type", "title", "status", "detail", "code", "hint", "index", "subject", "state", "last_index", "allowed", "owner", "retriable", "next_idx", "horizon", "snapshot", "limit", "limit_value", "value", "event_id")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    NEXT_IDX_FIELD_NUMBER: _ClassVar[int]
    HORIZON_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    index: int
    subject: str
    state: str
    last_index: int
    allowed: _containers.RepeatedScalarFieldContainer[str]
    owner: str
    retriable: bool
    next_idx: int
    horizon: int
    snapshot: str
    limit: str
    limit_value: int
    value: int
    event_id: str
    def __init__(self, type: _Optional[str] = ..., title: _Optional[str] = ..., status: _Optional[int] = ..., detail: _Optional[str] = ..., code: _Optional[str] = ..., hint: _Optional[str] = ..., index: _Optional[int] = ..., subject: _Optional[str] = ..., state: _Optional[str] = ..., last_index: _Optional[int] = ..., allowed: _Optional[_Iterable[str]] = ..., owner: _Optional[str] = ..., retriable: bool = ..., next_idx: _Optional[int] = ..., horizon: _Optional[int] = ..., snapshot: _Optional[str] = ..., limit: _Optional[str] = ..., limit_value: _Optional[int] = ..., value: _Optional[int] = ..., event_id: _Optional[str] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("ok", "reasons")
    OK_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ok: bool = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class HttpRequestPartition(_message.Message):
    __slots__ = ("client_id", "build_request_id", "allow_delegation", "timeout_s")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    BUILD_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DELEGATION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    build_request_id: str
    allow_delegation: bool
    timeout_s: float
    def __init__(self, client_id: _Optional[str] = ..., build_request_id: _Optional[str] = ..., allow_delegation: bool = ..., timeout_s: _Optional[float] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("subject_kind", "subject_id", "index", "was_cancelled", "job_runs", "partitions")
    SUBJECT_KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    WAS_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    subject_kind: str
    subject_id: str
    index: int
    was_cancelled: bool
    job_runs: int
    partitions: int
    def __init__(self, subject_kind: _Optional[str] = ..., subject_id: _Optional[str] = ..., index: _Optional[int] = ..., was_cancelled: bool = ..., job_runs: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[CancelResponse]
    def __init__(self, runs: _Optional[_Iterable[_Union[CancelResponse, _Mapping]]] = ...) -> None: ...

class Build(_message.Message):
    __slots__ = ("build_request_id", "state", "index", "updated_at", "client_id", "comment", "requested_partitions", "received_at", "planning_at", "analysis_completed_at", "executing_at", "ended_at", "task_count", "partition_count", "reason", "message", "counts", "row")
    BUILD_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    PLANNING_AT_FIELD_NUMBER: _ClassVar[int]
    ANALYSIS_COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    TASK_COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    build_request_id: str
    state: str
    index: int
    updated_at: int
    client_id: str
    comment: str
    requested_partitions: _containers.RepeatedScalarFieldContainer[str]
    received_at: int
    planning_at: int
    analysis_completed_at: int
    executing_at: int
    ended_at: int
    task_count: int
    partition_count: int
    reason: str
    message: str
    counts: BuildCounts
    row: str
    def __init__(self, build_request_id: _Optional[str] = ..., state: _Optional[str] = ..., index: _Optional[int] = ..., updated_at: _Optional[int] = ..., client_id: _Optional[str] = ..., comment: _Optional[str] = ..., requested_partitions: _Optional[_Iterable[str]] = ..., received_at: _Optional[int] = ..., planning_at: _Optional[int] = ..., analysis_completed_at: _Optional[int] = ..., executing_at: _Optional[int] = ..., ended_at: _Optional[int] = ..., task_count: _Optional[int] = ..., partition_count: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., counts: _Optional[_Union[BuildCounts, _Mapping]] = ..., row: _Optional[str] = ...) -> None: ...

class BuildCounts(_message.Message):
    __slots__ = ("requested", "joined", "available", "failed", "delegated", "job_runs")
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNS_FIELD_NUMBER: _ClassVar[int]
    requested: int
    joined: int
    available: int
    failed: int
    delegated: int
    job_runs: int
    def __init__(self, requested: _Optional[int] = ..., joined: _Optional[int] = ..., available: _Optional[int] = ..., failed: _Optional[int] = ..., delegated: _Optional[int] = ..., job_runs: _Optional[int] = ...) -> None: ...

class BuildSummary(_message.Message):
    __slots__ = ("build", "requested", "missing", "partitions", "job_runs", "tasks", "duration_us", "is_partial")
    class RequestedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PartitionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class JobRunsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BUILD_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    DURATION_US_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    build: Build
    requested: _containers.ScalarMap[str, int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.ScalarMap[str, int]
    job_runs: _containers.ScalarMap[str, int]
    tasks: _containers.ScalarMap[str, int]
    duration_us: int
    is_partial: bool
    def __init__(self, build: _Optional[_Union[Build, _Mapping]] = ..., requested: _Optional[_Mapping[str, int]] = ..., missing: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Mapping[str, int]] = ..., job_runs: _Optional[_Mapping[str, int]] = ..., tasks: _Optional[_Mapping[str, int]] = ..., duration_us: _Optional[int] = ..., is_partial: bool = ...) -> None: ...

class ListBuildsResponse(_message.Message):
    __slots__ = ("builds", "next_page_token", "as_of_index")
    BUILDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    builds: _containers.RepeatedCompositeFieldContainer[Build]
    next_page_token: str
    as_of_index: int
    def __init__(self, builds: _Optional[_Iterable[_Union[Build, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class JobRun(_message.Message):
    __slots__ = ("job_run_id", "state", "index", "updated_at", "build_request_id", "task_id", "job_label", "attempt", "inputs", "outputs", "worker", "heartbeat_at", "started_at", "ended_at", "exit_code", "reason", "available_from_build", "message", "row")
    JOB_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    BUILD_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_LABEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FROM_BUILD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    job_run_id: str
    state: str
    index: int
    updated_at: int
    build_request_id: str
    task_id: str
    job_label: str
    attempt: int
    inputs: _containers.RepeatedScalarFieldContainer[str]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    worker: str
    heartbeat_at: int
    started_at: int
    ended_at: int
    exit_code: int
    reason: str
    available_from_build: str
    message: str
    row: str
    def __init__(self, job_run_id: _Optional[str] = ..., state: _Optional[str] = ..., index: _Optional[int] = ..., updated_at: _Optional[int] = ..., build_request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., job_label: _Optional[str] = ..., attempt: _Optional[int] = ..., inputs: _Optional[_Iterable[str]] = ..., outputs: _Optional[_Iterable[str]] = ..., worker: _Optional[str] = ..., heartbeat_at: _Optional[int] = ..., started_at: _Optional[int] = ..., ended_at: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., available_from_build: _Optional[str] = ..., message: _Optional[str] = ..., row: _Optional[str] = ...) -> None: ...

class ListJobRunsResponse(_message.Message):
    __slots__ = ("job_runs", "next_page_token", "as_of_index")
    JOB_RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    job_runs: _containers.RepeatedCompositeFieldContainer[JobRun]
    next_page_token: str
    as_of_index: int
    def __init__(self, job_runs: _Optional[_Iterable[_Union[JobRun, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("build_request_id", "task_id", "state", "index", "updated_at", "job_label", "inputs", "outputs", "runs", "run_count", "row")
    BUILD_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    JOB_LABEL_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    build_request_id: str
    task_id: str
    state: str
    index: int
    updated_at: int
    job_label: str
    inputs: _containers.RepeatedScalarFieldContainer[str]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    runs: _containers.RepeatedScalarFieldContainer[str]
    run_count: int
    row: str
    def __init__(self, build_request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., state: _Optional[str] = ..., index: _Optional[int] = ..., updated_at: _Optional[int] = ..., job_label: _Optional[str] = ..., inputs: _Optional[_Iterable[str]] = ..., outputs: _Optional[_Iterable[str]] = ..., runs: _Optional[_Iterable[str]] = ..., run_count: _Optional[int] = ..., row: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token", "as_of_index")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    next_page_token: str
    as_of_index: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class JobMetrics(_message.Message):
    __slots__ = ("job_label", "runs", "by_state", "success_rate", "duration_p50_us", "duration_p95_us", "oldest_at", "newest_at", "is_partial")
    class ByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_LABEL_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    BY_STATE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_RATE_FIELD_NUMBER: _ClassVar[int]
    DURATION_P50_US_FIELD_NUMBER: _ClassVar[int]
    DURATION_P95_US_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_AT_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    job_label: str
    runs: int
    by_state: _containers.ScalarMap[str, int]
    success_rate: float
    duration_p50_us: int
    duration_p95_us: int
    oldest_at: int
    newest_at: int
    is_partial: bool
    def __init__(self, job_label: _Optional[str] = ..., runs: _Optional[int] = ..., by_state: _Optional[_Mapping[str, int]] = ..., success_rate: _Optional[float] = ..., duration_p50_us: _Optional[int] = ..., duration_p95_us: _Optional[int] = ..., oldest_at: _Optional[int] = ..., newest_at: _Optional[int] = ..., is_partial: bool = ...) -> None: ...

class ListJobMetricsResponse(_message.Message):
    __slots__ = ("jobs", "as_of_index")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobMetrics]
    as_of_index: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobMetrics, _Mapping]]] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class PartitionBuild(_message.Message):
    __slots__ = ("partition_ref", "build_request_id", "role", "status", "build_state", "requesting_clients", "started_at")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    BUILD_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BUILD_STATE_FIELD_NUMBER: _ClassVar[int]
    REQUESTING_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    build_request_id: str
    role: str
    status: _catalog_pb2.PartitionStatus
    build_state: str
    requesting_clients: _containers.RepeatedScalarFieldContainer[str]
    started_at: int
    def __init__(self, partition_ref: _Optional[str] = ..., build_request_id: _Optional[str] = ..., role: _Optional[str] = ..., status: _Optional[_Union[_catalog_pb2.PartitionStatus, str]] = ..., build_state: _Optional[str] = ..., requesting_clients: _Optional[_Iterable[str]] = ..., started_at: _Optional[int] = ...) -> None: ...

class ListActiveBuildsResponse(_message.Message):
    __slots__ = ("builds", "next_page_token", "as_of_index")
    BUILDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    builds: _containers.RepeatedCompositeFieldContainer[PartitionBuild]
    next_page_token: str
    as_of_index: int
    def __init__(self, builds: _Optional[_Iterable[_Union[PartitionBuild, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class Cause(_message.Message):
    __slots__ = ("index", "at", "event_type", "subject_kind", "subject_id", "actor", "link", "reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    at: int
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    link: str
    reason: str
    def __init__(self, index: _Optional[int] = ..., at: _Optional[int] = ..., event_type: _Optional[str] = ..., subject_kind: _Optional[str] = ..., subject_id: _Optional[str] = ..., actor: _Optional[str] = ..., link: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class MissingDependency(_message.Message):
    __slots__ = ("partition_ref", "status")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    status: _catalog_pb2.PartitionStatus
    def __init__(self, partition_ref: _Optional[str] = ..., status: _Optional[_Union[_catalog_pb2.PartitionStatus, str]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("partition", "summary", "causes", "waits_for", "as_of_index")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    partition: _catalog_pb2.Partition
    summary: str
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    waits_for: _containers.RepeatedCompositeFieldContainer[MissingDependency]
    as_of_index: int
    def __init__(self, partition: _Optional[_Union[_catalog_pb2.Partition, _Mapping]] = ..., summary: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ..., waits_for: _Optional[_Iterable[_Union[MissingDependency, _Mapping]]] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class StateCounts(_message.Message):
    __slots__ = ("by_state",)
    class ByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BY_STATE_FIELD_NUMBER: _ClassVar[int]
    by_state: _containers.ScalarMap[str, int]
    def __init__(self, by_state: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Rates(_message.Message):
    __slots__ = ("window_s", "events", "partitions_available", "partitions_failed", "builds_completed", "builds_failed", "job_runs_completed", "job_runs_failed")
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FAILED_FIELD_NUMBER: _ClassVar[int]
    BUILDS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    BUILDS_FAILED_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    JOB_RUNS_FAILED_FIELD_NUMBER: _ClassVar[int]
    window_s: float
    events: int
    partitions_available: int
    partitions_failed: int
    builds_completed: int
    builds_failed: int
    job_runs_completed: int
    job_runs_failed: int
    def __init__(self, window_s: _Optional[float] = ..., events: _Optional[int] = ..., partitions_available: _Optional[int] = ..., partitions_failed: _Optional[int] = ..., builds_completed: _Optional[int] = ..., builds_failed: _Optional[int] = ..., job_runs_completed: _Optional[int] = ..., job_runs_failed: _Optional[int] = ...) -> None: ...

class Lag(_message.Message):
    __slots__ = ("records", "seconds")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    seconds: float
    def __init__(self, records: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Activity(_message.Message):
    __slots__ = ("counts", "running", "builds", "failed_partitions", "failed_builds", "failed_job_runs", "rates", "lag", "as_of_index")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StateCounts
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StateCounts, _Mapping]] = ...) -> None: ...
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    BUILDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FAILED_BUILDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_JOB_RUNS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.MessageMap[str, StateCounts]
    running: _containers.RepeatedCompositeFieldContainer[JobRun]
    builds: _containers.RepeatedCompositeFieldContainer[Build]
    failed_partitions: _containers.RepeatedCompositeFieldContainer[_catalog_pb2.Partition]
    failed_builds: _containers.RepeatedCompositeFieldContainer[Build]
    failed_job_runs: _containers.RepeatedCompositeFieldContainer[JobRun]
    rates: Rates
    lag: Lag
    as_of_index: int
    def __init__(self, counts: _Optional[_Mapping[str, StateCounts]] = ..., running: _Optional[_Iterable[_Union[JobRun, _Mapping]]] = ..., builds: _Optional[_Iterable[_Union[Build, _Mapping]]] = ..., failed_partitions: _Optional[_Iterable[_Union[_catalog_pb2.Partition, _Mapping]]] = ..., failed_builds: _Optional[_Iterable[_Union[Build, _Mapping]]] = ..., failed_job_runs: _Optional[_Iterable[_Union[JobRun, _Mapping]]] = ..., rates: _Optional[_Union[Rates, _Mapping]] = ..., lag: _Optional[_Union[Lag, _Mapping]] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class LogStatistics(_message.Message):
    __slots__ = ("events", "first_index", "last_index", "first_created_at", "last_created_at", "bytes", "by_type", "by_subject_kind", "void", "duplicates", "tombstones", "gaps", "as_of_index")
    class ByTypeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class BySubjectKindEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BY_TYPE_FIELD_NUMBER: _ClassVar[int]
    BY_SUBJECT_KIND_FIELD_NUMBER: _ClassVar[int]
    VOID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    events: int
    first_index: int
    last_index: int
    first_created_at: int
    last_created_at: int
    bytes: int
    by_type: _containers.ScalarMap[str, int]
    by_subject_kind: _containers.ScalarMap[str, int]
    void: int
    duplicates: int
    tombstones: int
    gaps: int
    as_of_index: int
    def __init__(self, events: _Optional[int] = ..., first_index: _Optional[int] = ..., last_index: _Optional[int] = ..., first_created_at: _Optional[int] = ..., last_created_at: _Optional[int] = ..., bytes: _Optional[int] = ..., by_type: _Optional[_Mapping[str, int]] = ..., by_subject_kind: _Optional[_Mapping[str, int]] = ..., void: _Optional[int] = ..., duplicates: _Optional[int] = ..., tombstones: _Optional[int] = ..., gaps: _Optional[int] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("at", "actor", "event_type", "subject_kind", "subject_id", "event_id", "result", "index", "reason")
    AT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at: int
    actor: str
    event_type: str
    subject_kind: str
    subject_id: str
    event_id: str
    result: str
    index: int
    reason: str
    def __init__(self, at: _Optional[int] = ..., actor: _Optional[str] = ..., event_type: _Optional[str] = ..., subject_kind: _Optional[str] = ..., subject_id: _Optional[str] = ..., event_id: _Optional[str] = ..., result: _Optional[str] = ..., index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AuditResponse(_message.Message):
    __slots__ = ("entries", "as_of_index")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    as_of_index: int
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., as_of_index: _Optional[int] = ...) -> None: ...
