"""A writer of ours, as `eventsourcing_postgres.py` is one of theirs.

For each line `URI TAG EVENTS WARM BATCH MODE` of its input it writes WARM events, says "ready",
waits for another line, writes EVENTS more, and says how many seconds those took, and the ids of
all, in order. Both are written in calls of BATCH. MODE is `append` or `judged`. The log stays open
until a line names another, as they stay connected.
"""

import sys
import time
from collections.abc import Sequence

from belog.schemas.envelope import Event
from belog.schemas.errors import IndexConflict
from belog.storage.postgres import PostgresLog
from benchmarks.events import STEPS, builds


def run(log: PostgresLog, tag: str, mode: str, *, events: int, warm: int, batch: int) -> None:
    """Write `warm` and then `events` events in calls of `batch`."""
    made = list(builds(-(-(warm + events) // STEPS), tag=tag))[: warm + events]
    calls = [made[start : start + batch] for start in range(0, len(made), batch)]
    first = warm // batch
    seen = write(log, calls[:first], mode, log.next_position())
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    write(log, calls[first:], mode, seen)
    print(time.perf_counter() - start, flush=True)
    print(b"".join(event.event_id for event in made).hex(), flush=True)


def write(log: PostgresLog, calls: Sequence[list[Event]], mode: str, seen: int) -> int:
    """Append calls as they are, or as a producer does that has read up to `seen`.

    Returns:
        Up to where it has read then.
    """
    for call in calls:
        if mode == "append":
            log.append_batch(call)
        else:
            seen = judged(log, call, seen)
    return seen


def judged(log: PostgresLog, call: list[Event], seen: int) -> int:
    """Append as a producer does that has read up to `seen`; return up to where it has then."""
    while True:
        try:
            return log.append_unless_touched(call, seen_idx=seen)[-1].index + 1
        except IndexConflict as conflict:
            seen = conflict.next_idx


def main() -> None:
    """Do what the lines of the input say."""
    opened: dict[str, PostgresLog] = {}
    for line in iter(sys.stdin.readline, ""):
        uri, tag, *numbers, mode = line.split()
        if uri not in opened:
            for log in opened.values():
                log.close()
            opened = {uri: PostgresLog(uri)}
            opened[uri].initialize()
        events, warm, batch = map(int, numbers)
        run(opened[uri], tag, mode, events=events, warm=warm, batch=batch)


if __name__ == "__main__":
    main()
