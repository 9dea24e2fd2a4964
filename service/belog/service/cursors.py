"""Where a reader of a log may stand."""

from belog.schemas.errors import LogTruncated
from belog.storage import EventLog

__all__ = ["check_reached"]


def check_reached(log: EventLog, cursor: int) -> None:
    """Refuse a cursor that the log has not come to; it is of another one, or of one cut off.

    One at the end is good. Blocks for a round trip.

    Args:
        log: Open, and no replica: an index is a position of it.
        cursor: First index wanted.

    Raises:
        LogTruncated: The log ends before it.
    """
    end = log.next_position()
    if cursor > end:
        msg = f"the log ends at {end}, the cursor is at {cursor}"
        hint = "is it the cursor of another log? was this one restored from an older backup?"
        raise LogTruncated(msg, log=log.name, index=end, hint=hint)
