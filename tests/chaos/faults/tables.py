"""What is done to the tables behind the workers' backs, and workers that are one too many."""

import random
import shutil
import subprocess
import sys
from typing import ClassVar, Final, cast

from redis import Redis as Client

from tests.chaos.deployment import Deployment
from tests.chaos.faults.basis import BaseFault, alive, local_server
from tests.servers import Redis, eventually

__all__ = ["RedisFlushed", "RedisOlder", "TwoWorkers", "keep_dump", "restore_dump"]

MOVE_S: Final = 2.0
"""How long tables may move on after a dump of them was kept, seconds."""

KEPT: Final = "kept.rdb"
DUMP: Final = "dump.rdb"

WORKER: Final = """
import sys
from belog.processors.worker import WorkerSettings, run_worker
run_worker(sys.argv[1], sys.argv[2], WorkerSettings(tail="plain"))
"""
"""A worker that is in no consumer group: to it, it is the only one."""


def keep_dump(redis: Redis) -> None:
    """Keep a dump of what is in a server now, beside its data."""
    redis.dump()
    folder = redis.runner.dir  # type: ignore[attr-defined]
    shutil.copy(folder / DUMP, folder / KEPT)


def restore_dump(redis: Redis) -> None:
    """Put the kept dump in place of the data of a server that does not run."""
    folder = redis.runner.dir  # type: ignore[attr-defined]
    # Where each write is kept, that is what would be loaded.
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    (folder / KEPT).replace(folder / DUMP)


class RedisFlushed(BaseFault):
    """Every key of Redis is removed: the worker makes the tables anew."""

    name = "redis-flushed"
    does: ClassVar[str] = "every key of Redis is removed"

    def applies_to(self, deployment: Deployment) -> bool:
        return any(isinstance(part.server, Redis) for part in deployment.of_kind("redis"))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        del rng
        for part in alive(deployment, "redis"):
            cast("Redis", part.server).flush()


class RedisOlder(BaseFault):
    """Redis comes back with a dump of some time before: the worker brings it up to date."""

    name = "redis-older"
    does: ClassVar[str] = "Redis comes back with a dump of some seconds before"

    def applies_to(self, deployment: Deployment) -> bool:
        return local_server(deployment, "redis") is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        found = local_server(deployment, "redis")
        if found is None or not found[0].is_alive():
            return
        part, server = found[0], cast("Redis", found[1])
        keep_dump(server)
        self._wait(server, rng.uniform(0, MOVE_S))
        part.kill9()
        restore_dump(server)

    def _wait(self, server: Redis, time_s: float) -> None:
        """Let the tables move on for a while, by the server's own clock."""
        with server.connect() as client:
            until = _now_s(client) + time_s
            eventually(lambda: _now_s(client) >= until, "time passes")


def _now_s(client: Client) -> float:
    seconds, micros = client.time()
    return seconds + micros / 1e6


class TwoWorkers(BaseFault):
    """A second worker writes the same tables at the same time, and knows of no other."""

    name = "two-workers"
    does: ClassVar[str] = "a second worker writes the same tables and knows of no other"
    hold_s = (1.0, 4.0)

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def applies_to(self, deployment: Deployment) -> bool:
        return deployment.tables_uri is not None

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        del rng
        command = [sys.executable, "-c", WORKER, deployment.log_uri, str(deployment.tables_uri)]
        with (deployment.folder / "second-worker.stderr").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log)

    def heal(self, deployment: Deployment) -> None:
        del deployment
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
