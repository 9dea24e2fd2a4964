"""Eight writers on PostgreSQL against `eventsourcing`, and selective reads against scans.

`python -m benchmarks.bench_postgres [--json FILE] [--events N]` runs it alone. The rival lives in a
virtual environment of its own, made on the first run in the folder that `--venv` or
`BELOG_BENCH_RIVALS` names.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from belog.schemas.envelope import decode_event
from belog.schemas.filters import EventFilter, Matcher, Terms, terms_of
from belog.storage import open_log
from belog.storage.interface import EventLog
from benchmarks.events import builds
from benchmarks.measure import Figure, absolute, paired, timed
from benchmarks.rival_venv import RIVALS, VENV, rival_python
from benchmarks.servers import Servers
from tests.servers import Postgres

WRITERS: Final = 8
SINGLES: Final = 8 * 400
BATCH: Final = 100
BATCHED: Final = 8 * 40 * BATCH
RECORD_BYTES: Final = 400
"""What an event of `benchmarks.events` takes, rounded."""
SELECTIVE_EVENTS: Final = 1_000_000
FILL_EVENTS: Final = 5_000
RIVAL: Final = "eventsourcing[postgres]==9.5.6"
ROUNDS: Final = 5


def run(servers: Servers) -> Iterator[Figure]:
    """Yield all figures, on the run's servers."""
    yield from figures_of(servers.postgres, servers.folder, VENV)


def figures_of(
    server: Postgres, folder: Path, venv_folder: Path, events: int = SELECTIVE_EVENTS
) -> Iterator[Figure]:
    """Yield all figures."""
    python = rival_python(RIVAL, "psycopg[binary]", folder=venv_folder)
    for name, mode, count, batch, must, aim in (
        ("one event each", "append", SINGLES, 1, 2.0, 4.0),
        ("one event each, unless touched", "judged", SINGLES, 1, 2.0, 4.0),
        (f"batches of {BATCH}", "append", BATCHED, BATCH, 5.0, 15.0),
        (f"batches of {BATCH}, unless touched", "judged", BATCHED, BATCH, 5.0, 15.0),
    ):
        pair = paired(
            partial(ours, server, count, batch, mode),
            partial(theirs, server, python, count, batch),
            ROUNDS,
        )
        yield pair.figure(
            f"PostgreSQL, {WRITERS} writers, {name}",
            "events/s",
            against=f"{RIVAL}, its table lock",
            must=must,
            aim=aim,
        )
    if not events:
        return
    for name, uri in (
        ("SQLite", f"sqlite:///{folder / 'selective.db'}"),
        ("PostgreSQL", f"{server.uri}?schema=selective"),
    ):
        yield from selective(name, uri, events)


# --- writers


def ours(server: Postgres, events: int, batch: int, mode: str) -> float:
    """Return events a second of our writers, together."""
    uri = f"{server.uri}?schema=bench_{uuid.uuid4().hex[:8]}"
    with open_log(uri) as log:
        log.initialize()
        module = [sys.executable, "-m", "benchmarks.rivals.belog_postgres", uri]
        each = str(events // WRITERS)
        found = race([[*module, f"w{n}-", each, str(batch), mode] for n in range(WRITERS)], events)
        assert log.next_position() == events + 1
    return found


def theirs(server: Postgres, python: Path, events: int, batch: int) -> float:
    """Return events a second of the rival's writers, together."""
    script = [str(python), str(RIVALS / "eventsourcing_postgres.py"), str(server.port)]
    table = f"events_{uuid.uuid4().hex[:8]}"
    subprocess.run([*script, table, "0", "0", "0"], check=True)
    each = [str(events // WRITERS), str(batch), str(RECORD_BYTES)]
    return race([[*script, table, *each]] * WRITERS, events)


def race(commands: Sequence[Sequence[str]], events: int) -> float:
    """Start writers, let them go at once, and return events a second until the last is done."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for command in commands
        ]
        for writer in writers:
            assert line_of(writer) == "ready"
        start = time.perf_counter()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            line_of(writer)
        return events / (time.perf_counter() - start)


def line_of(writer: "subprocess.Popen[str]") -> str:
    """Return the next line that a writer says."""
    assert writer.stdout is not None
    line = writer.stdout.readline().strip()
    assert line, "a writer ended early"
    return line


# --- selective reads


def selective(name: str, uri: str, count: int) -> Iterator[Figure]:
    """Fill a log, build its index, and hold a filter with 100 hits against a scan."""
    with open_log(uri) as log:
        log.initialize()
        events = builds(count // 5, tag="s")
        while chunk := list(islice(events, FILL_EVENTS)):
            log.append_batch(chunk)
        hits = tuple(f"data://garden/who/2026-01-01/table_s{count // 10 + n}" for n in range(20))
        wanted = EventFilter(partition_refs=hits)
        index_s = timed(lambda: log.read(0, wanted, 1))
        yield absolute(
            f"{name}, first filtered read of {count:,} events: the index is made",
            "events/s",
            [count / index_s],
            must=0,
            aim=20_000,
        )
        # A scan is slow enough to be timed once; a read is not.
        scan_s = timed(lambda: scanned(log, wanted))
        reads = [timed(lambda: read(uri, wanted)) for _ in range(5)]
        warm = [timed(lambda: log.read(0, wanted)) for _ in range(ROUNDS * 4)]
        yield absolute(
            f"{name}, selective read (100 hits of {count:,}) against a scan",
            "times faster",
            [scan_s / warm_s for warm_s in warm],
            must=100,
            aim=1000,
            checked=f"scan {scan_s:.2f} s, read {min(warm) * 1000:.2f} ms, "
            f"in a process that just opened it {min(reads) * 1000:.1f} ms",
        )


def read(uri: str, wanted: EventFilter) -> None:
    """Read as a process does that just opened the log."""
    with open_log(uri) as log:
        log.initialize()
        page = log.read(0, wanted)
        assert len(page.events) == 100, len(page.events)
        assert not page.has_more


def scanned(log: EventLog, wanted: EventFilter) -> None:
    """Find what a filter wants without an index: look at every event."""
    matcher = Matcher(wanted)
    runs: dict[str, Terms] = {}
    found = 0
    cursor = 0
    while records := log.scan(cursor):
        cursor = records[-1].position + 1
        for record in records:
            event = decode_event(record.value or b"")
            terms = terms_of(event, runs.get)
            if event.subject_kind == "job_run":
                runs.setdefault(event.subject_id, terms)
            found += not terms.partition_refs or any(
                ref in matcher.filter.partition_refs for ref in terms.partition_refs
            )
    assert found >= 100


def main() -> int:
    """Run alone; print a table and, where asked, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--events",
        type=int,
        default=SELECTIVE_EVENTS,
        help="events of the logs that are read selectively; 0: only writers",
    )
    parser.add_argument("--venv", type=Path, default=VENV)
    arguments = parser.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="belog-bench-") as folder, Postgres.create() as server:
        server.start()
        for figure in figures_of(server, Path(folder), arguments.venv, arguments.events):
            figures.append(figure)
            print(
                f"{figure.name}: {figure.ours:,.0f} {figure.unit}"
                + (f" against {figure.theirs:,.0f}" if figure.theirs else "")
                + f": {figure.value:,.1f} ({figure.low:,.1f}-{figure.high:,.1f}), "
                f"must {figure.must:g}, aim {figure.aim:g}: {figure.verdict} {figure.checked}",
                flush=True,
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(msgspec.to_builtins(figures), indent=1) + "\n")
    return 1 if any(figure.verdict == "missed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
