"""A writer with the PostgreSQL recorder of `eventsourcing`, in a virtual environment of its own.

`python eventsourcing_postgres.py PORT`: for each line `TABLE EVENTS WARM BATCH BYTES` of its input
it writes WARM events, says "ready", waits for another line, writes EVENTS more, and says how many
seconds those took. Both are written in calls of BATCH. Without events it makes the table and says
"made". It stays connected. The recorder locks its table, as it does by default, so that those who
follow it miss nothing.
"""

import os
import sys
import time
from uuid import uuid4

from eventsourcing.persistence import StoredEvent  # type: ignore[import-not-found]
from eventsourcing.postgres import (  # type: ignore[import-not-found]
    PostgresApplicationRecorder,
    PostgresDatastore,
)


def run(
    store: PostgresDatastore, table: str, *, events: int, warm: int, batch: int, size_bytes: int
) -> None:
    """Write `warm` and then `events` events, of `size_bytes` bytes, in calls of `batch`."""
    recorder = PostgresApplicationRecorder(store, events_table_name=table)
    if events == 0:
        recorder.create_table()
        print("made", flush=True)
        return
    state = os.urandom(size_bytes)
    topic = "v1.partition.available"
    calls = [
        [StoredEvent(uuid4(), 1, topic, state) for _ in range(batch)]
        for _ in range((warm + events) // batch)
    ]
    recorder.max_notification_id()
    first = warm // batch
    for call in calls[:first]:
        recorder.insert_events(call)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    for call in calls[first:]:
        recorder.insert_events(call)
    print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    datastore = PostgresDatastore("postgres", "127.0.0.1", sys.argv[1], "postgres", "unused")
    for line in iter(sys.stdin.readline, ""):
        name, *numbers = line.split()
        count, before, size, record_bytes = map(int, numbers)
        run(datastore, name, events=count, warm=before, batch=size, size_bytes=record_bytes)
