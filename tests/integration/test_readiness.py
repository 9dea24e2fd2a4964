"""Readiness on real parts: it falls when the tables stop following the log, and it heals."""

import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from belog.processors.factory import open_tables
from belog.processors.worker import WorkerSettings, run_worker
from belog.schemas.errors import NewerFormat
from belog.service.access import Access
from belog.service.instance import InstanceSettings
from belog.service.metrics_service import ServiceMetrics
from belog.service.observation import Observation
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from tests.examples import event
from tests.integration.test_worker import Worker
from tests.observed_service import Watched, in_loop, watched
from tests.servers import Broker, Redis, eventually
from tests.unit.test_service_metrics import Samples, samples_of, value

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

LAG_S = 1.0
"""How long tables may stand still here: short, so that nobody waits for long."""

GRANT = Access.open().authenticate(None)


async def until_ready(service: Watched, wanted: bool) -> httpx.Response:  # noqa: FBT001 - what is waited for
    """Ask until readiness is what is wanted; the loop's time limit bounds it."""
    while True:
        answer = await service.http.get("/readyz")
        if (answer.status_code == 200) is wanted:
            return answer


async def metrics_of(service: Watched) -> Samples:
    return samples_of((await service.http.get("/metrics")).text)


def test_a_frozen_worker_makes_a_service_unready_until_it_wakes(
    broker: Broker,
    redis_server: Redis,
    topic_name: str,
    redis_prefix: str,
    tmp_path: Path,
) -> None:
    log_uri = f"{broker.uri}/{topic_name}"
    tables_uri = f"{redis_server.uri}?prefix={redis_prefix}"
    create_topic(log_uri)
    with open_log(log_uri) as log, ExitStack() as stack:
        log.initialize()
        worker = Worker(log_uri, tables_uri, tmp_path / "worker.log")
        stack.callback(worker.kill)
        worker.wait_for("assigned")
        settings = InstanceSettings(log_uri=log_uri, tables_uri=tables_uri, lag_s_max=LAG_S)
        in_loop(lambda: frozen_and_woken(settings, worker))


async def frozen_and_woken(settings: InstanceSettings, worker: Worker) -> None:
    async with watched(settings, Observation(ServiceMetrics())) as service:
        append = service.instance.append
        await append(GRANT, [event("v1.partition.requested", "a", n=1)])
        await service.instance.reach(1, 20)
        await until_ready(service, wanted=True)
        worker.process.send_signal(signal.SIGSTOP)
        await append(GRANT, [event("v1.partition.requested", "b", n=2)])
        # Behind, and not for long yet.
        assert (await service.http.get("/readyz")).status_code == 200
        (reason,) = (await until_ready(service, wanted=False)).json()["reasons"]
        assert "1 records behind the log" in reason
        page = await metrics_of(service)
        assert value(page, "belog_ready") == 0
        assert value(page, "belog_tables_lag_records") == 1
        assert LAG_S <= value(page, "belog_tables_lag_seconds") < 60
        # What does not need the tables goes on.
        await append(GRANT, [event("v1.partition.requested", "c", n=3)])
        worker.process.send_signal(signal.SIGCONT)
        await until_ready(service, wanted=True)
        await service.instance.reach(3, 20)
        page = await metrics_of(service)
        assert value(page, "belog_ready") == 1
        assert value(page, "belog_tables_lag_seconds") == 0


@contextmanager
def working(log_uri: str, tables_uri: str) -> Iterator[None]:
    """Run a worker in a thread."""
    stop = threading.Event()
    thread = threading.Thread(
        target=run_worker,
        args=(log_uri, tables_uri, WorkerSettings(tail="plain")),
        kwargs={"stop": stop},
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def test_without_redis_a_service_is_unready_until_it_is_back(
    new_redis: Callable[..., Redis], tmp_path: Path
) -> None:
    log_uri = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(log_uri) as log:
        log.initialize()
    server = new_redis(persistence="append")
    settings = InstanceSettings(log_uri=log_uri, tables_uri=server.uri, lag_s_max=LAG_S)

    async def test() -> None:
        async with watched(settings, Observation(ServiceMetrics())) as service:
            await until_ready(service, wanted=True)
            server.kill()
            (reason,) = (await until_ready(service, wanted=False)).json()["reasons"]
            assert server.uri.rpartition("/")[0] in reason
            page = await metrics_of(service)
            assert value(page, "belog_ready") == 0
            assert value(page, "belog_errors_total", component="tables", code="unavailable") >= 1
            assert ("belog_tables_lag_records", frozenset()) not in page
            server.start()
            await until_ready(service, wanted=True)

    with working(log_uri, server.uri):
        with open_tables(server.uri) as tables:
            eventually(lambda: tables.status().position == 1, "the worker made the tables")
        in_loop(test)


def test_a_feed_that_cannot_read_makes_a_service_unready_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    settings = InstanceSettings(log_uri=f"file://{folder}", lag_s_max=LAG_S)

    async def test() -> None:
        async with watched(settings, Observation(ServiceMetrics())) as service:
            await until_ready(service, wanted=True)
            folder.rename(tmp_path / "elsewhere")
            reasons: list[str] = []
            while not any(reason.startswith("the log cannot be followed") for reason in reasons):
                reasons = (await until_ready(service, wanted=False)).json()["reasons"]
            page = await metrics_of(service)
            assert value(page, "belog_errors_total", component="log", code="unavailable") >= 1
            (tmp_path / "elsewhere").rename(folder)
            await until_ready(service, wanted=True)
            await service.instance.append(GRANT, [event("v1.partition.requested", "a", n=1)])
            await service.instance.reach(1, 20)

    in_loop(test)


def test_a_record_that_needs_newer_software_ends_a_service(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    settings = InstanceSettings(log_uri=f"sqlite:///{path}")
    newer = b"\xc3\x01" + bytes(8) + b"of an envelope that is not known here"

    async def test() -> None:
        async with watched(settings, Observation(ServiceMetrics())) as service:
            await until_ready(service, wanted=True)
            with sqlite3.connect(path) as other:
                other.execute(
                    "INSERT INTO belog_records (idx, created_at, value) VALUES (1, 1, ?)", [newer]
                )
            other.close()
            # It ends by itself, with the reason: whoever looks after it starts it again.
            await service.instance.feed.ended.wait()

    with pytest.raises(NewerFormat, match="envelope schema that is not known"):
        in_loop(test)
