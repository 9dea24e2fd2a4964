"""Starting writer processes, and what must be true of a log after they were killed."""

import json
import os
import random
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Unavailable
from belog.storage import EventLog, open_log
from tests.examples import event
from tests.servers import eventually

WRITER = Path(__file__).with_name("writer.py")
ROOT = WRITER.parents[1]
KILLS = int(os.environ.get("BELOG_TEST_KILLS", "4"))
"""Kills of one test. A night's run asks for 30."""
FULL_PAIRS_MAX = 10_000
KILL_S_MAX = 0.4
"""Longest life of a writer after its first acknowledgement, seconds."""


class Writer:
    """A running writer process with what it said so far."""

    def __init__(self, uri: str, name: str, batches: int, threads: int, seed: int) -> None:
        arguments = [uri, name, str(batches), str(threads), str(seed)]
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER), *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.acknowledged: list[tuple[int, bytes]] = []
        self.done = False
        self._errors = ""
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "done\n":
                self.done = True
            elif line.endswith("\n"):
                rows = json.loads(line)
                self.acknowledged += [(index, bytes.fromhex(event_id)) for index, event_id in rows]

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def died(self) -> str | None:
        """Its errors, if it ended by itself."""
        if self.process.poll() is None:
            return None
        self._threads[1].join()
        return self._errors or f"it ended with {self.process.returncode}"

    def until_writing(self) -> None:
        eventually(lambda: self.acknowledged, "the writer writes", unless=self.died)

    def until_done(self) -> None:
        eventually(lambda: self.done, "the writer is done", timeout_s=60, unless=self.died)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Let it end by itself, or collect it after a kill."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        for thread in self._threads:
            thread.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@contextmanager
def writing(
    uri: str, *names: str, batches: int, threads: int = 1, seed: int = 0
) -> Iterator[list[Writer]]:
    """Writers that are killed at the end if they still live."""
    writers = [Writer(uri, name, batches, threads, seed) for name in names]
    try:
        yield writers
    finally:
        for writer in writers:
            if writer.process.returncode is None:
                writer.kill()


def kill_at_random(uri: str, seed: int, threads: int) -> None:
    """Kill writers one after the other, and check the log after each."""
    rng = random.Random(f"{seed}-kill")
    acknowledged: list[tuple[int, bytes]] = []
    for run in range(KILLS):
        with writing(uri, f"w{run}", batches=100_000, threads=threads, seed=seed) as (writer,):
            writer.until_writing()
            with suppress(subprocess.TimeoutExpired):
                writer.process.wait(rng.uniform(0, KILL_S_MAX))
            assert writer.died() is None
            writer.kill()
        acknowledged += writer.acknowledged
        with open_log(uri) as log:
            log.initialize()
            check_log(log, acknowledged)
    assert acknowledged


def check_log(log: EventLog, acknowledged: Sequence[tuple[int, bytes]]) -> None:
    """Everything acknowledged is where it was said to be; no gap, no double, no half batch."""
    stored = all_events(log)
    assert [found.index for found in stored] == list(range(len(stored)))
    assert log.end().next_idx == len(stored)
    ids = [found.event.event_id for found in stored]
    assert len(set(ids)) == len(ids)
    for index, event_id in acknowledged:
        assert ids[index] == event_id
    batches: dict[str, list[int]] = defaultdict(list)
    for after_first in stored[1:]:
        source = after_first.event.body()["source"]
        assert isinstance(source, str)
        parts = re.fullmatch(r"(\S+) (\d+)/(\d+)", source)
        assert parts
        batches[f"{parts[1]} {parts[3]}"].append(int(parts[2]))
    for name, found in batches.items():
        assert found == list(range(int(name.rpartition(" ")[2]))), name


def all_events(log: EventLog) -> list[StoredEvent]:
    """All events, page by page."""
    events: list[StoredEvent] = []
    cursor = 0
    while True:
        page = log.read(cursor)
        events += page.events
        cursor = page.next_idx
        if not page.has_more:
            return events


def observed(n: int, subject: str | None = None) -> Event:
    """An event that is legal at any time; `n` is its id and, without one, its subject."""
    return event("v1.partition.observed", subject or f"data://x/{n}", {"source": "t"}, n=n)


def fill_up(log: EventLog, n: int) -> int:
    """Append pairs until there is no room; return how many pairs went in."""
    for done in range(FULL_PAIRS_MAX):
        try:
            log.append_batch([observed(n + 2 * done), observed(n + 2 * done + 1)], atomic=True)
        except Unavailable:
            return done
    raise AssertionError("it was never full")


class Follower:
    """A thread that follows a log until it saw a number of events."""

    def __init__(self, log: EventLog) -> None:
        self.indices: list[int] = []
        self._log = log
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for stored in self._log.follow(0):
            self.indices.append(stored.index)

    def until(self, total: int) -> None:
        """Wait until it saw so many events."""
        eventually(lambda: len(self.indices) >= total, f"the follower saw {total} events")

    def end(self) -> None:
        self._log.close()
        self._thread.join(30)
        assert not self._thread.is_alive()
