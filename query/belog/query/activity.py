"""What the log says of its pace: where a window of time begins, and how far tables are behind."""

from typing import Final

from belog.processors.tables import TablesStatus
from belog.query.answers import Lag
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.interface import EventLog

__all__ = ["ACTIVITY_ROWS_MAX", "WINDOW_S", "first_since", "index_of", "lag_of"]

ACTIVITY_ROWS_MAX: Final = 20
"""Rows of each list of a summary: what fits on a screen."""

WINDOW_S: Final = 3_600.0
"""How far back a summary looks when nothing is said, seconds."""


def index_of(log: EventLog, position: int) -> int:
    """Return the least index that a record at or after a position can have."""
    records = log.scan_raw(position, 1)
    value = records[0].value if records else None
    if value is not None and value[: len(REPLICA_HEADER)] == REPLICA_HEADER:
        return decode_replica(value).origin_index
    return position


def first_since(log: EventLog, end: int, since_us: int) -> int:
    """Return about the first position below `end` whose record came since a time, else `end`.

    The times of records grow but for a broker whose clock was set; there it may be off by what came
    with wrong times. Reads two single records for each doubling of the distance from `end`.

    Args:
        log: The log.
        end: Its next position.
        since_us: Microseconds since the epoch.
    """
    low, step = end, 1
    while low > 0 and _is_since(log, max(0, low - step), since_us):
        low, step = max(0, low - step), step * 2
    if low == 0:
        return 0
    # What is at `low` came since that time, what was looked at last did not.
    before = max(0, low - step)
    while low - before > 1:
        middle = (low + before) // 2
        if _is_since(log, middle, since_us):
            low = middle
        else:
            before = middle
    return low


def _is_since(log: EventLog, position: int, since_us: int) -> bool:
    # What a vacuum left says when the rest came, too.
    records = log.scan_raw(position, 1)
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
