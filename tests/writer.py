"""A process that appends batches to a log and says which were acknowledged; made to be killed.

`python tests/writer.py URI NAME BATCHES THREADS SEED` prints one JSON line per acknowledged batch,
then `done`, and keeps the log open until its input ends.
"""

import json
import os
import random
import sys
import threading
from uuid import UUID

from belog.schemas.envelope import Event
from belog.schemas.events import PartitionObserved, new_event
from belog.storage import open_log

BATCH_EVENTS_MAX = 5
OCCURRED_AT = 1_750_000_000_000_000


def batch_event(name: str, batch: str, n: int, of: int) -> Event:
    """An event that says which part of which batch it is."""
    return new_event(
        PartitionObserved(source=f"{batch} {n}/{of}"),
        f"data://{name}/{batch}/{n}",
        event_id=UUID(bytes=os.urandom(16), version=4),
        actor=name,
        occurred_at=OCCURRED_AT,
    )


def main() -> None:
    uri, name, batches, threads, seed = sys.argv[1:]
    printing = threading.Lock()
    log = open_log(uri)
    log.initialize()

    def write(thread: int) -> None:
        rng = random.Random(f"{seed}-{name}-{thread}")
        for n in range(int(batches)):
            size = rng.randint(1, BATCH_EVENTS_MAX)
            events = [
                batch_event(name, f"{name}-{thread}-{n}-{seed}", i, size) for i in range(size)
            ]
            receipts = log.append_batch(events, atomic=True)
            line = [
                [receipt.index, receipt.event_id.hex()]
                for receipt in receipts
                if not isinstance(receipt, Exception)
            ]
            with printing:
                sys.stdout.write(f"{json.dumps(line)}\n")
                sys.stdout.flush()

    workers = [threading.Thread(target=write, args=(n,)) for n in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.stdout.write("done\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
