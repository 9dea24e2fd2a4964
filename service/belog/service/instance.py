"""One log as a service holds it: opened once, shared by all its boundaries."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from belog.processors.factory import open_tables as reader_of
from belog.processors.memory_tables import MemoryTables
from belog.processors.periodic import SNAPSHOT_EVERY_EVENTS, SnapshotBeginning
from belog.processors.rows import BuildRow, JobRunRow
from belog.processors.snapshots import TakenSnapshot
from belog.processors.table_fold import TableFold
from belog.processors.tables import TableReader, lost_end
from belog.producers import Producer
from belog.query import QueryEngine, Refusals, Repositories
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Gone, NotFound, ReplicaRefused, Unavailable
from belog.schemas.filters import Terms
from belog.service.access import Grant
from belog.service.bridge import AppendQueue, Calls
from belog.service.feed import Feed
from belog.service.following import Following, judging_fold
from belog.service.observer import AppendTiming, Observer, component_of
from belog.service.opening import attach_snapshots, await_tables, for_many
from belog.service.snapshots import folder_of, snapshot_taken
from belog.service.upstreams import Upstreams
from belog.storage import EventLog, LogIdentity, open_log
from belog.storage.interface import LogEnd, Receipt
from belog.storage.opening import open_existing
from belog.storage.snapshots import SNAPSHOTS_KEPT, SnapshotStore

__all__ = [
    "ACTOR",
    "DEFAULT_LOG",
    "LAG_RECORDS_MAX",
    "Instance",
    "InstanceSettings",
    "Observer",
    "Readiness",
]

LOGGER: Final = logging.getLogger("belog.service")

DEFAULT_LOG: Final = "sqlite:///belog.db"
"""Where the log is when nothing is said: beside whoever starts the service."""

ACTOR: Final = "belog"
"""Who writes what the service itself says, such as that a snapshot was taken."""

LAG_RECORDS_MAX: Final = 10_000
"""Records that tables may be behind and still count as following: a few seconds' work."""

LAG_S_MAX: Final = 10.0
"""How long tables may stand behind the log's end without moving, seconds: a worker's session
time-out, within which another takes over, and some."""

STOP_APPENDS_S: Final = 30.0
"""How long appends that were taken may go on when the service stops, seconds."""


class InstanceSettings(Struct, frozen=True, kw_only=True):
    """What an instance is made of."""

    log_uri: str
    tables_uri: str = "memory:"
    """`memory:` keeps them in this process; otherwise a worker keeps them, and this one reads."""
    instance: str = "local"
    """Its name, for a log that is made."""
    snapshots: str | None = None
    """Folder to start from and to keep snapshots in; None for none."""
    snapshot_every_events: int | None = SNAPSHOT_EVERY_EVENTS
    snapshots_kept: int = SNAPSHOTS_KEPT
    lag_s_max: float = LAG_S_MAX


class Readiness(Struct, frozen=True):
    """Whether the service can do its work."""

    is_ready: bool
    reasons: tuple[str, ...]
    applied: int
    """Index of the first event that is not in the tables."""
    lag_records: int
    """Records of the log that the tables have not seen, -1 where that is not known."""
    lag_s: float = 0.0
    """Age of the oldest of them, seconds."""
    next_position: int = -1
    """Position that the log's next record gets, -1 where that is not known."""


class Instance:
    """A log with its tables, its producer and its feed. Belongs to one event loop.

    Attributes:
        log: The log.
        identity: Which one it is.
        producer: None where the log is a replica, which takes no events.
        queries: Over its tables.
        repositories: Over the same.
        feed: What is new in it.
        calls: Where blocking calls run.
        refusals: Appends that were refused lately.
        observer: Who is told what happens.
        which: Headers of answers that say which log this is, and which run of a service. A client
            that goes on from a cursor looks whether it is still the same log when the run is
            another one.
        upstreams: Other instances that own partitions, where there are any.
        beginning: Partitions whose attempt a request here is beginning now.
    """

    log: EventLog
    identity: LogIdentity
    producer: Producer | None
    queries: QueryEngine
    repositories: Repositories
    feed: Feed
    calls: Calls
    refusals: Refusals
    observer: Observer
    which: Sequence[tuple[bytes, bytes]]
    upstreams: Upstreams | None = None

    def __init__(self, settings: InstanceSettings, observer: Observer | None = None) -> None:
        """Open nothing yet; `async with` does.

        Args:
            settings: What to open.
            observer: Who is told what happens.
        """
        self.settings = settings
        self.observer = observer or Observer()
        self.refusals = Refusals()
        self._stack = AsyncExitStack()
        self._appends: AppendQueue | None = None
        self.beginning: dict[str, asyncio.Future[None]] = {}
        self._snapshots: SnapshotBeginning | None = None
        self._stopping = False
        self._behind_since: float | None = None
        self._position_before = -1

    # --- life

    async def __aenter__(self) -> Self:
        """Open the log (making it where the backend does that), its tables and its feed.

        Raises:
            NotFound: There is no log, and its backend leaves making it to a command; or no tables.
            LogReplaced: The tables are of another log.
            Unavailable: Something cannot be reached.
        """
        self.calls = Calls()
        self._stack.callback(self.calls.close)
        try:
            opened = await asyncio.to_thread(self._open_anyhow)
            self._stack.callback(opened.close)
            following = self._following
            if self.producer is not None:
                written = None if following is None else following.written
                self._appends = AppendQueue(self.producer, self.observer, written)
            if following is not None:
                following.appends = self._appends
            self.feed = Feed(
                self.log,
                self.calls,
                start_idx=self._start_idx,
                run_terms=self._run_terms,
                has_positions=not self.identity.is_replica,
                read_next=None if following is None else following.read,
                wait_next=None if following is None else following.wait,
                on_error=self._failed,
            )
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop gracefully: waiters are answered, appends that were taken are finished."""
        self.stop()
        if self._appends is not None and not await asyncio.to_thread(
            self._appends.close, STOP_APPENDS_S
        ):
            LOGGER.error("appends were still undecided after %s s", STOP_APPENDS_S)
        await asyncio.to_thread(self.feed.join)
        await self._stack.aclose()

    def stop(self) -> None:
        """Answer all who wait, so that servers can end; appends still go through. Idempotent."""
        self._stopping = True
        self.feed.stop()

    def _open_anyhow(self) -> ExitStack:
        """Open; a vacuumed log from the snapshot that it names, where no folder is configured."""
        try:
            return self._open()
        except Gone as error:
            folder = folder_of(error.snapshot)
            if self.settings.snapshots is not None or folder is None:
                raise
            LOGGER.warning("the log was vacuumed: beginning with a snapshot in %s", folder)
            self.settings = replace(self.settings, snapshots=folder, snapshot_every_events=None)
            return self._open()

    def _open(self) -> ExitStack:
        """Open what blocks; return what closes it, in order."""
        settings = self.settings
        with ExitStack() as stack:
            self.log = stack.enter_context(open_log(for_many(settings.log_uri)))
            found = self.log.identify()
            if found is None:
                self.identity = self.log.initialize(instance=settings.instance)
                # Who else begins at this moment may have been the one that made it.
                LOGGER.info("begun log %s at %s", self.identity.log_id, self.log.name)
            else:
                self.identity = open_existing(self.log)
            self.which = (
                (b"belog-log-id", str(self.identity.log_id).encode()),
                (b"belog-process", os.urandom(8).hex().encode()),
            )
            store = None
            if settings.snapshots is not None:
                store = SnapshotStore(settings.snapshots, keep=settings.snapshots_kept)
                attach_snapshots(self.log, settings.snapshots)
            tables = stack.enter_context(self._open_tables(store))
            self.producer = None
            if not self.identity.is_replica:
                fold = judging_fold(self.log, self.identity, self._embedded, store)
                own = None if self._following is None else self._following.own.put
                self.producer = stack.enter_context(
                    Producer(self.log, actor=ACTOR, fold=fold, on_confirmed=own)
                )
            if self._snapshots is not None:
                # Before the producer, which tells the log of the snapshot that is being taken.
                stack.callback(self._snapshots.close)
            self.queries = QueryEngine(tables, self.log, refusals=self.refusals)
            self.repositories = Repositories(self.queries)
            self._start_idx = (
                self.end().next_idx if self._embedded is None else tables.status().applied
            )
            return stack.pop_all()

    def _open_tables(self, store: SnapshotStore | None) -> TableReader:
        self._embedded: TableFold | None = None
        self._following: Following | None = None
        if self.settings.tables_uri != "memory:":
            reader = reader_of(self.settings.tables_uri)
            await_tables(reader, self.log)
            return reader
        fold = TableFold()
        if store is not None:
            self._snapshots = SnapshotBeginning(
                self.log,
                self.identity,
                store,
                lambda _fold, _seen: False,
                every_events=self.settings.snapshot_every_events,
                on_outcome=self._on_snapshot,
            )
            fold = self._snapshots.fold()
        tables = MemoryTables(fold, name=f"tables of {self.log.name}")
        tables.catch_up(self.log)
        self._embedded = fold
        passed = None if self._snapshots is None else partial(self._snapshots.passed, fold)
        self._following = Following(self.log, tables, passed)
        return tables

    # --- following

    def _failed(self, error: BelogError) -> None:
        is_of_tables = component_of(error, self.queries.tables.name) == "tables"
        # Nothing else is asked where this is called; not every error names the log.
        self.observer.failed(error, "tables" if is_of_tables else "log")

    def _on_snapshot(self, outcome: TakenSnapshot | BelogError) -> None:
        self.observer.snapshot_ended(outcome)
        if isinstance(outcome, BelogError):
            LOGGER.error("no snapshot: %s", outcome)
            return
        LOGGER.info("snapshot %s", outcome.file.path)
        if self.producer is None:
            return
        try:
            self.producer.append(snapshot_taken(outcome), str(outcome.file.log_id))
        except BelogError:
            LOGGER.exception("the log was not told of snapshot %s", outcome.file.path)

    def _run_terms(self, job_run_id: str) -> Terms | None:
        row = self.queries.tables.get(JobRunRow, job_run_id).value
        if row is None:
            return None
        return Terms(
            row.outputs,
            () if row.build_id is None else (row.build_id,),
            (job_run_id,),
            () if row.task_id is None else (row.task_id,),
            () if row.job_label is None else (row.job_label,),
        )

    def refs_of(self, kind: str, subject_id: str) -> Sequence[str] | None:
        """Return the partitions that a build or job run is about, by the tables.

        Blocks for a round trip.

        Args:
            kind: `build` or `job_run`.
            subject_id: Its id.

        Returns:
            What the build asked for, or the job run makes; None where it was never seen.
        """
        tables = self.queries.tables
        if kind == "build":
            build = tables.get(BuildRow, subject_id).value
            return None if build is None else build.requested_partitions
        run = tables.get(JobRunRow, subject_id).value
        return None if run is None else run.outputs

    # --- what the boundaries ask

    def end(self) -> LogEnd:
        """Return where the log ends, with its Merkle root; blocks."""
        if self.producer is None:
            return self.log.end()
        if self._following is not None and self._following.keeps_root:
            return self._following.end(self.producer.refresh())
        return self.producer.end()

    async def append(
        self,
        grant: Grant,
        events: Sequence[Event],
        *,
        atomic: bool = False,
        at: int | None = None,
    ) -> list[Receipt | BelogError]:
        """Append events of an authenticated writer; durable on return.

        Args:
            grant: Who writes, and what he may.
            events: In order, each judged over those before it; at most `BATCH_EVENTS_MAX`. Their
                actor is empty or the grant's.
            atomic: All or none.
            at: Only if the log's next index is this one.

        Returns:
            A receipt or an error per event, in order.

        Raises:
            ReplicaRefused: The log is a replica.
            Forbidden: The writer may not append, or not one of these; with a single event, or with
                `atomic` or `at`. In a batch such an event gets this error, and the others go on.
            Overloaded: Too much waits already.
            Closed: The service is stopping.
            BelogError: With `atomic` or `at`, why nothing was written.
        """
        if self._appends is None:
            msg = "the log is a replica, which only its origin's sink writes"
            raise ReplicaRefused(msg, log=self.log.name, hint="append to its origin")
        started = time.monotonic()
        try:
            final, timing = await self._append(self._appends, grant, events, atomic=atomic, at=at)
        except BelogError as error:
            self.observer.appended(events, [error] * len(events), time.monotonic() - started)
            raise
        for event, result in zip(events, final, strict=True):
            if isinstance(result, BelogError):
                self.refusals.record(event, result, at=self.queries.clock())
        self.observer.appended(events, final, time.monotonic() - started, timing)
        return final

    async def _append(
        self,
        appends: AppendQueue,
        grant: Grant,
        events: Sequence[Event],
        *,
        atomic: bool,
        at: int | None,
    ) -> tuple[list[Receipt | BelogError], AppendTiming | None]:
        results: list[Receipt | BelogError | None] = [None] * len(events)
        signed: list[Event] = []
        timing: AppendTiming | None = None
        for n, event in enumerate(events):
            try:
                own = grant.sign(event)
                if grant.is_restricted:
                    await self.calls.run(grant.check_event, own, self.refs_of)
                else:
                    grant.check_event(own)
                signed.append(own)
            except BelogError as error:
                if atomic or at is not None:
                    raise
                results[n] = error
        if signed:
            decided, timing = await appends.append(signed, atomic=atomic, at=at)
            done = iter(decided)
            results = [next(done) if result is None else result for result in results]
        return [result for result in results if result is not None], timing

    @property
    def queued_events(self) -> int:
        """Events that wait to be appended now."""
        return 0 if self._appends is None else self._appends.queued_events

    async def reach(self, min_index: int | None, timeout_s: float) -> None:
        """Wait until the event at an index is in the tables, so that answers hold it.

        Args:
            min_index: The index, None for no wait.
            timeout_s: Longest wait, seconds.

        Raises:
            Unavailable: They did not come that far in time.
        """
        if min_index is None:
            return
        if self._embedded is None:
            await self.calls.run(self.queries.wait_for, min_index, timeout_s)
        elif not await self.feed.wait_for(min_index, timeout_s):
            msg = f"the tables are at {self.feed.end}, index {min_index} was waited for"
            hint = "is it an index of this log?"
            raise Unavailable(msg, log=self.log.name, index=self.feed.end, hint=hint)

    def readiness(self) -> Readiness:
        """Say whether the service can do its work: open, following, tables near the log's end.

        Blocks for a round trip to the log and one to the tables; one more to the log where the
        tables are behind.
        """
        reasons = [*self._feed_flaws(), *(() if self.upstreams is None else self.upstreams.flaws())]
        applied, lag, lag_s, next_position = -1, -1, 0.0, -1
        try:
            status = self.queries.tables.status()
            applied = status.applied
            next_position = self.log.next_position()
            lag = max(next_position - status.position, 0)
            if status.log_id != str(self.identity.log_id):
                reasons.append(f"the tables are of log {status.log_id}")
            elif next_position < status.position:
                reasons.append(str(lost_end(self.log, next_position, status)))
            elif self._is_behind(status.position, lag):
                reasons.append(f"the tables stand at {applied}, {lag} records behind the log")
            if lag and (unseen := self.log.scan(status.position, 1)):
                lag_s = max(self.queries.clock() - unseen[0].created_at, 0) / 1e6
        except BelogError as error:
            self._failed(error)
            reasons.append(str(error))
        return Readiness(not reasons, tuple(reasons), applied, lag, lag_s, next_position)

    def _feed_flaws(self) -> Iterator[str]:
        failing = self.feed.failing
        if self._stopping:
            yield "the service is stopping"
        elif self.feed.error is not None:
            yield f"the feed has ended: {self.feed.error}"
        elif not self.feed.is_running:
            yield "the feed has ended by a defect"
        elif failing is not None and time.monotonic() - failing[1] > self.settings.lag_s_max:
            yield f"the log cannot be followed: {failing[0]}"

    def _is_behind(self, position: int, lag: int) -> bool:
        """Whether tables are far behind, or have stood behind for too long."""
        now = time.monotonic()
        # By position: records that are void move the tables on, and not what is applied.
        if not lag:
            self._behind_since = None
        elif self._behind_since is None or position != self._position_before:
            self._behind_since = now
        self._position_before = position
        stood_s = 0.0 if self._behind_since is None else now - self._behind_since
        return lag > LAG_RECORDS_MAX or stood_s > self.settings.lag_s_max

    def require_producer(self) -> Producer:
        """Return the producer.

        Raises:
            ReplicaRefused: The log is a replica.
        """
        if self.producer is None:
            msg = "the log is a replica, which only its origin's sink writes"
            raise ReplicaRefused(msg, log=self.log.name, hint="ask its origin")
        return self.producer


def not_found(kind: str, subject_id: str, as_of: int) -> NotFound:
    """Return the error of a row that is not there."""
    msg = f"there is no {kind} {subject_id!r}"
    return NotFound(msg, index=as_of, hint="the tables are as of that index")
