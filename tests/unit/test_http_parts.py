"""The pure parts of the HTTP service: routes by paths, parameters, problems, the document."""

import json

import msgspec
import pytest

from belog.schemas.errors import (
    BelogError,
    Closed,
    Gone,
    IndexConflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    Unauthenticated,
    status_of,
)
from belog.schemas.wire import json_to_message
from belog.service.http_api.answers import problem
from belog.service.http_api.app import HANDLERS
from belog.service.http_api.openapi import document
from belog.service.http_api.parameters import Parameter, parse_query
from belog.service.http_api.route_table import Reach, RouteEntry, RouteTable
from belog.service.http_api.routes import ROUTES
from belog.v1 import http_pb2


def all_errors(cls: type[BelogError] = BelogError) -> list[type[BelogError]]:
    return [cls, *(below for sub in cls.__subclasses__() for below in all_errors(sub))]


def test_every_route_has_a_handler_and_every_handler_a_route() -> None:
    assert sorted(HANDLERS) == sorted((entry.method, entry.path) for entry in ROUTES)


@pytest.mark.parametrize(
    ("path", "wanted", "names"),
    [
        ("/events", "/events", {}),
        ("/events/stream", "/events/stream", {}),
        ("/events/7", "/events/{index}", {"index": "7"}),
        ("/partitions/a", "/partitions/{ref}", {"ref": "a"}),
        ("/partitions/a/b", "/partitions/{ref}", {"ref": "a%2Fb"}),
        ("/partitions/events", "/partitions/{ref}", {"ref": "events"}),
        ("/partitions/a/events", "/partitions/{ref}/events", {"ref": "a"}),
        ("/partitions/a%2Fevents", "/partitions/{ref}", {"ref": "a%2Fevents"}),
        ("/partitions/a%2fb/explain", "/partitions/{ref}/explain", {"ref": "a%2Fb"}),
        ("/partitions//graph", "/partitions/{ref}", {"ref": "%2Fgraph"}),
        ("/partitions/%7Bref%7D", "/partitions/{ref}", {"ref": "%7Bref%7D"}),
        ("/jobs/labels", "/jobs/labels", {}),
        ("/jobs/%6Cabels", "/jobs/{job_run_id}", {"job_run_id": "%6Cabels"}),
        ("/jobs/labels/x/metrics", "/jobs/labels/{label}/metrics", {"label": "x"}),
        ("/tasks/b/t/cancel", "/tasks/{build_request_id}/{task_id}/cancel", None),
    ],
)
def test_paths_lead_to_routes(path: str, wanted: str, names: dict[str, str] | None) -> None:
    found = RouteTable(ROUTES).find(path)
    assert found is not None
    (entry, *_) = found.methods.values()
    assert entry.path == wanted
    assert names is None or found.names == names


@pytest.mark.parametrize(
    "path", ["", "/", "x", "//", "/partitions/", "/builds/", "/jobs/a/b", "/events/", "/{x}"]
)
def test_other_paths_lead_nowhere(path: str) -> None:
    assert RouteTable(ROUTES).find(path) is None


def test_a_route_is_there_once() -> None:
    entry = RouteEntry(method="GET", path="/x", reach=Reach.OPEN, summary="x")
    table = RouteTable([entry])
    with pytest.raises(InvalidInput):
        table.add(entry)
    table.add(msgspec.structs.replace(entry, method="POST"))
    assert len(table.entries) == 2


PARAMETERS = (
    Parameter("n", "int", "", low=0),
    Parameter("s", "seconds", ""),
    Parameter("t", "text", ""),
    Parameter("l", "texts", ""),
    Parameter("c", "choice", "", choices=("x", "y")),
)


def test_queries_are_read() -> None:
    query = b"n=5&s=1.5&t=a+b%2B%C3%A9&l=1&l=2&c=x&"
    wanted = {"n": 5, "s": 1.5, "t": "a b+é", "l": ["1", "2"], "c": "x"}
    assert parse_query(PARAMETERS, query) == wanted


@pytest.mark.parametrize(
    "query",
    [
        *(b"n=-1", b"n=1.0", b"n=", b"n=99999999999999999999", b"n=1&n=1", b"n=%D9%A3"),
        *(b"s=-1", b"s=nan", b"s=1e9", b"s=inf", b"c=z", b"other=1", b"t=%FF", b"\xff=1"),
    ],
)
def test_other_queries_are_refused(query: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_query(PARAMETERS, query)


def test_queries_have_a_bound() -> None:
    with pytest.raises(LimitExceeded):
        parse_query(PARAMETERS, b"&".join([b"l=1"] * 2_000))


@pytest.mark.parametrize(
    "error",
    [
        Gone("behind", horizon=5, snapshot="s-5"),
        IndexConflict("moved", next_idx=7),
        LimitExceeded("x", limit="X", limit_value=1, value=2),
        OutcomeUnknown("lost", event_id=bytes(16)),
        Overloaded("full"),
        Closed("stopping"),
        Unauthenticated("who?"),
        NotFound("none", index=3, subject="build:b"),
    ],
)
def test_problems(error: BelogError) -> None:
    answer = problem(error)
    plain = json.loads(answer.body)
    json_to_message(plain, http_pb2.HttpProblem)
    assert answer.status == plain["status"] == status_of(error).http
    assert plain["code"] == error.code
    names = {name for name, _ in answer.headers}
    assert (b"retry-after" in names) == (answer.status == 503)
    assert (b"www-authenticate" in names) == (answer.status == 401)
    if isinstance(error, Gone):
        assert (plain["horizon"], plain["snapshot"]) == ("5", "s-5")


def test_every_error_has_words_for_its_code() -> None:
    codes = {cls.code for cls in all_errors()}
    assert len(codes) > 25
    assert all(code.replace("_", "").islower() for code in codes)


def test_the_document_names_roles_and_tokens() -> None:
    found = document(ROUTES, "x")
    operations = [operation for path in found["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(ROUTES)
    open_ones = [operation for operation in operations if operation["x-reach"] == "open"]
    assert {operation["x-role"] for operation in open_ones} == {"none"}
    assert all(operation["security"] for operation in operations if operation not in open_ones)
