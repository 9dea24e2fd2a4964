"""The HTTP service over a real socket and a real log: what is answered, and to whom."""

import gzip
import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from belog.client.problems import error_from, problem_in
from belog.schemas.errors import Forbidden
from belog.schemas.fold import SubjectState
from belog.schemas.payload import JsonValue, encode_payload
from belog.schemas.wire import json_to_message
from belog.service import requesting
from belog.service.access import Role
from belog.service.binding import own_hosts
from belog.service.configuration import ServerSection
from belog.service.http_api.openapi import messages
from belog.service.http_api.route_table import Reach, RouteEntry
from belog.service.http_api.routes import ROUTES
from tests.http_serving import TOKENS, Served, access, bearer, lowered, served
from tests.servers import eventually

REFS = [
    *("a/b", "s3://lake/day=1", "q?x=1&y#z", "100%", "a%2Fb", "..", "a/../b", "a//b", " ", "é/ü"),
    *("x/events", "x/request", "events", "a+b", "/", "a/", "{ref}", "x/explain", "\\", "'\""),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def good(answer: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    assert answer.status_code == 200, answer.text
    return answer.json()


def bad(answer: httpx.Response, status: int, code: str) -> Any:  # noqa: ANN401 - JSON
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    plain = answer.json()
    assert (plain["status"], plain["code"]) == (status, code)
    assert plain["type"] == f"urn:belog:problem:{code}"
    assert plain["title"]
    assert plain["detail"]
    return plain


def run_a_build(server: Served, build: str, *refs: str) -> None:
    """A build whose first partition is made and whose others fail."""
    server.append("v1.build.received", build, requested_partitions=list(refs), client_id="me")
    server.append("v1.build.planning", build)
    server.append("v1.build.analysis_completed", build, task_count=1)
    server.append("v1.build.executing", build)
    for n, ref in enumerate(refs):
        run, name = f"{build}-run-{n}", {"build_request_id": build}
        job = {**name, "task_id": f"t{n}", "job_label": "//etl:load"}
        server.append("v1.partition.requested", ref, **name, requesting_clients=["me"])
        server.append("v1.job.scheduled", run, **job, outputs=[ref], inputs=["in"])
        server.append(
            "v1.partition.scheduled", ref, **job, job_run_id=run, upstream_deps=["in", *refs[:n]]
        )
        server.append("v1.job.running", run, worker="w")
        server.append("v1.partition.building", ref, **name, job_run_id=run)
        if n:
            server.append("v1.job.failed", run, reason="broken", exit_code=3)
            server.append("v1.partition.failed", ref, **name, job_run_id=run, reason="broken")
        else:
            manifest: JsonValue = {
                "outputs": [ref],
                "inputs": [{"ref": "in", "index": 1}],
                "size_bytes": 2**50,
            }
            server.append("v1.job.completed", run)
            answer = server.append(
                "v1.partition.available", ref, **name, job_run_id=run, manifest=manifest
            )
            good(answer)
    server.settle()


# --- access


def path_of(entry: RouteEntry) -> str:
    """A path of a route, about what lies outside of `lake/**`."""
    names = {"ref": "sea%2Fx", "index": "0", "build_request_id": "b", "task_id": "t0"}
    names |= {"job_run_id": "b-run-0", "label": "x"}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], entry.path)


def test_the_table_of_routes_says_who_may_call_what(tmp_path: Path) -> None:
    with served(tmp_path, who=access()) as server:
        server.client.headers.update(bearer("admin"))
        run_a_build(server, "b", "sea/x")
        server.client.headers.pop("authorization")
        entries = {(entry.method, entry.path): entry for entry in server.app.state.table.entries}
        routes = [
            (method, route.path)  # type: ignore[attr-defined]
            for route in server.app.routes
            for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
        ]
        assert sorted(routes) == sorted(entries), "a route without an entry, or the other way"
        for entry in entries.values():
            check_access(server, entry)


def check_access(server: Served, entry: RouteEntry) -> None:
    def status(headers: dict[str, str]) -> int:
        if entry.is_stream and server_lets_in(headers):
            with server.client.stream(entry.method, path_of(entry), headers=headers) as answer:
                return answer.status_code
        sent: dict[str, str] | None = {} if entry.method == "POST" else None
        path = path_of(entry)
        return server.client.request(entry.method, path, headers=headers, json=sent).status_code

    def server_lets_in(headers: dict[str, str]) -> bool:
        return any(token in headers.get("authorization", "") for token in TOKENS.values())

    where = f"{entry.method} {entry.path}"
    if entry.reach is Reach.OPEN:
        assert status({}) == 200, where
        return
    for wrong in ({}, {"authorization": "Bearer belog_x"}, {"authorization": "Basic eDp5"}):
        answer = server.client.request(entry.method, path_of(entry), headers=wrong, content=b"")
        assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True), where
    assert (status(bearer("reader")) == 403) == (entry.role > Role.READ), where
    assert status(bearer("admin")) not in {401, 403}, where
    outside = entry.reach in {Reach.WHOLE, Reach.PARTITION, Reach.SUBJECT}
    assert (status(bearer("lake")) == 403) == outside, where
    if any(parameter.name == "partition_pattern" for parameter in entry.parameters):
        answer = server.client.request(
            entry.method, path_of(entry) + "?partition_pattern=**", headers=bearer("lake")
        )
        assert answer.status_code == 403, where


def test_a_client_for_some_partitions_sees_these_alone(tmp_path: Path) -> None:
    with served(tmp_path, who=access()) as server:
        server.client.headers.update(bearer("admin"))
        run_a_build(server, "b1", "sea/x", "sea/y")
        run_a_build(server, "b2", "lake/x", "lake/y")
        client = server.client
        client.headers.update(bearer("lake"))
        for path, name, found in [
            ("/partitions?order=id", "partitions", ["lake/x", "lake/y"]),
            ("/builds", "builds", ["b2"]),
            ("/jobs?order=id", "job_runs", ["b2-run-0", "b2-run-1"]),
            ("/tasks?order=id", "tasks", ["t0", "t1"]),
        ]:
            listed = good(client.get(path))[name]
            key = {"partitions": "partition_ref", "builds": "build_request_id"}.get(
                name, "job_run_id" if name == "job_runs" else "task_id"
            )
            assert [row[key] for row in listed] == found
        events = good(client.get("/events"))["events"]
        assert events
        assert not [e for e in events if "sea" in json.dumps(e["body"]) + e["subject_id"]]
        assert good(client.get(f"/events/{events[0]['index']}")) == events[0]
        bad(client.get("/events/0"), 404, "not_found")
        bad(client.get("/partitions?ref=sea/x"), 403, "forbidden")
        bad(client.post("/partitions/sea%2Fz/request"), 403, "forbidden")
        bad(client.get("/builds/b1"), 403, "forbidden")
        explained = good(client.get("/partitions/lake%2Fy/explain"))
        assert "in" not in {cause["subject_id"] for cause in explained["causes"]}
        event = {"event_type": "v1.partition.observed", "subject_id": "sea/z"}
        bad(client.post("/events", json=event), 403, "forbidden")
        event = {"event_type": "v1.partition.observed", "subject_id": "lake/z", "actor": "admin"}
        bad(client.post("/events", json=event), 403, "forbidden")
        batch = {"events": [{**event, "actor": ""}, {**event, "subject_id": "sea/z"}]}
        results = good(client.post("/events", json=batch))["results"]
        assert [next(iter(result)) for result in results] == ["receipt", "problem"]
        written = good(client.get(f"/events/{results[0]['receipt']['index']}"))
        assert written["actor"] == "lake"


def test_pages_of_other_sites_may_not_write_without_a_token(server: Served) -> None:
    other = {"origin": "http://evil.example"}
    bad(server.client.post("/partitions/x/request", headers=other), 403, "forbidden")
    own = {"origin": server.url}
    good(server.client.post("/partitions/x/request", headers=own))


def test_without_tokens_only_its_own_names_are_answered(tmp_path: Path) -> None:
    own = own_hosts(ServerSection(hosts=("Belog.Example",)))
    assert own_hosts(ServerSection(host="0.0.0.0", allow_open=True)) is None  # noqa: S104
    with served(tmp_path, settings=lowered(hosts=own)) as server:

        def call(path: str, host: str, **headers: str) -> httpx.Response:
            return server.client.get(path, headers={"host": host, **headers})

        for host in ("evil.example", f"evil.example:{server.port}", "localhost.evil.example", ""):
            for path in ("/events?since=0", "/healthz", "/openapi.json", "/nowhere"):
                found = bad(call(path, host), 421, "misdirected_request")
                assert "server.hosts" in found["hint"]
        rebound = {"host": "evil.example", "origin": "http://evil.example"}
        bad(
            server.client.post("/partitions/x/request", headers=rebound), 421, "misdirected_request"
        )
        names = ("localhost", "127.0.0.1", "[::1]", "10.1.2.3", "belog.example", "me.localhost")
        for host in names:
            for written in (host, f"{host}:{server.port}"):
                good(call("/events?since=0", written))
        told = call("/status", "evil.example").content
        assert isinstance(error_from(problem_in(told), status=421, url=server.url), Forbidden)
    # With tokens a page of another site has none to show.
    with served(tmp_path, settings=lowered(hosts=own), who=access()) as server:
        headers = {"host": "evil.example", **bearer("reader")}
        good(server.client.get("/events?since=0", headers=headers))


# --- answers are the messages of the protos


def test_every_answer_is_its_message(server: Served) -> None:
    run_a_build(server, "b", "lake/x", "lake/y")
    server.append("v1.partition.stale", "lake/x", reason="older", cause_partition="in")
    server.client.post("/partitions/lake%2Fz/request", json={"client_id": "me"})
    server.settle()
    names = {"ref": "lake%2Fx", "index": "1", "build_request_id": "b", "task_id": "t0"}
    names |= {"job_run_id": "b-run-0", "label": quote("//etl:load", safe="")}
    seen = 0
    for entry in ROUTES:
        if not entry.answer or entry.is_stream or entry.method != "GET":
            continue
        path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], entry.path)
        check_message(server.client.get(path), entry.answer)
        seen += 1
    assert seen >= 20
    check_message(
        server.client.get("/active-builds?partition_ref=lake/z"), "ListActiveBuildsResponse"
    )
    check_message(server.client.get("/partitions/lake%2Fy/explain"), "Explanation")
    for path, answer in [
        ("/partitions/lake%2Fz/request", "RequestResult"),
        ("/jobs/b-run-1/cancel", "HttpProblem"),
        ("/tasks/b/t1/cancel", "HttpProblem"),
        ("/builds/b/cancel", "CancelResponse"),
    ]:
        check_message(server.client.post(path, json={}), answer)
    again = server.append("v1.build.planning", "b")
    plain = bad(again, 409, "illegal_transition")
    assert plain["state"] == "cancelled"
    assert plain["allowed"] == []
    check_message(again, "HttpProblem")


def check_message(answer: httpx.Response, name: str) -> None:
    plain = answer.json()
    if name == "HttpProblem":
        assert answer.status_code >= 400
    else:
        assert answer.status_code == 200, answer.text
        if name != "Health":
            assert int(answer.headers["belog-as-of"]) >= 0
    assert answer.headers["belog-log-id"]
    kind = GetMessageClass(messages()[name])
    message = json_to_message(plain, kind)
    whole = json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=name != "HttpProblem",
    )
    if name == "HttpProblem":
        # What is always there, and may be at its default.
        whole.setdefault("retriable", False)
        if "allowed" in plain:
            whole.setdefault("allowed", [])
    assert plain == whole, name


def test_the_document_describes_every_route(server: Served) -> None:
    found = good(server.client.get("/openapi.json"))
    described = {(m.upper(), path) for path, ms in found["paths"].items() for m in ms}
    assert described == {(entry.method, entry.path) for entry in ROUTES}
    text = json.dumps(found)
    for reference in re.findall(r"#/components/schemas/(\w+)", text):
        assert reference in found["components"]["schemas"]
    for name, schema in found["components"]["schemas"].items():
        assert schema["description"], name
        for field, about in schema["properties"].items():
            assert about["description"], f"{name}.{field}"
    assert "text/html" in server.client.get("/docs").headers["content-type"]


# --- refs


def test_refs_hold_any_character(server: Served) -> None:
    for ref in REFS:
        good(server.append("v1.partition.observed", ref, source="here"))
        server.settle()
        listed = good(server.client.get("/partitions", params={"ref": ref}))["partitions"]
        assert [row["partition_ref"] for row in listed] == [ref]
        if ref != "..":  # programs take it out of paths; the list is there for that
            check_paths(server, ref)


def check_paths(server: Served, ref: str) -> None:
    def url(suffix: str = "") -> httpx.URL:
        # Clients read paths in ways of their own: this one is sent as it is.
        raw = f"/partitions/{quote(ref, safe='')}{suffix}".encode()
        return httpx.URL(server.url).copy_with(raw_path=raw)

    get = server.client.get
    assert good(get(url()))["partition_ref"] == ref
    assert good(get(url("/events")))["events"][0]["subject_id"] == ref
    assert good(get(url("/explain")))["partition"]["partition_ref"] == ref
    assert good(get(url("/graph")))["nodes"][0]["partition_ref"] == ref
    asked = good(server.client.post(url("/request")))
    assert asked["available"]["partition_ref"] == ref


def test_refs_with_plain_slashes(server: Served) -> None:
    for ref in ("s3://lake/day=1", "a/events/b", "events/x"):
        good(server.append("v1.partition.observed", ref))
        server.settle()
        assert good(server.client.get(f"/partitions/{ref}"))["partition_ref"] == ref
        assert good(server.client.get(f"/partitions/{ref}/events"))["events"]
    bad(server.client.get("/partitions/%FF"), 400, "invalid")
    bad(server.client.get("/partitions/"), 404, "not_found")


# --- appending


def test_appends_are_answered_one_by_one(server: Served) -> None:
    event = {
        "event_id": str(uuid4()),
        "event_type": "v1.build.received",
        "subject_id": "b",
        "occurred_at": "5",
    }
    first = good(server.client.post("/events", json=event))
    assert first["duplicate"] is False
    again = good(server.client.post("/events", json=event))
    assert again == {**first, "duplicate": True}
    other = {**event, "subject_id": "c"}
    plain = bad(server.client.post("/events", json=other), 409, "event_id_reused")
    assert plain["retriable"] is False
    bad(server.client.post("/events", json={**event, "actor": ""} | {"x": 1}), 400, "invalid_event")
    payload = encode_payload({"requested_partitions": ["a"]})
    camel = {
        "eventType": "v1.build.received",
        "subjectId": "d",
        "payload": b64encode(payload).decode(),
    }
    receipt = good(server.client.post("/events", json=camel))
    stored = good(server.client.get(f"/events/{receipt['index']}"))
    assert stored["body"] == {"requested_partitions": ["a"]}
    assert stored["actor"] == "anonymous"
    assert good(server.client.get(f"/events/{receipt['event_id']}")) == stored
    conflict = bad(server.append("v1.build.completed", "d"), 409, "illegal_transition")
    assert conflict["state"] == "received"
    assert "v1.build.planning" in conflict["allowed"]
    assert conflict["last_index"] == receipt["index"]


def test_batches(server: Served) -> None:
    def event(n: int) -> dict[str, str]:
        return {"event_type": "v1.partition.observed", "subject_id": f"p{n}"}

    wrong = {"event_type": "v1.build.planning", "subject_id": "nobody"}
    batch = {"events": [event(1), wrong, {"event_type": "?"}, event(2)]}
    results = good(server.client.post("/events", json=batch))["results"]
    assert [next(iter(result)) for result in results] == [
        "receipt",
        "problem",
        "problem",
        "receipt",
    ]
    assert results[1]["problem"]["code"] == "illegal_transition"
    assert results[2]["problem"]["code"] == "invalid_event"
    end = int(good(server.client.get("/status"))["next_idx"])
    bad(server.client.post("/events", json={**batch, "atomic": True}), 400, "invalid_event")
    atomic = {"events": [event(3), wrong], "atomic": True}
    bad(server.client.post("/events", json=atomic), 409, "illegal_transition")
    stale = {"events": [event(3)], "at": "0"}
    assert bad(server.client.post("/events", json=stale), 409, "index_conflict")["next_idx"] == str(
        end
    )
    at = {"events": [event(n) for n in range(3, 103)], "at": str(end)}
    answer = server.client.post("/events", json=at)
    assert int(good(answer)["results"][-1]["receipt"]["index"]) == end + 99
    assert answer.headers["belog-as-of"] == str(end + 100)


def test_bodies_have_bounds(tmp_path: Path) -> None:
    with served(tmp_path, settings=lowered(body_bytes_max=2_000, batch_events_max=3)) as server:
        post = server.client.post
        event = {"event_type": "v1.partition.observed", "subject_id": "p"}
        data = json.dumps(event).encode()
        json_type = {"content-type": "application/json"}
        large = bad(post("/events", content=b" " * 3_000, headers=json_type), 413, "limit_exceeded")
        assert (large["limit"], large["limit_value"]) == ("body_bytes_max", "2000")
        pieces = (b" " * 500 for _ in range(9))
        bad(post("/events", content=pieces, headers=json_type), 413, "limit_exceeded")
        zipped = {**json_type, "content-encoding": "gzip"}
        good(post("/events", content=gzip.compress(data), headers=zipped))
        bomb = gzip.compress(b" " * 1_000_000)
        assert len(bomb) < 2_000
        bad(post("/events", content=bomb, headers=zipped), 413, "limit_exceeded")
        bad(post("/events", content=data, headers=zipped), 400, "invalid")
        bad(post("/events", content=gzip.compress(data)[:-9], headers=zipped), 400, "invalid")
        br = {**json_type, "content-encoding": "br"}
        bad(post("/events", content=data, headers=br), 415, "unsupported_encoding")
        bad(post("/events", content=data), 415, "unsupported_media_type")
        form = {"content-type": "application/x-www-form-urlencoded"}
        bad(post("/events", content=data, headers=form), 415, "unsupported_media_type")
        bad(post("/events", content=b"{", headers=json_type), 400, "invalid")
        bad(post("/events", json={"events": [event] * 4}), 413, "limit_exceeded")
        long = server.client.get("/events?partition_ref=" + "x" * 17_000)
        assert bad(long, 414, "limit_exceeded")["limit"] == "URL_BYTES_MAX"
        headers = {"x-much": "x" * 33_000}
        bad(server.client.get("/healthz", headers=headers), 431, "limit_exceeded")


def test_what_is_no_request_is_a_problem(server: Served) -> None:
    get = server.client.get
    answer = server.client.delete("/events")
    bad(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    for path in ("/nothing", "/events/", "/jobs/labels/x", "/partitions", "/builds/a/b/c"):
        if path != "/partitions":
            bad(get(path), 404, "not_found")
    for query in (
        "x=1",
        "since=-1",
        "since=a",
        "since=1&since=2",
        "limit=0",
        "wait_s=nan",
        "subject_kind=x",
        "partition_pattern=[",
        "min_index=9999999999999999999",
    ):
        assert get(f"/events?{query}").status_code == 400, query
    bad(get("/events?limit=10001"), 413, "limit_exceeded")
    bad(get("/events/x"), 400, "invalid")
    told = bad(get(f"/events?since={2**63}"), 400, "invalid")
    assert "from 0 to 9223372036854775807" in told["detail"]
    bad(get("/partitions?cursor=zz"), 400, "invalid_filter")
    bad(get("/partitions/x/graph?depth=101"), 413, "limit_exceeded")
    assert server.client.head("/healthz").content == b""


def test_large_answers_are_compressed_for_those_who_take_it(server: Served) -> None:
    for n in range(20):
        server.append("v1.partition.observed", f"p{n}")
    raw = server.client.get("/events", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in raw.headers
    small = server.client.get("/events", headers={"accept-encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert small.json() == raw.json()
    none = server.client.get("/events", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in none.headers


def test_pages_end_at_their_bytes(tmp_path: Path) -> None:
    with served(tmp_path, settings=lowered(answer_bytes_max=3_000)) as server:
        for n in range(20):
            server.append("v1.partition.observed", f"p{n}")
        since, found, pages = 0, [], 0
        while True:
            page = good(server.client.get(f"/events?since={since}"))
            found += [event["index"] for event in page["events"]]
            since, pages = int(page["next_idx"]), pages + 1
            if not page["has_more"]:
                break
        assert found == [str(n) for n in range(21)]
        assert pages > 2


# --- waiting


def test_readers_wait_for_what_was_written(server: Served) -> None:
    end = int(good(server.client.get("/status"))["next_idx"])
    with ThreadPoolExecutor(3) as threads:
        poll = threads.submit(server.client.get, f"/events?since={end}&wait_s=20&partition_ref=p")
        row = threads.submit(server.client.get, f"/partitions/p?min_index={end + 1}&wait_s=20")
        eventually(lambda: server.waiting == 2)
        server.append("v1.partition.observed", "other")
        server.append("v1.partition.observed", "p")
        page = good(poll.result())
        assert [event["subject_id"] for event in page["events"]] == ["p"]
        assert page["next_idx"] == str(end + 2)
        assert good(row.result())["index"] == str(end + 1)
    empty = good(server.client.get(f"/events?since={end + 2}&wait_s=0.05"))
    assert empty == {"events": [], "next_idx": str(end + 2), "has_more": False}
    late = server.client.get("/partitions/p?min_index=99999&wait_s=0.05")
    assert bad(late, 503, "unavailable")["retriable"] is True
    assert late.headers["retry-after"]
    assert server.waiting == 0


def test_waiters_that_left_are_forgotten_and_those_that_are_many_refused(tmp_path: Path) -> None:
    with served(tmp_path, settings=lowered(waiters_max=2)) as server:
        waiting = [server.connect() for _ in range(2)]
        for connection in waiting:
            connection.sendall(b"GET /events?since=1&wait_s=50 HTTP/1.1\r\nhost: x\r\n\r\n")
        eventually(lambda: server.waiting == 2)
        bad(server.client.get("/events?since=1&wait_s=5"), 503, "overloaded")
        for connection in waiting:
            connection.close()
        eventually(lambda: server.waiting == 0 and server.instance.feed.waiters == 0)


def test_stopping_answers_those_who_wait_and_ends_appends(server: Served) -> None:
    with ThreadPoolExecutor(4) as threads:
        poll = threads.submit(server.client.get, "/events?since=1&wait_s=50")
        lines: list[str] = []

        def listen() -> None:
            with server.client.stream("GET", "/events/stream?since=1") as answer:
                lines.extend(answer.iter_lines())

        stream = threads.submit(listen)
        eventually(lambda: server.waiting == 2)
        server.begin_stop()
        bad(poll.result(), 503, "closed")
        stream.result()
        assert "event: problem" in lines


def test_streams_go_on_where_they_were_cut(tmp_path: Path) -> None:
    with served(tmp_path, settings=lowered(heartbeat_s=0.05)) as server:
        stop = threading.Event()

        def write() -> None:
            n = 0
            while not stop.is_set():
                server.append("v1.partition.observed", f"p{n % 2}", source=str(n))
                n += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen: list[int] = []
            last = "0"
            headers: dict[str, str] = {}
            for _ in range(6):
                path = "/events/stream?since=0&partition_ref=p1"
                with server.client.stream("GET", path, headers=headers) as answer:
                    assert answer.headers["content-type"] == "text/event-stream"
                    want = len(seen) + 4
                    for line in answer.iter_lines():
                        if line.startswith("id: "):
                            last = line[4:]
                        elif line.startswith('data: {"index"'):
                            event = json.loads(line[6:])
                            assert event["subject_id"] == "p1"
                            seen.append(int(event["index"]))
                            assert int(last) == seen[-1] + 1
                            if len(seen) >= want:
                                break
                headers = {"last-event-id": last}
        finally:
            stop.set()
            writer.join()
        page = good(server.client.get("/events?partition_ref=p1"))
        assert seen == [int(event["index"]) for event in page["events"]][: len(seen)]
        bad(server.client.get("/events/stream", headers={"last-event-id": "x"}), 400, "invalid")


# --- asking for partitions


def test_of_many_callers_exactly_one_builds(server: Served) -> None:
    refs = [f"lake/{n}" for n in range(4)]

    def ask(n: int) -> tuple[str, str]:
        ref = refs[n % len(refs)]
        path = f"/partitions/{quote(ref, safe='')}/request"
        answer = good(server.client.post(path, json={"client_id": f"c{n}"}))
        return ref, next(iter(answer))

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(ask, range(80)))
    for ref in refs:
        kinds = [kind for asked, kind in answers if asked == ref]
        assert sorted(kinds) == ["building", *["delegated"] * 19]
    server.settle()
    rows = good(server.client.get("/partitions?order=id"))["partitions"]
    assert [len(row["requesting_clients"]) for row in rows] == [20] * 4
    assert len(good(server.client.get("/builds"))["builds"]) == 4
    end = good(server.client.get("/status"))["next_idx"]
    good(server.client.post("/partitions/lake%2F0/request", json={"client_id": "c0"}))
    assert good(server.client.get("/status"))["next_idx"] == end, "asking again writes nothing"


def test_callers_wait_for_the_outcome(server: Served) -> None:
    run_a_build(server, "old", "lake/x")
    server.append("v1.partition.stale", "lake/x")
    path = "/partitions/lake%2Fx/request"
    own = {"client_id": "a", "build_request_id": "mine"}
    first = good(server.client.post(path, json=own))["building"]
    assert good(server.client.post(path, json=own))["building"] == first, "exact when repeated"
    refused = server.client.post(path, json={"client_id": "b", "allow_delegation": False})
    assert bad(refused, 409, "not_owner")["owner"] == "mine"
    token = good(server.client.post(path, json={"client_id": "b"}))["delegated"]
    assert token["job_graph_run_id"] == "mine"
    assert int(token["estimated_completion"]) >= int(first["started_at"])
    name = {"build_request_id": "mine"}
    with ThreadPoolExecutor(2) as threads:
        body = {"client_id": "c", "timeout_s": 20}
        waits = threads.submit(server.client.post, path, json=body)
        eventually(lambda: server.instance.feed.waiters == 1)
        server.append("v1.partition.scheduled", "lake/x", **name)
        server.append("v1.partition.building", "lake/x", **name)
        server.append("v1.partition.available", "lake/x", **name, manifest={"row_count": 7})
        there = good(waits.result())["available"]
        assert there["manifest"]["row_count"] == "7"
        good(server.client.post("/partitions/y/request", json={"client_id": "a", **name}))
        waits = threads.submit(server.client.post, "/partitions/y/request", json=body)
        eventually(lambda: server.instance.feed.waiters == 1)
        server.append("v1.partition.failed", "y", **name, reason="broken")
        failed = bad(waits.result(), 409, "conflict")
        assert "broken" in failed["detail"]
        assert failed["state"] == "failed"
    again = good(server.client.post("/partitions/y/request", json={"client_id": "z"}))
    assert "building" in again


def test_a_request_decided_on_an_old_look_is_decided_again(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(server.append("v1.partition.observed", "x"))
    asking = requesting._Asking  # noqa: SLF001 - where another process would come between
    look = asking._state  # noqa: SLF001
    looks: list[None] = []

    async def first_look_is_old(self: "requesting._Asking") -> SubjectState | None:
        looks.append(None)
        return None if len(looks) == 1 else await look(self)

    monkeypatch.setattr(asking, "_state", first_look_is_old)
    assert "available" in good(server.client.post("/partitions/x/request"))
    assert len(looks) == 2
