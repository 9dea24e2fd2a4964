"""The queries of a log and its tables, opened by URI as commands want them."""

from collections.abc import Generator
from contextlib import contextmanager

from belog.processors.factory import open_tables as reader_of
from belog.producers import Producer
from belog.query import QueryEngine
from belog.service.opening import check_same_log, existing_log
from belog.service.snapshots import fold_from, tables_from
from belog.storage import EventLog

__all__ = ["open_queries", "producer_of"]


@contextmanager
def open_queries(
    log_uri: str, tables_uri: str, snapshots: str | None = None
) -> Generator[QueryEngine]:
    """Open the queries of a log that is there.

    Args:
        log_uri: The log.
        tables_uri: Its tables; `memory:` folds the log here and now, and goes on where waited for.
        snapshots: Where tables made here, and reads of a vacuumed log, start from; None for
            the log's beginning.

    Raises:
        NotFound: There is no log.
        InvalidUri: The URI names no tables.
        LogReplaced: The tables are of another log.
    """
    with existing_log(log_uri, snapshots) as log:
        if tables_uri == "memory:":
            with tables_from(log, snapshots, name=f"tables of {log.name}") as tables:
                tables.catch_up(log)
                yield QueryEngine(tables, log, catch_up=lambda: tables.catch_up(log))
            return
        with reader_of(tables_uri) as reader:
            check_same_log(reader, log)
            yield QueryEngine(reader, log)


@contextmanager
def producer_of(log: EventLog, actor: str, snapshots: str | None = None) -> Generator[Producer]:
    """Open a producer of a log.

    Args:
        log: Initialized.
        actor: Who writes.
        snapshots: Where it starts from; None for the log's beginning.

    Raises:
        ReplicaRefused: The log is a replica.
    """
    with Producer(log, actor=actor, fold=fold_from(log, snapshots)) as producer:
        yield producer
