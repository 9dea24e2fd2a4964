"""Writes with Dagster's SQLite event log storage, in a virtual environment of its own.

For each line `FOLDER EVENTS BYTES` of its input it writes that many events with messages of that
size one at a time to a new storage in the folder, and says how many seconds that took. Every fifth
event is the materialization of an asset's partition, as every fifth of ours is an available one.
"""

import sys
import time
from uuid import uuid4

from dagster import (  # type: ignore[import-not-found]
    AssetKey,
    AssetMaterialization,
    DagsterEvent,
    DagsterEventType,
    EventLogEntry,
)
from dagster._core.events import StepMaterializationData  # type: ignore[import-not-found]
from dagster._core.storage.event_log import (  # type: ignore[import-not-found]
    SqliteEventLogStorage,
)

STEPS = 5


def entry(n: int, run_id: str, message: str) -> EventLogEntry:
    """Return an event of a run."""
    if n % STEPS == STEPS - 1:
        made = AssetMaterialization(AssetKey(["garden", f"table_{n}"]), partition="2026-01-01")
        kind, data = DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(made)
    else:
        kind, data = DagsterEventType.STEP_START, None
    event = DagsterEvent(
        event_type_value=kind.value,
        job_name="who",
        step_key="garden",
        event_specific_data=data,
        message=message,
    )
    return EventLogEntry(
        error_info=None,
        level=10,
        user_message="",
        run_id=run_id,
        timestamp=time.time(),
        step_key="garden",
        job_name="who",
        dagster_event=event,
    )


def write(folder: str, events: int, size_bytes: int) -> float:
    """Return how long it takes, seconds."""
    storage = SqliteEventLogStorage(folder)
    run_id, message = str(uuid4()), "x" * size_bytes
    # The first event of a run makes its file.
    storage.store_event(entry(0, run_id, message))
    entries = [entry(n, run_id, message) for n in range(events)]
    start = time.perf_counter()
    for one in entries:
        storage.store_event(one)
    elapsed_s = time.perf_counter() - start
    storage.dispose()
    return elapsed_s


if __name__ == "__main__":
    for line in sys.stdin:
        folder_name, *numbers = line.split()
        print(write(folder_name, *map(int, numbers)), flush=True)
