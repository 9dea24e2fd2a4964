"""The one door through which tables in Redis are written.

Each batch is one script that writes only where the batch starts from what Redis holds. So a batch
sent twice, a second writer or a zombie changes nothing and learns where the tables are. Batches are
sent without waiting for the answer to the one before; after one that is refused, all are.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar, cast

from redis.typing import EncodableT

from belog.processors.log_lines import Outage
from belog.processors.redis_batch import pack_change
from belog.processors.redis_client import Keys, RedisUri, connect, literal, redis_errors
from belog.processors.redis_scripts import BEGIN, WRITE
from belog.processors.redis_tables import read_status
from belog.processors.table_fold import TABLE_SCHEMA_VERSION, Change, Checkpoint
from belog.processors.tables import Stale, TablesStatus
from belog.schemas.errors import BelogError, Misconfigured, NewerFormat, Unavailable
from belog.storage.creation import now_us

__all__ = ["RETRY_S", "RedisWriter"]

IN_FLIGHT_BATCHES_MAX: Final = 3
"""Batches that are not answered yet: one that Redis runs, one on the way, one being made."""

RETRY_S: Final = 60.0
"""How long an unreachable Redis is tried again, seconds, before the writer gives up: restarts with
a few million keys to load take less."""

RETRY_PAUSE_S_MIN: Final = 0.05
RETRY_PAUSE_S_MAX: Final = 2.0
"""The pause between two tries doubles from the first to the second."""

REMOVE_KEYS: Final = 1_000
"""Keys that one step of a removal looks at: well below a millisecond of Redis's one thread."""

GENERATION_BYTES: Final = 4
"""Random bytes of a generation's name: never the same as one whose removal is still going on."""


T = TypeVar("T")


def new_generation() -> str:
    """Return a name for tables that are made anew."""
    return os.urandom(GENERATION_BYTES).hex()


class RedisWriter:
    """Writes changes into Redis. Not thread-safe."""

    def __init__(
        self,
        uri: RedisUri,
        *,
        retry_s: float = RETRY_S,
        clock: Callable[[], int] = now_us,
        pause: Callable[[float], None] = time.sleep,
        loading: str | None = None,
        on_error: Callable[[BelogError], None] | None = None,
    ) -> None:
        """Name the tables; nothing is sent yet.

        Args:
            uri: Where they are.
            retry_s: How long an unreachable Redis is tried again, seconds.
            clock: Gives the time, microseconds since the epoch.
            pause: Waits between two tries, seconds.
            loading: Write into this generation, which nobody reads yet; see
                `belog.processors.redis_load`.
            on_error: Called with each error that is waited out, in any thread.
        """
        self.name = uri.name
        keys = Keys.of(uri.prefix)
        self._keys = keys if loading is None else keys.loading_into(loading)
        self._client = connect(uri)
        self._write = self._client.register_script(WRITE)
        self._begin = self._client.register_script(BEGIN)
        self._retry_s = retry_s
        self._on_error = on_error
        self._clock = clock
        self._pause = pause
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="belog-redis")
        self._pending: deque[tuple[Change, Future[int]]] = deque()
        self._generation = loading or ""

    @property
    def generation(self) -> str:
        """The tables that this writer writes; empty before `start`."""
        return self._generation

    def status(self) -> TablesStatus:
        """Return how far the tables are; tries again while Redis is unreachable.

        Raises:
            Unavailable: It still is after `retry_s`.
        """
        return self._persist(lambda: read_status(self._client, self._keys, self.name))

    def start(self, log_id: str) -> TablesStatus:
        """Make the tables ready for a log: those of another log, or of another schema, start anew.

        Returns:
            How far the tables are: the position to write from.

        Raises:
            Unavailable: Redis is unreachable after `retry_s`.
            NewerFormat: The tables were written by newer software.
            Misconfigured: Redis may throw rows away, or refuses the commands.
        """
        self._discard_pending()
        self._persist(self._check_server)
        while True:
            status = self.status()
            if status.schema_version > TABLE_SCHEMA_VERSION:
                msg = f"the tables have schema version {status.schema_version}"
                hint = f"known is {TABLE_SCHEMA_VERSION}: run a newer belog, or use another prefix"
                raise NewerFormat(msg, log=self.name, hint=hint)
            if status.log_id == log_id and status.schema_version == TABLE_SCHEMA_VERSION:
                self._generation = status.generation
                return status
            self.clear(log_id, status)

    def clear(self, log_id: str, seen: TablesStatus) -> bool:
        """Start empty tables, unless somebody else has since `seen`; readers see `applied` = 0.

        Returns:
            Whether it did.
        """
        generation = new_generation()
        arguments: list[EncodableT] = [
            seen.generation,
            generation,
            log_id,
            TABLE_SCHEMA_VERSION,
            self._clock(),
        ]

        def begin() -> bool:
            with redis_errors(self.name):
                keys = [self._keys.meta, self._keys.old]
                return bool(self._begin(keys=keys, args=arguments))

        return self._persist(begin)

    def remove_old(self) -> int:
        """Remove the keys of tables that were made anew; blocks for as long as that takes.

        Returns:
            Keys removed.
        """
        removed = 0
        with redis_errors(self.name):
            for generation in cast("set[str]", self._client.smembers(self._keys.old)):
                if generation != self._generation:
                    removed += self._remove(literal(self._keys.base(generation)) + "*")
                self._client.srem(self._keys.old, generation)
        return removed

    def _remove(self, pattern: str) -> int:
        removed = 0
        cursor = -1
        while cursor:
            cursor, keys = self._client.scan(  # pyright: ignore[reportUnknownMemberType]
                max(cursor, 0), match=pattern, count=REMOVE_KEYS
            )
            if keys:
                removed += self._client.unlink(*keys)
        return removed

    # --- batches

    def write(self, change: Change) -> Stale | None:
        """Hand a batch over; waits only while `IN_FLIGHT_BATCHES_MAX` are under way.

        Returns:
            None, or where the tables are when they can take no batch from here on: they were
            flushed, went back, or are of another log. Then call `start`, and fold from there.

        Raises:
            Unavailable: Redis is unreachable after `retry_s`; batches handed over may be written.
        """
        self._send(change)
        while len(self._pending) >= IN_FLIGHT_BATCHES_MAX:
            if stale := self._settle():
                return stale
        return None

    def flush(self) -> Stale | None:
        """Wait until all batches are written; see `write`."""
        while self._pending:
            if stale := self._settle():
                return stale
        return None

    def _send(self, change: Change) -> None:
        start, end = change.start, change.end
        blob = pack_change(change, self._keys.base(self._generation))
        arguments: list[EncodableT] = [change.log_id or "", TABLE_SCHEMA_VERSION, self._generation]
        arguments += [start.position, start.next_idx, end.position, end.next_idx]
        arguments += [change.created_at, self._clock(), blob]
        self._pending.append((change, self._sender.submit(self._run, arguments)))

    def _run(self, arguments: list[EncodableT]) -> int:
        with redis_errors(self.name):
            keys = [self._keys.meta, self._keys.channel]
            return cast("int", self._write(keys=keys, args=arguments))

    def _settle(self) -> Stale | None:
        """Take the answer to the oldest batch; put things right where it was refused or lost."""
        try:
            written = self._pending[0][1].result()
        except Unavailable:
            # Whether it was written, the position says.
            written = 0
        if written:
            self._pending.popleft()
            return None
        changes = self._discard_pending()
        status = self.status()
        if status.generation != self._generation or status.position < changes[0].start.position:
            return Stale(status)
        here = Checkpoint(status.position, status.applied)
        for change in changes:
            if change.end.position <= here.position:
                continue
            inside = change.start.position < here.position
            self._send(change.rest(here) if inside else change)
        return None

    def _discard_pending(self) -> list[Change]:
        changes: list[Change] = []
        while self._pending:
            change, answer = self._pending.popleft()
            # A refusal; its reason is the same as that of the first.
            answer.exception()
            changes.append(change)
        return changes

    # --- the server

    def _check_server(self) -> None:
        with redis_errors(self.name):
            memory = self._client.info("memory")  # pyright: ignore[reportUnknownMemberType]
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys") and memory.get("maxmemory"):
            msg = f"Redis throws keys away when memory is short (maxmemory-policy {policy})"
            hint = "CONFIG SET maxmemory-policy noeviction"
            raise Misconfigured(msg, setting="maxmemory-policy", hint=hint, log=self.name)

    def _persist(self, action: Callable[[], T]) -> T:
        """Try until Redis answers, for `retry_s`; every action may be done twice."""
        outage = Outage(self._retry_s)
        pause_s = RETRY_PAUSE_S_MIN
        while True:
            try:
                answer = action()
            except Unavailable as error:
                if self._on_error is not None:
                    self._on_error(error)
                outage.lasts(error)
            else:
                outage.is_over()
                return answer
            self._pause(pause_s)
            pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)

    def close(self) -> None:
        """Drop what is not written yet and release everything; idempotent."""
        self._sender.shutdown(wait=False, cancel_futures=True)
        self._client.close()
