"""What users see of a PostgreSQL that is away, of full disks, and of clocks that are hours off."""

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from belog.producers import Producer
from belog.schemas.errors import OutcomeUnknown, Unavailable
from belog.schemas.events import PartitionObserved
from belog.storage import open_log
from belog.storage.kafka_topic import create_topic
from tests.chaos.deployment import Backend, Deployment
from tests.chaos.faults import Proxy, SkewedClock, clock_file
from tests.chaos.faults.disks import small_disk
from tests.chaos.parts import ProcessPart, ServerPart
from tests.chaos.site import OBSERVED, at_once, injected
from tests.e2e.program import Done, belog, running
from tests.servers import Broker, Postgres, eventually
from tests.servers.runner import LocalRunner

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

CLEAR_S = 30.0
"""In so long a user has been told: ten, and a busy machine's time."""

AS_ROOT = os.geteuid() == 0
HOUR_US = 3_600_000_000


@pytest.fixture
def proxy(postgres_server: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.mark.integration
def test_postgres_away_or_silent(proxy: Proxy, postgres_schema: str, tmp_path: Path) -> None:
    uri = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={postgres_schema}"
    event_id = str(uuid.uuid4())

    def told(*arguments: str) -> Done:
        return belog(*arguments, "--log", uri, cwd=tmp_path)

    told(*OBSERVED).ok()
    asked = [*OBSERVED, "--event-id", event_id]
    hint = f" (log {uri}&log=main) — is the server up, and are host and port right?\n"
    proxy.refuse()
    done = told(*asked)
    assert (done.code, done.out) == (5, "")
    assert done.err == (
        'error: cannot connect: connection failed: connection to server at "127.0.0.1", port'
        f" {proxy.port} failed: Connection refused{hint}"
    )
    proxy.heal()
    proxy.hold()
    began = time.monotonic()
    for done in at_once(lambda: told(*asked), lambda: told("status")):
        assert (done.code, done.out) == (5, "")
        assert done.err == f"error: cannot connect: connection timeout expired{hint}"
    assert time.monotonic() - began < CLEAR_S
    proxy.heal()
    assert told(*asked).ok().out == "accepted at index 2\n"
    with open_log(uri) as log:
        log.initialize()
        with Producer(log, actor="x") as producer:
            producer.append(PartitionObserved(), "a/1")
            # A program that stays connected sees that its connections are gone, and makes new ones.
            for how in ("rst", "fin"):
                assert proxy.cut(how) > 0
                eventually(
                    lambda: producer.append(PartitionObserved(), "a/1"),
                    "appends go on",
                    ignoring=(Unavailable, OutcomeUnknown),
                )
        assert [stored.index for stored in log.read(0).events] == list(range(log.end().next_idx))


FULL: dict[Backend, tuple[int, str]] = {
    "sqlite": (400, "nothing was written: database or disk is full"),
    "file": (200, "nothing was written: "),
    "delta": (600, "No space left on device"),
}


@pytest.mark.parametrize("backend", FULL if AS_ROOT else [])
def test_a_full_disk_is_said_and_reading_goes_on(backend: Backend, tmp_path: Path) -> None:
    size_kb, says = FULL[backend]
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, size_kb):
        (disk / "log").mkdir()
        place = f"{disk}/log/log.db" if backend == "sqlite" else f"{disk}/log"
        uri = f"{backend}://{'/' if backend == 'sqlite' else ''}{place}"
        large = ["--payload", json.dumps({"message": "x" * 16_000})]

        def told(*arguments: str) -> Done:
            return belog(*arguments, "--log", uri, cwd=tmp_path)

        told(*OBSERVED).ok()
        with injected("disk-full", Deployment(backend, tmp_path, uri, uuid.UUID(int=0))):
            done = told(*OBSERVED, *large)
            assert (done.code, done.out) == (5, "")
            assert says in done.err
            assert done.err.splitlines()[-1].startswith("error: ")
            assert uri in done.err
            assert json.loads(told("status", "--json").ok().out)["next_position"] == 2
        assert told(*OBSERVED, *large).ok().out == "accepted at index 2\n"
        assert told("verify").ok().lines()[-1] == "all equal"


BROKER_KB = 80_000


@pytest.mark.integration
@pytest.mark.parametrize("size_kb", [BROKER_KB] if AS_ROOT else [])
def test_a_broker_without_room_stops_and_comes_back(size_kb: int, tmp_path: Path) -> None:
    server = Broker.create({"log.segment.bytes": "16777216"}, provider="local")
    assert isinstance(server.runner, LocalRunner)
    with small_disk(server.runner.dir, size_kb), server:
        create_topic(topic := f"{server.uri}/full")
        uri = f"{topic}?delivery.timeout.ms=1500"
        deployment = Deployment("kafka", tmp_path, uri, uuid.UUID(int=0))
        deployment.parts = [ServerPart("broker", "broker", server)]
        with open_log(uri) as log:
            log.initialize()
            with Producer(log, actor="x", wait_s=2) as producer:
                first = producer.append(PartitionObserved(), "a/1").index
                with injected("disk-full", deployment):
                    accepted = until_refused(lambda: large_event(producer))
                    eventually(
                        lambda: server.runner.why_not_running() is not None,
                        "the broker has stopped by itself",
                        timeout_s=60,
                    )
                server.start()
                last = eventually(
                    lambda: producer.append(PartitionObserved(), "a/1").index,
                    "appends go on",
                    timeout_s=60,
                    ignoring=(Unavailable, OutcomeUnknown),
                )
            found = [stored.index for stored in log.read(0).events]
        assert {first, *accepted, last} <= set(found)


def large_event(producer: Producer) -> int:
    return producer.append(PartitionObserved(message="x" * 16_000), "a/1").index


def until_refused(append: Callable[[], int]) -> list[int]:
    accepted: list[int] = []
    try:
        while True:
            accepted.append(append())
    except (Unavailable, OutcomeUnknown):
        return accepted


def test_clocks_of_writers_that_are_hours_off(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/log.db"
    writers = ("ann", "bob")
    deployment = Deployment("sqlite", tmp_path, uri, uuid.UUID(int=0))
    deployment.parts = [ProcessPart(name, "writer", (), tmp_path, {}) for name in writers]
    began = time.time_ns() // 1_000
    with open_log(uri) as log:
        log.initialize()
        producers = {
            name: Producer(log, actor=name, clock=SkewedClock(clock_file(tmp_path, name)))
            for name in writers
        }
        with injected("clocks-off", deployment, random.Random(1)):
            for n in range(6):
                producers[writers[n % 2]].append(PartitionObserved(), "a/1")
        producers["ann"].append(PartitionObserved(), "a/1")
        for producer in producers.values():
            producer.close()
        events = log.read(1).events
    ended = time.time_ns() // 1_000
    # The log's own time goes forward; what the writers say of theirs is kept beside it.
    times = [stored.created_at for stored in events]
    assert began <= times[0] <= times[-1] <= ended
    assert times == sorted(times)
    off = [abs(stored.event.occurred_at - stored.created_at) for stored in events]
    assert all(by > HOUR_US - 60_000_000 for by in off[:-1])
    assert off[-1] < 60_000_000
    said = belog("partition", "show", "a/1", "--log", uri, "--json", cwd=tmp_path).ok().json()[0]
    assert said["index"] == 7
    listed = belog("events", "--log", uri, "--since", "1", cwd=tmp_path).ok().lines()
    assert [line.split()[0] for line in listed] == [str(n) for n in range(1, 8)]


def test_a_log_replaced_while_it_is_followed(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'log.db'}"

    def told(*arguments: str) -> Done:
        return belog(*arguments, "--log", uri, cwd=tmp_path)

    told(*OBSERVED).ok()
    with running(["events", "--follow", "--log", uri], cwd=tmp_path) as follower:
        assert follower.stdout is not None
        assert "log_created" in follower.stdout.readline()
        for path in tmp_path.glob("log.db*"):
            path.rename(path.with_name(f"old-{path.name}"))
        told(*OBSERVED).ok()
        assert follower.wait(CLEAR_S) == 1
    assert (tmp_path / "events.stderr").read_text() == (
        f"error: {tmp_path / 'log.db'} was removed, or another file put in its place, while it was"
        f" open (log {uri}) — restart what has it open, also a service\n"
    )
    assert len(told("events").ok().lines()) == 2
