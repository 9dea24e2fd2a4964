"""The tables in Redis, as readers see them.

Every answer comes from one atomic script, so it is as of one index. Lists longer than a chunk take
several; the rows of later ones may be newer.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

import redis
from redis.client import PubSub
from redis.commands.core import Script
from redis.typing import EncodableT

from belog.processors.indexes import ANY, Order, Where, decode_cursor, driving_names, state_index
from belog.processors.redis_client import (
    READER_ANSWER_S,
    Keys,
    RedisUri,
    connect,
    literal,
    parse_redis_uri,
    redis_errors,
)
from belog.processors.redis_rows import row_of
from belog.processors.redis_scripts import COUNTS, GET_ROWS, LIST_ROWS
from belog.processors.rows import ROW_TYPES, R, RowKind
from belog.processors.tables import (
    IDS,
    PAGE_ROWS,
    Answer,
    Counts,
    IndexEntries,
    Page,
    TableReader,
    TablesStatus,
    check_ids,
    check_page_rows,
    page_of,
)
from belog.schemas.errors import Closed, Corrupt

__all__ = ["RedisTables", "read_status", "status_of_meta"]

LIST_CHUNK_ROWS: Final = 500
"""Rows of one script of a list: a few milliseconds of Redis's one thread."""

SCAN_KEYS: Final = 1_000
"""Keys that one step of a scan looks at: well below a millisecond of Redis's one thread."""

WAIT_S: Final = 0.5
"""Longest single wait for a message, seconds: what one that got lost costs."""


def status_of_meta(meta: Mapping[str, str], name: str) -> TablesStatus:
    """Return what the hash of the tables says.

    Raises:
        Corrupt: It is not such a hash.
    """
    if not meta:
        return TablesStatus(log_id=None, applied=0, position=0, schema_version=0, created_at=0)
    try:
        return TablesStatus(
            log_id=meta["log_id"],
            applied=int(meta["applied"]),
            position=int(meta["position"]),
            schema_version=int(meta["schema_version"]),
            created_at=int(meta["created_at"]),
            written_at=int(meta["written_at"]),
            generation=meta["generation"],
        )
    except (KeyError, ValueError) as error:
        msg = f"the tables do not say how far they are: {error!r}"
        raise Corrupt(msg, log=name, hint="name another prefix, or delete its keys") from error


def read_status(client: "redis.Redis", keys: Keys, name: str) -> TablesStatus:
    """Return how far the tables are.

    Raises:
        Unavailable: Redis cannot be reached.
        Corrupt: The hash of the tables is none.
    """
    with redis_errors(name):
        meta = cast("dict[str, str]", client.hgetall(keys.meta))
    return status_of_meta(meta, name)


class RedisTables(TableReader):
    """See the module's docstring. Thread-safe; nothing is sent before the first call."""

    def __init__(self, uri: RedisUri) -> None:
        """Name the tables."""
        self.name = uri.name
        self._keys = Keys.of(uri.prefix)
        self._client = connect(uri, READER_ANSWER_S)
        self._get_rows = self._client.register_script(GET_ROWS)
        self._list_rows = self._client.register_script(LIST_ROWS)
        self._counts = self._client.register_script(COUNTS)
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            msg = "the tables were closed"
            raise Closed(msg, log=self.name)

    def _ask(self, script: Script, *arguments: EncodableT) -> list[Any]:
        self._check_open()
        with redis_errors(self.name):
            return cast(
                "list[Any]", script(keys=[self._keys.meta], args=[self._keys.tag, *arguments])
            )

    def status(self) -> TablesStatus:
        """See `TableReader.status`."""
        self._check_open()
        return read_status(self._client, self._keys, self.name)

    def get_many(self, kind: type[R], row_ids: Sequence[str]) -> Answer[tuple[R | None, ...]]:
        """See `TableReader.get_many`."""
        check_ids(row_ids)
        applied, *found = self._ask(self._get_rows, kind.kind, *row_ids)
        return Answer(tuple(_row(kind, flat) for flat in found), int(applied))

    def list_rows(
        self,
        kind: type[R],
        where: Where = ANY,
        *,
        order: Order = "recent",
        cursor: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Page[R]:
        """See `TableReader.list_rows`."""
        check_page_rows(limit, order)
        after = decode_cursor(order, cursor)
        # One more than the page tells whether there is a next one.
        chunk = min(LIST_CHUNK_ROWS, limit + 1)
        if order == "id":
            candidates = self._by_id(kind, where, after, chunk)
        else:
            candidates = self._recent(kind, where, after, chunk)
        page = page_of(candidates, where, order=order, limit=limit)
        if page.applied >= 0:
            return page
        return Page(page.rows, page.next_cursor, self.applied())

    def _recent(
        self, kind: type[R], where: Where, after: str | None, chunk: int
    ) -> Iterator[tuple[R, int]]:
        names = driving_names(kind.kind, where)
        until_us = "" if where.until_us is None else str(where.until_us)
        bound = "+inf" if after is None else f"({after}"
        while True:
            applied, *found = self._ask(
                self._list_rows, kind.kind, "recent", bound, until_us, chunk, *names
            )
            for flat in found:
                row = self._listed(kind, flat)
                bound = f"({row.index}"
                yield row, int(applied)
            if len(found) < chunk:
                return
            until_us, chunk = "", LIST_CHUNK_ROWS

    def _by_id(
        self, kind: type[R], where: Where, after: str | None, chunk: int
    ) -> Iterator[tuple[R, int]]:
        bound = f"[{where.id_prefix}" if where.id_prefix else "-"
        if after is not None and after >= where.id_prefix:
            bound = f"({after}"
        while True:
            applied, *found = self._ask(self._list_rows, kind.kind, "id", bound, "", chunk)
            for flat in found:
                row = self._listed(kind, flat)
                if not row.row_id.startswith(where.id_prefix):
                    return
                bound = f"({row.row_id}"
                yield row, int(applied)
            if len(found) < chunk:
                return
            chunk = LIST_CHUNK_ROWS

    def _listed(self, kind: type[R], flat: Sequence[str]) -> R:
        row = _row(kind, flat)
        if row is None:
            msg = f"an index of kind {kind.kind} names a row that is not there"
            raise Corrupt(msg, log=self.name, hint="make the tables anew")
        return row

    def counts(self) -> Answer[Counts]:
        """See `TableReader.counts`."""
        applied, flat = self._ask(self._counts)
        by_kind: dict[RowKind, dict[str, int]] = {kind: {} for kind in ROW_TYPES}
        for name, count in _pairs(flat):
            kind, _, state = name.partition(":")
            if int(count):
                by_kind[cast("RowKind", kind)][state] = int(count)
        return Answer(by_kind, int(applied))

    def count_since(self, kind: RowKind, state: str, index: int) -> int:
        """See `TableReader.count_since`."""
        key = f"{self._keys.base(self.status().generation)}ix:{kind}:{state_index(state)}"
        with redis_errors(self.name):
            return self._client.zcount(key, index, "+inf")

    def indexes(self) -> Iterator[tuple[RowKind, str, IndexEntries]]:
        """See `TableReader.indexes`. Looks through all keys of the database."""
        base = self._keys.base(self.status().generation)
        seen: set[str] = set()
        for pattern in (f"{base}ix:*", f"{base}ids:*"):
            cursor = -1
            while cursor:
                with redis_errors(self.name):
                    cursor, keys = self._client.scan(  # pyright: ignore[reportUnknownMemberType]
                        max(cursor, 0), match=literal(base) + pattern[len(base) :], count=SCAN_KEYS
                    )
                for key in cast("list[str]", keys):
                    if key not in seen:
                        seen.add(key)
                        which, kind, *name = key[len(base) :].split(":", 2)
                        index = name[0] if which == "ix" else IDS
                        yield cast("RowKind", kind), index, self._entries(key)

    def _entries(self, key: str) -> IndexEntries:
        with redis_errors(self.name):
            found = self._client.zrange(  # pyright: ignore[reportUnknownMemberType]
                key, 0, -1, withscores=True
            )
        return tuple((int(entry[1]), cast("str", entry[0])) for entry in found)

    def wait_for(self, index: int, timeout_s: float) -> bool:
        """See `TableReader.wait_for`."""
        if self.applied() > index:
            return True
        deadline = time.monotonic() + timeout_s
        with redis_errors(self.name), PubSub(self._client.connection_pool) as messages:
            messages.subscribe(self._keys.channel)
            while True:
                # The confirmation of the subscription is a message too: one look comes after it.
                left = deadline - time.monotonic()
                messages.get_message(timeout=max(0.0, min(left, WAIT_S)))
                if self.applied() > index:
                    return True
                if left <= 0:
                    return False

    def close(self) -> None:
        """See `TableReader.close`."""
        self._closed = True
        self._client.close()


def _row(kind: type[R], flat: Sequence[str]) -> R | None:
    return cast("R | None", row_of(kind.kind, dict(_pairs(flat))))


def _pairs(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(islice(flat, 0, None, 2), islice(flat, 1, None, 2), strict=True)


def from_uri(uri: str) -> RedisTables:
    """See `belog.processors.factory`."""
    return RedisTables(parse_redis_uri(uri))
