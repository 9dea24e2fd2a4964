"""Durable appends to SQLite one at a time, against `eventsourcing` and Dagster's event log.

The rivals live in a virtual environment of their own, see `benchmarks.rival_venv`, and in processes
that stay up between rounds. All of them write to one disk with SQLite's WAL and `synchronous=FULL`.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from belog.producers import Producer
from belog.storage.sqlite import SqliteLog
from benchmarks.counting import Tally, tally_log, total
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, paired, rate
from benchmarks.rival_venv import DAGSTER, EVENTSOURCING, REQUIREMENTS, RIVALS, rival_python
from benchmarks.servers import Servers

EVENTS: Final = 1_500
DAGSTER_EVENTS: Final = 150
"""Dagster is an order of magnitude slower: this many take about as long."""
RECORD_BYTES: Final = 400
"""What an event of `benchmarks.events` takes, rounded."""


class Rival:
    """A process that writes a round of events each time it is asked to."""

    def __init__(self, stack: ExitStack, script: str, *mode: str) -> None:
        """Start it; the stack ends it."""
        python = rival_python(*REQUIREMENTS)
        self._process = stack.enter_context(
            subprocess.Popen(
                [str(python), str(RIVALS / script), *mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def write(self, folder: Path, events: int) -> float:
        """Return events a second of one round, written to a new file in a folder."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{folder} {events} {RECORD_BYTES}\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the rival ended early"
        return events / float(line)


def run(servers: Servers) -> Iterator[Figure]:
    """Yield appends one at a time: as they come, and validated by a producer."""
    numbers = count()

    def folder() -> Path:
        made = servers.folder / f"round-{next(numbers)}"
        made.mkdir()
        return made

    with ExitStack() as stack:
        recorder = Rival(stack, "eventsourcing_sqlite.py", "recorder")
        application = Rival(stack, "eventsourcing_sqlite.py", "application")
        dagster = Rival(stack, "dagster_sqlite.py")
        for name, ours, rival, against, events, must, aim in (
            ("append", appended, recorder, f"{EVENTSOURCING}, recorder", EVENTS, 1.0, 1.5),
            ("validated append", validated, application, EVENTSOURCING, EVENTS, 1.0, 1.5),
            ("append", appended, dagster, DAGSTER, DAGSTER_EVENTS, 10.0, 20.0),
            ("validated append", validated, dagster, DAGSTER, DAGSTER_EVENTS, 10.0, 20.0),
        ):
            tallies: list[Tally] = []
            pair = paired(
                partial(in_new, folder, partial(ours, tallies), servers.sized(EVENTS, STEPS)),
                partial(in_new, folder, rival.write, servers.sized(events, STEPS)),
            )
            yield pair.figure(
                f"SQLite, {name} one at a time, durable",
                "events/s",
                against=against,
                must=must,
                aim=aim,
                checked=str(total(tallies)),
            )


def in_new(folder: Callable[[], Path], write: Callable[[Path, int], float], events: int) -> float:
    """Return events a second of one round in a new folder."""
    return write(folder(), events)


def appended(tallies: list[Tally], folder: Path, events_count: int) -> float:
    """Return events a second of appends to a log, and count what is in it."""
    events = list(builds(events_count // STEPS))
    with SqliteLog(folder / "log.db") as log:
        log.initialize()
        result = rate(len(events), lambda: [log.append(event) for event in events])
        tallies.append(tally_log(log, [events]))
    return result


def validated(tallies: list[Tally], folder: Path, events_count: int) -> float:
    """Return events a second of appends by a producer, which judges each."""
    events = list(builds(events_count // STEPS))
    with SqliteLog(folder / "log.db") as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            result = rate(len(events), lambda: [producer.append_event(event) for event in events])
        tallies.append(tally_log(log, [events]))
    return result
