"""Metrics of a service: what it was asked, what it answered, and how its log and tables stand."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from belog.schemas.errors import BelogError, Unavailable
from belog.service.instance import Instance, Readiness
from belog.service.metrics import COUNT_BOUNDS, CounterTally, HistogramTally, Metrics, gauge
from belog.service.observer import AppendTiming, component_of
from belog.storage.interface import LogIdentity, Receipt
from belog.storage.snapshots import SnapshotStore

__all__ = ["PROBE_S", "ServiceMetrics", "newest_snapshot", "standing"]

LOGGER: Final = logging.getLogger("belog.service.metrics")

PROBE_S: Final = 5.0
"""How long a page waits for the log and the tables to say how they stand, seconds: half of what
Prometheus waits for a page by default. After it the service counts as not ready."""

_ACCEPTED: Final = ("accepted",)
_DUPLICATE: Final = ("duplicate",)


class _State(Struct, frozen=True):
    """What is known of an instance at one moment."""

    readiness: Readiness | None = None
    snapshot_at: float | None = None
    snapshot_idx: int | None = None


def newest_snapshot(store: SnapshotStore, identity: LogIdentity) -> tuple[float, int] | None:
    """Return when the newest snapshot of a log was written, seconds since the epoch, and its index.

    None where there is none. Blocks; opens no snapshot.

    Raises:
        Unavailable: The folder cannot be read.
    """
    for file in store.files(identity.log_id, is_replica=identity.is_replica):
        try:
            return file.path.stat().st_mtime, file.next_idx
        except FileNotFoundError:
            # Removed meanwhile, as a newer one is there; the next look finds it.
            continue
        except OSError as error:
            msg = f"snapshot {file.path} cannot be looked at: {error.strerror}"
            raise Unavailable(msg) from error
    return None


class ServiceMetrics(Metrics):
    """All metrics of a service. But for `failed` and `snapshot_ended`, for the loop's thread."""

    def __init__(self) -> None:
        """Count from zero; `watch` names the instance."""
        super().__init__()
        self._results = CounterTally(
            "belog_append_events", "Events that somebody asked to append, by result", ["result"]
        )
        self._results.add(_ACCEPTED, 0)
        self._results.add(_DUPLICATE, 0)
        self._appends = HistogramTally(
            "belog_append_duration_seconds", "Requests to append, from taking them to their answer"
        )
        self._verdicts = HistogramTally(
            "belog_append_verdict_seconds", "Groups of appends, until they are judged and durable"
        )
        self._groups = HistogramTally(
            "belog_append_group_events", "Events of one group", bounds=COUNT_BOUNDS
        )
        self._http = CounterTally(
            "belog_http_requests", "HTTP requests that were answered", ["route", "method", "status"]
        )
        self._http_seconds = HistogramTally(
            "belog_http_request_duration_seconds",
            "HTTP requests but for streams, from head to end",
            ["route", "method"],
        )
        self._calls = CounterTally("belog_grpc_calls", "gRPC calls that ended", ["method", "code"])
        self._call_seconds = HistogramTally(
            "belog_grpc_call_duration_seconds", "gRPC calls but for streams", ["method"]
        )
        self.http_in_progress = 0
        """HTTP requests under way, streams among them; whoever serves them counts."""
        self.grpc_in_progress = 0
        """gRPC calls under way, streams among them."""
        self.streams: dict[str, int] = {"http": 0, "grpc": 0}
        """Streams that are open, by transport."""
        self._state = _State()
        self._instance: Instance | None = None
        self._store: SnapshotStore | None = None
        self._probing: asyncio.Task[_State] | None = None
        for tally in (
            self._results,
            self._appends,
            self._verdicts,
            self._groups,
            self._http,
            self._http_seconds,
            self._calls,
            self._call_seconds,
            _Standing(self._standing),
        ):
            self.registry.register(tally)

    def watch(self, instance: Instance) -> None:
        """Name the instance whose log and tables are looked at."""
        self._instance = instance
        if instance.settings.snapshots is not None:
            self._store = SnapshotStore(instance.settings.snapshots)

    # --- on the way of requests

    def appended(
        self,
        results: Sequence[Receipt | BelogError],
        seconds: float,
        timing: AppendTiming | None,
    ) -> None:
        """Count a request to append; see `Observer.appended`."""
        self._appends.observe(seconds)
        for result in results:
            if isinstance(result, Receipt):
                self._results.add(_DUPLICATE if result.duplicate else _ACCEPTED)
            else:
                self._results.add((result.code,))
                # Without times it was raised, and counts as the error of its request.
                if result.retriable and timing is not None:
                    self.failed(result, component_of(result, ""))

    def group_written(self, events: int, seconds: float) -> None:
        """Count a group of appends; see `Observer.group_written`."""
        self._groups.observe(events)
        self._verdicts.observe(seconds)

    def http_answered(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """Count an HTTP request that ended.

        Args:
            route: The template of its route, never its path.
            method: Its method, of the known ones.
            status: What was answered.
            seconds: How long it took; None for a stream, which ends when somebody leaves.
        """
        self._http.add((route, method, str(status)))
        if seconds is not None:
            self._http_seconds.observe(seconds, (route, method))

    def grpc_answered(self, method: str, code: str, seconds: float | None) -> None:
        """Count a gRPC call that ended.

        Args:
            method: `package.Service/Method`, of those that are served.
            code: Name of its status code.
            seconds: As for `http_answered`.
        """
        self._calls.add((method, code))
        if seconds is not None:
            self._call_seconds.observe(seconds, (method,))

    # --- when somebody asks

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as Prometheus reads them, and the content type.

        Answers within `PROBE_S` and some, also where the log or the tables hang; the loop goes on
        meanwhile, and one thread at most waits for them, however many ask.

        Args:
            accept: The Accept header of who asks.
        """
        if self._instance is not None:
            if self._probing is None or self._probing.done():
                self._probing = asyncio.create_task(
                    asyncio.to_thread(self._probe, self._instance), name="belog metrics"
                )
            probing = self._probing
            await asyncio.wait({probing}, timeout=PROBE_S)
            self._state = probing.result() if probing.done() else _State()
        return await asyncio.to_thread(self.render, accept)

    def _probe(self, instance: Instance) -> _State:
        readiness = instance.readiness()
        snapshot = None
        if self._store is not None:
            try:
                snapshot = newest_snapshot(self._store, instance.identity)
            except Unavailable as error:
                self.failed(error, "snapshots")
                LOGGER.warning("snapshots cannot be looked at: %s", error)
                return _State(readiness)
        at, index = (None, None) if self._store is None else snapshot or (0.0, None)
        return _State(readiness, at, index)

    def _standing(self) -> Iterable[Metric]:
        state = self._state
        known = state.readiness
        for name, text, value in _QUEUES:
            yield gauge(name, text, None if self._instance is None else value(self._instance))
        for transport, count in (("http", self.http_in_progress), ("grpc", self.grpc_in_progress)):
            text = f"{'HTTP requests' if transport == 'http' else 'gRPC calls'} under way"
            unit = "requests" if transport == "http" else "calls"
            yield gauge(f"belog_{transport}_{unit}_in_progress", text, count)
        streams = gauge("belog_streams", "Streams that are open", None, [("transport", "")])
        for transport, count in self.streams.items():
            streams.add_metric([transport], count)
        yield streams
        is_ready = known is not None and known.is_ready
        yield gauge("belog_ready", "1 if the service can do its work, 0 if not", is_ready)
        yield from standing(known, state.snapshot_at, state.snapshot_idx)


_QUEUES: Final[tuple[tuple[str, str, Callable[[Instance], float]], ...]] = (
    (
        "belog_append_queue_events",
        "Events that wait to be appended",
        lambda instance: instance.queued_events,
    ),
    (
        "belog_blocking_calls",
        "Calls to log or tables that wait for a thread or run",
        lambda instance: instance.calls.waiting,
    ),
    (
        "belog_feed_next_index",
        "Index up to which the feed has seen the log",
        lambda instance: instance.feed.end,
    ),
    (
        "belog_feed_waiters",
        "Long-polls and streams that wait for an event",
        lambda instance: instance.feed.waiters,
    ),
)
_STANDING: Final[tuple[tuple[str, str, Callable[[Readiness], float]], ...]] = (
    (
        "belog_log_next_position",
        "Position that the log's next record gets; its next index but in a replica",
        lambda known: known.next_position,
    ),
    (
        "belog_tables_applied_index",
        "Index of the first event that is not in the tables",
        lambda known: known.applied,
    ),
    (
        "belog_tables_lag_records",
        "Records of the log that the tables have not seen",
        lambda known: known.lag_records,
    ),
    (
        "belog_tables_lag_seconds",
        "Age of the oldest of these records",
        lambda known: known.lag_s,
    ),
)


def standing(
    known: Readiness | None, snapshot_at: float | None, snapshot_idx: int | None
) -> Iterable[Metric]:
    """Give how log, tables and snapshots stand; what is not known has no sample."""
    found = None if known is None or known.lag_records < 0 else known
    for name, text, value in _STANDING:
        yield gauge(name, text, None if found is None else value(found))
    text = "When the newest snapshot was written, seconds since the epoch; 0 where there is none"
    yield gauge("belog_snapshot_timestamp_seconds", text, snapshot_at)
    text = "Index of the first event that is not in the newest snapshot"
    yield gauge("belog_snapshot_next_index", text, snapshot_idx)


class _Standing(Collector):
    """What is asked for when somebody looks."""

    def __init__(self, ask: Callable[[], Iterable[Metric]]) -> None:
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        """Give the samples."""
        yield from self._ask()
