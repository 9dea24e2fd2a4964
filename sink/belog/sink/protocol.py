"""The replication protocol: which records a replica gets next. Pure: no I/O, no clock, no thread.

The protocol folds the origin, so verdicts decide what is accepted, and wraps accepted events for
the replica. A replica of a replica passes the wrappers through byte for byte: the log keeps its
identity and its indices over any number of hops.

The resume position is what the target holds. Whenever the shell has read the target's judged end it
says so by `target_is`, and the protocol proves by Merkle root that the target's events are the
origin's before it sends anything after them. There are four calls, and no other order is needed
than this::

    target_is(end)      at the start, and whenever a write was refused or its outcome is unknown
    receive(records)    the origin's next records, when `ready` has nothing
    ready()             what to write now
    written()           the target took it

More may be received while a write is under way. Memory is bounded by what the shell lets wait: it
reads one batch ahead of the one that it writes.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final
from uuid import UUID

from msgspec import Struct

from belog.schemas.errors import Diverged, LogTruncated, NewerFormat
from belog.schemas.fold import Accepted, Fold, Outcome, Record
from belog.schemas.merkle import EMPTY_ROOT, MerkleRange
from belog.schemas.replica import REPLICA_HEADER, ReplicaEncoder, decode_replica
from belog.storage.interface import CopiedRecord

__all__ = [
    "EMPTY_TARGET",
    "SEND_BYTES_MAX",
    "SEND_RECORDS_MAX",
    "Ready",
    "ReplicationProtocol",
    "TargetEnd",
]

SEND_RECORDS_MAX: Final = 10_000
"""Records of one write: as many as one scan brings."""

SEND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one write, but for a single record that is larger: keeps a transaction or a client's
send buffer (librdkafka's default holds 1 GB) bounded where events are large."""

_NONE_OMITTED: Final[Mapping[int, bytes]] = MappingProxyType({})


class TargetEnd(Struct, frozen=True):
    """What the target holds, by its own verdict."""

    last_index: int
    """Index of its last accepted event, -1 for none."""
    root: bytes
    """Merkle root over its accepted events, 32 bytes."""


EMPTY_TARGET: Final = TargetEnd(-1, EMPTY_ROOT)


class Ready(Struct, frozen=True):
    """What to write to the target now, all or a first part of it, in order."""

    after: int
    """Index of the event that must be the target's last one, -1 for none."""
    records: tuple[CopiedRecord, ...]
    """Never empty."""


class ReplicationProtocol:
    """One run of replication, from one origin to one target. Not thread-safe.

    Attributes:
        fold: The origin up to what was received; read only.
    """

    __slots__ = (
        "_base",
        "_base_index",
        "_encoder",
        "_failure",
        "_marks",
        "_omitted",
        "_origin",
        "_proof",
        "_queue",
        "_target",
        "fold",
    )

    def __init__(
        self,
        target_end: TargetEnd,
        *,
        omitted: Mapping[int, bytes] = _NONE_OMITTED,
        fold: Fold | None = None,
        origin: str = "",
        target: str = "",
    ) -> None:
        """Start with an origin of which nothing was read, or what a snapshot holds.

        Args:
            target_end: What the target holds.
            omitted: Envelopes of the omissions among that, by index.
            fold: The origin as far as a snapshot goes, which is not past what the target holds;
                this object's own from now on.
            origin: The origin's name for errors.
            target: The target's name for errors.
        """
        self.fold = Fold() if fold is None else fold
        self._origin = origin
        self._target = target
        self._omitted = dict(omitted)
        self._queue: deque[CopiedRecord] = deque()
        # Over what the target is known to hold, or must hold because the snapshot does.
        self._base = self.fold.merkle.copy()
        self._base_index = self.fold.last_accepted
        self._marks: deque[tuple[int, MerkleRange]] = deque()  # the origin's, at ends of batches
        self._proof: TargetEnd | None = None
        self._encoder: ReplicaEncoder | None = None
        self._failure: NewerFormat | None = None
        self.target_is(target_end)

    @property
    def target_index(self) -> int:
        """Index of the last event that the target is known to hold, -1 for none."""
        return self._base_index

    @property
    def queued(self) -> int:
        """Count of the events that were received and not yet written."""
        return len(self._queue)

    @property
    def oldest_queued_at(self) -> int | None:
        """Ingest time of the first of them, microseconds since the epoch; None if there is none."""
        return self._queue[0].created_at if self._queue else None

    @property
    def target_seen(self) -> int:
        """Index of the last event that the target was found to hold, proved or not."""
        return self._base_index if self._proof is None else self._proof.last_index

    @property
    def is_proving(self) -> bool:
        """Whether the target holds events that the origin's reading has not come to yet."""
        return self._proof is not None

    @property
    def omitted(self) -> Mapping[int, bytes]:
        """Envelopes of the target's omissions by index, queued ones included."""
        return self._omitted

    # --- the origin

    def receive(self, records: Sequence[Record]) -> None:
        """Take the origin's next records, in order.

        Raises:
            Diverged: The target holds an event that the origin does not, or another one.
            NewerFormat: The origin needs newer software. Raised when everything before that record
                was written.
        """
        if self._failure is not None:
            raise self._failure
        fold, queue = self.fold, self._queue
        try:
            for record in records:
                prev = fold.last_accepted
                outcome = fold.apply(record)
                if outcome is None or type(outcome.verdict) is not Accepted:
                    continue
                if self._proof is not None:
                    self._prove(record, outcome, self._proof)
                    continue
                value = record.value or b""
                index, created_at = outcome.index, outcome.created_at
                if value[:10] != REPLICA_HEADER:
                    encoder = self._encoder
                    if encoder is None:
                        log_id = fold.log_id or UUID(int=0)
                        encoder = self._encoder = ReplicaEncoder(log_id.bytes, prev)
                    value = encoder.encode(index, created_at, value)
                queue.append(CopiedRecord(index, created_at, value))
        except NewerFormat as error:
            self._failure = error
            if not queue:
                raise
        if queue and not self._omitted:
            # So that `written` need not add the events of a whole batch again.
            self._marks.append((fold.last_accepted, fold.merkle.copy()))

    def _prove(self, record: Record, outcome: Outcome, proof: TargetEnd) -> None:
        """Pass over an event that the target holds already."""
        index = outcome.index
        if index > proof.last_index:
            raise self._diverged(f"it holds an event at {proof.last_index}, its origin none")
        if self._omitted:
            value = record.value or b""
            if value[:10] == REPLICA_HEADER:
                value = decode_replica(value).envelope
            self._base.add(self._omitted.get(index, value))
        self._base_index = index
        if index == proof.last_index:
            self._proof = None
            if not self._omitted:
                self._base = self.fold.merkle.copy()
            self._compare(proof)

    def origin_ended(self) -> None:
        """Say that the origin has no more records now.

        Raises:
            LogTruncated: The target holds more than the origin does.
            NewerFormat: See `receive`.
        """
        if self._failure is not None and not self._queue:
            raise self._failure
        if self._proof is not None:
            msg = (
                f"the origin's last event is {self.fold.last_accepted}, "
                f"and its replica {self._target} holds events up to {self._proof.last_index}"
            )
            hint = "was the origin restored from an older backup? Its replica holds what is missing"
            raise LogTruncated(msg, log=self._origin, hint=hint)

    # --- the target

    def ready(self, records_max: int = SEND_RECORDS_MAX) -> Ready | None:
        """Return what to write now, None where the origin must be read first."""
        if not self._queue:
            return None
        size = 0
        count = 0
        for record in islice(self._queue, records_max):
            size += len(record.value)
            if size > SEND_BYTES_MAX and count:
                break
            count += 1
        return Ready(self._base_index, tuple(islice(self._queue, count)))

    def written(self, last_index: int) -> None:
        """Say that the target took the queued records up to an index."""
        queue, marks = self._queue, self._marks
        while marks and marks[0][0] <= last_index:
            self._base_index, self._base = marks.popleft()
        while queue and queue[0].index <= self._base_index:
            queue.popleft()
        while queue and queue[0].index <= last_index:
            record = queue.popleft()
            self._base.add(decode_replica(record.value).envelope)
            self._base_index = record.index

    def target_is(self, end: TargetEnd) -> None:
        """Say what the target was found to hold.

        Raises:
            LogTruncated: It lost events that it held before.
            Diverged: It holds an event that the origin does not, or another one.
        """
        if end.last_index < self._base_index:
            msg = f"the replica held events up to {self._base_index}, now up to {end.last_index}"
            raise LogTruncated(msg, log=self._target, hint="was it restored from an older backup?")
        self.written(end.last_index)
        if self._base_index == end.last_index:
            self._compare(end)
        elif self._queue:
            raise self._diverged(f"it holds an event at {end.last_index}, its origin none")
        else:
            # Another sink is ahead, or this is the start: read the origin up to there.
            self._proof = end
            self._encoder = None

    def _compare(self, end: TargetEnd) -> None:
        if self._base.root() != end.root:
            raise self._diverged(f"their events differ at or before index {end.last_index}")

    def _diverged(self, what: str) -> Diverged:
        msg = f"the replica is not a prefix of its origin {self._origin}: {what}"
        return Diverged(msg, log=self._target, hint="verify says where they differ first")

    def replace_first(self, record: CopiedRecord) -> None:
        """Put an omission in the place of the first queued record, which the target refused."""
        if not self._queue or self._queue[0].index != record.index:
            msg = f"the first queued record is not the one at index {record.index}"
            raise ValueError(msg)
        # From here on the target's root is not the origin's.
        self._marks.clear()
        self._omitted[record.index] = decode_replica(record.value).envelope
        self._queue[0] = record
