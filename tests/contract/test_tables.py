"""What every kind of tables promises to readers: those of the process and those in Redis."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pytest

from belog.processors.factory import open_tables
from belog.processors.indexes import Order, Where
from belog.processors.memory_tables import MemoryTables
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_writer import RedisWriter
from belog.processors.rows import (
    ROW_TYPES,
    BuildRow,
    JobRunRow,
    PartitionRow,
    R,
    SystemRow,
    TaskRow,
    task_key,
)
from belog.processors.table_fold import TableFold
from belog.processors.tables import (
    GET_ROWS_MAX,
    LIST_SCAN_ROWS_MAX,
    PAGE_ROWS_MAX,
    TableReader,
)
from belog.schemas.envelope import Event
from belog.schemas.errors import Closed, InvalidFilter, InvalidUri, LimitExceeded
from belog.schemas.fold import Record
from tests.examples import LOG_ID, T0, created, event, record
from tests.servers import Redis
from tests.table_logs import random_records


class Kept(Protocol):
    """Tables with their one writer."""

    @property
    def reader(self) -> TableReader: ...
    def apply(self, records: Sequence[Record]) -> None: ...


class KeptInMemory:
    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.reader: TableReader = self.tables

    def apply(self, records: Sequence[Record]) -> None:
        self.tables.apply(records)


class KeptInRedis:
    def __init__(self, uri: str) -> None:
        self.writer = RedisWriter(parse_redis_uri(uri))
        self.writer.start(str(LOG_ID))
        self.fold = TableFold()
        self.reader: TableReader = open_tables(uri)

    def apply(self, records: Sequence[Record]) -> None:
        assert self.writer.write(self.fold.apply(records)) is None
        assert self.writer.flush() is None


@pytest.fixture(params=["memory", "redis"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    if request.param == "memory":
        yield KeptInMemory()
        return
    server: Redis = request.getfixturevalue("redis_server")
    prefix: str = request.getfixturevalue("redis_prefix")
    in_redis = KeptInRedis(f"{server.uri}?prefix={prefix}")
    yield in_redis
    in_redis.writer.close()
    in_redis.reader.close()


pytestmark = pytest.mark.integration


def log_of(*events: Event) -> list[Record]:
    return [record(n, what) for n, what in enumerate((created(), *events))]


def a_build() -> list[Record]:
    """Two partitions of one build: `a` is made, `b` fails; then another build tries `a` in vain."""
    run = {"build_request_id": "b1", "job_run_id": "r1"}
    return log_of(
        event("v1.build.received", "b1", {"requested_partitions": ["a"], "client_id": "ann"}, n=1),
        event("v1.partition.requested", "a", {"build_request_id": "b1"}, n=2),
        event("v1.partition.requested", "b", {"build_request_id": "b1"}, n=3),
        event(
            "v1.job.scheduled",
            "r1",
            {"build_request_id": "b1", "task_id": "t/1", "job_label": "//l", "outputs": ["a"]},
            n=4,
        ),
        event("v1.partition.scheduled", "a", {**run, "job_label": "//l"}, n=5),
        event("v1.job.running", "r1", {"worker": "w"}, n=6),
        event("v1.partition.building", "a", run, n=7),
        event("v1.partition.joined", "a", {"build_request_id": "b2"}, n=8),
        event("v1.partition.available", "a", {**run, "manifest": {"size_bytes": 3}}, n=9),
        event("v1.partition.failed", "b", {"build_request_id": "b1", "reason": "disk"}, n=10),
        event("v1.job.completed", "r1", {}, n=11),
        event("v1.partition.requested", "a", {"build_request_id": "b3"}, n=12),
        event("v1.partition.failed", "a", {"build_request_id": "b3", "reason": "net"}, n=13),
        event("v1.partition.requested", "c", {"build_request_id": "b3"}, n=14),
    )


def ids(
    reader: TableReader, kind: type[R], where: Where | None = None, order: Order = "recent"
) -> list[str]:
    return [row.row_id for row in reader.list_rows(kind, where or Where(), order=order).rows]


def all_pages(
    reader: TableReader,
    kind: type[R],
    where: Where,
    *,
    order: Order,
    limit: int,
    between: Callable[[], None] = lambda: None,
) -> list[R]:
    found: list[R] = []
    cursor: str | None = None
    while True:
        page = reader.list_rows(kind, where, order=order, cursor=cursor, limit=limit)
        assert len(page.rows) <= limit
        found.extend(page.rows)
        cursor = page.next_cursor
        if cursor is None:
            return found
        between()


def test_empty_tables_say_so(kept: Kept) -> None:
    reader = kept.reader
    assert reader.applied() == 0
    assert reader.get(PartitionRow, "a").value is None
    assert reader.list_rows(PartitionRow).rows == ()
    assert reader.list_rows(PartitionRow).next_cursor is None
    assert not any(reader.counts().value.values())
    assert not reader.wait_for(0, 0.0)


def test_a_failed_attempt_does_not_hide_the_data_of_the_one_before(kept: Kept) -> None:
    kept.apply(a_build())
    answer = kept.reader.get(PartitionRow, "a")
    assert answer.applied == 15
    row = answer.value
    assert row is not None
    assert row.attempt is not None
    assert row.available is not None
    assert (row.state, row.index, row.updated_at) == ("failed", 13, T0 + 13)
    assert (row.attempt.build_id, row.attempt.failure_reason) == ("b3", "net")
    assert (row.available.index, row.available.build_id) == (9, "b1")
    assert row.available.manifest == '{"size_bytes":3}'
    assert row.available.job_label == "//l"
    assert row.has_data
    assert (row.first_seen, row.version) == (2, 7)


def test_rows_of_every_kind(kept: Kept) -> None:
    kept.apply(a_build())
    reader = kept.reader
    build = reader.get(BuildRow, "b1").value
    run = reader.get(JobRunRow, "r1").value
    task = reader.get(TaskRow, task_key("b1", "t/1")).value
    system = reader.system().value
    assert build is not None
    assert run is not None
    assert task is not None
    assert system is not None
    assert (build.state, build.index, build.requested_partitions) == ("received", 1, ("a",))
    assert (build.counts.requested, build.counts.available, build.counts.failed) == (2, 1, 1)
    assert (run.state, run.worker, run.outputs, run.ended_at) == ("completed", "w", ("a",), T0 + 11)
    assert (task.state, task.runs, task.run_count) == ("completed", ("r1",), 1)
    assert (system.log_id, system.instance) == (str(LOG_ID), "here")


def test_many_rows_come_in_the_order_asked_for(kept: Kept) -> None:
    kept.apply(a_build())
    rows = kept.reader.get_many(PartitionRow, ("c", "nowhere", "a", "c")).value
    assert [None if row is None else row.ref for row in rows] == ["c", None, "a", "c"]


@pytest.mark.parametrize(
    ("where", "recent"),
    [
        (Where(), ["c", "a", "b"]),
        (Where(states=("failed",)), ["a", "b"]),
        (Where(states=("failed", "requested", "failed")), ["c", "a", "b"]),
        (Where(states=("removed",)), []),
        (Where(active=True), ["c"]),
        (Where(active=False), ["a", "b"]),
        (Where(build_id="b1"), ["a", "b"]),
        (Where(build_id="b2"), []),
        (Where(build_id="b3"), ["c", "a"]),
        (Where(build_id="b3", states=("failed",)), ["a"]),
        (Where(job_label="//l"), ["a"]),
        (Where(since_us=T0 + 13), ["c", "a"]),
        (Where(until_us=T0 + 14), ["a", "b"]),
        (Where(since_us=T0 + 10, until_us=T0 + 13), ["b"]),
        (Where(id_prefix="b"), ["b"]),
        (Where(partition="a"), ["a"]),
    ],
)
def test_partitions_are_found_by_conditions(kept: Kept, where: Where, recent: list[str]) -> None:
    kept.apply(a_build())
    assert ids(kept.reader, PartitionRow, where) == recent
    assert ids(kept.reader, PartitionRow, where, "id") == sorted(recent)


def test_other_kinds_are_found_by_conditions(kept: Kept) -> None:
    kept.apply(a_build())
    reader = kept.reader
    assert ids(reader, BuildRow, Where(client_id="ann")) == ["b1"]
    assert ids(reader, BuildRow, Where(partition="a")) == ["b1"]
    assert ids(reader, BuildRow, Where(partition="b")) == []
    assert ids(reader, BuildRow, Where(active=True)) == ["b1"]
    assert ids(reader, JobRunRow, Where(build_id="b1", job_label="//l")) == ["r1"]
    assert ids(reader, JobRunRow, Where(active=True)) == []
    assert ids(reader, TaskRow, Where(partition="a")) == ["b1/t/1"]
    assert ids(reader, SystemRow) == [str(LOG_ID)]


def test_a_state_that_is_left_is_left_in_its_index(kept: Kept) -> None:
    records = a_build()
    for item in records:
        kept.apply([item])
    assert ids(kept.reader, PartitionRow, Where(states=("requested",))) == ["c"]
    assert ids(kept.reader, PartitionRow, Where(states=("available", "building"))) == []
    assert kept.reader.counts().value["partition"] == {"failed": 2, "requested": 1}


def many(count: int) -> list[Record]:
    return log_of(*(event("v1.partition.observed", f"p{n:05d}", {}, n=n) for n in range(count)))


@pytest.mark.parametrize("order", ["recent", "id"])
def test_pages_hold_each_row_once(kept: Kept, order: Order) -> None:
    kept.apply(many(230))
    rows = all_pages(kept.reader, PartitionRow, Where(), order=order, limit=7)
    expected = [f"p{n:05d}" for n in range(230)]
    assert [row.ref for row in rows] == (expected if order == "id" else expected[::-1])
    full = kept.reader.list_rows(PartitionRow, order=order, limit=230)
    assert (len(full.rows), full.next_cursor) == (230, None)


@pytest.mark.parametrize("order", ["recent", "id"])
def test_pages_hold_each_row_once_while_others_are_written(kept: Kept, order: Order) -> None:
    kept.apply(many(60))
    written = iter(range(61, 1000))

    def write() -> None:
        for _ in range(3):
            n = next(written)
            what = event("v1.partition.observed", f"p{n % 70:05d}", {}, n=n)
            # p60 to p69 are new, later numbers touch rows from the first on.
            kept.apply([record(n, what)])

    rows = all_pages(kept.reader, PartitionRow, Where(), order=order, limit=5, between=write)
    refs = [row.ref for row in rows]
    assert len(refs) == len(set(refs))
    last = next(written)
    untouched = {f"p{n:05d}" for n in range(60)}
    if order == "recent":
        untouched -= {f"p{n % 70:05d}" for n in range(61, last)}
    assert untouched <= set(refs)


def test_conditions_that_few_rows_meet_give_short_pages_and_an_end(kept: Kept) -> None:
    kept.apply(many(LIST_SCAN_ROWS_MAX + 50))
    where = Where(partition="p00003")
    first = kept.reader.list_rows(PartitionRow, where)
    assert first.rows == ()
    assert first.next_cursor is not None
    rows = all_pages(kept.reader, PartitionRow, where, order="recent", limit=10)
    assert [row.ref for row in rows] == ["p00003"]


def test_limits_and_cursors(kept: Kept) -> None:
    kept.apply(many(3))
    reader = kept.reader
    with pytest.raises(LimitExceeded):
        reader.list_rows(PartitionRow, limit=PAGE_ROWS_MAX + 1)
    with pytest.raises(InvalidFilter):
        reader.list_rows(PartitionRow, limit=0)
    with pytest.raises(LimitExceeded):
        reader.get_many(PartitionRow, ["x"] * (GET_ROWS_MAX + 1))
    cursor = reader.list_rows(PartitionRow, limit=1).next_cursor
    with pytest.raises(InvalidFilter):
        reader.list_rows(PartitionRow, order="id", cursor=cursor)
    for odd in ("", "r", "rx", "r-1", "r" + "9" * 20, "q1"):
        with pytest.raises(InvalidFilter):
            reader.list_rows(PartitionRow, cursor=odd)


def test_waiting_ends_with_the_event(kept: Kept) -> None:
    records = many(2)
    kept.apply(records[:1])
    reader = kept.reader
    assert reader.wait_for(0, 0)
    assert not reader.wait_for(1, 0.01)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(reader.wait_for(2, 30)))
    waiting.start()
    kept.apply(records[1:2])
    kept.apply(records[2:])
    waiting.join(30)
    assert answers == [True]


def test_void_and_repeated_records_move_nothing_but_the_index(kept: Kept) -> None:
    kept.apply(many(2))
    before = kept.reader.get(PartitionRow, "p00001")
    kept.apply(
        [
            record(3, b"garbage"),
            record(4, event("v1.partition.building", "p00001", n=90)),
            record(5, event("v1.partition.observed", "p00001", {}, n=1)),
            record(6, None),
        ]
    )
    after = kept.reader.get(PartitionRow, "p00001")
    assert (before.value, before.applied, after.applied) == (after.value, 3, 7)


@pytest.mark.parametrize("parts", [1, 40])
def test_random_logs_make_the_rows_of_a_plain_fold(kept: Kept, seed: int, parts: int) -> None:
    rng = random.Random(f"{seed}-{parts}")
    records = random_records(rng, 800)
    cuts = sorted(rng.randrange(len(records)) for _ in range(parts - 1))
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        # Some records come again, as from a tail that was set back.
        kept.apply(records[max(0, start - rng.randrange(5)) : end])
    plain = TableFold()
    plain.apply(records)
    reader = kept.reader
    for kind, cls in ROW_TYPES.items():
        rows = all_pages(reader, cls, Where(), order="id", limit=50)
        assert {row.row_id: row for row in rows} == plain.rows_of(kind)
        by_index = sorted(plain.rows_of(kind).values(), key=lambda row: -row.index)
        assert all_pages(reader, cls, Where(), order="recent", limit=50) == by_index
    wanted = MemoryTables(plain)
    assert reader.counts() == wanted.counts()
    assert sorted(reader.indexes()) == sorted(wanted.indexes())
    assert reader.status().position == records[-1].position + 1


def test_closed_tables_say_so(kept: Kept) -> None:
    kept.reader.close()
    kept.reader.close()
    with pytest.raises(Closed):
        kept.reader.status()


@pytest.mark.parametrize(
    "uri",
    [
        "memory:x",
        "http://h/0",
        "redis://h:port/0",
        "redis://h/zero",
        "redis:///0",
        "redis://h/0?prefix=",
        "redis://h/0?prefix={a}",
        "redis://h/0?ssl_keyfile=x",
        "redis://h/0?color=red",
    ],
)
def test_uris_that_name_no_tables(uri: str) -> None:
    with pytest.raises(InvalidUri):
        open_tables(uri)


def test_no_secret_in_names_and_errors() -> None:
    with open_tables("redis://me:s3cret@127.0.0.1:1/0?prefix=p") as tables:
        assert "s3cret" not in tables.name
    with pytest.raises(InvalidUri) as caught:
        open_tables("redis://me:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in str(caught.value)
