"""The long-running commands as an operator sees them: metrics on a port, lines in a log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from belog.processors.factory import open_tables
from belog.storage import EventLog, open_log
from tests.e2e.program import belog, running
from tests.examples import event
from tests.servers import Redis, eventually
from tests.servers.wait import free_port
from tests.unit.test_service_metrics import Samples, samples_of, value

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

JSON = {"BELOG__OBSERVABILITY__LOG_FORMAT": "json"}


def filled(path: Path, count: int = 3) -> tuple[str, EventLog]:
    uri = f"sqlite:///{path}"
    log = open_log(uri)
    log.initialize()
    write(log, range(count))
    return uri, log


def write(log: EventLog, numbers: range) -> None:
    log.append_batch([event("v1.partition.observed", f"p{n}", {}, n=n) for n in numbers])


def metrics_at(port: int) -> Samples:
    return samples_of(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text)


def shows(port: int, condition: Callable[[Samples], bool]) -> Samples:
    """Wait until a page of metrics is as wanted."""
    page: Samples = {}

    def look() -> bool:
        page.clear()
        page.update(metrics_at(port))
        return condition(page)

    errors = (httpx.TransportError, KeyError)
    eventually(look, f"the metrics at {port} show it", timeout_s=60, ignoring=errors)
    return page


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", json.loads(line)) for line in path.read_text().splitlines()]


def test_a_worker_shows_how_far_it_is_and_tells_no_password(
    redis_server: Redis, redis_prefix: str, tmp_path: Path
) -> None:
    uri, log = filled(tmp_path / "log.db")
    # The default user has no password, so any one is right.
    login = redis_server.uri.replace("redis://", "redis://default:pa55w0rd@")
    tables = f"{login}?prefix={redis_prefix}"
    port = free_port()
    arguments = ["worker", "--log", uri, "--tables", tables, "--metrics-port", str(port)]
    with log, running(arguments, cwd=tmp_path, env=JSON):
        page = shows(port, lambda page: value(page, "belog_tables_applied_index") == 4)
        assert value(page, "belog_worker_assigned") == 1
        assert value(page, "belog_worker_position") == 4
        assert value(page, "belog_tables_lag_records") == 0
        assert value(page, "belog_log_next_position") == 4
        assert ("belog_snapshot_timestamp_seconds", frozenset()) not in page
        write(log, range(3, 5))
        shows(port, lambda page: value(page, "belog_worker_position") == 6)
        with open_tables(tables) as reader:
            assert reader.wait_for(5, 10)
    text = (tmp_path / "worker.stderr").read_text()
    assert "pa55w0rd" not in text
    lines = lines_of(tmp_path / "worker.stderr")
    said = {line["message"]: line for line in lines if line["logger"] == "belog.worker"}
    assert {"started", "caught_up", "stopped", f"metrics at http://127.0.0.1:{port}/metrics"} <= (
        said.keys()
    )
    assert len(said["started"]["log_id"]) == 36
    assert said["stopped"]["position"] == 6


def test_a_sink_shows_what_it_wrote_and_how_far_behind_it_is(tmp_path: Path) -> None:
    uri, log = filled(tmp_path / "log.db")
    replica = f"sqlite:///{tmp_path / 'replica.db'}"
    port = free_port()
    arguments = ["sink", "--from", uri, "--to", replica, "--metrics-port", str(port)]
    labels = {"origin": uri, "target": replica}
    with log, running(arguments, cwd=tmp_path, env=JSON):
        wrote = "belog_sink_written_events_total"
        page = shows(port, lambda page: value(page, "belog_sink_target_index", **labels) == 3)
        assert value(page, wrote, **labels) == 4
        for name in ("lag_records", "lag_seconds", "dead_letters", "failing"):
            assert value(page, f"belog_sink_{name}", **labels) == 0
        write(log, range(3, 5))
        shows(port, lambda page: value(page, wrote, **labels) == 6)


def test_a_port_that_is_taken_is_said_so(tmp_path: Path) -> None:
    uri, log = filled(tmp_path / "log.db")
    port = free_port()
    arguments = ["sink", "--from", uri, "--to", f"sqlite:///{tmp_path / 'replica.db'}"]
    with log, running([*arguments, "--metrics-port", str(port)], cwd=tmp_path):
        shows(port, lambda _: True)
        done = belog(*arguments, "--metrics-port", str(port), cwd=tmp_path)
    assert done.code == 2
    assert "--metrics-port" in done.err


def test_a_service_serves_metrics_and_logs_as_configured(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["serve", "--log", f"sqlite:///{tmp_path / 'log.db'}", "--port", str(port)]
    with running(arguments, cwd=tmp_path, env=JSON):
        shows(port, lambda page: value(page, "belog_ready") == 1)
        httpx.get(f"http://127.0.0.1:{port}/status")
    found = [line for line in (tmp_path / "serve.stderr").read_text().splitlines() if "{" in line]
    access = [json.loads(line) for line in found if '"belog.access"' in line]
    assert [(line["route"], line["status"]) for line in access] == [("/status", 200)]
