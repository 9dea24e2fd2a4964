"""Durable appends to SQLite, against sqlite3 writing the same bytes."""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from belog.producers import Producer
from belog.schemas.envelope import Event, encode_event
from belog.storage.sqlite import SqliteLog
from benchmarks.counting import Tally, tally_log, total
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import Servers

SINGLES = 1_500
BATCHED = 30_000
BATCH = 100


def run(servers: Servers) -> Iterator[Figure]:
    """Yield appends one at a time and in batches."""
    numbers = count()
    tallies: list[Tally] = []

    def ours(events_count: int, batch: int) -> float:
        number = next(numbers)
        events = list(builds(events_count // STEPS, tag=f"{number}-"))
        with SqliteLog(servers.folder / f"ours-{number}.db") as log:
            log.initialize()
            with Producer(log, actor="bench") as producer:

                def write() -> None:
                    for chunk in chunks(events, batch):
                        if batch == 1:
                            producer.append_event(chunk[0])
                        else:
                            producer.append_batch(chunk)

                result = rate(len(events), write)
            tallies.append(tally_log(log, [events]))
        return result

    def theirs(events_count: int, batch: int) -> float:
        number = next(numbers)
        values = [encode_event(e) for e in builds(events_count // STEPS, tag=f"{number}-")]
        return raw(servers.folder / f"raw-{number}.db", values, batch)

    for name, events_count, batch, must, aim in (
        ("SQLite, validated append one at a time, durable", SINGLES, 1, 0.5, 0.8),
        (f"SQLite, validated append in batches of {BATCH}", BATCHED, BATCH, 0.4, 0.7),
    ):
        many = servers.sized(events_count, batch)
        tallies.clear()
        pair = paired(partial(ours, many, batch), partial(theirs, many, batch))
        yield pair.figure(
            name,
            "events/s",
            against="sqlite3, same bytes, WAL, FULL",
            must=must,
            aim=aim,
            checked=str(total(tallies)),
        )


def chunks(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    """Yield slices of a size."""
    for start in range(0, len(events), size):
        yield events[start : start + size]


def raw(path: Path, values: Sequence[bytes], batch: int) -> float:
    """Write values with nothing but sqlite3; return the rate."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE t (idx INTEGER PRIMARY KEY, created_at INTEGER NOT NULL, value BLOB NOT NULL)"
    )

    def write() -> None:
        for start in range(0, len(values), batch):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO t VALUES (?, ?, ?)",
                [(start + n, 1, v) for n, v in enumerate(values[start : start + batch])],
            )
            connection.execute("COMMIT")

    result = rate(len(values), write)
    connection.close()
    return result
