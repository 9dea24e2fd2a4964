"""A log with its tables and the queries over them, for tests: tables of the process or in Redis."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from belog.processors.factory import open_tables
from belog.processors.memory_tables import MemoryTables
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_writer import RedisWriter
from belog.processors.table_fold import TableFold
from belog.processors.tables import TableReader
from belog.producers import Producer
from belog.query import QueryEngine, Refusals, Repositories
from belog.schemas.payload import JsonValue
from belog.storage import EventLog
from belog.storage.interface import SCAN_RECORDS_MAX
from belog.storage.memory import MemoryLog
from tests.examples import LOG_ID, T0

TablesKind = Literal["memory", "redis"]


class Kept(Protocol):
    """Tables that can be brought up with a log."""

    @property
    def reader(self) -> TableReader: ...
    def catch_up(self, log: EventLog) -> object: ...
    def close(self) -> None: ...


class KeptInMemory:
    def __init__(self) -> None:
        self._tables = MemoryTables()
        self.reader: TableReader = self._tables

    def catch_up(self, log: EventLog) -> object:
        return self._tables.catch_up(log)

    def close(self) -> None:
        self._tables.close()


class KeptInRedis:
    def __init__(self, uri: str) -> None:
        self._writer = RedisWriter(parse_redis_uri(uri))
        self._writer.start(str(LOG_ID))
        self._fold = TableFold()
        self._lock = threading.Lock()
        self.reader: TableReader = open_tables(uri)

    def catch_up(self, log: EventLog) -> object:
        with self._lock:
            while records := log.scan(self._fold.fold.next_position, SCAN_RECORDS_MAX):
                assert self._writer.write(self._fold.apply(records)) is None
            assert self._writer.flush() is None
            return self._fold.fold.next_idx

    def close(self) -> None:
        self._writer.close()
        self.reader.close()


class Clock:
    """A clock that stands still until it is moved, in microseconds."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> int:
        return self.now


class World:
    """A log, one producer, its tables, and the queries."""

    def __init__(self, kept: Kept) -> None:
        self.clock = Clock()
        self.log = MemoryLog(clock=self.clock)
        self.log.initialize(log_id=LOG_ID)
        self.kept = kept
        self.producer = Producer(self.log, actor="tester", clock=self.clock)
        self.refusals = Refusals()
        self.queries = QueryEngine(
            kept.reader,
            self.log,
            catch_up=lambda: kept.catch_up(self.log),
            clock=self.clock,
            refusals=self.refusals,
        )
        self.repositories = Repositories(self.queries)
        self.last_id: bytes | None = None

    def put(
        self, event_type: str, subject_id: str, *, cause: bytes | None = None, **body: JsonValue
    ) -> int:
        """Append one event a second later; return its index."""
        self.clock.now += 1_000_000
        receipt = self.producer.append(f"v1.{event_type}", subject_id, body, caused_by=cause)
        self.last_id = receipt.event_id
        return receipt.index

    def catch_up(self) -> None:
        self.kept.catch_up(self.log)

    def make(self, ref: str, build: str, deps: list[str], *, run: str, ok: bool = True) -> None:
        """Make a partition in a build, from requested to available or failed, with its job run."""
        both: dict[str, JsonValue] = {"build_request_id": build, "job_run_id": run}
        self.put("partition.requested", ref, build_request_id=build)
        self.start(ref, build, deps, run=run)
        if ok:
            self.put("job.completed", run)
            self.put("partition.available", ref, cause=self.last_id, **both)
        else:
            self.put("job.failed", run, reason="disk full", exit_code=3)
            self.put("partition.failed", ref, cause=self.last_id, **both)

    def start(self, ref: str, build: str, deps: list[str], *, run: str) -> None:
        """Begin to build a partition that was requested."""
        up: list[JsonValue] = list(deps)
        self.put(
            "job.scheduled",
            run,
            build_request_id=build,
            task_id=f"make {ref}",
            job_label="//jobs:make",
            outputs=[ref],
            inputs=up,
        )
        self.put(
            "partition.scheduled",
            ref,
            cause=self.last_id,
            build_request_id=build,
            job_run_id=run,
            job_label="//jobs:make",
            upstream_deps=up,
        )
        self.put("job.running", run, worker="w")
        self.put(
            "partition.building", ref, cause=self.last_id, build_request_id=build, job_run_id=run
        )


@contextmanager
def world(kind: TablesKind, redis_uri: str = "") -> Iterator[World]:
    """Give a world with tables of a kind."""
    kept: Kept = KeptInMemory() if kind == "memory" else KeptInRedis(redis_uri)
    made = World(kept)
    try:
        yield made
    finally:
        made.producer.close()
        kept.close()
        made.log.close()
