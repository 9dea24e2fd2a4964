"""Queries over 100,000 partitions and a million events: tables of the process, and in Redis."""

import uuid
from collections.abc import Callable, Iterator, Mapping

from belog.processors.factory import open_tables
from belog.processors.indexes import Order, Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.periodic import SnapshotBeginning
from belog.processors.redis_follower import follower_from_uri
from belog.processors.rows import JobRunRow, PartitionRow
from belog.query import PartitionEventQuery, QueryEngine, Repositories
from belog.storage import EventLog, open_log
from benchmarks.measure import Constant, Figure, absolute, timed
from benchmarks.million import REF, Million
from benchmarks.servers import Servers

ROUNDS = 15
LABEL = "//who:garden"


def run(servers: Servers) -> Iterator[Figure | Constant]:
    """Yield pages of lists, and the other queries, on both kinds of tables."""
    million = servers.million
    with open_log(million.uri) as log:
        log.initialize()
        uri = f"{servers.redis.uri}?prefix=query-{uuid.uuid4().hex[:8]}"
        with servers.redis.connect() as redis:
            before = redis.info("memory")["used_memory"]
            load_s = timed(lambda: _load(log, uri, million))
            grown = redis.info("memory")["used_memory"] - before
        rows = sum(1 for _ in million.tables.rows())
        yield Constant(
            key="redis_bytes_per_row",
            unit="bytes",
            value=grown / rows,
            how=f"growth of Redis by {rows:,} rows with all their indexes",
        )
        yield Constant(
            key="redis_load_rows_s",
            unit="rows/s",
            value=rows / load_s,
            how="a snapshot of these rows into an empty Redis",
        )
        with open_tables(uri) as in_redis, MemoryTables(million.tables) as in_process:
            for name, tables in (("the process", in_process), ("Redis", in_redis)):
                applied, end = tables.applied(), million.tables.checkpoint.next_idx
                assert applied == end, (name, applied, end)
                yield from _figures(name, QueryEngine(tables, log), million)
        servers.redis.flush()


def _load(log: EventLog, uri: str, million: Million) -> None:
    follower = follower_from_uri(
        log,
        uri,
        million.identity,
        beginning=lambda load: SnapshotBeginning(
            log, million.identity, million.store, load, every_events=None
        ),
    )
    try:
        follower.start()
        follower.catch_up()
    finally:
        follower.close()


def _figures(name: str, queries: QueryEngine, million: Million) -> Iterator[Figure]:
    ref = f"{REF}{million.partitions // 2}"
    build = f"nightly--{million.partitions // 200:08d}"
    again = f"again-{million.partitions // 200:08d}"
    repositories = Repositories(queries)
    lists: Mapping[str, tuple[Where, Order]] = {
        "all": (Where(), "recent"),
        "by id": (Where(), "id"),
        "by state": (Where(states=("available",)), "recent"),
        "by label": (Where(job_label=LABEL), "recent"),
        "by build": (Where(build_id=again), "recent"),
        "of a time": (Where(until_us=queries.tables.status().created_at), "recent"),
    }
    works: dict[str, Callable[[], object]] = {
        f"list page {what}": _page(queries, where, order) for what, (where, order) in lists.items()
    }
    works |= {
        "list page deep": _deep(queries, million.partitions),
        "job runs of a label": lambda: queries.list_rows(JobRunRow, Where(job_label=LABEL)),
        "metrics of a label": lambda: repositories.jobs.metrics(LABEL),
        "graph": lambda: queries.dependency_graph(ref),
        "explain": lambda: queries.explain(ref),
        "events of a partition": lambda: queries.events.query(
            PartitionEventQuery(partition_refs=(ref,)), newest_first=True
        ),
        "build summary": lambda: queries.build_request_summary(build),
        "activity": queries.activity_summary,
    }
    size = f"{million.partitions:,} partitions, {million.count:,} events"
    for what, work in works.items():
        work()
        values = [timed(work) * 1e3 for _ in range(ROUNDS)]
        yield absolute(
            f"{what}, {size}, tables in {name}",
            "ms",
            values,
            must=100.0,
            aim=20.0,
            better="lower",
        )


def _page(queries: QueryEngine, where: Where, order: Order) -> Callable[[], object]:
    assert queries.list_rows(PartitionRow, where, order=order).rows, "a page of nothing is fast"
    return lambda: queries.list_rows(PartitionRow, where, order=order)


def _deep(queries: QueryEngine, partitions: int) -> Callable[[], object]:
    cursor: str | None = None
    for _ in range(partitions // 2_000):
        cursor = queries.list_rows(PartitionRow, limit=1_000, cursor=cursor).next_cursor
    return lambda: queries.list_rows(PartitionRow, cursor=cursor)
