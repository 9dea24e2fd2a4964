"""Producers, worker, sink and Redis killed at random moments, all at once, on Kafka.

Whatever is killed when, and started again: nothing acknowledged is lost, nothing is doubled, the
tables equal the fold of the log, and the replica equals its origin.
"""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from belog.processors.factory import open_tables
from belog.processors.verify import verify_tables
from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import BelogError
from belog.sink.verify import verify_replica
from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from tests.e2e.program import PROGRAM, environment
from tests.producing import Judgement
from tests.servers import Broker, Redis, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(180)]

RUNS = int(os.environ.get("BELOG_TEST_SLICE_RUNS", "20"))
KILLS = 6
PAUSE_S_MAX = 0.6
"""Longest time between two kills, seconds."""
SESSION_S = 1.5
"""How soon the group gives a dead worker's log to the next, seconds; the broker below allows it."""
HEAL_S = 60.0

WRITER = Path(__file__).with_name("slice_writer.py")
ROOT = WRITER.parents[2]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker that allows short sessions."""
    with Broker.create({"group.min.session.timeout.ms": "1000"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def own_redis() -> Iterator[Redis]:
    """A Redis that keeps what was there at its last save; there is none, so a kill flushes it."""
    with Redis.create() as redis:
        yield redis


class Writer:
    """A graph process that comes back after each kill and first repeats what was not answered."""

    def __init__(self, log_uri: str, name: str) -> None:
        self.log_uri = log_uri
        self.name = name
        self.acknowledged: list[tuple[Event, int]] = []
        self.refused: list[Event] = []
        self.unanswered: list[str] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, WRITER, self.log_uri, self.name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{value}\n" for value in self.unanswered) + "\n")
        self.process.stdin.flush()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                return  # cut off by the kill
            word, _, rest = line.partition(" ")
            if word == "intent":
                self.unanswered = json.loads(rest)
                continue
            for value, index in zip(self.unanswered, json.loads(rest), strict=True):
                event = decode_event(bytes.fromhex(value))
                if index is None:
                    self.refused.append(event)
                else:
                    self.acknowledged.append((event, index))
            self.unanswered = []

    def kill(self) -> None:
        self.process.kill()
        self.join()

    def join(self) -> None:
        self.process.wait()
        self.reader.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def restart(self) -> None:
        self.kill()
        self.start()

    def end(self) -> None:
        """Let it finish what it is at, repeating what a kill left unanswered."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self.join()
        assert not self.unanswered


class Command:
    """A `belog` process that is started again after each kill."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.arguments = arguments
        self.start()

    def start(self) -> None:
        with (self.folder / f"{self.arguments[0]}.log").open("ab") as lines:
            self.process = subprocess.Popen(
                [PROGRAM, *self.arguments], env=environment(), stderr=lines, cwd=self.folder
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def revive(self) -> None:
        """Start it again if it gave up, as a supervisor would."""
        if self.process.poll() is not None:
            self.start()


@pytest.mark.parametrize("run", range(RUNS))
def test_nothing_is_lost_doubled_or_wrong(
    run: int, seed: int, own_broker: Broker, own_redis: Redis, tmp_path: Path
) -> None:
    random_ = random.Random(f"{seed}/{run}")
    name = f"slice-{seed}-{run}"
    origin_uri = f"{own_broker.uri}/{name}"
    replica_uri = f"{origin_uri}-replica"
    tables_uri = f"{own_redis.uri}?prefix={name}"
    for uri in (origin_uri, replica_uri):
        create_topic(uri)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(origin_uri))
        identity = log.initialize()
        writers = [Writer(origin_uri, f"graph-{n}") for n in range(2)]
        for writer in writers:
            stack.callback(writer.kill)
        worker = Command(
            tmp_path,
            *("worker", "--log", origin_uri, "--tables", tables_uri),
            *("--session-timeout-s", str(SESSION_S)),
        )
        sink = Command(tmp_path, "sink", "--from", origin_uri, "--to", replica_uri)
        for command in (worker, sink):
            stack.callback(command.kill)
        eventually(lambda: all(w.acknowledged for w in writers), "both write", timeout_s=30)

        def restart_redis() -> None:
            own_redis.kill()
            own_redis.start()

        restarts: dict[str, Callable[[], None]] = {
            "writer 0": writers[0].restart,
            "writer 1": writers[1].restart,
            "worker": worker.restart,
            "sink": sink.restart,
            "redis": restart_redis,
        }
        done: list[str] = []
        for victim in random_.choices(list(restarts), k=KILLS):
            pause(random_.uniform(0, PAUSE_S_MAX))
            restarts[victim]()
            done.append(victim)
        for writer in writers:
            writer.end()
        replica = stack.enter_context(open_log(replica_uri))
        replica.initialize(log_id=identity.log_id, replica=True)

        def healed() -> bool:
            worker.revive()
            sink.revive()
            return is_healed(log, replica, tables_uri)

        eventually(healed, f"tables and replica caught up after {done}", timeout_s=HEAL_S)
        check(log, replica, tables_uri, writers)


def pause(seconds: float) -> None:
    """Let the processes work for a while: the moment of a kill is the input of this test."""
    threading.Event().wait(seconds)


def is_healed(log: EventLog, replica: EventLog, tables_uri: str) -> bool:
    end = log.next_position()
    try:
        with open_tables(tables_uri) as tables:
            if tables.status().position < end:
                return False
        return replica.end().root == log.end().root
    except BelogError:
        return False  # Redis may be starting, the replica empty


def check(log: EventLog, replica: EventLog, tables_uri: str, writers: list[Writer]) -> None:
    judged = Judgement(log)
    for writer in writers:
        assert writer.acknowledged
        for event, index in writer.acknowledged:
            assert judged.accepted.get(event.event_id) == index
        for event in writer.refused:
            assert event.event_id not in judged.accepted
    assert log.statistics().events == len(judged.accepted)
    with open_tables(tables_uri) as tables:
        assert verify_tables(log, tables) == []
    verify_replica(log, replica).require_equal()
