"""Building the systems that chaos runs are made of, out of real servers and processes.

`Servers` keeps one broker, one Redis and one PostgreSQL for many runs, each behind a gate where
`tests.chaos.faults` is there to make one. `build` puts a system on one backend together; what it
consists of comes out of the seed.
"""

import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from tests.chaos import follower, graph_process
from tests.chaos.deployment import Backend, Deployment, Gate, Kind
from tests.chaos.faults import Proxy, can_mount, clock_file, small_disk
from tests.chaos.parts import ProcessPart, ServerPart
from tests.servers import Broker, Postgres, Redis, Server, free_port
from tests.servers.broker import QUICK_START

__all__ = ["BACKENDS", "Servers", "Shape", "System", "build", "shape_of"]

BACKENDS: tuple[Backend, ...] = ("sqlite", "file", "postgres", "delta", "kafka")

FOLDER_BACKENDS = frozenset({"sqlite", "file", "delta"})
"""Backends that keep the log in a folder of the run."""

SERVED_BACKENDS = frozenset({"sqlite", "postgres", "kafka"})
"""Backends that may run with a service: a file log has one writing process, Delta is slow."""

SMALL_DISK_KB = 65_536
"""Room of a small disk, KiB: a run needs a tenth of it."""

SESSION_S = 1.5
"""How soon another worker takes over from one that is silent, seconds."""

DELIVERY_TIMEOUT_MS = 2_000
"""Delivery time-out of the writers, milliseconds: shorter than a broker takes to come back."""

READ_TYPES = ("v1.partition.available", "v1.partition.observed", "v1.job.running")
"""What a filtering reader wants."""

BELOG = "import sys; from belog.service.cli import main; sys.argv[0] = 'belog'; main()"


class Servers:
    """The servers of many runs, each started when it is first needed. Not thread-safe."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self._gates: dict[str, Gate] = {}

    def get(self, name: Kind) -> tuple[Server, Gate]:
        """Return the broker, Redis or PostgreSQL, started, with the gate before it."""
        if name not in self._servers:
            gate_port = free_port()
            server = self._made(name, gate_port)
            self._stack.callback(server.close)
            gate = Proxy.open(gate_port, server.port)
            self._stack.callback(gate.close)
            self._servers[name], self._gates[name] = server, gate
        server = self._servers[name]
        if server.runner.why_not_running() is not None or not server.is_ready():
            server.start()
        return server, self._gates[name]

    @staticmethod
    def _made(name: Kind, gate_port: int) -> Server:
        if name == "broker":
            return Broker.create(
                {
                    "group.min.session.timeout.ms": "1000",
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{gate_port}",
                },
                jvm=QUICK_START,
            )
        return Redis.create() if name == "redis" else Postgres.create()

    def close(self) -> None:
        """End all of them."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Shape:
    """What a system consists of; all of it out of the seed, unless said otherwise."""

    backend: Backend
    seed: str
    writers: int
    threads: int
    death: float
    worker: bool
    sink: bool
    readers: tuple[str, ...] = ("follow", "read", "tables")
    """Modes of `tests.chaos.follower`, a process each."""
    refs: int = 6
    """Partitions that all race for."""
    service: bool = False
    """Whether a service is another door to the log."""
    small_disk: bool = False
    """Whether the log lies on a disk of its own that can be filled; for root only."""
    calls_max: int = 1_200
    pause_s: float = 0.004


def shape_of(backend: Backend, seed: str) -> Shape:
    """Draw a shape."""
    rng = random.Random(f"{seed}/{backend}/shape")
    # One process writes a file log; several would only wait for its lock.
    writers = 1 if backend == "file" else rng.choice((2, 2, 3, 3, 4))
    return Shape(
        backend,
        seed,
        writers,
        rng.choice((2, 3, 4)) if backend == "file" else rng.choice((1, 1, 2, 3)),
        rng.choice((0.0, 0.004, 0.01)),
        worker=backend == "kafka" or (backend != "delta" and rng.random() < 0.3),
        sink=rng.random() < 0.6,
        small_disk=backend in FOLDER_BACKENDS and rng.random() < 0.3 and can_mount(),
        refs=rng.choice((2, 6, 6, 20)),
        service=backend in SERVED_BACKENDS and rng.random() < 0.4,
        pause_s=rng.choice((0.0, 0.002, 0.005, 0.02)),
    )


@dataclass
class System:
    """A deployment, and what only the harness needs of it."""

    deployment: Deployment
    shape: Shape
    journals: Path
    rows_file: Path
    raw_uri: str
    """Of the log, for the clients of the checker."""
    raw_tables: tuple[str, str] | None = None
    """Of the tables: the server, and the prefix."""
    processes: list[ProcessPart] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[ProcessPart]:
        """The processes of some kinds."""
        return [part for part in self.processes if part.kind in kinds]


@contextmanager
def build(
    shape: Shape, folder: Path, servers: Servers, env: Mapping[str, str] | None = None
) -> Iterator[System]:
    """Create a log, and put a system around it; its processes are not started yet.

    Args:
        shape: What it consists of.
        folder: Everything of the run; must not exist.
        servers: Where servers come from.
        env: More variables for the processes, such as a PYTHONPATH to changed code.
    """
    folder.mkdir(parents=True)
    name = f"chaos-{uuid.uuid4().hex[:10]}"
    deployment = Deployment(shape.backend, folder, "", uuid.UUID(int=0))
    gates: dict[str, Gate] = {}
    parts: list[ServerPart] = []

    def server(kind: Kind) -> tuple[Server, Gate]:
        made, gate = servers.get(kind)
        if kind not in gates:
            gates[kind] = gate
            parts.append(ServerPart(kind, kind, made))
        return made, gate

    disk = ExitStack()
    if shape.backend in FOLDER_BACKENDS:
        (folder / "log").mkdir()
        if shape.small_disk:
            disk.enter_context(small_disk(folder / "log", SMALL_DISK_KB))
    raw_uri = _place(deployment, name, folder, server)
    with open_log(deployment.log_uri) as log:
        deployment.log_id = log.initialize().log_id
    system = System(deployment, shape, folder / "journals", folder / "rows.json", raw_uri)
    if shape.worker:
        redis, gate = server("redis")
        deployment.tables_uri = f"redis://127.0.0.1:{gate.port}/0?prefix={name}"
        system.raw_tables = redis.uri, name
    if shape.sink:
        deployment.replica_uri = _replica(deployment, name, folder)
    (folder / "tmp").mkdir()
    # What a killed process leaves behind goes with the run.
    system.processes = _processes(system, {"TMPDIR": str(folder / "tmp"), **(env or {})})
    deployment.gates = gates
    deployment.parts = [*parts, *system.processes]
    try:
        yield system
    finally:
        for part in system.processes:
            part.close()
        disk.close()


def _place(deployment: Deployment, name: str, folder: Path, server: Any) -> str:  # noqa: ANN401
    """Say where the log is; return how the checker gets at it."""
    backend = deployment.backend
    if backend == "sqlite":
        deployment.log_uri = f"sqlite:///{folder}/log/log.db"
    elif backend in {"file", "delta"}:
        deployment.log_uri = f"{backend}://{folder}/log"
    elif backend == "postgres":
        made, gate = server("postgres")
        own: str = cast("Postgres", made).uri
        query = f"?schema={name.replace('-', '_')}"
        deployment.log_uri = own.replace(f":{made.port}/", f":{gate.port}/") + query
        return own + query
    else:
        made, gate = server("broker")
        deployment.topic = name
        create_topic(f"{made.uri}/{name}")
        deployment.log_uri = (
            f"kafka://127.0.0.1:{gate.port}/{name}?delivery.timeout.ms={DELIVERY_TIMEOUT_MS}"
        )
        return f"{made.uri}/{name}"
    return deployment.log_uri


def _replica(deployment: Deployment, name: str, folder: Path) -> str:
    if deployment.backend == "kafka":
        base = deployment.log_uri.partition("?")[0]
        uri = f"{base.rpartition('/')[0]}/{name}-replica"
        create_topic(uri)
        return uri
    (folder / "replica").mkdir()
    return f"sqlite:///{folder}/replica/log.db"


def _processes(system: System, env: Mapping[str, str]) -> list[ProcessPart]:
    deployment, shape = system.deployment, system.shape
    folder, uri = deployment.folder, deployment.log_uri
    made: list[ProcessPart] = []
    port = free_port()
    url = f"http://127.0.0.1:{port}" if shape.service else ""

    def add(name: str, kind: Kind, *command: str) -> None:
        made.append(ProcessPart(name, kind, command, folder, env))

    for n in range(shape.writers):
        name = f"writer-{n}"
        config = graph_process.Config(
            uri,
            name,
            shape.seed,
            str(system.journals),
            threads=shape.threads,
            refs=shape.refs,
            calls_max=shape.calls_max,
            pause_s=shape.pause_s,
            clock_file=str(clock_file(folder, name)),
            death=shape.death,
            atomic=shape.backend != "kafka",
            service=url,
        )
        argument = graph_process.argument_of(config)
        add(name, "writer", "-m", "tests.chaos.graph_process", argument)
    if shape.service:
        add("service", "service", "-c", BELOG, "serve", "--log", uri, "--port", str(port))
    for mode in (*shape.readers, *(["http"] if shape.service else [])):
        reader = follower.FollowerConfig(
            uri,
            f"reader-{mode}",
            str(system.journals),
            mode,
            types=READ_TYPES if mode == "read" else (),
            service=url,
            rows_file=str(system.rows_file),
        )
        add(reader.name, "reader", "-m", "tests.chaos.follower", follower.argument_of(reader))
    if deployment.tables_uri is not None:
        settings = ["--session-timeout-s", str(SESSION_S)] if shape.backend == "kafka" else []
        where = ["--log", uri, "--tables", deployment.tables_uri]
        add("worker", "worker", "-c", BELOG, "worker", *where, *settings)
    if deployment.replica_uri is not None:
        command = ["sink", "--from", uri, "--to", deployment.replica_uri]
        # What is too large for the replica is left out of it openly, and the rest flows.
        command += ["--dead-letter", str(folder / "dead-letters")]
        add("sink", "sink", "-c", BELOG, *command)
    return made
