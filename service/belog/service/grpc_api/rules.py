"""Who may call what: one rule for every rpc that is served. Pure.

`guard.Guard` enforces it, and an rpc without a rule is refused. What a rule cannot say, because it
depends on what is found, is done where it is found; `scope` says how.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from belog.service.access import Role
from belog.v1 import catalog_pb2, graph_pb2

__all__ = ["RULES", "Rule", "Scope"]

Scope = Literal["open", "log", "filter", "named", "rows", "events"]
"""What grants that are for some partitions only get.

- `open`: nothing about partitions is told, and nobody is asked for a token.
- `log`: nothing about single partitions is told.
- `filter`: events that concern their partitions.
- `named`: partitions that the request names must be theirs.
- `rows`: named ones must be theirs, and what else there is of others is left out.
- `events`: each event must be theirs.
"""


class Rule(Struct, frozen=True):
    """Who may call an rpc."""

    role: Role | None
    """The least role; None for everyone, without a token."""
    scope: Scope
    refs: Callable[[Any], Iterable[str]] | None = None
    """The partitions that a request names, which the caller's patterns must match."""


def _filtered(request: graph_pb2.ListEventsRequest) -> Iterable[str]:
    return request.filter.partition_refs


def _ref(request: catalog_pb2.RequestPartitionRequest) -> Iterable[str]:
    return (request.partition_ref,)


def _ref_if_any(request: catalog_pb2.GetActiveBuildStatusRequest) -> Iterable[str]:
    return (request.partition_ref,) if request.partition_ref else ()


def _refs(request: catalog_pb2.PartitionEventQuery) -> Iterable[str]:
    return request.partition_refs


def _event_ref(request: catalog_pb2.AppendPartitionEventRequest) -> Iterable[str]:
    return (request.event.partition_ref,)


_OPEN: Final = Rule(None, "open")

RULES: Final[Mapping[str, Rule]] = {
    "/belog.v1.GraphService/ListEvents": Rule(Role.READ, "filter", _filtered),
    "/belog.v1.GraphService/StreamEvents": Rule(Role.READ, "filter", _filtered),
    "/belog.v1.EventLogService/Append": Rule(Role.APPEND, "events"),
    "/belog.v1.EventLogService/AppendBatch": Rule(Role.APPEND, "events"),
    "/belog.v1.EventLogService/GetEvent": Rule(Role.READ, "events"),
    "/belog.v1.EventLogService/GetStatus": Rule(Role.READ, "log"),
    "/belog.v1.EnhancedCatalog/ListJobGraphRuns": Rule(Role.READ, "rows", _ref_if_any),
    "/belog.v1.EnhancedCatalog/ListPartitions": Rule(Role.READ, "rows"),
    "/belog.v1.EnhancedCatalog/AppendPartitionEvent": Rule(Role.APPEND, "named", _event_ref),
    "/belog.v1.EnhancedCatalog/GetLatestPartitionEvent": Rule(Role.READ, "named", _ref),
    "/belog.v1.EnhancedCatalog/QueryPartitionEvents": Rule(Role.READ, "filter", _refs),
    "/belog.v1.EnhancedCatalog/StreamPartitionEvents": Rule(Role.READ, "filter", _refs),
    "/belog.v1.EnhancedCatalog/RequestPartition": Rule(Role.APPEND, "named", _ref),
    "/belog.v1.EnhancedCatalog/GetActiveBuildStatus": Rule(Role.READ, "rows", _ref_if_any),
    "/belog.v1.EnhancedCatalog/GetDependencyGraph": Rule(Role.READ, "rows", _ref),
    "/grpc.health.v1.Health/Check": _OPEN,
    "/grpc.health.v1.Health/List": _OPEN,
    "/grpc.health.v1.Health/Watch": _OPEN,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _OPEN,
}
"""Full method name → rule."""
