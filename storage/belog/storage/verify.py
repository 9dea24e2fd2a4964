"""Checking what a log holds, record by record, against the verdicts."""

from typing import Final

from msgspec import Struct

from belog.schemas.fold import Accepted, Duplicate, Fold, Void
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog

__all__ = ["FLAWS_KEPT_MAX", "LogCheck", "verify_log"]

FLAWS_KEPT_MAX: Final = 100
"""Flaws that a check lists; the rest is only counted."""


class LogCheck(Struct, frozen=True, kw_only=True):
    """What a fold of all records found."""

    events: int
    """Accepted ones."""
    void: int
    duplicates: int
    tombstones: int
    gaps: int
    """Positions that hold no record."""
    first_gap: int | None
    flaws: tuple[str, ...]
    """What cannot be in a log of this kind, the first `FLAWS_KEPT_MAX`."""


def verify_log(log: EventLog, fold: Fold) -> LogCheck:
    """Fold every record that a fold has not seen, and say what does not belong. Blocks.

    On a log whose appends are conditional nothing is written that is not legal, so a void record or
    a duplicate there is damage, or the work of somebody who went past the producer. On an ordered
    log they are what losers of races leave. Gaps are not judged: on Kafka, in a replica, and in a
    log that was migrated from there they belong.

    Args:
        log: The log.
        fold: Where to start; changed.
    """
    counts = dict.fromkeys(("events", "void", "duplicates", "tombstones", "gaps"), 0)
    first_gap: int | None = None
    flaws: list[str] = []
    while records := log.scan(fold.next_position, SCAN_RECORDS_MAX):
        for record in records:
            missing = record.position - fold.next_position
            if missing and first_gap is None:
                first_gap = fold.next_position
            counts["gaps"] += missing
            outcome = fold.apply(record)
            verdict = None if outcome is None else outcome.verdict
            if isinstance(verdict, Accepted):
                counts["events"] += 1
                continue
            name = "duplicates" if isinstance(verdict, Duplicate) else "void"
            counts["tombstones" if verdict is None else name] += 1
            if verdict is None or not log.capabilities.conditional_append:
                continue
            if len(flaws) < FLAWS_KEPT_MAX:
                flaws.append(f"index {record.position}: {_flaw(verdict)}")
    return LogCheck(**counts, first_gap=first_gap, flaws=tuple(flaws))


def _flaw(verdict: Duplicate | Void) -> str:
    if isinstance(verdict, Duplicate):
        return f"a duplicate of index {verdict.first_index}"
    return f"void, {verdict.reason}{': ' if verdict.detail else ''}{verdict.detail}"
