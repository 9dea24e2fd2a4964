"""A writer of ours, as `eventsourcing_postgres.py` is one of theirs.

For each line `URI TAG EVENTS BATCH MODE` of its input it opens the log, says "ready", waits for
another line, writes, and says how many seconds that took, and the ids in order. MODE is `append` or
`judged`.
"""

import sys
import time

from belog.schemas.envelope import Event
from belog.schemas.errors import IndexConflict
from belog.storage.postgres import PostgresLog
from benchmarks.events import STEPS, builds


def write(uri: str, tag: str, events: int, batch: int, mode: str) -> None:
    """Write `events` events in calls of `batch`."""
    made = list(builds(-(-events // STEPS), tag=tag))[:events]
    calls = [made[start : start + batch] for start in range(0, events, batch)]
    with PostgresLog(uri) as log:
        log.initialize()
        seen = log.next_position()
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.perf_counter()
        for call in calls:
            if mode == "append":
                log.append_batch(call)
            else:
                seen = judged(log, call, seen)
        print(time.perf_counter() - start, flush=True)
        print(b"".join(event.event_id for event in made).hex(), flush=True)


def judged(log: PostgresLog, call: list[Event], seen: int) -> int:
    """Append as a producer does that has read up to `seen`; return up to where it has then."""
    while True:
        try:
            return log.append_unless_touched(call, seen_idx=seen)[-1].index + 1
        except IndexConflict as conflict:
            seen = conflict.next_idx


if __name__ == "__main__":
    for line in iter(sys.stdin.readline, ""):
        log_uri, name, count, size, how = line.split()
        write(log_uri, name, int(count), int(size), how)
