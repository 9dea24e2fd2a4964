"""What the log says of its pace: records since a time, and how far tables are behind."""

from typing import Final

from belog.processors.tables import TablesStatus
from belog.query.answers import Lag
from belog.storage.interface import EventLog

__all__ = ["ACTIVITY_ROWS_MAX", "WINDOW_S", "lag_of", "records_since"]

ACTIVITY_ROWS_MAX: Final = 20
"""Rows of each list of a summary: what fits on a screen."""

WINDOW_S: Final = 3_600.0
"""How far back a summary looks when nothing is said, seconds."""


def records_since(log: EventLog, since_us: int) -> int:
    """Return about how many records a log got since a time, by looking at a few of them.

    The times of records grow but for a broker whose clock was set; there, and where records were
    removed, the count is off by that much. Takes two single-record reads for each doubling of what
    is counted.

    Args:
        log: The log.
        since_us: Microseconds since the epoch.
    """
    end = log.next_position()
    low, step = end, 1
    while low > 0 and _is_since(log, max(0, low - step), since_us):
        low, step = max(0, low - step), step * 2
    if low == 0:
        return end
    # What is at `low` came since that time, what was looked at last did not.
    before = max(0, low - step)
    while low - before > 1:
        middle = (low + before) // 2
        if _is_since(log, middle, since_us):
            low = middle
        else:
            before = middle
    return end - low


def _is_since(log: EventLog, position: int, since_us: int) -> bool:
    records = log.scan(position, 1)
    return not records or records[0].created_at >= since_us


def lag_of(log: EventLog, status: TablesStatus, now_us: int) -> Lag:
    """Return how far tables are behind a log.

    Args:
        log: The log.
        status: Where its tables are.
        now_us: The time, microseconds since the epoch.
    """
    records = max(0, log.next_position() - status.position)
    waiting = log.scan(status.position, 1) if records else []
    if not waiting:
        return Lag(records, 0.0)
    return Lag(records, max(0, now_us - waiting[0].created_at) / 1e6)
