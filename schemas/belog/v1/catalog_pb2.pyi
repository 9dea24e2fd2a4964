from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartitionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[PartitionStatus]
    REQUESTED: _ClassVar[PartitionStatus]
    SCHEDULED: _ClassVar[PartitionStatus]
    BUILDING: _ClassVar[PartitionStatus]
    AVAILABLE: _ClassVar[PartitionStatus]
    FAILED: _ClassVar[PartitionStatus]
    STALE: _ClassVar[PartitionStatus]
    DELEGATED: _ClassVar[PartitionStatus]
    REMOVED: _ClassVar[PartitionStatus]
UNKNOWN: PartitionStatus
REQUESTED: PartitionStatus
SCHEDULED: PartitionStatus
BUILDING: PartitionStatus
AVAILABLE: PartitionStatus
FAILED: PartitionStatus
STALE: PartitionStatus
DELEGATED: PartitionStatus
REMOVED: PartitionStatus

class PartitionEvent(_message.Message):
    __slots__ = ("partition_event_id", "timestamp", "partition_ref", "status", "job_graph_run_id", "job_run_id", "producing_job", "requesting_clients", "delegated_to_run_id", "upstream_deps", "downstream_deps", "manifest", "failure_reason", "storage_backend", "storage_metadata")
    class StorageMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTITION_EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCING_JOB_FIELD_NUMBER: _ClassVar[int]
    REQUESTING_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_TO_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_DEPS_FIELD_NUMBER: _ClassVar[int]
    DOWNSTREAM_DEPS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    STORAGE_BACKEND_FIELD_NUMBER: _ClassVar[int]
    STORAGE_METADATA_FIELD_NUMBER: _ClassVar[int]
    partition_event_id: str
    timestamp: int
    partition_ref: str
    status: PartitionStatus
    job_graph_run_id: str
    job_run_id: str
    producing_job: str
    requesting_clients: _containers.RepeatedScalarFieldContainer[str]
    delegated_to_run_id: str
    upstream_deps: _containers.RepeatedScalarFieldContainer[str]
    downstream_deps: _containers.RepeatedScalarFieldContainer[str]
    manifest: PartitionManifest
    failure_reason: str
    storage_backend: str
    storage_metadata: _containers.ScalarMap[str, str]
    def __init__(self, partition_event_id: _Optional[str] = ..., timestamp: _Optional[int] = ..., partition_ref: _Optional[str] = ..., status: _Optional[_Union[PartitionStatus, str]] = ..., job_graph_run_id: _Optional[str] = ..., job_run_id: _Optional[str] = ..., producing_job: _Optional[str] = ..., requesting_clients: _Optional[_Iterable[str]] = ..., delegated_to_run_id: _Optional[str] = ..., upstream_deps: _Optional[_Iterable[str]] = ..., downstream_deps: _Optional[_Iterable[str]] = ..., manifest: _Optional[_Union[PartitionManifest, _Mapping]] = ..., failure_reason: _Optional[str] = ..., storage_backend: _Optional[str] = ..., storage_metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PartitionManifest(_message.Message):
    __slots__ = ("outputs", "inputs", "start_time", "end_time", "task_id", "uri", "size_bytes", "row_count", "content_digest", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.RepeatedCompositeFieldContainer[ManifestInput]
    start_time: int
    end_time: int
    task_id: str
    uri: str
    size_bytes: int
    row_count: int
    content_digest: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, outputs: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Iterable[_Union[ManifestInput, _Mapping]]] = ..., start_time: _Optional[int] = ..., end_time: _Optional[int] = ..., task_id: _Optional[str] = ..., uri: _Optional[str] = ..., size_bytes: _Optional[int] = ..., row_count: _Optional[int] = ..., content_digest: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ManifestInput(_message.Message):
    __slots__ = ("ref", "index")
    REF_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ref: str
    index: int
    def __init__(self, ref: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class TimeRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class OrderBy(_message.Message):
    __slots__ = ("field", "ascending")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    ASCENDING_FIELD_NUMBER: _ClassVar[int]
    field: str
    ascending: bool
    def __init__(self, field: _Optional[str] = ..., ascending: bool = ...) -> None: ...

class PartitionEventQuery(_message.Message):
    __slots__ = ("partition_refs", "statuses", "job_graph_run_ids", "time_range", "limit", "offset", "order_by")
    PARTITION_REFS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    TIME_RANGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    partition_refs: _containers.RepeatedScalarFieldContainer[str]
    statuses: _containers.RepeatedScalarFieldContainer[PartitionStatus]
    job_graph_run_ids: _containers.RepeatedScalarFieldContainer[str]
    time_range: TimeRange
    limit: int
    offset: int
    order_by: OrderBy
    def __init__(self, partition_refs: _Optional[_Iterable[str]] = ..., statuses: _Optional[_Iterable[_Union[PartitionStatus, str]]] = ..., job_graph_run_ids: _Optional[_Iterable[str]] = ..., time_range: _Optional[_Union[TimeRange, _Mapping]] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ..., order_by: _Optional[_Union[OrderBy, _Mapping]] = ...) -> None: ...

class PartitionEventQueryResult(_message.Message):
    __slots__ = ("events", "total_count", "as_of_index")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PartitionEvent]
    total_count: int
    as_of_index: int
    def __init__(self, events: _Optional[_Iterable[_Union[PartitionEvent, _Mapping]]] = ..., total_count: _Optional[int] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class EventStreamFilter(_message.Message):
    __slots__ = ("partition_refs", "statuses", "since")
    PARTITION_REFS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    partition_refs: _containers.RepeatedScalarFieldContainer[str]
    statuses: _containers.RepeatedScalarFieldContainer[PartitionStatus]
    since: int
    def __init__(self, partition_refs: _Optional[_Iterable[str]] = ..., statuses: _Optional[_Iterable[_Union[PartitionStatus, str]]] = ..., since: _Optional[int] = ...) -> None: ...

class AppendPartitionEventRequest(_message.Message):
    __slots__ = ("event", "expected")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    event: PartitionEvent
    expected: int
    def __init__(self, event: _Optional[_Union[PartitionEvent, _Mapping]] = ..., expected: _Optional[int] = ...) -> None: ...

class AppendPartitionEventResponse(_message.Message):
    __slots__ = ("index", "created_at", "duplicate")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    index: int
    created_at: int
    duplicate: bool
    def __init__(self, index: _Optional[int] = ..., created_at: _Optional[int] = ..., duplicate: bool = ...) -> None: ...

class GetLatestPartitionEventRequest(_message.Message):
    __slots__ = ("partition_ref", "min_index")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    MIN_INDEX_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    min_index: int
    def __init__(self, partition_ref: _Optional[str] = ..., min_index: _Optional[int] = ...) -> None: ...

class RequestOptions(_message.Message):
    __slots__ = ("allow_delegation", "timeout_seconds")
    ALLOW_DELEGATION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    allow_delegation: bool
    timeout_seconds: float
    def __init__(self, allow_delegation: bool = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class RequestPartitionRequest(_message.Message):
    __slots__ = ("partition_ref", "client_id", "options")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    client_id: str
    options: RequestOptions
    def __init__(self, partition_ref: _Optional[str] = ..., client_id: _Optional[str] = ..., options: _Optional[_Union[RequestOptions, _Mapping]] = ...) -> None: ...

class RequestResult(_message.Message):
    __slots__ = ("available", "delegated", "building")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_FIELD_NUMBER: _ClassVar[int]
    BUILDING_FIELD_NUMBER: _ClassVar[int]
    available: PartitionLocation
    delegated: DelegationToken
    building: BuildToken
    def __init__(self, available: _Optional[_Union[PartitionLocation, _Mapping]] = ..., delegated: _Optional[_Union[DelegationToken, _Mapping]] = ..., building: _Optional[_Union[BuildToken, _Mapping]] = ...) -> None: ...

class PartitionLocation(_message.Message):
    __slots__ = ("partition_ref", "manifest", "index", "log_id")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    manifest: PartitionManifest
    index: int
    log_id: str
    def __init__(self, partition_ref: _Optional[str] = ..., manifest: _Optional[_Union[PartitionManifest, _Mapping]] = ..., index: _Optional[int] = ..., log_id: _Optional[str] = ...) -> None: ...

class DelegationToken(_message.Message):
    __slots__ = ("partition_ref", "job_graph_run_id", "log_id", "estimated_completion")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_COMPLETION_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    job_graph_run_id: str
    log_id: str
    estimated_completion: int
    def __init__(self, partition_ref: _Optional[str] = ..., job_graph_run_id: _Optional[str] = ..., log_id: _Optional[str] = ..., estimated_completion: _Optional[int] = ...) -> None: ...

class BuildToken(_message.Message):
    __slots__ = ("partition_ref", "job_graph_run_id", "started_at")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    job_graph_run_id: str
    started_at: int
    def __init__(self, partition_ref: _Optional[str] = ..., job_graph_run_id: _Optional[str] = ..., started_at: _Optional[int] = ...) -> None: ...

class GetActiveBuildStatusRequest(_message.Message):
    __slots__ = ("partition_ref",)
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    def __init__(self, partition_ref: _Optional[str] = ...) -> None: ...

class ActiveBuildStatus(_message.Message):
    __slots__ = ("builds", "as_of_index", "truncated")
    BUILDS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    builds: _containers.RepeatedCompositeFieldContainer[ActiveBuild]
    as_of_index: int
    truncated: bool
    def __init__(self, builds: _Optional[_Iterable[_Union[ActiveBuild, _Mapping]]] = ..., as_of_index: _Optional[int] = ..., truncated: bool = ...) -> None: ...

class ActiveBuild(_message.Message):
    __slots__ = ("partition_ref", "job_graph_run_id", "status", "requesting_clients", "started_at")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REQUESTING_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    job_graph_run_id: str
    status: PartitionStatus
    requesting_clients: _containers.RepeatedScalarFieldContainer[str]
    started_at: int
    def __init__(self, partition_ref: _Optional[str] = ..., job_graph_run_id: _Optional[str] = ..., status: _Optional[_Union[PartitionStatus, str]] = ..., requesting_clients: _Optional[_Iterable[str]] = ..., started_at: _Optional[int] = ...) -> None: ...

class GetDependencyGraphRequest(_message.Message):
    __slots__ = ("partition_ref", "depth")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    depth: int
    def __init__(self, partition_ref: _Optional[str] = ..., depth: _Optional[int] = ...) -> None: ...

class DependencyGraph(_message.Message):
    __slots__ = ("nodes", "edges", "as_of_index", "truncated")
    NODES_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[DependencyNode]
    edges: _containers.RepeatedCompositeFieldContainer[DependencyEdge]
    as_of_index: int
    truncated: bool
    def __init__(self, nodes: _Optional[_Iterable[_Union[DependencyNode, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[DependencyEdge, _Mapping]]] = ..., as_of_index: _Optional[int] = ..., truncated: bool = ...) -> None: ...

class DependencyNode(_message.Message):
    __slots__ = ("partition_ref", "status", "last_updated", "job_label")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_FIELD_NUMBER: _ClassVar[int]
    JOB_LABEL_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    status: PartitionStatus
    last_updated: int
    job_label: str
    def __init__(self, partition_ref: _Optional[str] = ..., status: _Optional[_Union[PartitionStatus, str]] = ..., last_updated: _Optional[int] = ..., job_label: _Optional[str] = ...) -> None: ...

class DependencyEdge(_message.Message):
    __slots__ = ("source", "target", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[DependencyEdge.Kind]
        DEPENDS_ON: _ClassVar[DependencyEdge.Kind]
        PRODUCES: _ClassVar[DependencyEdge.Kind]
    KIND_UNSPECIFIED: DependencyEdge.Kind
    DEPENDS_ON: DependencyEdge.Kind
    PRODUCES: DependencyEdge.Kind
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    kind: DependencyEdge.Kind
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., kind: _Optional[_Union[DependencyEdge.Kind, str]] = ...) -> None: ...

class ListJobGraphRunsRequest(_message.Message):
    __slots__ = ("states", "partition_ref", "client_id", "time_range", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_RANGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    partition_ref: str
    client_id: str
    time_range: TimeRange
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[str]] = ..., partition_ref: _Optional[str] = ..., client_id: _Optional[str] = ..., time_range: _Optional[_Union[TimeRange, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobGraphRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token", "as_of_index")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[JobGraphRun]
    next_page_token: str
    as_of_index: int
    def __init__(self, runs: _Optional[_Iterable[_Union[JobGraphRun, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class JobGraphRun(_message.Message):
    __slots__ = ("job_graph_run_id", "state", "requested_partitions", "client_id", "received_at", "updated_at", "index", "reason")
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_graph_run_id: str
    state: str
    requested_partitions: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    received_at: int
    updated_at: int
    index: int
    reason: str
    def __init__(self, job_graph_run_id: _Optional[str] = ..., state: _Optional[str] = ..., requested_partitions: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ..., received_at: _Optional[int] = ..., updated_at: _Optional[int] = ..., index: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ListPartitionsRequest(_message.Message):
    __slots__ = ("statuses", "partition_patterns", "job_graph_run_id", "page_size", "page_token")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedScalarFieldContainer[PartitionStatus]
    partition_patterns: _containers.RepeatedScalarFieldContainer[str]
    job_graph_run_id: str
    page_size: int
    page_token: str
    def __init__(self, statuses: _Optional[_Iterable[_Union[PartitionStatus, str]]] = ..., partition_patterns: _Optional[_Iterable[str]] = ..., job_graph_run_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPartitionsResponse(_message.Message):
    __slots__ = ("partitions", "next_page_token", "as_of_index")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_INDEX_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    next_page_token: str
    as_of_index: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., as_of_index: _Optional[int] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition_ref", "status", "index", "updated_at", "job_graph_run_id", "job_run_id", "requesting_clients", "available_index", "available_from_run", "manifest", "reason", "has_data", "job_label", "upstream_deps", "requested_at", "available_at", "joined_runs", "delegated_to_log", "delegated_to_run_id", "cause_partition", "message", "row")
    PARTITION_REF_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    JOB_GRAPH_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTING_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_INDEX_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FROM_RUN_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_DATA_FIELD_NUMBER: _ClassVar[int]
    JOB_LABEL_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_DEPS_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_AT_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_AT_FIELD_NUMBER: _ClassVar[int]
    JOINED_RUNS_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_TO_LOG_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_TO_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    partition_ref: str
    status: PartitionStatus
    index: int
    updated_at: int
    job_graph_run_id: str
    job_run_id: str
    requesting_clients: _containers.RepeatedScalarFieldContainer[str]
    available_index: int
    available_from_run: str
    manifest: PartitionManifest
    reason: str
    has_data: bool
    job_label: str
    upstream_deps: _containers.RepeatedScalarFieldContainer[str]
    requested_at: int
    available_at: int
    joined_runs: _containers.RepeatedScalarFieldContainer[str]
    delegated_to_log: str
    delegated_to_run_id: str
    cause_partition: str
    message: str
    row: str
    def __init__(self, partition_ref: _Optional[str] = ..., status: _Optional[_Union[PartitionStatus, str]] = ..., index: _Optional[int] = ..., updated_at: _Optional[int] = ..., job_graph_run_id: _Optional[str] = ..., job_run_id: _Optional[str] = ..., requesting_clients: _Optional[_Iterable[str]] = ..., available_index: _Optional[int] = ..., available_from_run: _Optional[str] = ..., manifest: _Optional[_Union[PartitionManifest, _Mapping]] = ..., reason: _Optional[str] = ..., has_data: bool = ..., job_label: _Optional[str] = ..., upstream_deps: _Optional[_Iterable[str]] = ..., requested_at: _Optional[int] = ..., available_at: _Optional[int] = ..., joined_runs: _Optional[_Iterable[str]] = ..., delegated_to_log: _Optional[str] = ..., delegated_to_run_id: _Optional[str] = ..., cause_partition: _Optional[str] = ..., message: _Optional[str] = ..., row: _Optional[str] = ...) -> None: ...
