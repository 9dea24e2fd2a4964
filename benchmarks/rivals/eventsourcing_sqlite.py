"""Writes with the SQLite recorder of `eventsourcing`, in a virtual environment of its own.

For each line `FOLDER EVENTS BYTES` of its input it writes that many events of that size one at a
time to a new file in the folder, and says how many seconds that took.
"""

import os
import sys
import time
from uuid import uuid4

from eventsourcing.persistence import StoredEvent  # type: ignore[import-not-found]
from eventsourcing.sqlite import (  # type: ignore[import-not-found]
    SQLiteApplicationRecorder,
    SQLiteDatastore,
)

TOPIC = "v1.partition.available"


def write(folder: str, events: int, size_bytes: int) -> float:
    """Return how long it takes, seconds."""
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
    for line in sys.stdin:
        folder_name, *numbers = line.split()
        print(write(folder_name, *map(int, numbers)), flush=True)
