"""A log of a million events that several benchmarks share, since making it takes a minute."""

import os
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from belog.processors.snapshots import image_of_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.schemas.envelope import Event
from belog.schemas.events import (
    BuildReceived,
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
from belog.storage.snapshots import SnapshotStore
from belog.storage.sqlite import SqliteLog
from benchmarks.counting import Tally, ids_in, tally
from benchmarks.events import START_US, STEPS, builds

__all__ = ["AFTER", "PARTITIONS", "REF", "Million", "make_million", "received"]

PARTITIONS: Final = 100_000
"""A partition and its job run are a subject each, 200k; each partition has ten events."""
AFTER: Final = 1_000
"""Events after the snapshot."""
BUILD_PARTITIONS: Final = 100
"""As in `benchmarks.events`."""
REF: Final = "data://garden/who/2026-01-01/table_"


class Million(Struct, frozen=True, kw_only=True):
    """The log, and what is known of it."""

    path: Path
    identity: LogIdentity
    partitions: int
    tables: TableFold
    """Its tables, up to the end."""
    store: SnapshotStore
    """One snapshot, of all but the last `AFTER` events."""
    snapshot_mb: float
    seconds: float
    """How long making it took, without counting."""
    checked: Tally
    """Counted from the log after all was appended."""

    @property
    def uri(self) -> str:
        """URI of the log."""
        return f"sqlite:///{self.path}"

    @property
    def snapshots(self) -> Path:
        """Folder of the snapshot."""
        return self.path.with_name("million-snapshots")

    @property
    def count(self) -> int:
        """Records of the log."""
        return self.tables.fold.next_position


def make_million(folder: Path, *, partitions: int = PARTITIONS) -> Million:
    """Write the log in batches, fold it, and take the snapshot.

    Args:
        folder: Where its files go.
        partitions: A tenth of the events.
    """
    path, store = folder / "million.db", SnapshotStore(folder / "million-snapshots")
    tables = TableFold()
    sent: list[bytes] = []
    started = time.perf_counter()
    with SqliteLog(path) as log:
        identity = log.initialize()

        def write(events: Iterator[Event]) -> None:
            while batch := list(islice(events, SCAN_RECORDS_MAX)):
                log.append_batch(batch)
                sent.extend(event.event_id for event in batch)
                tables.apply(log.scan(tables.fold.next_position))
            while records := log.scan(tables.fold.next_position):
                tables.apply(records)

        write(chain(received(partitions), builds(partitions), _again(partitions)))
        taken = save_tables(store, image_of_tables(tables), taken_at=now_us())
        write(builds(AFTER // STEPS, tag="after-"))
        assert tables.fold.merkle.size == tables.fold.next_position == len(sent) + 1
        seconds = time.perf_counter() - started
        checked = tally([sent], ids_in(log))
    return Million(
        path=path,
        identity=identity,
        partitions=partitions,
        tables=tables,
        store=store,
        seconds=seconds,
        snapshot_mb=taken.file.path.stat().st_size / 1e6,
        checked=checked,
    )


def received(partitions: int) -> Iterator[Event]:
    """Yield the builds that `builds` names, each with the partitions it asks for."""
    for n in range(partitions // BUILD_PARTITIONS):
        first = n * BUILD_PARTITIONS
        refs = [f"{REF}{m}" for m in range(first, first + BUILD_PARTITIONS)]
        received = BuildReceived(requested_partitions=refs, client_id="who")
        yield _event(received, f"nightly--{n:08d}", n)


def _again(partitions: int) -> Iterator[Event]:
    """Yield five more events of each partition that `builds` has made."""
    for n in range(partitions):
        ref, build, task = f"{REF}{n}", f"again-{n // BUILD_PARTITIONS:08d}", f"task-{n}"
        yield _event(PartitionRequested(build_request_id=build), ref, n)
        yield _event(PartitionScheduled(build_request_id=build, task_id=task), ref, n)
        yield _event(PartitionBuilding(build_request_id=build), ref, n)
        yield _event(PartitionAvailable(build_request_id=build), ref, n)
        yield _event(PartitionStale(reason="its source changed"), ref, n)


def _event(payload: Payload, subject: str, n: int) -> Event:
    return new_event(
        payload, subject, event_id=os.urandom(16), actor="who-graph", occurred_at=START_US + n
    )
