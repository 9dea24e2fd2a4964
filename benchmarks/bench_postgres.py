"""Eight writers on PostgreSQL against `eventsourcing`, which lives in an environment of its own."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from belog.storage import EventLog, open_log
from benchmarks.counting import Tally, ids_in, tally, total
from benchmarks.measure import Figure, paired
from benchmarks.rival_venv import EVENTSOURCING, REQUIREMENTS, RIVALS, rival_python
from benchmarks.servers import Servers

WRITERS: Final = 8
SINGLES: Final = 8 * 200
BATCH: Final = 100
BATCHED: Final = 8 * 80 * BATCH
WARM_CALLS: Final = 8
"""Calls of each writer before the clock starts, on both sides: a server plans a statement anew for
the first five times that a connection runs it."""
RECORD_BYTES: Final = 400
"""What an event of `benchmarks.events` takes, rounded."""
ROUNDS: Final = 3
"""Eight processes on two cores vary more between rows than between rounds."""


def run(servers: Servers) -> Iterator[Figure]:
    """Yield appends of single events and of batches, as they come and conditional."""
    server = servers.postgres
    script = [str(RIVALS / "eventsourcing_postgres.py"), str(server.port)]
    with ExitStack() as stack:
        ours = Writers(stack, [sys.executable, "-m", "benchmarks.rivals.belog_postgres"])
        theirs = Writers(stack, [str(rival_python(*REQUIREMENTS)), *script])
        yield from _figures(servers, ours, theirs)


def _figures(servers: Servers, ours: "Writers", theirs: "Writers") -> Iterator[Figure]:
    for name, mode, count, batch, must, aim in (
        ("one event each", "append", SINGLES, 1, 2.0, 4.0),
        ("one event each, unless touched", "judged", SINGLES, 1, 2.0, 4.0),
        (f"batches of {BATCH}", "append", BATCHED, BATCH, 5.0, 15.0),
        (f"batches of {BATCH}, unless touched", "judged", BATCHED, BATCH, 5.0, 15.0),
    ):
        tallies: list[Tally] = []
        many = servers.sized(count, WRITERS * batch)
        # One log in all rounds: both sides stay connected. Their table is a new one in each, which
        # is to their advantage.
        uri = f"{servers.postgres.uri}?schema=bench_{uuid.uuid4().hex[:8]}"
        with open_log(uri) as log:
            log.initialize()
            pair = paired(
                partial(_ours, ours, uri, log, (many, batch, mode), tallies),
                partial(_theirs, theirs, many, batch),
                ROUNDS,
            )
        yield pair.figure(
            f"PostgreSQL, {WRITERS} writers, {name}",
            "events/s",
            against=f"{EVENTSOURCING}, its table lock",
            must=must,
            aim=aim,
            checked=str(total(tallies)),
        )


def _ours(
    writers: "Writers", uri: str, log: EventLog, work: tuple[int, int, str], tallies: list[Tally]
) -> float:
    """Return events a second of our writers, together, and count what is in the log."""
    events, batch, mode = work
    before, tag = log.next_position(), f"r{len(tallies)}-"
    sizes = f"{events // WRITERS} {WARM_CALLS * batch} {batch}"
    found = writers.race([f"{uri} w{n}{tag} {sizes} {mode}" for n in range(WRITERS)], events)
    tallies.append(tally(writers.sent(), ids_in(log, before)))
    return found


def _theirs(writers: "Writers", events: int, batch: int) -> float:
    """Return events a second of the rival's writers, together."""
    table = f"events_{uuid.uuid4().hex[:8]}"
    writers.make(f"{table} 0 0 0 0")
    sizes = f"{events // WRITERS} {WARM_CALLS * batch} {batch} {RECORD_BYTES}"
    return writers.race([f"{table} {sizes}"] * WRITERS, events)


class Writers:
    """Processes that stay up between rounds: to start them takes longer than a round."""

    def __init__(self, stack: ExitStack, command: Sequence[str]) -> None:
        """Start them; the stack ends them."""
        self._processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(WRITERS)
        ]

    def make(self, line: str) -> None:
        """Let one of them make what all write to."""
        _say(self._processes[0], line)
        assert _line_of(self._processes[0]) == "made"

    def race(self, lines: Sequence[str], events: int) -> float:
        """Let them prepare, then write at once; return events a second until the last is done."""
        for process, line in zip(self._processes, lines, strict=True):
            _say(process, line)
        for process in self._processes:
            assert _line_of(process) == "ready"
        start = time.perf_counter()
        for process in self._processes:
            _say(process, "go")
        for process in self._processes:
            _line_of(process)
        return events / (time.perf_counter() - start)

    def sent(self) -> list[list[bytes]]:
        """Return the ids that each wrote in the last race, in order."""
        said = [bytes.fromhex(_line_of(process)) for process in self._processes]
        return [[ids[at : at + 16] for at in range(0, len(ids), 16)] for ids in said]


def _say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _line_of(process: "subprocess.Popen[str]") -> str:
    """Return the next line that a writer says."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "a writer ended early"
    return line
