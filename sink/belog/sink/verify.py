"""Whether a replica holds its origin's events.

Both logs are folded side by side up to where the replica ends, in memory of the two folds. That one
pass gives the Merkle roots at equal index and, where they differ, the first event that does: a
bisection by roots would need the same folds several times over.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from belog.schemas.errors import Diverged, Gone, LogReplaced
from belog.schemas.fold import Accepted, Fold
from belog.schemas.merkle import MerkleRange
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.sink.omission import is_omission_of
from belog.sink.origin import fold_within
from belog.storage.interface import SCAN_RECORDS_MAX, EventLog
from belog.storage.snapshots import SnapshotStore

__all__ = ["ReplicaCheck", "root_at", "verify_replica"]


class ReplicaCheck(Struct, frozen=True, kw_only=True):
    """What a comparison found."""

    next_idx: int
    """The index the roots are of: the replica's end."""
    events: int
    """Accepted events of the replica below it."""
    origin_root: bytes
    replica_root: bytes
    omitted: Mapping[int, bytes]
    """The replica's envelopes, by index, of events that its store refused: they stand for the
    origin's and say so. With one of them the roots differ."""
    first_difference: int | None
    """Lowest index at which one holds an event that the other does not, or another one; omissions
    are not counted. None where there is no such index. Where below `since_idx` is not known: it is
    the last index before that then."""
    since_idx: int = 0
    """Index from which on the events were compared. What is before was vacuumed from the origin, so
    the root that a snapshot of it has was compared."""

    @property
    def is_equal(self) -> bool:
        """Whether the replica is a prefix of its origin, byte for byte."""
        return self.origin_root == self.replica_root and self.first_difference is None

    def require_equal(self, log: str | None = None) -> None:
        """Raise `Diverged` where the replica is not a prefix of its origin, saying where first."""
        if self.first_difference is not None:
            where = "first here" if self.first_difference >= self.since_idx else "here or before"
            msg = f"the replica is not a prefix of its origin: they differ {where}"
            raise Diverged(msg, log=log, index=self.first_difference, hint="make the replica anew")
        if not self.is_equal:
            msg = (
                f"{len(self.omitted)} events stand shortened in the replica: its store refused them"
            )
            hint = "see the dead letters; the root cannot be equal"
            raise Diverged(msg, log=log, index=min(self.omitted), hint=hint)


class _Accepted:
    """Index and envelope of each accepted event of a log, in order, and the fold behind them."""

    def __init__(
        self, log: EventLog, until_position: int | None = None, fold: Fold | None = None
    ) -> None:
        self._log = log
        self._until = until_position
        self.fold = Fold() if fold is None else fold

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        fold = self.fold
        while records := self._log.scan(fold.next_position, SCAN_RECORDS_MAX):
            for record in records:
                if self._until is not None and record.position >= self._until:
                    return
                outcome = fold.apply(record)
                value = record.value
                if value is None or outcome is None or type(outcome.verdict) is not Accepted:
                    continue
                if value[:10] == REPLICA_HEADER:
                    value = decode_replica(value).envelope
                yield outcome.index, value


def root_at(log: EventLog, next_idx: int, fold: Fold | None = None) -> bytes:
    """Return the Merkle root over a log's accepted events below an index. Folds it up to there.

    Args:
        log: Initialized.
        next_idx: Index of the first event that is not in it.
        fold: Where to begin; the caller's no more.
    """
    merkle = MerkleRange() if fold is None else fold.merkle.copy()
    for index, envelope in _Accepted(log, fold=fold):
        if index >= next_idx:
            break
        merkle.add(envelope)
    return merkle.root()


def verify_replica(
    origin: EventLog, replica: EventLog, snapshots: SnapshotStore | None = None
) -> ReplicaCheck:
    """Compare a replica with its origin at equal index: the replica's end when the call began.

    Both must be initialized. Reads both up to there; both may be written meanwhile.

    Args:
        origin: The log, or a replica of it.
        replica: The replica.
        snapshots: Where the origin's snapshots are, for one that was vacuumed.

    Raises:
        LogReplaced: They do not have one identity.
        NewerFormat: A record needs newer software.
        Gone: The origin was vacuumed, and there is no snapshot to begin from; see
            `belog.sink.origin.fold_within`.
    """
    end = replica.next_position()
    try:
        return _compare(origin, replica, end, Fold)
    except Gone as gone:
        identity, held = origin.identify(), replica.end()
        if identity is None or identity.log_id != held.log_id:
            raise
        begin = partial(fold_within, origin, identity.log_id, snapshots, held.next_idx - 1, gone)
        return _compare(origin, replica, end, begin)


def _compare(
    origin: EventLog, replica: EventLog, end: int, begin: Callable[[], Fold]
) -> ReplicaCheck:
    ours, theirs = _Accepted(origin, fold=begin()), _Accepted(replica, end)
    last_before, root_before = ours.fold.last_accepted, ours.fold.merkle.root()
    omitted: dict[int, bytes] = {}
    first: int | None = None
    origin_events, replica_events = iter(ours), iter(theirs)
    is_behind = last_before >= 0
    for index, envelope in replica_events:
        if is_behind:
            if index < last_before:
                continue
            is_behind = False
            if index > last_before or theirs.fold.merkle.root() != root_before:
                first = last_before
                break
            continue
        mine = next(origin_events, None)
        if ours.fold.log_id != theirs.fold.log_id:
            msg = f"the replica is one of {theirs.fold.log_id}, not of {ours.fold.log_id}"
            raise LogReplaced(msg, log=replica.name)
        if mine == (index, envelope):
            continue
        if mine is None or mine[0] != index or not is_omission_of(envelope, mine[1]):
            first = index if mine is None else min(index, mine[0])
            break
        omitted[index] = envelope
    for _ in replica_events:
        pass
    next_idx = theirs.fold.next_idx
    is_prefix = first is None
    return ReplicaCheck(
        next_idx=next_idx,
        events=theirs.fold.merkle.size,
        origin_root=ours.fold.merkle.root() if is_prefix else root_at(origin, next_idx, begin()),
        replica_root=theirs.fold.merkle.root(),
        omitted=omitted,
        first_difference=first,
        since_idx=last_before + 1,
    )
