"""Opening logs and tables by URI, as commands want them."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from belog.processors.factory import open_tables as reader_of
from belog.processors.replay import WHOLE_LOG, Until, replay_into
from belog.processors.tables import TableReader, lost_end
from belog.schemas.errors import InvalidInput, LogReplaced, NotFound, ReplicaRefused
from belog.service.snapshots import tables_from
from belog.service.terminal import note
from belog.service.uris import with_query
from belog.storage import EventLog, open_log
from belog.storage.opening import open_existing
from belog.storage.snapshots import SnapshotStore
from belog.storage.vacuum import fold_past_horizon

__all__ = [
    "attach_snapshots",
    "await_tables",
    "check_same_log",
    "existing_log",
    "for_many",
    "open_tables",
    "writable_log",
]


TABLES_WAIT_S: Final = 15.0
"""How long a start waits for a worker's first tables, seconds: they are often started together, and
a worker joins its group within some seconds."""

SERVICE_LINGER_MS: Final = 1
"""How long a Kafka client of a service waits for a batch to fill, milliseconds. A hundred clients'
appends then share requests, which costs broker and service a third less for each (measured)."""

TABLES_PAUSE_S: Final = 0.1
"""Between two looks meanwhile, seconds."""


@contextmanager
def existing_log(uri: str, snapshots: str | None = None) -> Generator[EventLog]:
    """Open a log that is there, primary or replica; never create it.

    Args:
        uri: The log.
        snapshots: Where snapshots are, from which reads of a vacuumed log begin.

    Raises:
        NotFound: There is none.
    """
    with open_log(uri) as log:
        open_existing(log)
        if snapshots is not None:
            attach_snapshots(log, snapshots)
        yield log


def attach_snapshots(log: EventLog, snapshots: str) -> None:
    """Let reads of a vacuumed log begin from its snapshots.

    Args:
        log: Open.
        snapshots: The folder they are in.
    """
    log.use_snapshots(partial(fold_past_horizon, log, SnapshotStore(snapshots)))


@contextmanager
def writable_log(uri: str, instance: str) -> Generator[EventLog]:
    """Open a log to append to, creating it where the backend creates logs.

    Raises:
        ReplicaRefused: It is a replica.
        NotFound: There is none, and the backend leaves creating it to a command of its own.
    """
    with open_log(uri) as log:
        found = log.identify()
        if found is not None and found.is_replica:
            msg = "the log is a replica, which only its origin's sink writes"
            raise ReplicaRefused(msg, log=log.name, hint="append to its origin")
        is_new = found is None
        identity = log.initialize(instance=instance)
        if is_new:
            note(f"created log {identity.log_id} at {log.name}")
        yield log


@contextmanager
def open_tables(
    log_uri: str, tables_uri: str, snapshots: str | None = None, until: Until = WHOLE_LOG
) -> Generator[TableReader]:
    """Open the tables of a log: those that a worker keeps, or ones made here and now of the log.

    Args:
        log_uri: The log.
        tables_uri: Its tables.
        snapshots: Where tables that are made here start from; None for the log's beginning.
        until: Where in the log tables that are made here end.

    Raises:
        NotFound: There is no log.
        InvalidUri: The URI names no tables.
        InvalidInput: There is a bound, and the tables are a worker's, which are of the whole log.
        LogReplaced: The tables are of another log.
    """
    with existing_log(log_uri) as log:
        if tables_uri == "memory:":
            name = f"tables of {log.name}"
            with tables_from(log, snapshots, name=name, until=until) as tables:
                replay_into(log, tables, until=until)
                yield tables
            return
        if until != WHOLE_LOG:
            msg = "tables that a worker keeps show the log as it is now"
            raise InvalidInput(msg, hint="use --tables memory: with a bound")
        with reader_of(tables_uri) as tables:
            check_same_log(tables, log)
            yield tables


def check_same_log(tables: TableReader, log: EventLog) -> None:
    """Refuse tables that are not of the log, or know events that it has not.

    Raises:
        LogReplaced: They are of another log.
        LogTruncated: The log ends before what they were made of.
        NotFound: No worker has written them yet.
    """
    status, identity = tables.status(), log.identify()
    found = status.log_id
    if found is None:
        msg = f"there are no tables at {tables.name}"
        raise NotFound(msg, log=log.name, hint="start a worker, or use --tables memory:")
    if identity is not None and found != str(identity.log_id):
        msg = f"the tables at {tables.name} are of log {found}, not of {identity.log_id}"
        raise LogReplaced(msg, log=log.name, hint="name a prefix per log: redis://…?prefix=NAME")
    # Asked after the tables: in the other order quick tables would look as if they were ahead.
    if identity is not None and (end := log.next_position()) < status.position:
        raise lost_end(log, end, status)


def for_many(log_uri: str) -> str:
    """Return the URI by which a service opens a log that many append to at once.

    >>> for_many("kafka://host:9092/builds")
    'kafka://host:9092/builds?linger.ms=1'
    >>> for_many("kafka://host:9092/builds?linger.ms=0")
    'kafka://host:9092/builds?linger.ms=0'
    >>> for_many("sqlite:///builds.db")
    'sqlite:///builds.db'
    """
    if urlsplit(log_uri).scheme != "kafka":
        return log_uri
    return with_query(log_uri, {"linger.ms": str(SERVICE_LINGER_MS)})


def await_tables(tables: TableReader, log: EventLog) -> None:
    """Wait for tables that a worker is about to make, and check that they are of the log; blocks.

    Raises:
        NotFound: There are none after `TABLES_WAIT_S`.
        LogReplaced: They are of another log.
        LogTruncated: The log ends before what they were made of.
    """
    deadline = time.monotonic() + TABLES_WAIT_S
    while True:
        try:
            check_same_log(tables, log)
        except NotFound:
            if time.monotonic() > deadline:
                raise
            time.sleep(TABLES_PAUSE_S)
        else:
            return
