"""Loading the rows of a snapshot into Redis, as a whole.

The rows go into a generation of their own that nobody reads, in batches that the same guard lets in
once each; one last step puts it in the place of the tables that were there. So readers see the old
tables or the new ones, and two workers that load at once do not mix. What a worker leaves behind
that dies meanwhile is removed by the next one that loads.

Beside the keys of `belog.processors.redis_scripts` there are, for the tag `{belog}` and the
generation `7f3a`, the set `{belog}:loading` of generations that are being loaded, and for each of
these the hash `{belog}:7f3a:meta`.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from redis.typing import EncodableT

from belog.processors.redis_client import Keys, RedisUri, connect, redis_errors
from belog.processors.redis_scripts import BEGIN
from belog.processors.redis_writer import RETRY_S, RedisWriter, new_generation
from belog.processors.table_fold import (
    TABLE_SCHEMA_VERSION,
    Change,
    Checkpoint,
    RowChange,
    TableFold,
)
from belog.processors.tables import TablesStatus
from belog.storage.creation import now_us

if TYPE_CHECKING:
    import redis

__all__ = ["load_tables"]

_SWITCH: Final = """
local now = redis.call('HMGET', KEYS[1], 'generation', 'position')
if (now[1] or '') ~= ARGV[1] or tonumber(now[2] or '0') >= tonumber(ARGV[4]) then
  return 0
end
if redis.call('HGET', KEYS[3], 'position') ~= ARGV[3] then
  return 0
end
if ARGV[1] ~= '' then
  redis.call('SADD', KEYS[2], ARGV[1])
end
redis.call('RENAME', KEYS[3], KEYS[1])
redis.call('HSET', KEYS[1], 'position', ARGV[4], 'applied', ARGV[5], 'created_at', ARGV[6],
           'written_at', ARGV[7])
redis.call('SREM', KEYS[4], ARGV[2])
redis.call('PUBLISH', KEYS[5], ARGV[5])
return 1
"""
"""Lets readers see a generation that was loaded, if the present one is still the one that was seen
and holds less.

Keys: the hash, the set of old generations, the hash of the loaded one, the set of those that are
being loaded, the channel. Arguments: generation seen (empty for none), the loaded one, the position
in its hash, then position, applied, created_at and written_at as they are from then on. Returns 1
or 0.
"""

LOAD_ROWS: Final = 2_000
"""Rows of one batch: as many as a batch of events changes, about 50 ms of Redis's one thread."""

LOAD_IDLE_US: Final = 600_000_000
"""A load that wrote nothing for so long is dead, microseconds: no pause of a living worker between
two batches comes near ten minutes."""


def load_tables(
    uri: RedisUri,
    tables: TableFold,
    seen: TablesStatus,
    *,
    retry_s: float = RETRY_S,
    clock: Callable[[], int] = now_us,
) -> bool:
    """Put the rows of a fold in the place of the tables, unless these have moved on since `seen`.

    Blocks until all rows are written, about a second for 30,000.

    Args:
        uri: Where the tables are.
        tables: A fold with its rows; only looked at.
        seen: The tables that are to be replaced.
        retry_s: How long an unreachable Redis is tried again, seconds.
        clock: Gives the time, microseconds since the epoch.

    Returns:
        Whether they were replaced. If not, look where they are.

    Raises:
        Unavailable: Redis is unreachable after `retry_s`; the tables are those of before.
    """
    keys, generation = Keys.of(uri.prefix), new_generation()
    client = connect(uri)
    writer = RedisWriter(uri, retry_s=retry_s, clock=clock, loading=generation)
    try:
        with redis_errors(uri.name):
            _forget_dead(client, keys, clock())
            _begin(client, keys, generation, tables.log_id or "", clock())
        batches = _write(writer, tables)
        if batches is not None and _switch(
            client,
            uri,
            generation=generation,
            batches=batches,
            tables=tables,
            seen=seen,
            now=clock(),
        ):
            return True
        with redis_errors(uri.name):
            _forget(client, keys, generation)
        return False
    finally:
        writer.close()
        client.close()


def _begin(client: "redis.Redis", keys: Keys, generation: str, log_id: str, now: int) -> None:
    inner = keys.loading_into(generation)
    step = client.pipeline()  # pyright: ignore[reportUnknownMemberType]
    step.sadd(keys.loading, generation)
    client.register_script(BEGIN)(
        keys=[inner.meta, keys.old],
        args=["", generation, log_id, TABLE_SCHEMA_VERSION, now],
        client=step,
    )
    step.execute()


def _write(writer: RedisWriter, tables: TableFold) -> int | None:
    """Write all rows; return how many batches that took, None where somebody removed them."""
    rows = tables.rows()
    batches = 0
    while chunk := list(islice(rows, LOAD_ROWS)):
        # Places of no log: they count the batches, so that each is let in once and in order.
        start, end = Checkpoint(batches, batches), Checkpoint(batches + 1, batches + 1)
        changes = tuple(RowChange(None, row) for row in chunk)
        if writer.write(Change(tables.log_id, start, end, 0, (), changes)):
            return None
        batches += 1
    return None if writer.flush() else batches


def _switch(
    client: "redis.Redis",
    uri: RedisUri,
    *,
    generation: str,
    batches: int,
    tables: TableFold,
    seen: TablesStatus,
    now: int,
) -> bool:
    keys, fold = Keys.of(uri.prefix), tables.fold
    inner = keys.loading_into(generation)
    arguments: list[EncodableT] = [seen.generation, generation, batches]
    arguments += [fold.next_position, fold.next_idx, fold.created_at, now]
    with redis_errors(uri.name):
        done = client.register_script(_SWITCH)(
            keys=[keys.meta, keys.old, inner.meta, keys.loading, keys.channel], args=arguments
        )
    return bool(done)


def _forget_dead(client: "redis.Redis", keys: Keys, now: int) -> None:
    for generation in cast("set[str]", client.smembers(keys.loading)):
        written_at = client.hget(keys.loading_into(generation).meta, "written_at")
        if written_at is None or int(cast("str", written_at)) < now - LOAD_IDLE_US:
            _forget(client, keys, generation)


def _forget(client: "redis.Redis", keys: Keys, generation: str) -> None:
    """Let nobody write into a generation any more; `RedisWriter.remove_old` removes its rows."""
    step = client.pipeline()  # pyright: ignore[reportUnknownMemberType]
    step.delete(keys.loading_into(generation).meta)
    step.smove(keys.loading, keys.old, generation)
    step.execute()
