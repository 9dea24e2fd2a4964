"""Opening logs and tables by URI, as commands want them."""

from collections.abc import Iterator
from contextlib import contextmanager

from belog.schemas.errors import NotFound
from belog.service.terminal import note
from belog.storage import EventLog, open_log

__all__ = ["existing_log", "writable_log"]


@contextmanager
def existing_log(uri: str) -> Iterator[EventLog]:
    """Open a log that is there, primary or replica; never create it.

    Raises:
        NotFound: There is none.
    """
    with open_log(uri) as log:
        found = log.identify()
        if found is None:
            msg = "there is no log"
            raise NotFound(msg, log=log.name, hint="append to it first, or mend the URI")
        log.initialize(instance=found.instance, log_id=found.log_id, replica=found.is_replica)
        yield log


@contextmanager
def writable_log(uri: str, instance: str) -> Iterator[EventLog]:
    """Open a log to append to, creating it where the backend creates logs.

    Raises:
        LogReplaced: It is a replica.
        NotFound: There is none, and the backend leaves creating it to a command of its own.
    """
    with open_log(uri) as log:
        is_new = log.identify() is None
        identity = log.initialize(instance=instance)
        if is_new:
            note(f"created log {identity.log_id} at {log.name}")
        yield log


@contextmanager
def open_tables(log_uri: str, tables_uri: str) -> Iterator[TableReader]:
    """Open the tables of a log: those that a worker keeps, or ones made here and now of the log.

    Raises:
        NotFound: There is no log.
        InvalidUri: The URI names no tables.
        LogReplaced: The tables are of another log.
    """
    with existing_log(log_uri) as log:
        if tables_uri == "memory:":
            with MemoryTables(name=f"tables of {log.name}") as tables:
                tables.catch_up(log)
                yield tables
            return
        with open_redis_tables(tables_uri, log) as tables:
            yield tables
