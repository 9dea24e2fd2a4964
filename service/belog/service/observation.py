"""How a service is watched: metrics, traces and log lines, made from what an `Observer` is told."""

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast
from uuid import UUID

from belog.processors.log_lines import Seldom
from belog.processors.snapshots import TakenSnapshot
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, InvalidConfiguration
from belog.service.configuration import ObservabilitySection
from belog.service.instance import Instance
from belog.service.metrics_service import ServiceMetrics
from belog.service.observer import AppendTiming, Component, Observer, component_of
from belog.service.structured_logs import configure_logging
from belog.storage.interface import Receipt

if TYPE_CHECKING:
    from belog.service.tracing import Tracing

__all__ = ["SAME_LINE_S", "Observation", "observed"]

LOGGER: Final = logging.getLogger("belog.service.appends")

SAME_LINE_S: Final = 1.0
"""Of failed appends with the same error one is logged in this time, seconds, with how many there
were: thousands may fail at once when a broker goes away."""


class _TracingModule(Protocol):
    def open_tracing(self, endpoint: str, *, instance: str) -> "Tracing": ...


class Observation(Observer):
    """Metrics, traces and log lines of one service.

    Attributes:
        metrics: None where they are off.
        tracing: None where it is not configured.
    """

    def __init__(
        self, metrics: ServiceMetrics | None = None, tracing: "Tracing | None" = None
    ) -> None:
        """Watch with these; log lines are always written."""
        self.metrics = metrics
        self.tracing = tracing
        self._log_id = ""
        self._tables_name = ""
        self._failures: dict[str, tuple[float, int]] = {}

    def watch(self, instance: Instance) -> None:
        """Name the instance, once it is open."""
        self._log_id = str(instance.identity.log_id)
        self._tables_name = instance.queries.tables.name
        if self.metrics is not None:
            self.metrics.watch(instance)

    def appended(
        self,
        events: Sequence[Event],
        results: Sequence[Receipt | BelogError],
        seconds: float,
        timing: AppendTiming | None = None,
    ) -> None:
        """See `Observer.appended`."""
        if self.metrics is not None:
            self.metrics.appended(results, seconds, timing)
        if self.tracing is not None:
            self.tracing.appended(self._log_id, events, results, seconds, timing)
        if LOGGER.isEnabledFor(logging.DEBUG):
            for event, result in zip(events, results, strict=True):
                self._log(logging.DEBUG, event, result, 1)
            return
        for n, result in enumerate(results):
            if not isinstance(result, Receipt) and not result.deterministic:
                self._log_failure(events[n], result)

    def _log_failure(self, event: Event, error: BelogError) -> None:
        now = time.monotonic()
        logged_at, since = self._failures.get(error.code, (-SAME_LINE_S, 0))
        if now - logged_at < SAME_LINE_S:
            self._failures[error.code] = logged_at, since + 1
            return
        self._failures[error.code] = now, 0
        self._log(logging.WARNING, event, error, since + 1)

    def _log(self, level: int, event: Event, result: Receipt | BelogError, count: int) -> None:
        fields: dict[str, object] = {
            "log_id": self._log_id,
            "index": result.index,
            "subject": event.subject,
            "event_type": event.event_type,
            "event_id": str(UUID(bytes=event.event_id)),
            "actor": event.actor or None,
        }
        if isinstance(result, Receipt):
            what = "duplicate" if result.duplicate else "accepted"
            LOGGER.log(level, "append %s", what, extra={"fields": fields})
            return
        fields |= {"error_code": result.code, "hint": result.hint or None}
        if count > 1:
            fields["count"] = count
        LOGGER.log(level, "append refused: %s", result.message, extra={"fields": fields})

    def group_written(self, events: int, seconds: float) -> None:
        """See `Observer.group_written`."""
        if self.metrics is not None:
            self.metrics.group_written(events, seconds)

    def failed(self, error: BelogError, component: Component) -> None:
        """See `Observer.failed`."""
        if self.metrics is not None:
            self.metrics.failed(error, component)

    def answered(self, fields: Mapping[str, object]) -> None:
        """Count the error that a request was answered with, where it may go well another time.

        Args:
            fields: What was bound to the request.
        """
        error = fields.get("error")
        if isinstance(error, BelogError) and error.retriable:
            self.failed(error, component_of(error, self._tables_name))

    def snapshot_ended(self, outcome: TakenSnapshot | BelogError) -> None:
        """See `Observer.snapshot_ended`."""
        if self.metrics is not None:
            self.metrics.snapshot_ended(outcome)

    def span(self, name: str, **fields: str | int | None) -> AbstractContextManager[None]:
        """See `Observer.span`."""
        if self.tracing is None:
            return super().span(name)
        return self.tracing.span(name, fields)


@contextmanager
def observed(section: ObservabilitySection, *, instance: str) -> Generator[Observation]:
    """Give what watches a service, as it is configured; log lines of the process go its way.

    At the end the last spans are sent, for some seconds at most.

    Args:
        section: What is configured.
        instance: Name of the instance, for traces.

    Raises:
        InvalidConfiguration: Traces are configured, and their packages are not installed.
    """
    metrics = ServiceMetrics() if section.metrics else None
    tracing = None
    if section.otlp_endpoint is not None:
        tracing = _tracing_module().open_tracing(section.otlp_endpoint, instance=instance)
    configure_logging(
        section.log_format,
        section.log_level,
        filters=(Seldom(),),
        trace_ids=None if tracing is None else tracing.trace_id,
    )
    try:
        yield Observation(metrics, tracing)
    finally:
        if tracing is not None:
            tracing.close()


def _tracing_module() -> _TracingModule:
    try:
        return cast("_TracingModule", import_module("belog.service.tracing"))
    except ImportError as error:
        msg = f"traces need a package that is not installed ({error.name})"
        raise InvalidConfiguration(msg, hint="pip install 'belog[otel]'") from error
