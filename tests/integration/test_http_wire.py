"""The HTTP service against clients that behave badly: its memory is bounded, others are served."""

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

from belog.service.http_api import call, protocol
from tests.http_serving import Served, lowered, served
from tests.servers import eventually

MB = 1_000_000
WAITERS = 1_000
WAITER_KB_MAX = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096


def post(size: int) -> bytes:
    return (
        b"POST /events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % size
    )


def until_closed(connection: socket.socket) -> bytes:
    """What comes until the other side ends it, however it does."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            data += part
    return data


def serves_others(server: Served) -> None:
    started = time.monotonic()
    assert server.client.get("/healthz").status_code == 200
    assert server.append("v1.partition.observed", "other").status_code == 200
    assert time.monotonic() - started < 10


def test_a_body_of_100_mb_is_refused_in_bounded_memory(server: Served) -> None:
    serves_others(server)
    before = resident_bytes()
    with server.connect() as told:
        told.sendall(post(100 * MB))
        assert b" 413 " in until_closed(told)[:20]
    with server.connect() as untold:
        untold.sendall(post(0).replace(b"content-length: 0", b"transfer-encoding: chunked"))
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 100 * MB:
                untold.sendall(b"%x\r\n%b\r\n" % (MB, b" " * MB))
                sent += MB
        answer = until_closed(untold)
    # The answer may be lost with the connection: it is closed while the client still sends.
    assert not answer or b" 413 " in answer[:20]
    assert sent < 60 * MB
    assert resident_bytes() - before < 60 * MB
    serves_others(server)


def test_bodies_that_are_cut_off_or_stop_are_given_up(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = server.client.get("/status").json()["next_idx"]
    with server.connect() as cut:
        cut.sendall(post(1_000) + b'{"event_type":')
    monkeypatch.setattr(call, "BODY_IDLE_S", 0.2)
    with server.connect() as silent:
        silent.sendall(post(1_000) + b'{"event_type":')
        assert b" 408 " in until_closed(silent)[:20]
    assert server.client.get("/status").json()["next_idx"] == end
    serves_others(server)


def test_heads_that_do_not_end_are_cut_off(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADER_S_MAX", 0.2)
    for begun in (b"", b"GET /events HTTP/1.1\r\nhost: x\r\nx-slow"):
        with server.connect() as slow:
            slow.sendall(begun)
            assert until_closed(slow) == b""
    monkeypatch.undo()
    with server.connect() as large:
        large.sendall(b"GET /events HTTP/1.1\r\nhost: x\r\nx-large: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                large.sendall(b"x" * 100_000)
        until_closed(large)
    serves_others(server)


def test_a_reader_that_takes_nothing_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol, "STALLED_S_MAX", 0.3)
    caplog.set_level(logging.INFO, "belog.service.http")
    with (
        served(tmp_path, settings=lowered(heartbeat_s=0.05)) as server,
        contextlib.ExitStack() as stack,
    ):
        large = {"event_type": "v1.partition.observed", "subject_id": "p"}
        batch = {"events": [{**large, "body": {"source": "x" * 10_000}}] * 500}
        for _ in range(2):
            assert server.client.post("/events", json=batch).status_code == 200
        before = resident_bytes()
        stalled: list[socket.socket] = []
        for path in (b"/events/stream?since=0", b"/events?since=0"):
            connection = stack.enter_context(server.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path)
            stalled.append(connection)
        serves_others(server)
        eventually(lambda: sum("cut off" in message for message in caplog.messages) == 2)
        for connection in stalled:
            # What was on its way is still there.
            assert connection.recv(12) == b"HTTP/1.1 200"
        eventually(lambda: server.waiting == 0)
        assert resident_bytes() - before < 100 * MB


def test_a_thousand_idle_waiters_cost_little_and_disturb_nobody(server: Served) -> None:
    serves_others(server)
    before = resident_bytes()
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(server.connect()) for _ in range(WAITERS)]
        for connection in waiting:
            connection.sendall(
                b"GET /events?since=2&wait_s=50&partition_ref=p HTTP/1.1\r\nhost: x\r\n\r\n"
            )
        eventually(lambda: server.waiting == WAITERS)
        per_waiter = (resident_bytes() - before) / WAITERS
        assert per_waiter < WAITER_KB_MAX * 1_000
        serves_others(server)
        assert server.waiting == WAITERS
        server.append("v1.partition.observed", "p")
        for connection in waiting:
            assert connection.recv(12) == b"HTTP/1.1 200"
    eventually(lambda: server.waiting == 0)


def test_whatever_the_document_allows_is_answered_without_a_fault(tmp_path: Path) -> None:
    with served(tmp_path, settings=lowered(wait_s_max=0.01, heartbeat_s=0.01)) as server:
        for ref in ("a", "b"):
            server.append("v1.partition.observed", ref)
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
        without = {"/events/stream", "/docs", "/openapi.json"}
        operations = [operation for operation in found if operation.path not in without]
        assert len(operations) > 25
        for operation in operations:

            @given(case=operation.as_strategy())
            @settings(
                max_examples=8,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                database=None,
            )
            def answers(case: "schemathesis.Case[Any]") -> None:
                response = case.call(base_url=server.url, timeout=20)
                # 503 says that what was waited for did not come.
                assert response.status_code not in {500, 501, 502}, response.text
                case.validate_response(response, checks=[response_schema_conformance])

            answers()
        serves_others(server)
