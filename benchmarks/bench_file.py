"""The file backend with several threads that append, against our SQLite with as many.

In one run with the others: `python -m benchmarks file`. Alone, as a table and as JSON:
`python -m benchmarks.bench_file [FILE]`.
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from belog.storage import ConditionalLog
from belog.storage.file import FileLog
from belog.storage.sqlite import SqliteLog
from benchmarks.counting import Tally, tally_log, total
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.servers import QUICK_DIVISOR, Servers

Make = Callable[[Path], ConditionalLog]

THREADS = 8
EVENTS = 500
"""Events of each thread."""
BATCH = 100
BATCHED = 4_000
"""Events of each thread that come in batches."""
SCANNED = 100_000
SCAN_STEP = 10_000


def run(servers: Servers) -> Iterator[Figure]:
    """Yield durable appends of threads, one event each and in batches, and scans."""
    yield from figures(servers.folder, quick=servers.quick)


def figures(folder: Path, *, quick: bool = False) -> Iterator[Figure]:
    """Yield the figures; logs are made in a folder."""
    numbers = count()
    tallies: list[Tally] = []

    def appended(make: Make, threads: int, each: int, batch: int) -> float:
        number = next(numbers)
        work = [list(builds(each // STEPS, tag=f"{number}-{t}-")) for t in range(threads)]
        with make(folder / f"log-{number}") as log:
            log.initialize()

            def write(thread: int) -> None:
                for start in range(0, each, batch):
                    log.append_batch(work[thread][start : start + batch])

            workers = [threading.Thread(target=write, args=(t,)) for t in range(threads)]

            def all_write() -> None:
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()

            result = rate(threads * each, all_write)
            tallies.append(tally_log(log, work))
            return result

    for name, threads, each, batch, must, aim in (
        (f"files, {THREADS} threads, one event each, durable", THREADS, EVENTS, 1, 1.5, 5.0),
        ("files, one thread, one event each, durable", 1, 2 * EVENTS, 1, 0.8, 1.2),
        (f"files, {THREADS} threads, batches of {BATCH}", THREADS, BATCHED, BATCH, 1.0, 2.0),
    ):
        tallies.clear()
        many = each // QUICK_DIVISOR // batch * batch if quick else each
        pair = paired(
            partial(appended, FileLog, threads, many, batch),
            partial(appended, SqliteLog, threads, many, batch),
        )
        yield pair.figure(
            name,
            "events/s",
            against="our SQLite",
            must=must,
            aim=aim,
            checked=f"{total(tallies)}, both",
        )
    yield scans(folder)


def scans(folder: Path) -> Figure:
    """Return the rate of reading raw records back."""
    events = list(builds(SCANNED // STEPS, tag="scan-"))
    logs: list[ConditionalLog] = [FileLog(folder / "scan-log"), SqliteLog(folder / "scan.db")]
    for log in logs:
        log.initialize()
        for start in range(0, SCANNED, SCAN_STEP):
            log.append_batch(events[start : start + SCAN_STEP])

    def scanned(log: ConditionalLog) -> float:
        def read() -> None:
            for start in range(0, SCANNED, SCAN_STEP):
                assert len(log.scan(start, SCAN_STEP)) == SCAN_STEP

        return rate(SCANNED, read)

    pair = paired(lambda: scanned(logs[0]), lambda: scanned(logs[1]))
    for log in logs:
        log.close()
    return pair.figure("files, raw scan", "events/s", against="our SQLite", must=0.5, aim=1.0)


def main() -> int:
    """Run alone."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(figures(Path(folder)))
    for row in rows:
        print(
            f"{row.name}: {row.ours:,.0f} against {row.theirs or 0:,.0f} {row.unit},"
            f" ratio {row.value:.2f} ({row.low:.2f} to {row.high:.2f}), {row.verdict}"
        )
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")
    return 1 if any(row.verdict == "missed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
