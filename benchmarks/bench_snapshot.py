"""Starting from a snapshot and the events after it, against reading the whole log."""

from collections.abc import Iterator

from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import PartitionRow
from belog.processors.snapshots import restore_tables
from belog.producers import Producer
from belog.storage.snapshots import restore_fold
from belog.storage.sqlite import SqliteLog
from benchmarks.measure import Constant, Figure, absolute, paired, rate
from benchmarks.million import AFTER, REF, Million
from benchmarks.servers import Servers

ROUNDS = 1
"""A full replay takes half a minute, and differs from the next by a hundredth of the ratio."""


def run(servers: Servers) -> Iterator[Figure | Constant]:
    """Yield how many times sooner a producer, and tables, are at the log's end."""
    million = servers.million
    made = million.count / million.seconds
    yield absolute(
        f"a log of {million.count:,} events made in batches, folded and counted, one process",
        "events/s",
        [made],
        must=0,
        aim=15_000,
        checked=str(million.checked),
    )
    with SqliteLog(million.path) as log:
        log.initialize()
        yield paired(
            lambda: rate(million.count, lambda: _producer(log, million, snapshot=True)),
            lambda: rate(million.count, lambda: _producer(log, million, snapshot=False)),
            ROUNDS,
        ).figure(
            f"a producer starts from a snapshot and {AFTER:,} events, log of {million.count:,}",
            "events/s",
            against="full replay of ours",
            must=20,
            aim=50,
            checked=f"at the same index; the file has {million.snapshot_mb:.0f} MB",
        )
        yield paired(
            lambda: rate(million.count, lambda: _tables(log, million, snapshot=True)),
            lambda: rate(million.count, lambda: _tables(log, million, snapshot=False)),
            ROUNDS,
        ).figure(
            f"tables start from a snapshot and {AFTER:,} events, log of {million.count:,}",
            "events/s",
            against="full replay of ours",
            must=20,
            aim=50,
            checked="at the same index",
        )
    yield Constant(
        key="snapshot_bytes_per_row",
        unit="bytes",
        value=million.snapshot_mb * 1e6 / sum(1 for _ in million.tables.rows()),
        how="the snapshot file over the rows it holds",
    )
    yield Constant(
        key="sqlite_bytes_per_event",
        unit="bytes",
        value=million.path.stat().st_size / million.count,
        how=f"the file of {million.count:,} events, without the index of filters",
    )


def _producer(log: SqliteLog, million: Million, *, snapshot: bool) -> None:
    fold = None
    if snapshot:
        found = restore_fold(log, million.identity, million.store, keeps_root=False)
        assert found is not None
        fold = found[1]
    with Producer(log, actor="bench", fold=fold) as producer:
        assert producer.refresh() == million.count
        state = producer.known_state("partition", f"{REF}0")
        assert state is not None
        assert state.state == "stale"


def _tables(log: SqliteLog, million: Million, *, snapshot: bool) -> None:
    start = None
    if snapshot:
        found = restore_tables(log, million.identity, million.store, keeps_root=False)
        assert found is not None
        start = found[1]
    with MemoryTables(start) as tables:
        assert tables.catch_up(log) == million.count
        row = tables.get(PartitionRow, f"{REF}0").value
        assert row is not None
        assert row.state == "stale"
