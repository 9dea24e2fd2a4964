"""Migration between two SQLite files, verified, against a raw copy of the rows."""

import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import UUID

from belog.schemas.envelope import decode_event
from belog.sink.migrate import MigrationReport, migrate_log
from belog.storage.interface import CopiedRecord
from belog.storage.sqlite import SqliteLog
from benchmarks.events import STEPS, records
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import Servers

EVENTS = 100_000
BATCH = 10_000
ROUNDS = 3


def run(servers: Servers) -> Iterator[Figure]:
    """Yield the rate of a migration."""
    numbers = count()
    path = servers.folder / "migrate-origin.db"
    total = _fill(path, servers.sized(EVENTS, STEPS) // STEPS)
    reports: list[MigrationReport] = []

    def ours() -> float:
        target = servers.folder / f"migrate-{next(numbers)}.db"
        with SqliteLog(path) as here, SqliteLog(target) as there:
            return rate(total, lambda: reports.append(migrate_log(here, there)))

    def theirs() -> float:
        target = servers.folder / f"migrate-{next(numbers)}.db"
        return rate(total, lambda: _copy(path, target))

    pair = paired(ours, theirs, ROUNDS)
    assert all(report.copied == total for report in reports)
    with SqliteLog(path) as log:
        log.initialize()
        assert {report.root for report in reports} == {log.end().root}
    yield pair.figure(
        "migrate SQLite → SQLite, read back and verified",
        "events/s",
        against=f"sqlite3, rows in batches of {BATCH}",
        must=0.2,
        aim=0.5,
        checked="equal count, indices, times, root",
    )


def _fill(path: Path, partitions: int) -> int:
    made = records(partitions)
    log_id = UUID(decode_event(made[0].value or b"").subject_id)
    with SqliteLog(path) as log:
        log.initialize(log_id=log_id, empty=True)
        for start in range(0, len(made), BATCH):
            part = made[start : start + BATCH]
            copies = [CopiedRecord(r.position, r.created_at, r.value or b"") for r in part]
            log.copy_records(copies, after=start - 1)
    return len(made)


def _copy(origin: Path, target: Path) -> None:
    here = sqlite3.connect(origin, isolation_level=None)
    there = sqlite3.connect(target, isolation_level=None)
    there.execute("PRAGMA journal_mode=WAL")
    there.execute("PRAGMA synchronous=FULL")
    there.execute(
        "CREATE TABLE t (idx INTEGER PRIMARY KEY, created_at INTEGER NOT NULL, value BLOB NOT NULL)"
    )
    cursor = here.execute("SELECT idx, created_at, value FROM belog_records ORDER BY idx")
    while rows := cursor.fetchmany(BATCH):
        there.execute("BEGIN IMMEDIATE")
        there.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        there.execute("COMMIT")
    here.close()
    there.close()
