"""A site for the scripted tests of faults: what its users type, and what they are told.

A broker and a Redis behind proxies, a topic, tables and a worker. Commands run as a user runs them,
several at once where each would wait for the same time-out.
"""

import json
import random
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from belog.processors.factory import open_tables
from belog.processors.verify import verify_tables
from belog.producers import Producer
from belog.schemas.errors import Unavailable
from belog.schemas.events import PartitionObserved
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.opening import open_existing
from tests.chaos.deployment import Backend, Deployment
from tests.chaos.faults import FAULTS, BaseFault, Proxy
from tests.chaos.faults.topics import topic_end
from tests.chaos.parts import ProcessPart, ServerPart
from tests.chaos.systems import BELOG, SESSION_S, Servers
from tests.e2e.program import Done, belog
from tests.servers import Broker, Redis, eventually

__all__ = ["OBSERVED", "Site", "at_once", "injected", "open_site"]

OBSERVED = ("append", "v1.partition.observed", "a/1")
LIST = ("partition", "list")
READY = ("status", "--ready")

READY_S = 120.0
"""How long tables may take to follow, and a worker to end, seconds: clients look again every ten
seconds for a broker that was away, on a machine that is busy."""


def at_once(*calls: Callable[[], Done]) -> list[Done]:
    """Run commands side by side."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


@contextmanager
def injected(
    name: str, deployment: Deployment, rng: random.Random | None = None
) -> Generator[BaseFault]:
    """Let a fault of the registry befall a deployment; healed at the end."""
    fault = FAULTS[name]()
    assert fault.applies_to(deployment)
    try:
        fault.inject(deployment, rng or random.Random(name))
        yield fault
    finally:
        fault.heal(deployment)


class Site:
    """See the module's docstring."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        """Make a topic, and name tables; no worker runs yet."""
        broker, self.broker_gate = _proxied(servers, "broker")
        redis, self.redis_gate = _proxied(servers, "redis")
        assert isinstance(broker, Broker)
        assert isinstance(redis, Redis)
        self.broker, self.redis = broker, redis
        name = f"site-{uuid.uuid4().hex[:8]}"
        create_topic(f"{broker.uri}/{name}")
        self.folder = folder
        self.log_uri = f"kafka://127.0.0.1:{self.broker_gate.port}/{name}"
        self.tables_uri = f"redis://127.0.0.1:{self.redis_gate.port}/0?prefix={name}"
        self.tables_name = self.tables_uri
        self.env = {
            "BELOG__LOG__URI": self.log_uri,
            "BELOG__TABLES__URI": self.tables_uri,
            "BELOG__OBSERVABILITY__LOG_FORMAT": "json",
        }
        session = ("--session-timeout-s", str(SESSION_S))
        self.worker = ProcessPart(
            "worker", "worker", ("-c", BELOG, "worker", *session), folder, self.env
        )
        backend: Backend = "kafka"
        self.deployment = Deployment(backend, folder, self.log_uri, uuid.UUID(int=0))
        self.deployment.topic = name
        self.deployment.tables_uri = self.tables_uri
        self.deployment.gates = {"broker": self.broker_gate, "redis": self.redis_gate}
        self.deployment.parts = [
            ServerPart("broker", "broker", broker),
            ServerPart("redis", "redis", redis),
            self.worker,
        ]

    def told(self, *arguments: str) -> Done:
        """Run a command on the log and the tables."""
        return belog(*arguments, cwd=self.folder, env=self.env)

    def told_each(self, *commands: Sequence[str]) -> list[Done]:
        """Run commands side by side."""
        return at_once(*[lambda command=command: self.told(*command) for command in commands])

    def append(self) -> int:
        """Append an event to the log, made where there is none; return its index."""
        with open_log(self.log_uri) as log:
            log.initialize()
            with Producer(log, actor="site") as producer:
                return producer.append(PartitionObserved(), "a/1").index

    def end(self) -> int:
        """The offset that the topic's next record gets."""
        return topic_end(self.broker.bootstrap, self.deployment.topic or "")

    def until_whole(self) -> None:
        """Wait until the tables hold the whole log, and check each row."""
        with open_log(self.log_uri) as log, open_tables(self.tables_uri) as tables:
            open_existing(log)
            eventually(
                lambda: tables.status().position >= log.next_position(),
                "the tables follow",
                timeout_s=READY_S,
                ignoring=(Unavailable,),
            )
            assert verify_tables(log, tables) == []

    def work(self) -> None:
        """Start the worker, and wait until it follows."""
        before = len(self.said("assigned"))
        self.worker.start()
        self.until_said("assigned", before + 1)
        self.until_whole()

    def said(self, event: str) -> list[dict[str, Any]]:
        """The worker's log lines of one kind."""
        path = self.worker.errors_path
        lines = path.read_text().splitlines() if path.exists() else []
        found = (json.loads(line) for line in lines if line.startswith("{"))
        return [line for line in found if line["message"] == event]

    def until_said(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait until the worker has said something so many times; return the last."""
        wanted = f"the worker says {event}"
        eventually(
            lambda: len(self.said(event)) >= count,
            wanted,
            timeout_s=READY_S,
            unless=lambda: None if self.worker.is_alive() else self.worker.errors(),
        )
        return self.said(event)[-1]

    def until_worker_ended(self) -> str:
        """Wait until the worker has ended by itself; return its last line."""
        eventually(lambda: not self.worker.is_alive(), "the worker ended", timeout_s=READY_S)
        return self.worker.errors_path.read_text().rstrip().splitlines()[-1]


def _proxied(servers: Servers, name: Any) -> tuple[object, Proxy]:  # noqa: ANN401
    server, gate = servers.get(name)
    assert isinstance(gate, Proxy)
    return server, gate


@contextmanager
def open_site(servers: Servers, folder: Path) -> Generator[Site]:
    """A site whose first event is there; its worker is ended at the end, and its gates healed."""
    site = Site(servers, folder)
    try:
        site.append()
        yield site
    finally:
        site.worker.close()
        site.broker_gate.heal()
        site.redis_gate.heal()
