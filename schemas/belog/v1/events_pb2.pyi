from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BuildEvent(_message.Message):
    __slots__ = ("index", "created_at", "event_id", "event_type", "subject_kind", "subject_id", "actor", "occurred_at", "payload", "payload_digest", "caused_by", "expected", "body")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    index: int
    created_at: int
    event_id: str
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    occurred_at: int
    payload: bytes
    payload_digest: bytes
    caused_by: str
    expected: int
    body: _struct_pb2.Struct
    def __init__(self, index: _Optional[int] = ..., created_at: _Optional[int] = ..., event_id: _Optional[str] = ..., event_type: _Optional[str] = ..., subject_kind: _Optional[str] = ..., subject_id: _Optional[str] = ..., actor: _Optional[str] = ..., occurred_at: _Optional[int] = ..., payload: _Optional[bytes] = ..., payload_digest: _Optional[bytes] = ..., caused_by: _Optional[str] = ..., expected: _Optional[int] = ..., body: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class EventFilter(_message.Message):
    __slots__ = ("partition_refs", "partition_patterns", "job_labels", "job_run_ids", "build_request_ids", "task_ids", "event_types", "subject_kinds", "actors", "created_from", "created_to", "occurred_from", "occurred_to")
    PARTITION_REFS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    JOB_LABELS_FIELD_NUMBER: _ClassVar[int]
    JOB_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    BUILD_REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPES_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_KINDS_FIELD_NUMBER: _ClassVar[int]
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FROM_FIELD_NUMBER: _ClassVar[int]
    CREATED_TO_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_FROM_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_TO_FIELD_NUMBER: _ClassVar[int]
    partition_refs: _containers.RepeatedScalarFieldContainer[str]
    partition_patterns: _containers.RepeatedScalarFieldContainer[str]
    job_labels: _containers.RepeatedScalarFieldContainer[str]
    job_run_ids: _containers.RepeatedScalarFieldContainer[str]
    build_request_ids: _containers.RepeatedScalarFieldContainer[str]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    event_types: _containers.RepeatedScalarFieldContainer[str]
    subject_kinds: _containers.RepeatedScalarFieldContainer[str]
    actors: _containers.RepeatedScalarFieldContainer[str]
    created_from: int
    created_to: int
    occurred_from: int
    occurred_to: int
    def __init__(self, partition_refs: _Optional[_Iterable[str]] = ..., partition_patterns: _Optional[_Iterable[str]] = ..., job_labels: _Optional[_Iterable[str]] = ..., job_run_ids: _Optional[_Iterable[str]] = ..., build_request_ids: _Optional[_Iterable[str]] = ..., task_ids: _Optional[_Iterable[str]] = ..., event_types: _Optional[_Iterable[str]] = ..., subject_kinds: _Optional[_Iterable[str]] = ..., actors: _Optional[_Iterable[str]] = ..., created_from: _Optional[int] = ..., created_to: _Optional[int] = ..., occurred_from: _Optional[int] = ..., occurred_to: _Optional[int] = ...) -> None: ...

class EventPage(_message.Message):
    __slots__ = ("events", "next_idx", "has_more")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_IDX_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[BuildEvent]
    next_idx: int
    has_more: bool
    def __init__(self, events: _Optional[_Iterable[_Union[BuildEvent, _Mapping]]] = ..., next_idx: _Optional[int] = ..., has_more: bool = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("index", "created_at", "event_id", "duplicate")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    index: int
    created_at: int
    event_id: str
    duplicate: bool
    def __init__(self, index: _Optional[int] = ..., created_at: _Optional[int] = ..., event_id: _Optional[str] = ..., duplicate: bool = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "message", "hint", "index", "subject", "state", "last_index", "allowed", "owner", "retriable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    hint: str
    index: int
    subject: str
    state: str
    last_index: int
    allowed: _containers.RepeatedScalarFieldContainer[str]
    owner: str
    retriable: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., index: _Optional[int] = ..., subject: _Optional[str] = ..., state: _Optional[str] = ..., last_index: _Optional[int] = ..., allowed: _Optional[_Iterable[str]] = ..., owner: _Optional[str] = ..., retriable: bool = ...) -> None: ...
