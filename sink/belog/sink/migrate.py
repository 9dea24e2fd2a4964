"""Migration of a log to another store: the shell around `belog.sink.migration`.

- The log keeps its identity, its indices and its record bytes, and the ingest times where the
  target keeps them: all stores but a Kafka topic, whose broker gives a record its own time. Only a
  replica's times survive there, because its records carry them.
- The resume position is what the target holds, proved by Merkle root to be the origin's beginning.
  There is no side file: after a crash at any point, run it again.
- At the end the target is read back whole, and count, indices and root are compared.
- A target that holds another log, or more than is to be copied, is refused; nothing is overwritten.

Afterwards two logs have one identity, so only one of them may be written to. Stop the writers, or
migrate while they write, then stop them, migrate once more (it copies what is missing), and start
them at the new place. Where a topic ends with void records its copy elsewhere ends before them: a
cursor at the topic's end then lies a little past the copy's, and is to be set back to it.
"""

import time
from collections.abc import Callable
from typing import Final, Literal
from uuid import UUID

from msgspec import Struct

from belog.schemas.errors import LogReplaced, LogTruncated, NotFound
from belog.schemas.fold import Record
from belog.sink.migration import WHOLE, Bound, Migration, RecordSum, Summary
from belog.storage.factory import open_log
from belog.storage.interface import SCAN_RECORDS_MAX, CopiedRecord, EventLog, LogIdentity
from belog.storage.opening import open_existing

__all__ = ["MigrationProgress", "MigrationReport", "migrate_log", "run_migration"]

WRITE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one write, but for a single record that is larger: bounds transactions and memory."""

SCAN_RECORDS_FIRST: Final = 1_000
"""Records of the first scan, before any size is known."""

SCAN_RECORDS_MIN: Final = 20
"""Fewest records of one scan: at the largest event size 18 MB."""


class MigrationProgress(Struct, frozen=True, kw_only=True):
    """How far a migration is."""

    step: Literal["looking", "proving", "copying", "verifying"]
    """Reading what the target holds; reading that much of the origin; copying; reading back."""
    position: int
    """Next position to be read in this step."""
    end_position: int
    """Where this step ends."""
    elapsed_s: float


class MigrationReport(Struct, frozen=True, kw_only=True):
    """What a migration did; all of it was verified."""

    log_id: UUID
    is_replica: bool
    events: int
    """Events of the target."""
    copied: int
    """Those of them that this run wrote."""
    last_index: int
    root: bytes
    """Merkle root over the events, 32 bytes, the same on both sides."""
    keeps_times: bool
    """Whether the ingest times are the origin's; False for a primary log on Kafka."""


OnProgress = Callable[[MigrationProgress], None]


def run_migration(
    origin_uri: str,
    target_uri: str,
    *,
    bound: Bound = WHOLE,
    on_progress: OnProgress | None = None,
) -> MigrationReport:
    """Copy the log at one URI to another; see `migrate_log`.

    Raises:
        InvalidUri: A URI is malformed or not supported.
        BelogError: See `migrate_log`.
    """
    with open_log(origin_uri) as origin, open_log(target_uri) as target:
        return migrate_log(origin, target, bound=bound, on_progress=on_progress)


def migrate_log(
    origin: EventLog,
    target: EventLog,
    *,
    bound: Bound = WHOLE,
    batch_records_max: int = SCAN_RECORDS_MAX,
    on_progress: OnProgress | None = None,
) -> MigrationReport:
    """Copy a log to another store, or go on where a copy ended; verify the copy. Blocks.

    The target is made where it is not there yet, but for a Kafka topic. Each write is durable
    before the next begins. An interrupted call leaves a beginning of the log, which a further call
    completes. Nobody else may write to the target meanwhile.

    Args:
        origin: The log to copy, a primary one or a replica; it stays as it is, and may grow.
        target: Where to.
        bound: Where to end; by default where the origin ends.
        batch_records_max: Most records of one write, 1 to `SCAN_RECORDS_MAX`.
        on_progress: Called after each batch.

    Raises:
        NotFound: There is no origin, or no topic of the target's name.
        LogReplaced: The target holds another log, or the origin itself.
        LogTruncated: The target holds more than is to be copied.
        Diverged: The target holds something else, or somebody else wrote to it; or what was read
            back is not what was written.
        IndexConflict: Somebody else wrote to the target.
        Gone: The origin was vacuumed; events that the rest depends on are missing. Likewise
            `Unsupported`, where it was vacuumed and they are not missing yet.
        Unavailable: A store cannot be reached. Retriable: call again, it goes on.
    """
    return _Run(origin, target, bound, batch_records_max, on_progress).run()


class _Run:
    def __init__(
        self,
        origin: EventLog,
        target: EventLog,
        bound: Bound,
        batch_max: int,
        on_progress: OnProgress | None,
    ) -> None:
        self._origin, self._target = origin, target
        self._bound = bound
        self._batch_max = batch_max
        self._on_progress = on_progress
        self._started = time.monotonic()

    def run(self) -> MigrationReport:
        origin, target = self._origin, self._target
        identity = open_existing(origin)
        _open_target(target, origin, identity)
        held = self._summary_of_target("looking")
        read = RecordSum(judged=_is_judged(origin), bound=self._bound, log=origin.name)
        core = Migration(held, read, is_replica=identity.is_replica, target=target.name)
        copied = self._copy(core)
        found = self._summary_of_target("verifying")
        keeps_times = target.capabilities.explicit_index or identity.is_replica
        core.check_copied(found, keeps_times=keeps_times)
        if not found.events:
            msg = "the origin holds no event to copy"
            raise NotFound(msg, log=origin.name)
        return MigrationReport(
            log_id=identity.log_id,
            is_replica=identity.is_replica,
            events=found.events,
            copied=copied,
            last_index=found.last_index,
            root=found.root,
            keeps_times=keeps_times,
        )

    def _copy(self, core: Migration) -> int:
        reader = _Reader(self._origin, self._batch_max)
        copied = 0
        while not core.sum.is_past_bound and (records := reader.read()):
            wanted = core.receive(records)
            for part in _parts(wanted):
                self._target.copy_records(part, after=core.after)
                core.written(part)
                copied += len(part)
            self._report("proving" if core.is_proving else "copying", reader)
        core.origin_ended()
        return copied

    def _summary_of_target(self, step: Literal["looking", "verifying"]) -> Summary:
        reader = _Reader(self._target, self._batch_max)
        found = RecordSum(judged=_is_judged(self._target), log=self._target.name)
        while records := reader.read():
            found.take(records)
            self._report(step, reader)
        return found.summary()

    def _report(
        self, step: Literal["looking", "proving", "copying", "verifying"], reader: "_Reader"
    ) -> None:
        if self._on_progress is not None:
            progress = MigrationProgress(
                step=step,
                position=reader.position,
                end_position=max(reader.end_position, reader.position),
                elapsed_s=time.monotonic() - self._started,
            )
            self._on_progress(progress)


class _Reader:
    """Scans a log from its beginning, so much at a time as fits into memory."""

    def __init__(self, log: EventLog, records_max: int) -> None:
        self._log = log
        self._max = records_max
        self._limit = min(SCAN_RECORDS_FIRST, records_max)
        self.position = 0
        self.end_position = log.next_position()

    def read(self) -> list[Record]:
        """Return the next records, none where the log ends now."""
        records = self._log.scan(self.position, self._limit)
        if records:
            self.position = records[-1].position + 1
            size = sum([len(record.value or b"") for record in records])
            fitting = WRITE_BYTES_MAX * len(records) // max(size, 1)
            self._limit = min(max(fitting, SCAN_RECORDS_MIN), self._max)
        elif self.position < self.end_position == (end := self._log.next_position()):
            # Records at the end may have been removed, which is no news; an end that moved back is.
            self.position = end
        elif self._log.next_position() < self.position:
            msg = f"the log was read up to {self.position} and is shorter now"
            raise LogTruncated(msg, log=self._log.name, hint="was it recreated or restored?")
        return records


def _is_judged(log: EventLog) -> bool:
    """Whether void records may stand in a log, because they are not refused on append."""
    return not log.capabilities.conditional_append


def _parts(records: list[CopiedRecord]) -> list[list[CopiedRecord]]:
    """Return records in writes of bounded size."""
    parts: list[list[CopiedRecord]] = []
    size = WRITE_BYTES_MAX
    for record in records:
        size += len(record.value)
        if size > WRITE_BYTES_MAX:
            parts.append([])
            size = len(record.value)
        parts[-1].append(record)
    return parts


def _open_target(target: EventLog, origin: EventLog, identity: LogIdentity) -> None:
    if target is origin or target.name == origin.name != "memory:":
        msg = "a log is not migrated into itself"
        raise LogReplaced(msg, log=target.name, hint="name another place")
    target.initialize(
        instance=identity.instance,
        log_id=identity.log_id,
        replica=identity.is_replica,
        empty=True,
    )
