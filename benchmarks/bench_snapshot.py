"""Starting from a snapshot and the events after it, against reading the whole log."""

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import PartitionRow
from belog.processors.snapshots import image_of_tables, restore_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.envelope import Event
from belog.schemas.events import (
    PartitionAvailable,
    PartitionBuilding,
    PartitionRequested,
    PartitionScheduled,
    PartitionStale,
    Payload,
    new_event,
)
from belog.storage.creation import now_us
from belog.storage.interface import SCAN_RECORDS_MAX, LogIdentity
from belog.storage.snapshots import SnapshotStore, restore_fold
from belog.storage.sqlite import SqliteLog
from benchmarks.events import START_US, STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import Servers

EVENTS = 1_000_000
AFTER = 1_000
"""Events after the snapshot."""
PARTITIONS = EVENTS // 2 // STEPS
"""A partition and its job run are a subject each, 200k; each partition has ten events."""
ROUNDS = 2


def run(_servers: Servers) -> Iterator[Figure]:
    """Yield how many times sooner a producer, and tables, are at the log's end."""
    with TemporaryDirectory() as folder, SqliteLog(Path(folder) / "log.db") as log:
        identity = log.initialize()
        store = SnapshotStore(Path(folder) / "snapshots")
        size_mb = _fill(log, store)
        count = log.next_position()
        assert count == 1 + EVENTS + AFTER
        row = log.read(1, limit=1).events[0].event.subject_id
        yield paired(
            lambda: rate(count, lambda: _producer(log, identity, store)),
            lambda: rate(count, lambda: _producer(log, identity, None)),
            ROUNDS,
        ).figure(
            f"a producer starts from a snapshot and {AFTER:,} events",
            "events/s",
            against="full replay of ours",
            must=20,
            aim=50,
            checked=f"the file has {size_mb:.0f} MB",
        )
        yield paired(
            lambda: rate(count, lambda: _tables(log, identity, store, row)),
            lambda: rate(count, lambda: _tables(log, identity, None, row)),
            ROUNDS,
        ).figure(
            f"tables start from a snapshot and {AFTER:,} events",
            "events/s",
            against="full replay of ours",
            must=20,
            aim=50,
        )


def _producer(log: SqliteLog, identity: LogIdentity, store: SnapshotStore | None) -> None:
    fold = None
    if store is not None:
        found = restore_fold(log, identity, store, keeps_root=False)
        assert found is not None
        fold = found[1]
    with Producer(log, actor="bench", fold=fold) as producer:
        assert producer.refresh() == 1 + EVENTS + AFTER


def _tables(log: SqliteLog, identity: LogIdentity, store: SnapshotStore | None, ref: str) -> None:
    start = None
    if store is not None:
        found = restore_tables(log, identity, store, keeps_root=False)
        assert found is not None
        start = found[1]
    with MemoryTables(start) as tables:
        assert tables.catch_up(log) == 1 + EVENTS + AFTER
        row = tables.get(PartitionRow, ref).value
        assert row is not None
        assert row.state == "stale"


def _fill(log: SqliteLog, store: SnapshotStore) -> float:
    """Write the log, and a snapshot of all but its last events; return the file's size, MB."""
    tables = TableFold()
    events = chain(builds(PARTITIONS), _again(PARTITIONS))
    while batch := list(islice(events, SCAN_RECORDS_MAX)):
        log.append_batch(batch)
        tables.apply(log.scan(tables.fold.next_position))
    tables.apply(log.scan(tables.fold.next_position))
    assert tables.fold.merkle.size == 1 + EVENTS
    taken = save_tables(store, image_of_tables(tables), taken_at=now_us())
    log.append_batch(list(builds(AFTER // STEPS, tag="after-")))
    return taken.file.path.stat().st_size / 1e6


def _again(partitions: int) -> Iterator[Event]:
    """Yield five more events of each partition that `builds` has made."""
    for n in range(partitions):
        ref, build, task = f"data://garden/who/2026-01-01/table_{n}", f"again-{n}", f"task-{n}"
        yield _event(PartitionRequested(build_request_id=build), ref, n)
        yield _event(PartitionScheduled(build_request_id=build, task_id=task), ref, n)
        yield _event(PartitionBuilding(build_request_id=build), ref, n)
        yield _event(PartitionAvailable(build_request_id=build), ref, n)
        yield _event(PartitionStale(reason="its source changed"), ref, n)


def _event(payload: Payload, ref: str, n: int) -> Event:
    return new_event(
        payload, ref, event_id=os.urandom(16), actor="who-graph", occurred_at=START_US + n
    )
