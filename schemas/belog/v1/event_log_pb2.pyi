from belog.v1 import events_pb2 as _events_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendRequest(_message.Message):
    __slots__ = ("event", "at")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    event: _events_pb2.BuildEvent
    at: int
    def __init__(self, event: _Optional[_Union[_events_pb2.BuildEvent, _Mapping]] = ..., at: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("receipt",)
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    receipt: _events_pb2.Receipt
    def __init__(self, receipt: _Optional[_Union[_events_pb2.Receipt, _Mapping]] = ...) -> None: ...

class AppendBatchRequest(_message.Message):
    __slots__ = ("events", "at", "atomic")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_events_pb2.BuildEvent]
    at: int
    atomic: bool
    def __init__(self, events: _Optional[_Iterable[_Union[_events_pb2.BuildEvent, _Mapping]]] = ..., at: _Optional[int] = ..., atomic: bool = ...) -> None: ...

class AppendBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("receipt", "problem")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    receipt: _events_pb2.Receipt
    problem: _events_pb2.Problem
    def __init__(self, receipt: _Optional[_Union[_events_pb2.Receipt, _Mapping]] = ..., problem: _Optional[_Union[_events_pb2.Problem, _Mapping]] = ...) -> None: ...

class GetEventRequest(_message.Message):
    __slots__ = ("index", "event_id")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    index: int
    event_id: str
    def __init__(self, index: _Optional[int] = ..., event_id: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("min_index",)
    MIN_INDEX_FIELD_NUMBER: _ClassVar[int]
    min_index: int
    def __init__(self, min_index: _Optional[int] = ...) -> None: ...

class LogStatus(_message.Message):
    __slots__ = ("next_idx", "root", "log_id", "instance", "applied", "lag_records", "is_replica", "lifecycle_version", "next_position", "applied_created_at")
    NEXT_IDX_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_REPLICA_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_POSITION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    next_idx: int
    root: bytes
    log_id: str
    instance: str
    applied: int
    lag_records: int
    is_replica: bool
    lifecycle_version: int
    next_position: int
    applied_created_at: int
    def __init__(self, next_idx: _Optional[int] = ..., root: _Optional[bytes] = ..., log_id: _Optional[str] = ..., instance: _Optional[str] = ..., applied: _Optional[int] = ..., lag_records: _Optional[int] = ..., is_replica: bool = ..., lifecycle_version: _Optional[int] = ..., next_position: _Optional[int] = ..., applied_created_at: _Optional[int] = ...) -> None: ...
