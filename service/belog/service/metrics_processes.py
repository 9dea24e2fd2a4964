"""Metrics of the worker and the sink, on a port of their own."""

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

from msgspec import Struct
from prometheus_client import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from belog.processors.replay import TableFollower
from belog.processors.snapshots import TakenSnapshot
from belog.processors.tables import TableReader
from belog.processors.worker import WorkerObserver, worker_status
from belog.schemas.errors import BelogError, InvalidInput
from belog.service.instance import Readiness
from belog.service.metrics import Metrics, counter, gauge
from belog.service.metrics_service import newest_snapshot, standing
from belog.service.observer import component_of
from belog.sink.replicate import Progress, Replication, SinkStatus
from belog.storage.creation import now_us
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.snapshots import SnapshotStore

__all__ = [
    "SAMPLE_EVERY_S",
    "SAMPLE_VALID_S",
    "SinkMetrics",
    "WorkerMetrics",
    "exported",
]

SAMPLE_EVERY_S: Final = 5.0
"""How often log and tables are asked how they stand, seconds: Prometheus asks every 15 s by default
and gets what is at most so old, at once, also where a server hangs."""

SAMPLE_VALID_S: Final = 30.0
"""After this time a sample says nothing any more, and its metrics are left out, seconds: the
longest that an answer of Redis is waited for, and some."""

STOP_S: Final = 2.0
"""How long the end of a process waits for an asking under way, seconds; after it, it goes on alone
and ends with the process."""

MICROS: Final = 1_000_000
"""Microseconds of a second."""

T = TypeVar("T")


class _Sampler(Generic[T]):
    """Asks in a thread of its own, and keeps the last answer."""

    def __init__(self, ask: Callable[[], T], failed: Callable[[BelogError], None]) -> None:
        self._ask = ask
        self._failed = failed
        self._last: tuple[T, float] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="belog metrics", daemon=True)
        self._thread.start()

    def latest(self) -> T | None:
        last = self._last
        if last is None or time.monotonic() - last[1] > SAMPLE_VALID_S:
            return None
        return last[0]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._last = self._ask(), time.monotonic()
            except BelogError as error:
                self._last = None
                self._failed(error)
            self._stop.wait(SAMPLE_EVERY_S)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(STOP_S)


class _TablesState(Struct, frozen=True):
    readiness: Readiness
    snapshot_at: float | None = None
    snapshot_idx: int | None = None


class WorkerMetrics(WorkerObserver, Collector):
    """Metrics of a worker; give it to `run_worker` as its observer.

    Attributes:
        metrics: What is served.
    """

    def __init__(self, tables: TableReader, snapshots: SnapshotStore | None = None) -> None:
        """Count from zero.

        Args:
            tables: Those that it keeps, in a connection of their own; stay the caller's to close,
                after `stop`.
            snapshots: Where snapshots are; None for none.
        """
        self.metrics = Metrics()
        self._tables = tables
        self._store = snapshots
        self._is_assigned = False
        self._follower: TableFollower | None = None
        self._sampler: _Sampler[_TablesState] | None = None
        self.metrics.registry.register(self)

    def started(self, log: EventLog, identity: LogIdentity, follower: TableFollower) -> None:
        """See `WorkerObserver.started`."""
        self._follower = follower
        self._sampler = _Sampler(lambda: self._ask(log, identity), self.failed)

    def assigned(self, *, is_assigned: bool) -> None:
        """See `WorkerObserver.assigned`."""
        self._is_assigned = is_assigned

    def failed(self, error: BelogError) -> None:
        """See `WorkerObserver.failed`."""
        self.metrics.failed(error, component_of(error, self._tables.name))

    def snapshot_ended(self, outcome: TakenSnapshot | BelogError) -> None:
        """See `WorkerObserver.snapshot_ended`."""
        self.metrics.snapshot_ended(outcome)

    def stop(self) -> None:
        """Ask nothing any more; idempotent."""
        if self._sampler is not None:
            self._sampler.stop()

    def _ask(self, log: EventLog, identity: LogIdentity) -> _TablesState:
        status = worker_status(log, self._tables)
        lag_s = 0.0
        if status.lag_records and (unseen := log.scan(status.position, 1)):
            lag_s = max(now_us() - unseen[0].created_at, 0) / MICROS
        at: float | None = None
        index: int | None = None
        if self._store is not None:
            at, index = newest_snapshot(self._store, identity) or (0.0, None)
        readiness = Readiness(
            is_ready=status.is_same_log,
            reasons=(),
            applied=status.applied,
            lag_records=status.lag_records,
            lag_s=lag_s,
            next_position=status.end_position,
        )
        return _TablesState(readiness, at, index)

    def collect(self) -> Iterable[Metric]:
        """Give the samples; blocks for nothing."""
        follower = self._follower
        text = "1 if this worker writes the tables, 0 if it stands by"
        yield gauge("belog_worker_assigned", text, self._is_assigned)
        text = "Position of the next record that this worker takes"
        yield gauge("belog_worker_position", text, None if follower is None else follower.position)
        text = "How often this worker found its tables lost or taken over, and started anew"
        yield counter("belog_worker_restarts", text, 0 if follower is None else follower.restarts)
        state = None if self._sampler is None else self._sampler.latest()
        if state is None:
            yield from standing(None, None, None)
        else:
            yield from standing(state.readiness, state.snapshot_at, state.snapshot_idx)


class SinkMetrics(Collector):
    """Metrics of a sink; its methods are the callbacks of `run_sink`.

    Attributes:
        metrics: What is served.
    """

    def __init__(self, origin: str, target: str) -> None:
        """Count from zero.

        Args:
            origin: Name of the origin, without secrets.
            target: Name of the replica, without secrets.
        """
        self.metrics = Metrics()
        self._labels = (("origin", origin), ("target", target))
        self._written = 0
        self._sampler: _Sampler[SinkStatus] | None = None
        self.metrics.registry.register(self)

    def on_start(self, replication: Replication) -> None:
        """Take note of what runs."""
        self._sampler = _Sampler(replication.status, self.on_error)

    def on_progress(self, progress: Progress) -> None:
        """Take note of a step."""
        self._written = progress.written

    def on_error(self, error: BelogError) -> None:
        """Count an error that is waited out."""
        self.metrics.failed(error, component_of(error, ""))

    def stop(self) -> None:
        """Ask nothing any more; idempotent."""
        if self._sampler is not None:
            self._sampler.stop()

    def collect(self) -> Iterable[Metric]:
        """Give the samples; blocks for nothing."""
        state = None if self._sampler is None else self._sampler.latest()
        labels = self._labels
        text = "Events that this process wrote to the replica"
        yield counter("belog_sink_written_events", text, self._written, labels)
        for name, text, value in _SINK:
            yield gauge(name, text, None if state is None else value(state), labels)


_SINK: Final[tuple[tuple[str, str, Callable[[SinkStatus], float]], ...]] = (
    (
        "belog_sink_target_index",
        "Index of the last event that the replica is known to hold, -1 for none",
        lambda status: status.target_index,
    ),
    (
        "belog_sink_lag_records",
        "Records of the origin that were not looked at or not written yet",
        lambda status: status.lag_records,
    ),
    (
        "belog_sink_lag_seconds",
        "Age of the oldest of these records",
        lambda status: status.lag_s,
    ),
    (
        "belog_sink_dead_letters",
        "Events that stand shortened in the replica, as its store refused them",
        lambda status: len(status.omitted),
    ),
    (
        "belog_sink_failing",
        "1 while the sink waits out an error, 0 otherwise",
        lambda status: bool(status.last_error),
    ),
)


@contextmanager
def exported(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Generator[int]:
    """Serve metrics at `/metrics` of a port while the context lasts, from threads of their own.

    Args:
        metrics: What is served.
        port: 0 for a free one.
        host: The address to bind.

    Yields:
        The port.

    Raises:
        InvalidInput: The address cannot be had.
    """
    try:
        # It takes whatever collects, and its type says registries only.
        shown = cast("CollectorRegistry", metrics.shown)
        server, thread = start_http_server(port, addr=host, registry=shown)
    except OSError as error:
        msg = f"metrics cannot be served at {host}:{port}: {error.strerror or error}"
        raise InvalidInput(msg, hint="name another port with --metrics-port") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
