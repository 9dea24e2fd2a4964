"""The table of who may call what: whole, and nothing in it that is not there."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from belog.schemas.errors import InvalidInput, LimitExceeded
from belog.service.access import Role
from belog.service.grpc_api.rules import RULES
from belog.service.grpc_api.settings import count_within, index_from
from tests.grpc_serving import MODULES, request_class

SERVED = (*MODULES, health_pb2, reflection_pb2)


def methods(modules: tuple[Any, ...]) -> Iterator[MethodDescriptor]:
    for module in modules:
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_every_rpc_of_every_service_has_a_rule_and_every_rule_an_rpc() -> None:
    assert {path(method) for method in methods(SERVED)} == set(RULES)


def test_only_health_and_reflection_are_open() -> None:
    opened = {name for name, rule in RULES.items() if rule.role is None}
    assert opened == {path(m) for m in methods((health_pb2, reflection_pb2))}
    assert all((rule.role is None) == (rule.scope == "open") for rule in RULES.values())


def test_what_writes_needs_the_role_append() -> None:
    writing = {name.rpartition("/")[2] for name, rule in RULES.items() if rule.role == Role.APPEND}
    assert writing == {"Append", "AppendBatch", "AppendPartitionEvent", "RequestPartition"}


@pytest.mark.parametrize("method", list(methods(MODULES)), ids=path)
def test_a_rule_names_the_partitions_of_its_own_request(method: MethodDescriptor) -> None:
    rule = RULES[path(method)]
    if rule.refs is not None:
        assert not any(rule.refs(request_class(method)()))
    elif rule.scope == "named":
        pytest.fail("partitions are named, and none are looked at")


def test_bounds_of_counts_and_indices() -> None:
    def limit(value: int) -> int:
        return count_within("limit", value, otherwise=100, limit="most", limit_value=10)

    assert [limit(0), limit(1), limit(10)] == [10, 1, 10]
    with pytest.raises(LimitExceeded):
        limit(11)
    with pytest.raises(InvalidInput):
        limit(-1)
    assert index_from("since_idx", 0) == 0
    with pytest.raises(InvalidInput):
        index_from("since_idx", -1)
