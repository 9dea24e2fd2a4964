"""Events as real graphs write them: builds of partitions, five events each."""

import os
import uuid
from collections.abc import Iterator

from belog.schemas.envelope import Event, encode_event
from belog.schemas.events import (
    JobScheduled,
    LogCreated,
    PartitionAvailable,
    PartitionBuilding,
    PartitionRequested,
    PartitionScheduled,
    Payload,
    new_event,
)
from belog.schemas.fold import Record

__all__ = ["STEPS", "builds", "records"]

STEPS = 5
"""Events of each partition."""
START_US = 1_764_440_000_000_000
PAYLOAD_TEXT = "x" * 235


def builds(partitions: int, *, tag: str = "") -> Iterator[Event]:
    """Yield the events of so many partitions, each from requested to available.

    Payloads have 250 bytes on average, as the real ones do.
    """
    for n in range(partitions):
        ref = f"data://garden/who/2026-01-01/table_{tag}{n}"
        build, run = f"nightly-{tag}-{n // 100:08d}", f"run-{tag}-{n:010d}"
        yield _event(PartitionRequested(build_request_id=build, message=PAYLOAD_TEXT), ref, n)
        yield _event(
            JobScheduled(
                build_request_id=build, task_id=run, job_label="//who:garden", outputs=[ref]
            ),
            run,
            n,
        )
        yield _event(
            PartitionScheduled(
                build_request_id=build,
                job_run_id=run,
                task_id=run,
                job_label="//who:garden",
                upstream_deps=[f"{ref}/meadow", f"{ref}/snapshot"],
            ),
            ref,
            n,
        )
        yield _event(
            PartitionBuilding(build_request_id=build, job_run_id=run, message=PAYLOAD_TEXT), ref, n
        )
        yield _event(
            PartitionAvailable(build_request_id=build, job_run_id=run, message=PAYLOAD_TEXT), ref, n
        )


def _event(payload: Payload, subject: str, n: int) -> Event:
    return new_event(
        payload, subject, event_id=os.urandom(16), actor="who-graph", occurred_at=START_US + n
    )


def records(partitions: int) -> list[Record]:
    """Return the records of a log with so many partitions, log_created first."""
    log_id = str(uuid.uuid4())
    created = _event(LogCreated(log_id=log_id, instance="bench", lifecycle_version=1), log_id, 0)
    events = [created, *builds(partitions)]
    return [Record(i, START_US + i, encode_event(e)) for i, e in enumerate(events)]
