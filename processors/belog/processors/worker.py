"""The worker: follows a log and keeps its tables in Redis.

A worker first catches up in bulk, then tails: Kafka through Faust, other logs by a plain reader. It
never trusts its source for the position: that is what the tables say they hold, and a gap is filled
by reading the log. Several workers of the same tables may run; on Kafka one tails and the others
stand by, elsewhere all do, and the guard of the tables lets each batch in once.

Log lines are JSON objects with an `event` and its fields, on the logger `belog.worker`.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Final, Literal, Protocol, cast

from msgspec import Struct

from belog.processors.log_lines import PROGRESS_LOG_S, Outage, log_event
from belog.processors.periodic import SNAPSHOT_EVERY_EVENTS, LoadTables, SnapshotBeginning
from belog.processors.replay import OnProgress, Progress, Stop, TableFollower
from belog.processors.snapshots import TakenSnapshot
from belog.processors.tables import TableReader, TablesStatus, lost_end
from belog.schemas.errors import BelogError, Diverged, InvalidUri, Unavailable
from belog.storage.factory import open_log
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.opening import await_log, open_existing
from belog.storage.snapshots import SnapshotStore

__all__ = [
    "Tail",
    "Watchdog",
    "WorkerObserver",
    "WorkerSettings",
    "WorkerSnapshots",
    "WorkerStatus",
    "run_worker",
    "worker_status",
]

Tail = Literal["auto", "faust", "plain"]

TAIL_WAIT_S: Final = 0.25
"""Longest single wait for new records, seconds, before the worker looks whether it should stop."""

CHECK_S: Final = 1.0
"""How often an idle worker looks whether its tables are still there, seconds."""

RETRY_S: Final = 60.0
"""How long a log or Redis that cannot be reached is tried again, seconds."""

SESSION_TIMEOUT_S: Final = 10.0
"""After this time without a heartbeat the group gives the log to another worker, seconds. A
takeover takes this and about 2 s; lower, and a pause of the machine looks like a death."""


WATCHDOG_S: Final = 45.0
"""How long tables may stand still while the log moves, seconds: the group gives the log to another
worker within a session time-out, and needs one more where a rebalance goes wrong. After a broker's
restart it may go wrong for good, when the topic was not known yet; then only a new worker helps."""


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker runs."""

    tail: Tail = "auto"
    """`auto`: Faust for Kafka, the plain reader for other logs."""
    session_timeout_s: float = SESSION_TIMEOUT_S
    """1 to 60; the broker has bounds of its own (6 s to 30 min by default)."""
    retry_s: float = RETRY_S
    watchdog_s: float = WATCHDOG_S
    """How long the tables may stand still while the log moves, before the worker gives up; three
    session time-outs at least."""


class WorkerSnapshots(Struct, frozen=True, kw_only=True):
    """What a worker does with snapshots: it starts from the newest one, and takes further ones."""

    store: SnapshotStore
    every_events: int | None = SNAPSHOT_EVERY_EVENTS
    """Events between two snapshots; None to take none."""
    announce: Callable[[EventLog, TakenSnapshot], object] | None = None
    """Tells the log of a snapshot that is on disk. Called from a thread of its own; may raise the
    errors of this project, which are logged."""


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """How far tables follow a log."""

    log_id: str
    end_position: int
    """Position that the log's next record gets."""
    position: int
    """Position of the first record that is not in the tables."""
    applied: int
    """Index of the first event that is not in the tables."""
    lag_records: int
    is_same_log: bool
    """Whether the tables are of this log at all."""
    generation: str
    written_at: int | None
    """When the tables were last written, microseconds since the epoch."""


def worker_status(log: EventLog, tables: TableReader) -> WorkerStatus:
    """Return how far tables follow an opened log. Blocks for a round trip to each.

    Raises:
        Unavailable: One of them cannot be reached.
        NotFound: There is no log.
        LogTruncated: The tables are ahead of the log, which has lost its end.
    """
    identity = open_existing(log)
    status = tables.status()
    end_position = log.next_position()
    is_same_log = status.log_id == str(identity.log_id)
    if is_same_log and status.position > end_position:
        raise lost_end(log, end_position, status)
    return WorkerStatus(
        log_id=str(identity.log_id),
        end_position=end_position,
        position=status.position,
        applied=status.applied,
        lag_records=max(0, end_position - (status.position if is_same_log else 0)),
        is_same_log=is_same_log,
        generation=status.generation,
        written_at=status.written_at,
    )


class Watchdog:
    """Says when tables stand still although their log moves on."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start now.

        Args:
            limit_s: How long that may last, seconds.
            clock: Gives seconds.
        """
        self._limit_s = limit_s
        self._clock = clock
        self._moved_at = clock()
        self._seen: TablesStatus | None = None

    def pause(self) -> None:
        """Count from now on: neither could be looked at."""
        self._moved_at = self._clock()

    def look(self, status: TablesStatus, end_position: int) -> None:
        """Take a look at both.

        Raises:
            Diverged: The tables are behind, and have not moved for the limit.
        """
        now = self._clock()
        seen = self._seen
        moved = seen is None or (status.position, status.generation) != (
            seen.position,
            seen.generation,
        )
        self._seen = status
        if moved or status.position >= end_position:
            self._moved_at = now
        elif now - self._moved_at > self._limit_s:
            msg = (
                f"the tables stand at {status.position} for {now - self._moved_at:.0f} s, "
                f"while the log ends at {end_position}"
            )
            raise Diverged(msg, hint="this worker gives up; start it again")


class WorkerObserver:
    """Told what a worker does, in any of its threads; must neither block nor raise.

    The base class takes note of nothing.
    """

    def started(self, log: EventLog, identity: LogIdentity, follower: TableFollower) -> None:
        """Take note of what it works with, before it catches up."""

    def assigned(self, *, is_assigned: bool) -> None:
        """Take note of whether it tails the log now, or stands by."""

    def failed(self, error: BelogError) -> None:
        """Take note of an error that it waits out."""

    def snapshot_ended(self, outcome: TakenSnapshot | BelogError) -> None:
        """Take note of a snapshot that is on disk, or of why there is none."""


class TailContext(Struct, frozen=True):
    """What a tail works with."""

    log: EventLog
    log_uri: str
    identity: LogIdentity
    tables_uri: str
    follower: TableFollower
    settings: WorkerSettings
    stop: Stop
    observer: WorkerObserver


class _FaustModule(Protocol):
    def tail_with_faust(self, context: TailContext) -> None: ...


class _RedisModule(Protocol):
    def follower_from_uri(
        self,
        log: EventLog,
        tables_uri: str,
        identity: LogIdentity,
        *,
        retry_s: float,
        beginning: Callable[[LoadTables], SnapshotBeginning] | None,
        on_error: Callable[[BelogError], None] | None,
    ) -> TableFollower: ...


def run_worker(
    log_uri: str,
    tables_uri: str,
    settings: WorkerSettings | None = None,
    *,
    snapshots: WorkerSnapshots | None = None,
    stop: Stop | None = None,
    on_progress: OnProgress | None = None,
    observer: WorkerObserver | None = None,
) -> None:
    """Keep tables in Redis up with a log until told to stop. Blocks.

    Without `stop` it takes SIGTERM and SIGINT for that, and must be called in the main thread.

    Args:
        log_uri: The log; waited for where its place is there and holds nothing yet.
        tables_uri: `redis:` or `rediss:`.
        settings: How to run.
        snapshots: Where to start from and what to take; None to read the log from its beginning.
        stop: Set by another thread to end.
        on_progress: Called while it catches up in bulk.
        observer: Told what it does.

    Raises:
        NotFound: There is no place for the log, such as its Kafka topic.
        Unavailable: The log or Redis stayed unreachable for `retry_s`.
        NewerFormat: The log or the tables need newer software.
        LogReplaced, LogTruncated: The log is another one, or shorter than the tables.
        Diverged: The tables stood still while the log moved.
        InvalidUri: A URI is malformed, or a package that it needs is not installed.
    """
    settings = settings or WorkerSettings()
    observer = observer or WorkerObserver()
    log = open_log(log_uri)
    with _stopping(stop) as stopping, log:
        identity = _until_there(log, settings.retry_s, stopping, observer)
        if identity is None:
            return
        redis = cast("_RedisModule", _imported("belog.processors.redis_follower", "redis"))
        beginning = None if snapshots is None else _beginning(log, identity, snapshots, observer)
        follower = redis.follower_from_uri(
            log,
            tables_uri,
            identity,
            retry_s=settings.retry_s,
            beginning=beginning,
            on_error=observer.failed,
        )
        try:
            start = follower.start()
            observer.started(log, identity, follower)
            log_event("started", log=log.name, log_id=identity.log_id, position=start.position)
            follower.catch_up(on_progress=_logging(on_progress), stop=stopping)
            log_event("caught_up", position=follower.position, applied=follower.next_idx)
            context = TailContext(
                log, log_uri, identity, tables_uri, follower, settings, stopping, observer
            )
            if not stopping.is_set():
                _tail(context)
        finally:
            follower.close()
    log_event("stopped", position=follower.position)


def _beginning(
    log: EventLog, identity: LogIdentity, snapshots: WorkerSnapshots, observer: WorkerObserver
) -> Callable[[LoadTables], SnapshotBeginning]:
    def say(outcome: TakenSnapshot | BelogError) -> None:
        observer.snapshot_ended(outcome)
        if isinstance(outcome, BelogError):
            log_event("snapshot_failed", logging.WARNING, error=str(outcome))
            return
        log_event("snapshot_taken", next_idx=outcome.header.next_idx, file=outcome.file.path)
        if snapshots.announce is None or identity.is_replica:
            return
        try:
            snapshots.announce(log, outcome)
        except BelogError as error:
            log_event("snapshot_not_announced", logging.WARNING, error=str(error))

    return lambda load: SnapshotBeginning(
        log,
        identity,
        snapshots.store,
        load,
        every_events=snapshots.every_events,
        on_outcome=say,
    )


def _tail(context: TailContext) -> None:
    tail = context.settings.tail
    is_kafka = context.log_uri.startswith("kafka:")
    if tail == "plain" or (tail == "auto" and not is_kafka):
        tail_plainly(context)
        return
    if not is_kafka:
        msg = f"Faust tails Kafka only, not {context.log.name}"
        raise InvalidUri(msg, hint="use the plain tail")
    module = cast("_FaustModule", _imported("belog.processors.app", "faust"))
    module.tail_with_faust(context)


def _imported(module: str, extra: str) -> object:
    try:
        return import_module(module)
    except ImportError as error:
        msg = f"a worker needs a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint=f"pip install 'belog[{extra}]'") from error


def tail_plainly(context: TailContext) -> None:
    """Follow the log by its own `wait` and `scan`, until told to stop.

    Raises:
        As `run_worker`.
    """
    log, follower, stop = context.log, context.follower, context.stop
    outage = Outage(context.settings.retry_s)
    checked_at = time.monotonic()
    context.observer.assigned(is_assigned=True)
    while not stop.is_set():
        try:
            if log.wait(follower.position, TAIL_WAIT_S):
                follower.take(log.scan(follower.position))
            elif time.monotonic() - checked_at > CHECK_S:
                follower.check()
                checked_at = time.monotonic()
            outage.is_over()
        except Unavailable as error:
            context.observer.failed(error)
            outage.lasts(error)
            stop.wait(TAIL_WAIT_S)


def _until_there(
    log: EventLog, retry_s: float, stop: Stop, observer: WorkerObserver
) -> LogIdentity | None:
    """Open the log once it can be reached and holds something; None when stopped before."""
    outage = Outage(retry_s)
    while True:
        try:
            found = await_log(log, stop, _waiting(log))
        except Unavailable as error:
            if stop.is_set():
                raise
            observer.failed(error)
            outage.lasts(error)
        else:
            outage.is_over()
            return found
        stop.wait(CHECK_S)


def _waiting(log: EventLog) -> Callable[[], None]:
    """Return a call that says that there is no log yet, at most once in `PROGRESS_LOG_S`."""
    said_at: float | None = None

    def say() -> None:
        nonlocal said_at
        now = time.monotonic()
        if said_at is None or now - said_at >= PROGRESS_LOG_S:
            said_at = now
            log_event("waiting_for_log", log=log.name)

    return say


def _logging(on_progress: OnProgress | None) -> OnProgress:
    logged_at = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal logged_at
        if on_progress is not None:
            on_progress(progress)
        if time.monotonic() - logged_at > PROGRESS_LOG_S:
            logged_at = time.monotonic()
            log_event(
                "catching_up",
                position=progress.position,
                end_position=progress.end_position,
                rate_per_s=round(progress.rate_per_s),
            )

    return report


@contextmanager
def _stopping(stop: Stop | None) -> Generator[Stop]:
    """Give the event that ends a worker; without one of the caller's, signals set it."""
    if stop is not None:
        yield stop
        return
    stopping = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        log_event("stopping", signal=signal.Signals(number).name)
        stopping.set()

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
