"""How the worker and the sink are watched: their log lines, and metrics where a port is named."""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, Protocol, cast

import typer

from belog.processors.factory import open_tables
from belog.processors.log_lines import PROGRESS_LOG_S
from belog.processors.worker import WorkerObserver
from belog.schemas.errors import BelogError, InvalidUri
from belog.service.configuration import Configuration
from belog.service.structured_logs import configure_logging
from belog.sink.replicate import Progress, Replication
from belog.storage.factory import redacted
from belog.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from belog.service import metrics_processes
    from belog.service.metrics import Metrics

__all__ = [
    "METRICS_HOST",
    "MetricsHostOption",
    "MetricsPortOption",
    "SinkWatch",
    "log_as_configured",
    "warn_seldom",
    "watched_sink",
    "watched_worker",
]

LOGGER: Final = logging.getLogger("belog.sink")

METRICS_HOST: Final = "127.0.0.1"
"""Where metrics are served: nobody is asked for a token, so other machines do not reach them."""


class _MetricsModule(Protocol):
    WorkerMetrics: "type[metrics_processes.WorkerMetrics]"
    SinkMetrics: "type[metrics_processes.SinkMetrics]"

    def exported(self, metrics: "Metrics", port: int, host: str) -> AbstractContextManager[int]: ...


MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Serve metrics for Prometheus at this port; 0 for a free one.",
    ),
]
MetricsHostOption = Annotated[
    str,
    typer.Option("--metrics-host", metavar="ADDRESS", help="Where; nobody is asked for a token."),
]


def log_as_configured(context: typer.Context, filters: Sequence[logging.Filter] = ()) -> None:
    """Send the log lines of a command where and how the configuration says.

    Args:
        context: The command's.
        filters: Hold back what need not be written.
    """
    found = context.find_root().obj
    section = (found if isinstance(found, Configuration) else Configuration()).observability
    configure_logging(section.log_format, section.log_level, filters=filters)


@contextmanager
def watched_worker(
    tables: str, snapshots: str | None, port: int | None, host: str
) -> Generator[WorkerObserver]:
    """Give the observer of a worker, and serve its metrics where a port is named.

    Args:
        tables: URI of the tables that it keeps.
        snapshots: Folder of snapshots; None for none.
        port: Of the metrics; None to serve none.
        host: The address to bind.

    Raises:
        InvalidInput: The address cannot be had.
        InvalidUri: The package for metrics is not installed.
    """
    if port is None:
        yield WorkerObserver()
        return
    module = _metrics_module()
    with ExitStack() as stack:
        reader = stack.enter_context(open_tables(tables))
        store = None if snapshots is None else SnapshotStore(snapshots)
        watch = module.WorkerMetrics(reader, store)
        stack.callback(watch.stop)
        found = stack.enter_context(module.exported(watch.metrics, port, host))
        _say_where(logging.getLogger("belog.worker"), host, found)
        yield watch


def warn_seldom() -> Callable[[BelogError], None]:
    """Return what writes a log line for an error that is waited out, one in `PROGRESS_LOG_S`."""
    said_at = -PROGRESS_LOG_S

    def warn(error: BelogError) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now - said_at >= PROGRESS_LOG_S:
            said_at = now
            fields = {"error_code": error.code, "log": error.log, "index": error.index}
            LOGGER.warning("waiting: %s", error.message, extra={"fields": fields})

    return warn


class SinkWatch:
    """What `run_sink` tells: into log lines, and into metrics where they are served."""

    def __init__(self, metrics: "metrics_processes.SinkMetrics | None") -> None:
        """Pass on to metrics, if there are any."""
        self._metrics = metrics
        self._warn = warn_seldom()

    def on_start(self, replication: Replication) -> None:
        """See `run_sink`."""
        if self._metrics is not None:
            self._metrics.on_start(replication)

    def on_progress(self, progress: Progress) -> None:
        """See `run_sink`."""
        if self._metrics is not None:
            self._metrics.on_progress(progress)

    def on_error(self, error: BelogError) -> None:
        """See `run_sink`: a log line at first, and one in `PROGRESS_LOG_S` while it lasts."""
        if self._metrics is not None:
            self._metrics.on_error(error)
        self._warn(error)


@contextmanager
def watched_sink(origin: str, target: str, port: int | None, host: str) -> Generator[SinkWatch]:
    """Give the callbacks of a sink, and serve its metrics where a port is named.

    Args:
        origin: URI of the origin.
        target: URI of the replica.
        port: Of the metrics; None to serve none.
        host: The address to bind.

    Raises:
        InvalidInput: The address cannot be had.
        InvalidUri: The package for metrics is not installed.
    """
    if port is None:
        yield SinkWatch(None)
        return
    module = _metrics_module()
    metrics = module.SinkMetrics(redacted(origin), redacted(target))
    with ExitStack() as stack:
        stack.callback(metrics.stop)
        found = stack.enter_context(module.exported(metrics.metrics, port, host))
        _say_where(LOGGER, host, found)
        yield SinkWatch(metrics)


def _say_where(logger: logging.Logger, host: str, port: int) -> None:
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    logger.info("metrics at %s", url, extra={"fields": {"url": url}})


def _metrics_module() -> "_MetricsModule":
    try:
        return cast("_MetricsModule", import_module("belog.service.metrics_processes"))
    except ImportError as error:
        msg = f"metrics need a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint="pip install 'belog[service]'") from error
