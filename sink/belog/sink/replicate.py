"""Replication of a log to another instance: the shell around `belog.sink.protocol`.

- The resume position is what the target holds by its own verdict. There is no side file, so a crash
  at any point neither loses nor doubles an event.
- Nothing is sent before the target's events are proved to be a prefix of the origin's: same log,
  equal Merkle root at equal index.
- A second sink or a zombie cannot corrupt a replica: where writes are conditional they are refused,
  and elsewhere the replica's verdict makes void what does not follow. Either way this sink reads
  where the target ends and goes on from there.
- What a target refuses for itself (too large, say) goes to the dead letters first, and then an
  omission takes its place (`belog.sink.omission`), so that the rest flows. The roots differ from
  there on, and status and verify say so. Without dead letters the sink stops at such an event.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from msgspec import Struct

from belog.schemas.errors import (
    BelogError,
    Corrupt,
    Diverged,
    Gone,
    IndexConflict,
    InvalidEvent,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NotFound,
)
from belog.schemas.fold import Fold
from belog.sink.dead_letters import DEAD_LETTERS_MAX, DeadLetters
from belog.sink.omission import omit
from belog.sink.opening import open_target
from belog.sink.origin import fold_within
from belog.sink.protocol import (
    EMPTY_TARGET,
    SEND_RECORDS_MAX,
    Ready,
    ReplicationProtocol,
    TargetEnd,
)
from belog.sink.verify import verify_replica
from belog.storage.creation import now_us
from belog.storage.interface import FOLLOW_WAIT_S, CopiedRecord, EventLog
from belog.storage.opening import open_existing
from belog.storage.snapshots import SnapshotStore

__all__ = [
    "CONFLICTS_MAX",
    "RETRY_FIRST_S",
    "RETRY_LONGEST_S",
    "RETRY_TOTAL_S",
    "Progress",
    "Replication",
    "SinkStatus",
]

RETRY_FIRST_S: Final = 0.1
"""Pause before the first retry, seconds; doubled each time. A broker's leader moves in about
that."""
RETRY_LONGEST_S: Final = 5.0
"""Longest pause between two tries, seconds: so soon a server that came back is noticed."""
RETRY_TOTAL_S: Final = 300.0
"""Sum of the pauses without any progress after which the sink gives up, seconds: longer than a
broker's restart or a failover; whoever runs the sink starts it again."""

CONFLICTS_MAX: Final = 5
"""Writes refused in a row while the target's end does not move, some three seconds. Two sinks that
race move it; if nobody does, the target holds a record that is not of its origin."""

SCAN_BYTES_AIM: Final = 16 * 1024 * 1024
"""Bytes that one scan should bring, by the mean size of the scan before it: bounds the memory where
events are large."""
SCAN_RECORDS_FIRST: Final = 1_000
"""Records of the first scan, before any size is known."""
SCAN_RECORDS_MIN: Final = 100
"""Fewest records of one scan: at the largest event size 90 MB."""
AHEAD_RECORDS_MIN: Final = 1_000
"""Records of a write from which on the next batch is read meanwhile: below, starting a thread
(some 0.1 ms) costs more than it saves."""
MICROS: Final = 1_000_000
"""Microseconds of a second."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far a replication is; what `on_progress` gets after each step."""

    is_proving: bool = False
    """True while it reads the part of the origin that the target holds already."""
    position: int = 0
    """Next position of the origin to be read."""
    origin_next_position: int = 0
    """The origin's end when it was last looked at."""
    target_index: int = -1
    """Index of the last event that the target is known to hold, -1 for none."""
    written: int = 0
    """Events that this object wrote."""
    queued: int = 0
    """Events that were read and not yet written."""
    oldest_queued_at: int | None = None
    """Ingest time of the first of them, microseconds since the epoch."""


class SinkStatus(Struct, frozen=True, kw_only=True):
    """Where a replication stands."""

    origin: str
    target: str
    log_id: str
    origin_next_position: int
    """The origin's next position."""
    target_index: int
    """Index of the last event that the target is known to hold, -1 for none."""
    lag_records: int
    """Records of the origin, void ones included, that were not looked at yet, and events among the
    others that were not written yet."""
    lag_s: float
    """Age of the oldest of them, seconds; 0 where there is none."""
    omitted: tuple[int, ...]
    """Indices of the events that stand shortened in the target. With one of them the target's
    Merkle root cannot equal the origin's."""
    last_error: str
    """The retriable error that the sink waits out now, empty where there is none."""


class Replication:
    """Replicates one log to another. `status` may be called from any thread, the rest from one.

    Args of the constructor say what takes part; nothing is read or written before the first run.
    """

    def __init__(
        self,
        origin: EventLog,
        target: EventLog,
        *,
        dead_letters: DeadLetters | None = None,
        snapshots: SnapshotStore | None = None,
        batch_records_max: int = SEND_RECORDS_MAX,
        on_progress: Callable[[Progress], None] | None = None,
        on_error: Callable[[BelogError], None] | None = None,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Name the two logs; both stay the caller's to close.

        Args:
            origin: A log or a replica of one; read only.
            target: The replica to fill; made by `open_target` where its backend makes logs.
            dead_letters: Where refused events go; None to stop at the first.
            snapshots: Where the origin's snapshots are, to begin from once it was vacuumed.
            batch_records_max: Most records of one read and of one write, 1 to `SEND_RECORDS_MAX`.
            on_progress: Called after each read and each write, in the running thread.
            on_error: Called with each error that is waited out, in the running thread.
            clock: Gives the time for `lag_s`, microseconds since the epoch.
        """
        self._origin = origin
        self._target = target
        self._dead_letters = dead_letters
        self._snapshots = snapshots
        self._batch_max = min(max(batch_records_max, 1), SEND_RECORDS_MAX)
        self._on_progress = on_progress
        self._on_error = on_error
        self._clock = clock
        self._protocol: ReplicationProtocol | None = None
        self._must_look = False
        self._log_id = ""
        self._origin_next = 0
        self._written = 0
        self._scan_limit = min(SCAN_RECORDS_FIRST, self._batch_max)
        self._send_limit = self._batch_max
        self._last_error = ""
        self._point = Progress()

    # --- running

    def run_once(self, stop: threading.Event | None = None) -> Progress:
        """Replicate what the origin holds now, waiting out retriable errors. Blocks.

        What was written is durable in the target on return.

        Raises:
            ReplicaRefused: The target is a primary log, or the origin itself.
            LogReplaced: The target is a replica of another log.
            LogTruncated: The origin or the target is shorter than it was.
            Diverged: The target's events are not a prefix of the origin's; `index` says where
                first.
            NewerFormat: A record needs newer software; what was before it is replicated.
            Gone: The origin was vacuumed, and there is no snapshot to begin from; see
                `belog.sink.origin.fold_within`.
            LimitExceeded: An event was refused and there are no dead letters, or too many.
            Corrupt: The target holds a record that is not of its origin.
            Unavailable: A server was away for longer than `RETRY_TOTAL_S`.
        """
        self._persist(self._replicate, stop or threading.Event())
        return self._point

    def run(self, stop: threading.Event) -> None:
        """Replicate, and follow the origin live until `stop` is set. Blocks; errors as `run_once`.

        Returns within `FOLLOW_WAIT_S` and one batch after `stop` was set.
        """
        while not stop.is_set():
            self._persist(self._replicate, stop)
            self._persist(self._wait, stop)

    def _persist(self, step: Callable[[threading.Event], None], stop: threading.Event) -> None:
        """Take a step, again after each retriable error with a growing pause."""
        pause_s, paused_s, conflicts, mark = RETRY_FIRST_S, 0.0, 0, self._mark()
        while not stop.is_set():
            try:
                step(stop)
            except BelogError as error:
                if not error.retriable:
                    raise
                if self._mark() != mark:
                    pause_s, paused_s, conflicts, mark = RETRY_FIRST_S, 0.0, 0, self._mark()
                conflicts += isinstance(error, IndexConflict)
                if conflicts > CONFLICTS_MAX:
                    msg = "the target holds a record that is not of its origin"
                    hint = "make the replica anew"
                    raise Corrupt(msg, log=self._target.name, hint=hint) from error
                if paused_s >= RETRY_TOTAL_S:
                    raise
                self._must_look = True
                self._last_error = str(error)
                if self._on_error is not None:
                    self._on_error(error)
                # Also after a conflict: the sink that lost a race lets the other one go ahead.
                stop.wait(pause_s)
                paused_s += pause_s
                pause_s = min(2 * pause_s, RETRY_LONGEST_S)
            else:
                self._last_error = ""
                return

    def _mark(self) -> tuple[int, ...]:
        protocol = self._protocol
        if protocol is None:
            return ()
        return protocol.fold.next_position, protocol.target_index, protocol.target_seen

    def _replicate(self, stop: threading.Event) -> None:
        try:
            self._copy(stop)
        except Diverged:
            self._protocol = None
            self._protocol = self._compared()
            self._copy(stop)
        except Gone as gone:
            self._protocol = None
            self._protocol = self._begun_within(gone)
            self._copy(stop)

    def _begun_within(self, gone: Gone) -> ReplicationProtocol:
        """Start anew from a snapshot, because the origin was vacuumed."""
        end = self._target_end()
        fold = fold_within(self._origin, UUID(self._log_id), self._snapshots, end.last_index, gone)
        try:
            return self._new_protocol(end, {}, fold)
        except Diverged:
            return self._compared()

    def _compared(self) -> ReplicationProtocol:
        """Start anew where all that differs are omissions; else say where the logs differ first."""
        check = verify_replica(self._origin, self._target, self._snapshots)
        if check.first_difference is not None:
            check.require_equal(self._target.name)
        end = TargetEnd(check.next_idx - 1, check.replica_root)
        return self._new_protocol(end, check.omitted)

    def _new_protocol(
        self, end: TargetEnd, omitted: Mapping[int, bytes], fold: Fold | None = None
    ) -> ReplicationProtocol:
        return ReplicationProtocol(
            end, omitted=omitted, fold=fold, origin=self._origin.name, target=self._target.name
        )

    def _copy(self, stop: threading.Event) -> None:
        protocol = self._protocol
        if protocol is None:
            self._log_id = str(self._open())
            protocol = self._protocol = self._new_protocol(self._target_end(), {})
        elif self._must_look:
            protocol.target_is(self._target_end())
        self._must_look = False
        while not stop.is_set():
            ready = protocol.ready(self._send_limit)
            if ready is not None:
                self._write(protocol, ready)
            elif not self._read(protocol):
                return
            self._report(protocol)

    def _open(self) -> UUID:
        identity = open_existing(self._origin)
        open_target(self._target, self._origin, identity)
        return identity.log_id

    def _target_end(self) -> TargetEnd:
        try:
            end = self._target.end()
        except NotFound:
            return EMPTY_TARGET
        if str(end.log_id) != self._log_id:
            msg = f"the target is a replica of {end.log_id}, the origin is {self._log_id}"
            raise LogReplaced(msg, log=self._target.name)
        return TargetEnd(end.next_idx - 1, end.root)

    def _read(self, protocol: ReplicationProtocol) -> bool:
        """Read on in the origin; return whether there was anything."""
        position = protocol.fold.next_position
        records = self._origin.scan(position, self._scan_limit)
        if records:
            size = sum(len(record.value or b"") for record in records)
            fitting = SCAN_BYTES_AIM * len(records) // max(size, 1)
            self._scan_limit = min(max(fitting, SCAN_RECORDS_MIN), self._batch_max)
            protocol.receive(records)
            return True
        protocol.origin_ended()
        self._origin_next = self._origin.next_position()
        if self._origin_next < position:
            msg = f"the origin was read up to {position} and now ends at {self._origin_next}"
            raise LogTruncated(msg, log=self._origin.name, hint="was it recreated or restored?")
        self._report(protocol)
        return False

    def _wait(self, _stop: threading.Event) -> None:
        protocol = self._protocol
        if protocol is not None:
            self._origin.wait(protocol.fold.next_position, FOLLOW_WAIT_S)

    # --- writing

    def _write(self, protocol: ReplicationProtocol, ready: Ready) -> None:
        """Write what is ready; read on in the origin while a large write is under way."""
        if len(ready.records) < AHEAD_RECORDS_MIN or len(ready.records) < protocol.queued:
            self._settle(protocol, ready, lambda: self._send(ready))
            return
        with ThreadPoolExecutor(1, "belog-sink-write") as pool:
            writing = pool.submit(self._send, ready)
            try:
                self._read(protocol)
            finally:
                self._settle(protocol, ready, writing.result)

    def _send(self, ready: Ready) -> None:
        self._target.copy_records(ready.records, after=ready.after)

    def _settle(
        self, protocol: ReplicationProtocol, ready: Ready, outcome: Callable[[], None]
    ) -> None:
        """Take the outcome of a write."""
        try:
            outcome()
        except (LimitExceeded, InvalidEvent) as error:
            # Where writes are not conditional, some of the records may have been taken.
            protocol.target_is(self._target_end())
            first, *rest = ready.records
            if rest:
                self._send_limit = len(ready.records) // 2
            elif protocol.target_index == ready.after:
                self._omit(protocol, first, error)
        else:
            protocol.written(ready.records[-1].index)
            self._written += len(ready.records)
            self._send_limit = min(2 * self._send_limit, self._batch_max)

    def _omit(
        self,
        protocol: ReplicationProtocol,
        record: CopiedRecord,
        error: LimitExceeded | InvalidEvent,
    ) -> None:
        """Keep a refused record as a dead letter, and put an omission in its place."""
        error.index = record.index
        error.log = self._target.name
        if self._dead_letters is None:
            error.hint = "give the sink a dead-letter file to go on past it, or mend the target"
            raise error
        if record.index in protocol.omitted:
            error.hint = "not even the shortened event is taken: mend the target's limits"
            raise error
        if len(protocol.omitted) >= DEAD_LETTERS_MAX:
            raise LimitExceeded(
                f"dead letters of {self._target.name}",
                limit="DEAD_LETTERS_MAX",
                limit_value=DEAD_LETTERS_MAX,
                value=len(protocol.omitted) + 1,
            ) from error
        self._dead_letters.put(record, error)
        protocol.replace_first(omit(record, error.message))

    # --- what others see

    def _report(self, protocol: ReplicationProtocol) -> None:
        position = protocol.fold.next_position
        if self._on_progress is not None and position > self._origin_next:
            self._origin_next = self._origin.next_position()
        self._point = Progress(
            is_proving=protocol.is_proving,
            position=position,
            origin_next_position=max(self._origin_next, position),
            target_index=protocol.target_index,
            written=self._written,
            queued=protocol.queued,
            oldest_queued_at=protocol.oldest_queued_at,
        )
        if self._on_progress is not None:
            self._on_progress(self._point)

    def status(self) -> SinkStatus:
        """Return where the replication stands. Blocks for two round trips to the origin."""
        point = self._point
        protocol = self._protocol
        next_position = self._origin.next_position()
        oldest_at = point.oldest_queued_at
        if oldest_at is None:
            unread = self._origin.scan(point.position, 1)
            oldest_at = unread[0].created_at if unread else None
        lag_s = 0.0 if oldest_at is None else max(0, self._clock() - oldest_at) / MICROS
        return SinkStatus(
            origin=self._origin.name,
            target=self._target.name,
            log_id=self._log_id,
            origin_next_position=next_position,
            target_index=point.target_index,
            lag_records=max(0, next_position - point.position) + point.queued,
            lag_s=lag_s,
            omitted=tuple(sorted(protocol.omitted)) if protocol is not None else (),
            last_error=self._last_error,
        )
