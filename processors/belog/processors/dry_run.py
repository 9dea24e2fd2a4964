"""Replay of a log under a changed lifecycle, without writing anything."""

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from belog.processors.replay import WHOLE_LOG, Progress, Until
from belog.schemas.lifecycle import Lifecycle
from belog.schemas.rejudge import Difference, Rejudging
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog

__all__ = ["DIFFERENCES_LISTED", "LifecycleReport", "compare_lifecycles"]

DIFFERENCES_LISTED: Final = 100
"""Differences listed by default: who has more wants to know which kind, not each."""


class LifecycleReport(Struct, frozen=True, kw_only=True):
    """What a changed lifecycle would have made of a log."""

    records: int
    """Records judged; tombstones are none."""
    differences: int
    """How many of them would have been judged differently."""
    listed: tuple[Difference, ...]
    """The first of these, in index order."""


def compare_lifecycles(
    log: EventLog,
    changed: Lifecycle,
    *,
    until: Until = WHOLE_LOG,
    listed_max: int = DIFFERENCES_LISTED,
    on_progress: Callable[[Progress], None] | None = None,
) -> LifecycleReport:
    """Judge all records of an opened log anew, and list what would come out differently.

    Reads the log once, up to where it ends when the call begins or to the bound; keeps two folds of
    it in memory. Takes about twice as long as a replay.

    Args:
        log: The log, a primary one or a replica.
        changed: Judges in place of the log's own lifecycles, from the first event on.
        until: Where to end.
        listed_max: Most differences to list; all are counted.
        on_progress: Called after each batch.

    Raises:
        NewerFormat: A record needs newer software.
    """
    started = time.monotonic()
    judging = Rejudging(changed)
    listed: list[Difference] = []
    end = log.next_position()
    read = 0
    while judging.next_position < end:
        records = log.scan(
            judging.next_position, min(SCAN_RECORDS_MAX, end - judging.next_position)
        )
        for record in records:
            if record.position >= end or until.excludes(record):
                records = []
                break
            read += 1
            difference = judging.apply(record)
            if difference is not None and len(listed) < listed_max:
                listed.append(difference)
        if on_progress is not None:
            elapsed_s = time.monotonic() - started
            on_progress(Progress(judging.next_position, end, read, elapsed_s))
        if not records:
            break
    return LifecycleReport(
        records=judging.records, differences=judging.differences, listed=tuple(listed)
    )
