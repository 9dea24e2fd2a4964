"""Queries over 100,000 partitions and 500,000 events: tables of the process, and in Redis."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from belog.processors.factory import open_tables
from belog.processors.indexes import Order, Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_writer import RedisWriter
from belog.processors.rows import JobRunRow, PartitionRow
from belog.processors.table_fold import TableFold
from belog.query import PartitionEventQuery, QueryEngine, Repositories
from belog.schemas.envelope import Event
from belog.schemas.events import BuildReceived, new_event
from belog.storage import open_log
from belog.storage.interface import SCAN_RECORDS_MAX
from benchmarks.events import builds
from benchmarks.measure import Figure, absolute, timed
from benchmarks.servers import Servers

PARTITIONS = 100_000
BATCH_EVENTS = 10_000
ROUNDS = 15
LABEL = "//who:garden"
REF = "data://garden/who/2026-01-01/table_"
BUILD = "nightly--00000500"


def run(servers: Servers) -> Iterator[Figure]:
    """Yield pages of lists, and the other queries, on both kinds of tables."""
    with open_log(f"sqlite:///{servers.folder / 'query.db'}") as log:
        identity = log.initialize()
        log.append_batch([_received(n) for n in range(PARTITIONS // 100)])
        events = builds(PARTITIONS)
        while batch := list(islice(events, BATCH_EVENTS)):
            log.append_batch(batch)
        fold = TableFold()
        uri = f"{servers.redis.uri}?prefix=query-{uuid.uuid4().hex[:8]}"
        writer = RedisWriter(parse_redis_uri(uri))
        writer.start(str(identity.log_id))
        while records := log.scan(fold.fold.next_position, SCAN_RECORDS_MAX):
            writer.write(fold.apply(records))
        writer.flush()
        writer.close()
        with open_tables(uri) as in_redis, MemoryTables(fold) as in_process:
            for name, tables in (("the process", in_process), ("Redis", in_redis)):
                yield from _figures(name, QueryEngine(tables, log))


def _received(n: int) -> Event:
    refs = [f"{REF}{m}" for m in range(n * 100, n * 100 + 100)]
    return new_event(
        BuildReceived(requested_partitions=refs, client_id="who"),
        f"nightly--{n:08d}",
        event_id=os.urandom(16),
        actor="who-graph",
        occurred_at=0,
    )


def _figures(name: str, queries: QueryEngine) -> Iterator[Figure]:
    ref = f"{REF}{PARTITIONS // 2}"
    repositories = Repositories(queries)
    lists: Mapping[str, tuple[Where, Order]] = {
        "all": (Where(), "recent"),
        "by id": (Where(), "id"),
        "by state": (Where(states=("available",)), "recent"),
        "by label": (Where(job_label=LABEL), "recent"),
        "by build": (Where(build_id=BUILD), "recent"),
        "of a time": (Where(until_us=queries.tables.status().created_at), "recent"),
    }
    works: dict[str, Callable[[], object]] = {
        f"list page {what}": _page(queries, where, order) for what, (where, order) in lists.items()
    }
    works |= {
        "list page deep": _deep(queries),
        "job runs of a label": lambda: queries.list_rows(JobRunRow, Where(job_label=LABEL)),
        "metrics of a label": lambda: repositories.jobs.metrics(LABEL),
        "graph": lambda: queries.dependency_graph(ref),
        "explain": lambda: queries.explain(ref),
        "events of a partition": lambda: queries.events.query(
            PartitionEventQuery(partition_refs=(ref,)), newest_first=True
        ),
        "build summary": lambda: queries.build_request_summary(BUILD),
        "activity": queries.activity_summary,
    }
    for what, work in works.items():
        work()
        values = [timed(work) * 1e3 for _ in range(ROUNDS)]
        yield absolute(
            f"{what}, tables in {name}", "ms", values, must=100.0, aim=20.0, better="lower"
        )


def _page(queries: QueryEngine, where: Where, order: Order) -> Callable[[], object]:
    return lambda: queries.list_rows(PartitionRow, where, order=order)


def _deep(queries: QueryEngine) -> Callable[[], object]:
    cursor: str | None = None
    for _ in range(PARTITIONS // 2_000):
        cursor = queries.list_rows(PartitionRow, limit=1_000, cursor=cursor).next_cursor
    return lambda: queries.list_rows(PartitionRow, cursor=cursor)
