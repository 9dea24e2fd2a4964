"""Where the fold of a vacuumed origin begins: with one of its snapshots.

A sink folds its origin, because verdicts decide what is accepted. Once the origin was vacuumed, its
beginning is gone, and a snapshot stands for it: one past what was removed, and not past what the
replica holds, so that the rest can be proved and nothing is left out.
"""

from uuid import UUID

from belog.schemas.errors import Gone
from belog.schemas.fold import Fold
from belog.storage.interface import EventLog
from belog.storage.snapshots import SnapshotStore, checked_against

__all__ = ["fold_within"]


def fold_within(
    origin: EventLog, log_id: UUID, snapshots: SnapshotStore | None, held: int, gone: Gone
) -> Fold:
    """Return the fold of the newest snapshot of an origin that a replica reaches.

    Args:
        origin: Initialized; a primary log.
        log_id: Which log it is.
        snapshots: Where its snapshots are; None for nowhere.
        held: Index of the last event that the replica holds, -1 for none.
        gone: What reading the origin without a snapshot said.

    Raises:
        Gone: There is no such snapshot, or events that the replica lacks were vacuumed.
        Unavailable: The folder or the origin cannot be read.
    """
    if snapshots is None:
        gone.hint = f"name the folder of snapshot {gone.snapshot} (--snapshots DIR)"
        raise gone
    found = snapshots.newest_valid(
        log_id, lambda reader: checked_against(origin, reader.fold()), next_idx_max=held + 1
    )
    if found is not None and found[0].next_idx >= gone.horizon:
        return found[1]
    if held + 1 < gone.horizon:
        msg = f"the replica ends at index {held}, events before index {gone.horizon} were vacuumed"
        hint = "a replica cannot begin within a log: migrate another replica of it"
    else:
        msg = (
            f"the replica ends at index {held}, and {snapshots.name} holds no snapshot "
            f"from index {gone.horizon} to {held + 1} to begin from"
        )
        hint = f"the log was vacuumed with {gone.snapshot}; name the folder of an earlier one"
    error = Gone(msg, horizon=gone.horizon, snapshot=gone.snapshot, log=origin.name)
    error.hint = hint
    raise error from gone
