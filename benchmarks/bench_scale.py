"""What becomes of a log as it grows, and of tables as their subjects do."""

import multiprocessing
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from belog.processors.indexes import Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import PartitionRow
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.query import QueryEngine
from belog.schemas.envelope import encode_event
from belog.schemas.events import PartitionObserved, new_event
from belog.schemas.filters import EventFilter
from belog.schemas.fold import Fold, Record
from belog.schemas.snapshot_writer import image_of, write_snapshot
from belog.storage.creation import now_us
from belog.storage.interface import SCAN_RECORDS_MAX, fold_log
from belog.storage.memory import MemoryLog
from belog.storage.snapshots import SnapshotStore, restore_fold
from belog.storage.sqlite import SqliteLog
from benchmarks.counting import Tally, ids_in, tally, total
from benchmarks.events import START_US, STEPS, builds
from benchmarks.events import records as records_of
from benchmarks.measure import Series, rate, timed
from benchmarks.million import REF, Million
from benchmarks.servers import Servers
from benchmarks.serving import resident_mb

LENGTHS: Final = (10_000, 100_000)
"""Events of the logs that are made; the third is the shared one of a million."""
SUBJECTS: Final = (1_000, 10_000, 100_000, 1_000_000)
APPENDS: Final = 1_000
"""Validated appends that are timed at the end of each log."""
READS: Final = 20
AFTER: Final = 1_000
COLUMNS: Final = (
    "validated append, events/s",
    "filtered read, ms",
    "start from a snapshot and 1,000 events, s",
    "full fold, s",
)


def run(servers: Servers) -> Iterator[Series]:
    """Yield the table over a log's length, and the one over subjects."""
    rows: list[tuple[float, ...]] = []
    tallies: list[Tally] = []
    for length in LENGTHS:
        folder = servers.folder / f"scale-{length}"
        folder.mkdir()
        rows.append(row_of(folder, servers.sized(length, 2_000), tallies))
    rows.append(_row(servers.million.path, servers.million.store, tallies, _ref(servers.million)))
    yield Series(
        name="Length of a log in SQLite",
        axis="events",
        columns=COLUMNS,
        rows=tuple(rows),
        checked=str(total(tallies)),
    )
    yield Series(
        name="Subjects: partitions that were observed once, tables in the process",
        axis="subjects",
        columns=(
            "memory of the tables, MB",
            "bytes a subject",
            "list page, newest 100, ms",
            "list page by id, ms",
        ),
        rows=tuple(_subjects(servers.sized(subjects, 100)) for subjects in SUBJECTS),
    )


def row_of(folder: Path, length: int, tallies: list[Tally]) -> tuple[float, ...]:
    """Make a log of a length with a snapshot near its end, and return its row."""
    store = SnapshotStore(folder / "snapshots")
    # Not the tables, which of ten million events would not fit.
    fold = Fold()
    with SqliteLog(folder / "log.db") as log:
        log.initialize()
        for start, count in ((0, length - AFTER), (length - AFTER, AFTER)):
            if start:
                image = image_of(fold)
                write = partial(write_snapshot, image=image, taken_at=now_us())
                store.save(image.log_id, image.next_idx, write)
            events = builds(count // STEPS, tag="" if not start else "after-")
            while batch := list(islice(events, SCAN_RECORDS_MAX)):
                log.append_batch(batch)
                while records := log.scan(fold.next_position):
                    for record in records:
                        fold.apply(record)
    ref = f"{REF}{(length - AFTER) // STEPS // 2}"
    return _row(folder / "log.db", store, tallies, ref)


def _ref(million: Million) -> str:
    return f"{REF}{million.partitions // 2}"


def _row(path: Path, store: SnapshotStore, tallies: list[Tally], ref: str) -> tuple[float, ...]:
    with SqliteLog(path) as log:
        identity = log.initialize()
        length = log.next_position()
        wanted = EventFilter(partition_refs=(ref,))
        assert log.read(0, wanted).events

        def read() -> None:
            for _ in range(READS):
                log.read(0, wanted)

        read_ms = timed(read) * 1e3 / READS

        def start() -> None:
            found = restore_fold(log, identity, store, keeps_root=False)
            assert found is not None
            with Producer(log, actor="bench", fold=found[1]) as producer:
                assert producer.refresh() == length

        start_s = timed(start)
        fold_s = timed(lambda: fold_log(log, Fold(keeps_root=False)))
        with Producer(log, actor="bench") as producer:
            events = list(builds(APPENDS // STEPS, tag="timed-"))
            appended = rate(len(events), lambda: [producer.append_event(e) for e in events])
        ids = [event.event_id for event in events]
        tallies.append(tally([ids], ids_in(log, length)))
    return length, appended, read_ms, start_s, fold_s


def _subjects(subjects: int) -> tuple[float, ...]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        grown_mb, recent_ms, by_id_ms = pool.apply(_tables_of, (subjects,))
    return subjects, grown_mb, grown_mb * 1e6 / subjects, recent_ms, by_id_ms


def _tables_of(subjects: int) -> tuple[float, float, float]:
    """Make tables of so many partitions; return their memory, MB, and how long pages take, ms."""
    fold = TableFold()
    fold.apply(records_of(0))
    before = resident_mb()
    for start in range(0, subjects, SCAN_RECORDS_MAX):
        stop = min(start + SCAN_RECORDS_MAX, subjects)
        fold.apply([_observed(n) for n in range(start, stop)])
    with MemoryTables(fold) as tables, MemoryLog() as log:
        queries = QueryEngine(tables, log)
        # The first page makes the indexes, which count as memory of the tables.
        pages = {
            order: [
                timed(lambda order=order: queries.list_rows(PartitionRow, Where(), order=order))  # type: ignore[misc]
                for _ in range(READS)
            ][-1]
            for order in ("recent", "id")
        }
        grown_mb = resident_mb() - before
    return grown_mb, pages["recent"] * 1e3, pages["id"] * 1e3


def _observed(n: int) -> Record:
    event = new_event(
        PartitionObserved(source="bench"),
        f"{REF}{n}",
        event_id=n.to_bytes(16, "big"),
        actor="bench",
        occurred_at=START_US,
    )
    return Record(n + 1, START_US + n, encode_event(event))
