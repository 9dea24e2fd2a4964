"""A vacuum that is killed, and programs that go on beside one."""

import random
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from belog.processors.memory_tables import MemoryTables
from belog.processors.snapshots import image_of_tables, restore_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Gone
from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.snapshots import SnapshotStore, restore_fold
from belog.storage.testing_events import Story
from tests.contract.test_kafka import QUICK_COMPACTION, compacted
from tests.examples import T0
from tests.servers import Broker, Postgres

ROOT = Path(__file__).parents[2]
WORKER = [sys.executable, "-m", "tests.integration.vacuum_worker"]
EVER = 2**62
URIS = {
    "sqlite": "sqlite:///{0}/log.db",
    "file": "file://{0}/log",
    "delta": "delta:///{0}/log",
}


def filled(uri: str, store: SnapshotStore, seed: int) -> tuple[EventLog, TableFold]:
    log = open_log(uri)
    log.initialize()
    log.append_batch(Story(seed).events(3_000))
    tables = TableFold()
    while records := log.scan(tables.fold.next_position):
        tables.apply(records)
    save_tables(store, image_of_tables(tables), taken_at=T0)
    return log, tables


def left(log: EventLog) -> list[int]:
    return [record.position for record in log.scan_raw(0, 10_000)]


def kill_a_vacuum(uri: str, store: SnapshotStore, seed: int) -> None:
    """Let a process vacuum a log, and kill it some time after it began to remove."""
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    process = subprocess.Popen(
        [*WORKER, uri, str(store.folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "removing\n"
    stop = threading.Event()
    stop.wait(random.Random(seed).random() * 0.05)
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.chaos
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", [*sorted(URIS), "postgres"])
@pytest.mark.parametrize("seed", range(4))
def test_a_vacuum_that_is_killed_is_taken_up(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, seed: int
) -> None:
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres_server")
        uri = f"{server.uri}?schema={request.getfixturevalue('postgres_schema')}"
    else:
        uri = URIS[kind].format(tmp_path)
    store = SnapshotStore(tmp_path / "snapshots")
    log, tables = filled(uri, store, seed)
    whole, root = list(log.read().events), tables.fold.merkle.root()
    log.close()
    kill_a_vacuum(uri, store, seed)
    with open_log(uri) as again:
        again.initialize()
        found = restore_fold(again, again.initialize(), store)
        assert found is not None
        assert found[1].merkle.root() == root
        report = again.vacuum(EVER, dry_run=False, snapshots=store)
        newest = sorted({s.event.subject: s.index for s in whole}.values())
        assert left(again)[: len(newest)] == newest
        assert report.horizon == max(set(range(len(whole))) - set(newest)) + 1
        marks = [s for s in again.read(len(whole)).events if "vacuumed" in s.event.event_type]
        assert len(marks) == 1
        with pytest.raises(Gone):
            again.read(0)


@pytest.mark.chaos
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(2))
def test_a_vacuum_of_a_topic_that_is_killed_is_taken_up(
    tmp_path: Path, broker: Broker, topic_name: str, seed: int
) -> None:
    uri, store = f"{broker.uri}/{topic_name}", SnapshotStore(tmp_path / "snapshots")
    create_topic(uri, config=QUICK_COMPACTION)
    log, tables = filled(uri, store, seed)
    whole, root = list(log.read().events), tables.fold.merkle.root()
    log.close()
    kill_a_vacuum(uri, store, seed)
    with ExitStack() as stack:
        again = stack.enter_context(open_log(uri))
        found = restore_fold(again, again.initialize(), store)
        assert found is not None
        assert found[1].merkle.root() == root
        report = again.vacuum(EVER, dry_run=False, snapshots=store)
        newest = sorted({s.event.subject: s.index for s in whole}.values())
        assert report.horizon == max(set(range(len(whole))) - set(newest)) + 1
        settled = compacted(again, stack)
        held = [r for r in settled.scan_raw(0, 10_000) if r.value is not None]
        assert [r.position for r in held][: len(newest)] == newest
        assert sum(b"v1.system.vacuumed" in (r.value or b"") for r in held) == 1
        with pytest.raises(Gone):
            settled.read(0)


def test_programs_that_were_there_go_on_beside_it(tmp_path: Path) -> None:
    uri, store = URIS["sqlite"].format(tmp_path), SnapshotStore(tmp_path / "snapshots")
    log, _ = filled(uri, store, 1)
    followed: list[StoredEvent] = []
    end = log.next_position()
    with log, open_log(uri) as other, Producer(log, actor="tester") as producer:
        other.initialize()
        with MemoryTables() as tables:
            tables.catch_up(other)
            assert log.vacuum(EVER, dry_run=False, snapshots=store).removed > 0
            for n in range(20):
                producer.append("v1.partition.observed", f"new/{n % 3}", {})
            stop = threading.Event()
            for stored in other.follow(end, stop=stop):
                followed.append(stored)
                if len(followed) == 21:
                    stop.set()
                    break
            tables.catch_up(other)
            found = restore_tables(other, other.initialize(), store)
            assert found is not None
            with MemoryTables(found[1]) as anew:
                anew.catch_up(other)
                assert anew.counts() == tables.counts()
                assert list(anew.indexes()) == list(tables.indexes())
    assert [stored.index for stored in followed] == list(range(end, end + 21))
