"""Removing superseded events whose effects a snapshot holds.

In this order, so that a process may die anywhere in between and the vacuum be repeated: the
snapshot is read whole and held against the log; the horizon is recorded in the log; the records are
removed. From the second step on readers behind the horizon are told `Gone` where something is
missing (`belog.storage.horizon`).
"""

from collections.abc import Iterator

from belog.schemas.errors import (
    Diverged,
    NotFound,
    ReplicaRefused,
    Unsupported,
)
from belog.schemas.events import Vacuumed, new_event
from belog.schemas.fold import Fold, Record
from belog.schemas.snapshot import SnapshotReader
from belog.schemas.vacuum import superseded
from belog.storage.creation import CREATOR, new_uuid, now_us
from belog.storage.horizon import Removal, VacuumReport
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog, LogIdentity, fold_log
from belog.storage.snapshots import SnapshotFile, SnapshotStore, checked_against

__all__ = ["fold_past_horizon", "vacuum_log"]


def vacuum_log(
    log: EventLog,
    store: SnapshotStore | None,
    before: int,
    *,
    dry_run: bool = True,
    actor: str = CREATOR,
) -> VacuumReport:
    """Remove events that were superseded before a time, as far as the newest snapshot goes.

    Never the newest event of a subject, nor one of the log itself. Indices of the rest stay. Safe
    to repeat, also after it was interrupted.

    Args:
        log: Initialized; a primary log.
        store: Where its snapshots are; None for nowhere. The newest must hold table rows. It is
            read whole and, as far as older snapshots or the log's beginning allow, compared with a
            fold of the log.
        before: Ingest time, microseconds since the epoch, exclusive.
        dry_run: Only count.
        actor: Who does it.

    Returns:
        How many were, or would be, removed, and the horizon.

    Raises:
        Unsupported: The backend keeps everything.
        ReplicaRefused: It is a replica.
        NotFound: There is no snapshot that could be used.
        Diverged: The snapshot is not what the log folds to. Nothing was removed.
        Unavailable: The log or the folder cannot be reached.
    """
    identity = log.identify()
    if not log.capabilities.vacuum:
        msg = "this backend keeps everything"
        raise Unsupported(msg, log=log.name)
    if identity is None or identity.is_replica:
        msg = "a replica keeps what its origin's sink gave it"
        raise ReplicaRefused(msg, log=log.name, hint="vacuum the origin")
    found = None
    if store is not None:
        found = store.newest_valid(identity.log_id, lambda reader: _whole(log, reader))
    if store is None or found is None:
        where = "" if store is None else f" in {store.name}"
        msg = f"there is no snapshot of the log{where} that could be used"
        raise NotFound(msg, log=log.name, hint="take one: belog snapshot")
    file, fold = found
    known = log.horizon()
    removals = [
        Removal(record.position, record.key)
        for record in superseded(_records(log, fold.next_position), fold, before)
    ]
    horizon = max(r.position for r in removals) + 1 if removals else 0
    horizon = max(horizon, 0 if known is None else known.index)
    if dry_run or not removals:
        return VacuumReport(removed=len(removals), horizon=horizon, dry_run=dry_run)
    _compare(log, identity, store, file, fold)
    if known is None or horizon > known.index:
        event = Vacuumed(
            horizon=horizon,
            removed_count=len(removals),
            snapshot=file.path.resolve().as_uri(),
        )
        _record(log, identity, event, actor)
    log.remove(removals)
    return VacuumReport(removed=len(removals), horizon=horizon, dry_run=False)


def _whole(log: EventLog, reader: SnapshotReader) -> Fold:
    if not reader.header.rows_version:
        msg = "the snapshot holds no table rows, which could not be made anew"
        raise Unsupported(msg)
    fold = reader.fold()
    for _ in reader.rows():
        pass
    return checked_against(log, fold)


def _records(log: EventLog, end: int) -> Iterator[Record]:
    at = 0
    while at < end:
        records = log.scan_raw(at, SCAN_RECORDS_MAX)
        if not records:
            return
        yield from records
        at = records[-1].position + 1


def _compare(
    log: EventLog, identity: LogIdentity, store: SnapshotStore, file: SnapshotFile, fold: Fold
) -> None:
    """Compare the snapshot with a fold of the log from as early as there is something to fold."""
    known = log.horizon()
    base: Fold | None = Fold()
    if known is not None:
        base = _oldest(log, identity, store, known.index)
    if base is None or base.next_position >= fold.next_position:
        return
    fold_log(log, base, until_position=fold.next_position)
    if base.merkle.root() != fold.merkle.root() or base.subjects != fold.subjects:
        msg = f"{file.path.name} is not what the log folds to"
        raise Diverged(msg, log=log.name, index=file.next_idx, hint="see belog verify --snapshot")


def _record(log: EventLog, identity: LogIdentity, payload: Vacuumed, actor: str) -> None:
    # Legal in every state of a log, wherever it lands: nothing has to be judged first.
    log.append(
        new_event(
            payload,
            str(identity.log_id),
            event_id=new_uuid(),
            actor=actor,
            occurred_at=now_us(),
        )
    )


def _oldest(
    log: EventLog, identity: LogIdentity, store: SnapshotStore, next_idx_min: int
) -> Fold | None:
    found = store.newest_valid(
        identity.log_id,
        lambda reader: checked_against(log, reader.fold()),
        oldest_from=next_idx_min,
    )
    return None if found is None else found[1]


def fold_past_horizon(log: EventLog, store: SnapshotStore) -> Fold | None:
    """Return the fold of the oldest snapshot at or past a vacuumed log's horizon.

    For `EventLog.use_snapshots`: judged reads then reach back as far as they can.
    """
    identity, known = log.identify(), log.horizon()
    if identity is None or known is None:
        return None
    return _oldest(log, identity, store, known.index)
