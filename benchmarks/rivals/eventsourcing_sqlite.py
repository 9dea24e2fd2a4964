"""Writes with `eventsourcing` to SQLite, in a virtual environment of its own.

`python eventsourcing_sqlite.py recorder|application`: for each line `FOLDER EVENTS BYTES` of its
input it writes that many events of that size one at a time to a new file in the folder, and says
how many seconds that took. The recorder stores what it is given, as our logs do; an application has
aggregates decide on the events and saves those, as our producer does.
"""

import os
import sys
import time
from uuid import uuid4

from eventsourcing.application import Application  # type: ignore[import-not-found]
from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]
from eventsourcing.persistence import StoredEvent  # type: ignore[import-not-found]
from eventsourcing.sqlite import (  # type: ignore[import-not-found]
    SQLiteApplicationRecorder,
    SQLiteDatastore,
)

TOPIC = "v1.partition.available"
STEPS = 5
"""Events of an aggregate, as of a partition in `benchmarks.events`."""


class Partition(Aggregate):  # type: ignore[misc]
    """An aggregate that goes through states."""

    @event("Requested")  # type: ignore[untyped-decorator]
    def __init__(self, ref: str, message: str) -> None:
        """Begin."""
        self.ref, self.message, self.step = ref, message, 1

    @event("Moved")  # type: ignore[untyped-decorator]
    def move(self, step: int, message: str) -> None:
        """Go on."""
        if step != self.step + 1:
            msg = f"{self.step} does not lead to {step}"
            raise ValueError(msg)
        self.step, self.message = step, message


def saved(folder: str, events: int, size_bytes: int) -> float:
    """Return how long an application takes, seconds."""
    database = os.path.join(folder, "events.db")  # noqa: PTH118 - a text is wanted
    settings = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": database}
    application = Application(settings)
    message = "x" * (size_bytes // 2)
    start = time.perf_counter()
    for n in range(events // STEPS):
        partition = Partition(f"data://garden/who/2026-01-01/table_{n}", message)
        application.save(partition)
        for step in range(2, STEPS + 1):
            partition.move(step, message)
            application.save(partition)
    elapsed_s = time.perf_counter() - start
    application.close()
    return elapsed_s


def recorded(folder: str, events: int, size_bytes: int) -> float:
    """Return how long the recorder takes, seconds."""
    store = SQLiteDatastore(os.path.join(folder, "events.db"))  # noqa: PTH118 - a text is wanted
    recorder = SQLiteApplicationRecorder(store)
    recorder.create_table()
    state = os.urandom(size_bytes)
    calls = [[StoredEvent(uuid4(), 1, TOPIC, state)] for _ in range(events)]
    start = time.perf_counter()
    for call in calls:
        recorder.insert_events(call)
    elapsed_s = time.perf_counter() - start
    store.close()
    return elapsed_s


if __name__ == "__main__":
    write = {"recorder": recorded, "application": saved}[sys.argv[1]]
    for line in sys.stdin:
        folder_name, *numbers = line.split()
        print(write(folder_name, *map(int, numbers)), flush=True)
