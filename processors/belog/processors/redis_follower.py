"""A follower of tables in Redis, by URI."""

from collections.abc import Callable
from functools import partial

from belog.processors.periodic import LoadTables, SnapshotBeginning
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_load import load_tables
from belog.processors.redis_writer import RETRY_S, RedisWriter
from belog.processors.replay import TableFollower
from belog.schemas.errors import BelogError
from belog.storage.interface import EventLog, LogIdentity

__all__ = ["follower_from_uri"]


def follower_from_uri(
    log: EventLog,
    tables_uri: str,
    identity: LogIdentity,
    *,
    retry_s: float = RETRY_S,
    beginning: Callable[[LoadTables], SnapshotBeginning] | None = None,
    on_error: Callable[[BelogError], None] | None = None,
) -> TableFollower:
    """Return a follower that keeps tables in Redis up with an opened log; nothing is sent yet.

    Args:
        log: The log.
        tables_uri: `redis:` or `rediss:`.
        identity: What opening the log said.
        retry_s: How long an unreachable Redis is tried again, seconds.
        beginning: Makes where to begin, given how rows are loaded into the tables; None for the
            log's beginning.
        on_error: Called with each error of Redis that is waited out, in any thread.

    Raises:
        InvalidUri: The URI is malformed.
    """
    uri = parse_redis_uri(tables_uri)
    load = partial(load_tables, uri, retry_s=retry_s)
    return TableFollower(
        log,
        RedisWriter(uri, retry_s=retry_s, on_error=on_error),
        identity,
        beginning=None if beginning is None else beginning(load),
    )
