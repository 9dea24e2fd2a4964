"""Tables in Redis under what happens to servers and writers: nothing is doubled, mixed or lost."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from belog.processors.factory import open_tables
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_writer import RedisWriter
from belog.processors.replay import Progress, Stop, TableFollower, Until
from belog.processors.rows import PartitionRow
from belog.processors.table_fold import TableFold
from belog.processors.tables import Stale, TableReader
from belog.processors.verify import verify_tables
from belog.processors.worker import worker_status
from belog.schemas.errors import (
    Diverged,
    LogReplaced,
    LogTruncated,
    Misconfigured,
    NewerFormat,
    Unavailable,
)
from belog.schemas.fold import Record
from belog.schemas.payload import JsonValue
from belog.storage.memory import MemoryLog
from belog.storage.opening import open_existing
from tests.examples import LOG_ID, OTHER_LOG_ID, T0, created, event, record, replica_value
from tests.servers import Redis
from tests.table_logs import random_records

pytestmark = pytest.mark.integration

RETRY_S = 20.0


class RecordsLog(MemoryLog):
    """A log that holds the records it is given, void ones and holes among them."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__("records:")
        self.initialize(log_id=LOG_ID, replica=True)
        self.extend(records)

    def extend(self, records: list[Record]) -> None:
        with self._changed:
            self._records.extend(records)
            self._changed.notify_all()


def plain_log(count: int) -> list[Record]:
    what = (event("v1.partition.observed", f"p{n % 50}", {}, n=n) for n in range(1, count))
    return [record(0, created()), *(record(n, item) for n, item in enumerate(what, 1))]


class Tables:
    """One Redis prefix with what may write and read it."""

    def __init__(self, uri: str, stack: ExitStack) -> None:
        self.uri = uri
        self._stack = stack
        self.reader: TableReader = stack.enter_context(open_tables(uri))

    def writer(self, retry_s: float = RETRY_S) -> RedisWriter:
        writer = RedisWriter(parse_redis_uri(self.uri), retry_s=retry_s)
        self._stack.callback(writer.close)
        return writer

    def follower(self, log: MemoryLog, retry_s: float = RETRY_S) -> TableFollower:
        identity = log.initialize(log_id=LOG_ID, replica=True)
        follower = TableFollower(log, self.writer(retry_s), identity)
        follower.start()
        return follower


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tables(redis_server: Redis, redis_prefix: str, stack: ExitStack) -> Tables:
    return Tables(f"{redis_server.uri}?prefix={redis_prefix}", stack)


def test_two_writers_at_once_and_stale_batches_change_nothing(tables: Tables, seed: int) -> None:
    rng = random.Random(seed)
    records = random_records(rng, 1_500)
    log = RecordsLog(records[:50])
    followers = [tables.follower(log) for _ in range(2)]
    errors: list[BaseException] = []

    def follow(follower: TableFollower, stream: random.Random) -> None:
        try:
            while follower.position <= records[-1].position:
                # Batches of other sizes than the other writer's, so that most meet it midway.
                follower.take(log.scan(follower.position, stream.randrange(1, 40)))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [
        threading.Thread(target=follow, args=(follower, random.Random(f"{seed}-{n}")))
        for n, follower in enumerate(followers)
    ]
    for thread in threads:
        thread.start()
    for start in range(50, len(records), 10):
        log.extend(records[start : start + 10])
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert tables.reader.status().position == records[-1].position + 1
    assert verify_tables(log, tables.reader) == []
    assert [follower.restarts for follower in followers] == [0, 0]


def test_a_batch_sent_again_is_refused_and_says_where_the_tables_are(tables: Tables) -> None:
    fold = TableFold()
    records = plain_log(30)
    first, second = fold.apply(records[:10]), fold.apply(records[10:])
    writer, other = tables.writer(), tables.writer()
    for each in (writer, other):
        each.start(str(LOG_ID))
    assert writer.write(first) is None
    assert writer.flush() is None
    assert other.write(first) is None
    assert other.flush() is None
    assert tables.reader.applied() == 10
    other.clear(str(LOG_ID), other.status())
    stale = writer.write(second) or writer.flush()
    assert isinstance(stale, Stale)
    assert stale.status.position == 0
    assert tables.reader.applied() == 0


def test_flushed_tables_are_made_anew(new_redis: Callable[..., Redis], stack: ExitStack) -> None:
    server = new_redis()
    tables = Tables(f"{server.uri}?prefix=p", stack)
    log = RecordsLog(plain_log(300))
    follower = tables.follower(log)
    follower.catch_up()
    server.flush()
    follower.check()
    assert follower.restarts == 1
    assert verify_tables(log, tables.reader) == []
    server.flush()
    log.extend([record(300, event("v1.partition.observed", "p1", {}, n=300))])
    follower.take(log.scan(300))
    assert tables.reader.applied() == 301
    assert verify_tables(log, tables.reader) == []


def test_an_older_dump_is_brought_up_to_date(
    new_redis: Callable[..., Redis], stack: ExitStack, seed: int
) -> None:
    server = new_redis(persistence="dump")
    tables = Tables(f"{server.uri}?prefix=p", stack)
    records = random_records(random.Random(seed), 900)
    log = RecordsLog(records[:300])
    follower = tables.follower(log)
    follower.catch_up()
    server.dump()
    saved = tables.reader.status()
    log.extend(records[300:600])
    follower.catch_up()
    with server.connect() as client:
        # So that the kill finds no newer dump.
        client.config_set("save", "")
    server.kill()
    server.start()
    assert tables.reader.status().position == saved.position
    log.extend(records[600:])
    follower.take(log.scan(follower.position))
    assert tables.reader.status().position == records[-1].position + 1
    assert verify_tables(log, tables.reader) == []


def test_redis_may_restart_between_and_within_batches(
    new_redis: Callable[..., Redis], stack: ExitStack
) -> None:
    server = new_redis(persistence="append")
    tables = Tables(f"{server.uri}?prefix=p", stack)
    log = RecordsLog(plain_log(20_000))
    follower = tables.follower(log)
    restarted = False

    def restart(progress: Progress) -> None:
        nonlocal restarted
        if progress.position >= 5_000 and not restarted:
            restarted = True
            server.restart()

    follower.catch_up(on_progress=restart)
    assert restarted
    assert verify_tables(log, tables.reader) == []


def test_redis_that_stays_away_is_an_error_that_may_be_retried(
    new_redis: Callable[..., Redis], stack: ExitStack
) -> None:
    server = new_redis()
    tables = Tables(f"{server.uri}?prefix=p", stack)
    log = RecordsLog(plain_log(10))
    follower = tables.follower(log, retry_s=0.3)
    server.kill()
    with pytest.raises(Unavailable) as caught:
        follower.catch_up()
    assert caught.value.retriable
    with pytest.raises(Unavailable):
        tables.reader.get(PartitionRow, "p1")
    server.start()
    follower.start()
    follower.catch_up()
    assert verify_tables(log, tables.reader) == []


def test_tables_of_another_log_or_schema_are_made_anew(tables: Tables, redis_server: Redis) -> None:
    other = tables.writer()
    other.start(str(OTHER_LOG_ID))
    log = RecordsLog(plain_log(40))
    follower = tables.follower(log)
    follower.catch_up()
    assert verify_tables(log, tables.reader) == []
    meta = f"{{{parse_redis_uri(tables.uri).prefix}}}:meta"
    with redis_server.connect() as client:
        client.hset(meta, "schema_version", 0)
        again = tables.follower(log)
        again.catch_up()
        assert verify_tables(log, tables.reader) == []
        client.hset(meta, "schema_version", 99)
    with pytest.raises(NewerFormat):
        tables.follower(log)


def test_a_running_follower_does_not_fight_for_its_prefix(tables: Tables) -> None:
    log = RecordsLog(plain_log(20))
    follower = tables.follower(log)
    follower.catch_up()
    tables.writer().start(str(OTHER_LOG_ID))
    with pytest.raises(LogReplaced):
        follower.check()


def test_tables_made_anew_leave_nothing_behind(tables: Tables, redis_server: Redis) -> None:
    log = RecordsLog(plain_log(200))
    follower = tables.follower(log)
    follower.catch_up()
    tag = f"{{{parse_redis_uri(tables.uri).prefix}}}:"
    with redis_server.connect() as client:
        before = sum(1 for _ in client.scan_iter(match=f"{tag}*"))
        follower.rebuild()
        assert tables.reader.applied() == 0
        assert tables.reader.get(PartitionRow, "p1").value is None
        follower.catch_up()
        assert sum(1 for _ in client.scan_iter(match=f"{tag}*")) == before
    assert verify_tables(log, tables.reader) == []


def test_tables_ahead_of_their_log_are_refused(tables: Tables) -> None:
    tables.follower(RecordsLog(plain_log(30))).catch_up()
    shorter = RecordsLog(plain_log(20))
    with pytest.raises(LogTruncated):
        tables.follower(shorter)
    with pytest.raises(LogTruncated):
        worker_status(shorter, tables.reader)


def test_tables_ahead_of_their_log_are_made_anew_when_asked_to(tables: Tables) -> None:
    tables.follower(RecordsLog(plain_log(30))).catch_up()
    log = RecordsLog(plain_log(20))
    identity = log.initialize(log_id=LOG_ID, replica=True)
    follower = TableFollower(log, tables.writer(), identity)
    follower.rebuild()
    assert follower.catch_up() == 20
    assert verify_tables(log, tables.reader) == []


@pytest.mark.parametrize("regrown", [30, 31, 40])
def test_a_log_that_lost_its_end_and_grew_again_is_noticed(tables: Tables, regrown: int) -> None:
    tables.follower(RecordsLog(plain_log(30))).catch_up()
    others = [
        record(n, event("v1.partition.removed", f"p{n - 20}", {}, n=1_000 + n), T0 + 7_000 + n)
        for n in range(25, regrown)
    ]
    log = RecordsLog([*plain_log(25), *others])
    with pytest.raises(Diverged) as caught:
        tables.follower(log).catch_up()
    assert caught.value.index == 30
    standing_by = tables.follower(log)
    with pytest.raises(Diverged):
        standing_by.stand_by()
    # The same where nothing was written but what was there: the follower goes on.
    assert tables.follower(RecordsLog(plain_log(31))).catch_up() == 31


def test_redis_that_throws_keys_away_is_refused(
    new_redis: Callable[..., Redis], stack: ExitStack
) -> None:
    server = new_redis()
    with server.connect() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    tables = Tables(f"{server.uri}?prefix=p", stack)
    with pytest.raises(Misconfigured) as caught:
        tables.follower(RecordsLog(plain_log(5)))
    assert caught.value.setting == "maxmemory-policy"


def test_a_replay_ends_at_an_index_or_time_and_goes_on(tables: Tables) -> None:
    log = RecordsLog(plain_log(100))
    follower = tables.follower(log)
    assert follower.catch_up(until=Until(index=40)) == 40
    assert tables.reader.applied() == 40
    assert verify_tables(log, tables.reader) == []
    assert follower.catch_up(until=Until(created_us=T0 + 60)) == 61
    stop = Stop()
    stop.set()
    assert follower.catch_up(stop=stop) == 61
    assert follower.catch_up() == 100
    assert verify_tables(log, tables.reader) == []


def test_standing_by_writes_nothing_and_takes_over_midway(tables: Tables, seed: int) -> None:
    records = random_records(random.Random(seed), 600)
    log = RecordsLog(records[:200])
    active, standby = tables.follower(log), tables.follower(log)
    active.catch_up()
    standby.stand_by()
    assert standby.position == active.position
    log.extend(records[200:400])
    standby.stand_by()
    assert tables.reader.status().position == active.position == standby.position
    active.catch_up()
    log.extend(records[400:])
    standby.take(log.scan(standby.position))
    active.take(log.scan(active.position))
    assert verify_tables(log, tables.reader) == []


def fields_of(server: Redis, tables: Tables, row: str) -> dict[bytes, bytes]:
    tag = f"{{{parse_redis_uri(tables.uri).prefix}}}"
    with server.connect() as client:
        key = f"{tag}:{tables.reader.status().generation}:{row}"
        return cast("dict[bytes, bytes]", client.hgetall(key))


def test_rows_can_be_read_by_a_person(tables: Tables, redis_server: Redis) -> None:
    refs: list[JsonValue] = ["s3://bucket/é", 'back\\/slash "quoted"']
    what = event("v1.partition.observed", "p", {"upstream_deps": refs, "source": "a/b"}, n=1)
    job = event("v1.job.scheduled", "r/1", {"build_request_id": "b", "outputs": refs}, n=2)
    records = [record(0, created()), record(1, what), record(2, job)]
    tables.follower(RecordsLog(records)).catch_up()
    fields = fields_of(redis_server, tables, "partition:p")
    assert fields[b"state"] == b"available"
    assert fields[b"updated_at"] == str(T0 + 1).encode()
    assert fields[b"updated_at_iso"] == b"2025-06-15T15:06:40.000001Z"
    data = json.loads(fields[b"available"])
    assert (data["upstream_deps"], data["source"]) == (refs, "a/b")
    assert fields[b"available_at_iso"] == fields[b"updated_at_iso"]
    assert b"attempt" not in fields
    run = fields_of(redis_server, tables, "job_run:r/1")
    text = run[b"outputs"].decode()
    assert text == r'["s3://bucket/é","back\\/slash \"quoted\""]'
    assert json.loads(text) == refs


def test_times_are_those_of_the_calendar(tables: Tables, redis_server: Redis, seed: int) -> None:
    rng = random.Random(seed)
    epoch, last = datetime(1970, 1, 1, tzinfo=UTC), datetime(2255, 6, 5, tzinfo=UTC)
    moments = [epoch, *sorted(epoch + (last - epoch) * rng.random() for _ in range(300)), last]
    times = [(moment - epoch) // timedelta(microseconds=1) for moment in moments]
    what = [created(), *(event("v1.partition.observed", f"p{n}", {}, n=n) for n in range(302))]
    # No row holds a time past what a double holds exactly.
    log = RecordsLog(
        [
            record(n, item, at)
            for n, (item, at) in enumerate(zip(what, [*times, 2**60], strict=True))
        ]
    )
    tables.follower(log).catch_up()
    for n, moment in enumerate(moments[1:]):
        text = fields_of(redis_server, tables, f"partition:p{n}")[b"updated_at_iso"].decode()
        assert text == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert verify_tables(log, tables.reader) == []


@pytest.mark.parametrize(
    ("key", "damage", "what"),
    [
        ("partition:p1", ("HSET", "state", "lost"), "row"),
        ("partition:p1", ("DEL",), "missing"),
        ("counts", ("HINCRBY", "partition:available", "1"), "count"),
        ("ix:partition:all", ("ZADD", "7", "p1"), "index"),
        ("ix:partition:state:gone", ("ZADD", "7", "p1"), "index"),
        ("ids:partition", ("ZADD", "0", "p999"), "index"),
    ],
)
def test_verify_finds_each_kind_of_damage(
    tables: Tables, redis_server: Redis, key: str, damage: tuple[str, ...], what: str
) -> None:
    log = RecordsLog(plain_log(100))
    tables.follower(log).catch_up()
    generation = tables.reader.status().generation
    base = f"{{{parse_redis_uri(tables.uri).prefix}}}:{generation}:"
    command, *arguments = damage
    with redis_server.connect() as client:
        client.execute_command(command, base + key, *arguments)
        if command == "DEL":
            client.execute_command("ZREM", f"{base}ids:partition", "p1")
        if key.startswith("ids:"):
            client.execute_command("HSET", f"{base}partition:p999", "ref", "p999", *row_fields())
    assert what in {difference.what for difference in verify_tables(log, tables.reader)}


def row_fields() -> list[str]:
    numbers = ("index", "updated_at", "first_seen", "version")
    return ["state", "available", *(text for name in numbers for text in (name, "1"))]


def test_existing_logs_are_opened_and_never_made() -> None:
    log = RecordsLog(plain_log(2))
    assert open_existing(log).log_id == LOG_ID
    assert log.next_position() == 2


def test_a_log_with_holes_folds_like_any_other(tables: Tables) -> None:
    log = RecordsLog([item for item in plain_log(100) if item.position % 3 == 0])
    tables.follower(log).catch_up()
    assert tables.reader.applied() == 100
    assert verify_tables(log, tables.reader) == []


def test_a_replica_is_as_of_its_origins_index(tables: Tables) -> None:
    indices = [0, 3, 4, 9, 20]
    what = [created(), *(event("v1.partition.observed", f"p{n}", {}, n=n) for n in indices[1:])]
    values = [
        replica_value(item, index, previous)
        for item, index, previous in zip(what, indices, [-1, *indices], strict=False)
    ]
    # The same record twice, as of a second sink, and one that is none.
    values[3:3] = [values[2], b"garbage"]
    log = RecordsLog([Record(n + 5, T0, value) for n, value in enumerate(values)])
    follower = tables.follower(log)
    assert follower.catch_up(until=Until(index=9)) == 5
    assert follower.catch_up() == 21
    status = tables.reader.status()
    assert (status.applied, status.position) == (21, 12)
    assert tables.reader.wait_for(20, 0)
    assert [row.index for row in tables.reader.list_rows(PartitionRow).rows] == [20, 9, 4, 3]
    assert verify_tables(log, tables.reader) == []
