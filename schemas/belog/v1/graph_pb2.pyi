from belog.v1 import events_pb2 as _events_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListEventsRequest(_message.Message):
    __slots__ = ("since_idx", "filter", "limit", "wait_ms")
    SINCE_IDX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    since_idx: int
    filter: _events_pb2.EventFilter
    limit: int
    wait_ms: int
    def __init__(self, since_idx: _Optional[int] = ..., filter: _Optional[_Union[_events_pb2.EventFilter, _Mapping]] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class StreamEventsRequest(_message.Message):
    __slots__ = ("since_idx", "filter")
    SINCE_IDX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    since_idx: int
    filter: _events_pb2.EventFilter
    def __init__(self, since_idx: _Optional[int] = ..., filter: _Optional[_Union[_events_pb2.EventFilter, _Mapping]] = ...) -> None: ...
