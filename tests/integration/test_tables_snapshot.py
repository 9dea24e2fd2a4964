"""Tables in Redis that start from a snapshot: whole, once, and only where they lack something."""

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from belog.processors.factory import open_tables
from belog.processors.periodic import SnapshotBeginning
from belog.processors.redis_client import Keys, parse_redis_uri
from belog.processors.redis_follower import follower_from_uri
from belog.processors.redis_load import LOAD_IDLE_US, LOAD_ROWS, load_tables
from belog.processors.replay import TableFollower
from belog.processors.rows import PartitionRow
from belog.processors.snapshots import TakenSnapshot, image_of_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.processors.tables import TableReader
from belog.processors.verify import verify_tables
from belog.processors.worker import WorkerSettings, WorkerSnapshots, run_worker
from belog.schemas.errors import BelogError
from belog.schemas.fold import Record
from belog.service.snapshots import announce_snapshot
from belog.storage.creation import now_us
from belog.storage.memory import MemoryLog
from belog.storage.snapshots import SnapshotStore
from belog.storage.sqlite import SqliteLog
from tests.examples import LOG_ID, T0, created, event, record
from tests.servers import Redis, eventually
from tests.table_logs import random_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class CountingLog(MemoryLog):
    """A log of given records that knows from where it was read."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__("records:")
        self.identity = self.initialize(log_id=LOG_ID, replica=True)
        self.identity = type(self.identity)(LOG_ID, "here", is_replica=False)
        self._records.extend(records)
        self.lowest_read = 1 << 60

    def scan(self, since_position: int, limit: int = 10_000) -> list[Record]:
        # One record is looked at to see that the snapshot is of this log.
        if limit > 1:
            self.lowest_read = min(self.lowest_read, since_position)
        return super().scan(since_position, limit)


class Tables:
    """One Redis prefix, with snapshots beside it."""

    def __init__(self, uri: str, store: SnapshotStore, stack: ExitStack) -> None:
        self.uri = uri
        self.store = store
        self.outcomes: list[TakenSnapshot | BelogError] = []
        self._stack = stack
        self.reader: TableReader = stack.enter_context(open_tables(uri))

    def follower(self, log: CountingLog, *, every: int | None = None) -> TableFollower:
        follower = follower_from_uri(
            log,
            self.uri,
            log.identity,
            beginning=lambda load: SnapshotBeginning(
                log,
                log.identity,
                self.store,
                load,
                every_events=every,
                on_outcome=self.outcomes.append,
            ),
        )
        self._stack.callback(follower.close)
        return follower

    def snapshot(self, records: list[Record]) -> TableFold:
        fold = TableFold()
        fold.apply(records)
        save_tables(self.store, image_of_tables(fold), taken_at=T0)
        return fold


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tables(redis_server: Redis, redis_prefix: str, tmp_path: Path, stack: ExitStack) -> Tables:
    return Tables(f"{redis_server.uri}?prefix={redis_prefix}", SnapshotStore(tmp_path), stack)


def test_empty_tables_are_loaded_and_the_rest_is_read(tables: Tables) -> None:
    records = random_records(random.Random(3), 600)
    fold = tables.snapshot(records[:400])
    log = CountingLog(records)
    follower = tables.follower(log)
    assert follower.start().position == fold.fold.next_position
    assert tables.reader.status().applied == fold.fold.next_idx
    follower.catch_up()
    assert log.lowest_read == fold.fold.next_position
    assert verify_tables(log, tables.reader) == []


def test_many_batches_of_rows(tables: Tables) -> None:
    refs = range(2 * LOAD_ROWS + 7)
    events = [event("v1.partition.observed", f"p{n}", {}, n=n) for n in refs]
    records = [record(0, created()), *(record(n, e) for n, e in enumerate(events, 1))]
    tables.snapshot(records)
    log = CountingLog(records)
    tables.follower(log).start()
    assert verify_tables(log, tables.reader) == []


def test_tables_that_are_further_are_left_alone(tables: Tables) -> None:
    records = random_records(random.Random(4), 300)
    log = CountingLog(records)
    follower = tables.follower(log)
    follower.start()
    follower.catch_up()
    before = tables.reader.status()
    tables.snapshot(records[:200])
    again = tables.follower(log)
    again.start()
    assert tables.reader.status() == before
    again.catch_up()
    assert tables.reader.status() == before


def test_tables_that_are_behind_are_replaced_and_removed(
    tables: Tables, redis_server: Redis
) -> None:
    records = random_records(random.Random(5), 500)
    log = CountingLog(records[:100])
    first = tables.follower(log)
    first.start()
    first.catch_up()
    old = tables.reader.status().generation
    tables.snapshot(records[:400])
    with log._changed:  # noqa: SLF001
        log._records.extend(records[100:])  # noqa: SLF001
    log.lowest_read = 1 << 60
    second = tables.follower(log)
    second.start()
    second.catch_up()
    assert log.lowest_read >= 400
    assert verify_tables(log, tables.reader) == []
    keys = Keys.of(parse_redis_uri(tables.uri).prefix)
    with redis_server.connect() as client:
        assert list(client.scan_iter(match=f"*{old}*")) == []
        assert client.smembers(keys.loading) == set()
    # The first worker sees that the tables were replaced, and goes on with them.
    first.catch_up()
    first.check()
    assert verify_tables(log, tables.reader) == []


def test_loading_at_once_does_not_mix(tables: Tables) -> None:
    records = random_records(random.Random(6), 900)
    tables.snapshot(records[:700])
    log = CountingLog(records)
    followers = [tables.follower(log) for _ in range(4)]
    errors: list[BaseException] = []

    def follow(follower: TableFollower) -> None:
        try:
            follower.start()
            follower.catch_up()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=follow, args=(each,)) for each in followers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert verify_tables(log, tables.reader) == []


def test_a_load_that_is_late_changes_nothing(tables: Tables) -> None:
    records = random_records(random.Random(7), 300)
    fold = tables.snapshot(records[:200])
    log = CountingLog(records)
    uri = parse_redis_uri(tables.uri)
    seen = tables.reader.status()
    follower = tables.follower(log)
    follower.start()
    follower.catch_up()
    before = tables.reader.status()
    assert not load_tables(uri, fold, seen)
    assert not load_tables(uri, fold, before)
    assert tables.reader.status() == before
    assert verify_tables(log, tables.reader) == []


def test_what_a_dead_loader_left_is_removed(tables: Tables, redis_server: Redis) -> None:
    records = random_records(random.Random(8), 300)
    fold = tables.snapshot(records[:200])
    uri = parse_redis_uri(tables.uri)
    keys = Keys.of(uri.prefix)
    with redis_server.connect() as client:
        for generation, age_us in (("dead", LOAD_IDLE_US + 10**6), ("live", 0)):
            meta = keys.loading_into(generation).meta
            client.sadd(keys.loading, generation)
            client.hset(meta, mapping={"written_at": now_us() - age_us, "position": 1})
            client.set(f"{keys.base(generation)}partition:x", "1")
        assert load_tables(uri, fold, tables.reader.status())
        assert client.smembers(keys.loading) == {b"live"}
        follower = tables.follower(CountingLog(records))
        follower.start()
        follower.catch_up()
        assert list(client.scan_iter(match=f"{keys.base('dead')}*")) == []
        assert len(list(client.scan_iter(match=f"{keys.base('live')}*"))) == 2


def test_snapshots_are_taken_as_it_goes_on(tables: Tables) -> None:
    records = random_records(random.Random(9), 1_000)
    log = CountingLog(records[:1])
    follower = tables.follower(log, every=300)
    follower.start()
    follower.catch_up()
    for at in range(1, len(records), 50):
        with log._changed:  # noqa: SLF001
            log._records.extend(records[at : at + 50])  # noqa: SLF001
        follower.take(log.scan(follower.position))
    follower.close()
    taken = [o.header.next_idx for o in tables.outcomes if isinstance(o, TakenSnapshot)]
    assert len(taken) == len(tables.outcomes) >= 2
    assert all(b - a >= 300 for a, b in pairwise(taken))
    found = tables.store.newest_valid(LOG_ID, lambda reader: reader.fold().merkle.root())
    expected = TableFold()
    expected.apply([r for r in records if r.position < taken[-1]])
    assert found is not None
    assert found[1] == expected.fold.merkle.root()


def test_a_worker_takes_announces_and_starts_from_them(
    tables: Tables, redis_server: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "belog.worker")
    uri = f"sqlite:///{tmp_path}/log.db"
    with SqliteLog(tmp_path / "log.db") as log:
        identity = log.initialize()
        log.append_batch([event("v1.partition.observed", f"p{n}", {}, n=n) for n in range(400)])
        for round_number in range(2):
            stop = threading.Event()
            worker = threading.Thread(
                target=run_worker,
                args=(uri, tables.uri, WorkerSettings(tail="plain")),
                kwargs={
                    "snapshots": WorkerSnapshots(
                        store=tables.store, every_events=200, announce=announce_snapshot
                    ),
                    "stop": stop,
                },
            )
            worker.start()
            eventually(
                partial(_has_snapshots, tables.store, identity.log_id, round_number + 1),
                "a snapshot is taken",
            )
            eventually(
                lambda: tables.reader.status().position == log.next_position() and _announced(log),
                "the tables are at the end",
            )
            stop.set()
            worker.join(30)
            assert verify_tables(log, tables.reader) == []
            if round_number == 0:
                log.append_batch(
                    [event("v1.partition.removed", f"p{n}", {}, n=1000 + n) for n in range(250)]
                )
                with redis_server.connect() as client:
                    for key in client.scan_iter(match=f"*{parse_redis_uri(tables.uri).prefix}*"):
                        client.delete(key)
        assert tables.reader.get(PartitionRow, "p1").value is not None


def _has_snapshots(store: SnapshotStore, log_id: UUID, count: int) -> bool:
    return len(store.files(log_id)) == count


def _announced(log: SqliteLog) -> bool:
    return log.read(0).events[-1].event.event_type == "v1.system.snapshot_taken"
