"""A writer with the PostgreSQL recorder of `eventsourcing`, in a virtual environment of its own.

`python eventsourcing_postgres.py PORT TABLE EVENTS BATCH BYTES` connects, says "ready", waits for a
line, writes, and says how many seconds that took. The recorder locks its table, as it does by
default, so that those who follow it miss nothing.
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


def main(port: str, table: str, events: int, batch: int, size_bytes: int) -> None:
    """Write `events` events of `size_bytes` bytes in calls of `batch`."""
    store = PostgresDatastore("postgres", "127.0.0.1", port, "postgres", "unused")
    recorder = PostgresApplicationRecorder(store, events_table_name=table)
    if events == 0:
        recorder.create_table()
        return
    state = os.urandom(size_bytes)
    topic = "v1.partition.available"
    calls = [
        [StoredEvent(uuid4(), 1, topic, state) for _ in range(batch)]
        for _ in range(events // batch)
    ]
    recorder.max_notification_id()
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    for call in calls:
        recorder.insert_events(call)
    print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
