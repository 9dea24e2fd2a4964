"""A reader of the chaos workload: follows the log with a cursor, and writes down what it saw.

`python -m tests.chaos.follower CONFIG` with the fields of `FollowerConfig` as JSON. It reads until
a line `until INDEX` comes on standard input and its cursor is there; then it ends with 0. A later
life goes on where the journals of the earlier ones end. The mode is `follow` (events one by one as
they come), `read` (pages, perhaps of some types only), `http` (pages of a service), or `tables`:
the tables of the embedded mode, made live and written to a file at the end.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import ROW_TYPES, Row
from belog.schemas.errors import BelogError
from belog.schemas.filters import EventFilter
from belog.storage import EventLog, open_log
from tests.chaos.history import Journal, load
from tests.chaos.http_door import page_over_http

__all__ = ["FollowerConfig"]

STOPPED = 3
WAIT_S = 0.3
"""One wait for more, seconds."""
PAUSE_S = 0.2
"""Pause after an error that a retry may help, seconds."""


@dataclass(frozen=True)
class FollowerConfig:
    """What one reader does."""

    uri: str
    name: str
    journals: str
    mode: str = "follow"
    types: tuple[str, ...] = ()
    """Only events of these types; all where empty."""
    limit: int = 200
    """Events of a page."""
    service: str = ""
    """URL of a service over the log, for `http`."""
    rows_file: str = ""
    """Where `tables` writes its rows."""


class Follower:
    """One life of a reader."""

    def __init__(self, config: FollowerConfig, cursor: int, journal: Journal) -> None:
        self.config = config
        self.cursor = cursor
        self.journal = journal
        self.until: int | None = None
        self.stop = threading.Event()
        self.lock = threading.Lock()

    def listen(self) -> None:
        """Take the index to end at."""
        for line in sys.stdin:
            with self.lock:
                self.until = int(line.split()[1])
                self.note()
        # Nobody is there any more to say where to end.
        if self.until is None:
            os._exit(1)

    def note(self) -> None:
        """With the lock held: stop where the end is reached."""
        if self.until is not None and self.cursor >= self.until:
            self.stop.set()

    def move(self, cursor: int) -> None:
        with self.lock:
            self.cursor = cursor
            self.note()

    def follow(self, log: EventLog) -> None:
        began = time.monotonic_ns()
        for stored in log.follow(self.cursor, stop=self.stop):
            row = [stored.index, stored.created_at, stored.event.event_id.hex()]
            self.journal.write(
                "page",
                since=self.cursor,
                next=stored.index + 1,
                more=True,
                full=True,
                began=began,
                rows=[row],
            )
            self.move(stored.index + 1)

    def read(self, log: EventLog) -> None:
        wanted = EventFilter(event_types=self.config.types)
        while not self.stop.is_set():
            since = self.cursor
            began = time.monotonic_ns()
            page = log.read(since, wanted, self.config.limit)
            rows = [[s.index, s.created_at, s.event.event_id.hex()] for s in page.events]
            if rows or page.next_idx != since:
                self.journal.write(
                    "page",
                    since=since,
                    next=page.next_idx,
                    more=page.has_more,
                    full=len(rows) == self.config.limit,
                    began=began,
                    rows=rows,
                    types=self.config.types,
                )
            self.move(page.next_idx)
            if not page.has_more and not self.stop.is_set():
                log.wait_for_index(self.cursor, WAIT_S)

    def http(self, log: EventLog) -> None:
        """Pages of a service, which may be behind the log, but never wrong."""
        del log
        while not self.stop.is_set():
            since = self.cursor
            began = time.monotonic_ns()
            page = page_over_http(self.config.service, since, self.config.limit, WAIT_S)
            if page["rows"] or page["next"] != since:
                self.journal.write("page", since=since, full=True, began=began, **page)
            self.move(page["next"])

    def tables(self, log: EventLog) -> None:
        with MemoryTables() as tables:
            while True:
                self.move(tables.catch_up(log))
                if self.stop.is_set():
                    break
                log.wait(tables.status().position, WAIT_S)
            rows = {kind: rows_of(tables, cls) for kind, cls in ROW_TYPES.items()}
            counts = {kind: dict(states) for kind, states in tables.counts().value.items()}
            told = {"applied": tables.applied(), "rows": rows, "counts": counts}
        Path(self.config.rows_file).write_text(json.dumps(told))


def rows_of(tables: MemoryTables, cls: type[Row]) -> dict[str, object]:
    """All rows of a kind, page by page."""
    rows: dict[str, object] = {}
    cursor: str | None = None
    while True:
        page = tables.list_rows(cls, order="id", cursor=cursor, limit=100)
        rows |= {row.row_id: msgspec.to_builtins(row) for row in page.rows}
        cursor = page.next_cursor
        if cursor is None:
            return rows


def main(argument: str) -> int:
    """Live one life."""
    config = FollowerConfig(**json.loads(argument))
    cursor = 0
    if config.mode != "tables":
        for page in load(Path(config.journals)).pages:
            if page["process"] == config.name:
                cursor = page["next"]
    follower = Follower(config, cursor, Journal(Path(config.journals), config.name))
    threading.Thread(target=follower.listen, daemon=True).start()
    action: Callable[[EventLog], None] = getattr(follower, config.mode)
    while not follower.stop.is_set():
        try:
            with open_log(config.uri) as log:
                identity = log.initialize()
                follower.journal.write("start", pid=os.getpid(), log=str(identity.log_id))
                action(log)
        except BelogError as error:
            if not error.retriable:
                follower.journal.write("stop", code=error.code, message=str(error))
                return STOPPED
            threading.Event().wait(PAUSE_S)
    follower.journal.write("done")
    return 0


def argument_of(config: FollowerConfig) -> str:
    """The command line argument of a config."""
    return json.dumps(asdict(config))


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)
