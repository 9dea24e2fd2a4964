"""Replication between every two backends: live, raced, killed, misled, and over several hops."""

import json
import random
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    Corrupt,
    Diverged,
    IndexConflict,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NotFound,
    ReplicaRefused,
)
from belog.schemas.fold import Accepted, Fold, Outcome, Record
from belog.sink import DeadLetterFile, Replication, root_at, run_sink, verify_replica
from belog.storage import CopiedRecord, EventLog, OrderedLog, open_log
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from belog.storage.sqlite import SqliteLog
from tests.examples import event, replica_value
from tests.servers import Broker, eventually

BACKENDS = ("memory", "sqlite", "kafka")
PAIRS = [(a, b) for a in BACKENDS for b in BACKENDS]
LASTING = [(a, b) for a in BACKENDS for b in BACKENDS if "memory" not in {a, b}]

pytestmark = pytest.mark.integration

SINK = """
import sys, threading
from belog.sink import Replication
from belog.storage import open_log
origin, target = open_log(sys.argv[1]), open_log(sys.argv[2])
sink = Replication(origin, target, batch_records_max=int(sys.argv[3]),
                   on_progress=lambda p: print(p.target_index, flush=True))
sink.run(threading.Event())
"""


class Logs:
    """Makes logs of any backend that this test alone uses."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, prefix: str) -> None:
        self._request, self._folder, self._prefix = request, folder, prefix
        self._stack = ExitStack()
        self._memory: dict[str, MemoryLog] = {}

    def uri(self, backend: str, name: str) -> str:
        if backend == "sqlite":
            return f"sqlite:///{self._folder / name}.db"
        broker: Broker = self._request.getfixturevalue("broker")
        return f"{broker.uri}/{self._prefix}-{name}"

    def open(self, backend: str, name: str) -> EventLog:
        """Return a log, another object at each call but for one in memory; not initialized."""
        if backend == "memory":
            return self._memory.setdefault(name, MemoryLog(f"memory:{name}"))
        uri = self.uri(backend, name)
        if backend == "kafka":
            create_topic(uri)
        return self._stack.enter_context(open_log(uri))

    def origin(self, backend: str, name: str = "origin") -> EventLog:
        log = self.open(backend, name)
        log.initialize(instance="upstream")
        return log

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def logs(request: pytest.FixtureRequest, tmp_path: Path, topic_name: str) -> Iterator[Logs]:
    made = Logs(request, tmp_path, topic_name)
    yield made
    made.close()


def observed(n: int, message: str | None = None) -> Event:
    body = {"message": message} if message else {}
    return event("v1.partition.observed", f"data://example/{n % 50}", body, n=n + 1)


def observations(start: int, count: int) -> list[Event]:
    return [observed(n) for n in range(start, start + count)]


def mixed(start: int) -> list[Event]:
    """Three accepted events, one illegal one and one repeat."""
    good = observations(start, 3)
    illegal = event("v1.partition.building", f"data://never/{start}", n=start + 900_000)
    return [good[0], illegal, good[1], good[1], good[2]]


def events_of(log: EventLog, since_idx: int = 0) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while True:
        page = log.read(since_idx)
        found += page.events
        since_idx = page.next_idx
        if not page.has_more:
            return found


def assert_equal(origin: EventLog, replica: EventLog) -> None:
    check = verify_replica(origin, replica)
    check.require_equal()
    assert check.origin_root == check.replica_root == origin.end().root == replica.end().root
    assert events_of(replica) == events_of(origin), "index, ids, times and payload bytes are kept"
    assert replica.end().log_id == origin.end().log_id
    assert replica.identify() is not None
    assert replica.initialize(log_id=origin.end().log_id, replica=True).is_replica


def assert_void_are_removed(log: EventLog) -> None:
    """Each record of a topic that changes nothing has a tombstone, so compaction removes it."""
    records = log.scan(0)
    fold = Fold()
    void = {r.key for r in records if r.value and not is_accepted(fold.apply(r))}
    assert void <= {r.key for r in records if r.value is None}


def is_accepted(outcome: Outcome | None) -> bool:
    return outcome is not None and type(outcome.verdict) is Accepted


@contextmanager
def running(*sinks: Replication) -> Iterator[None]:
    """Run sinks in threads of their own; their errors are the test's."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(sink: Replication) -> None:
        try:
            sink.run(stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(sink,)) for sink in sinks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def writing(log: EventLog, parts: Sequence[Sequence[Event]]) -> threading.Thread:
    def write() -> None:
        for part in parts:
            log.append_batch(part)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def is_complete(origin: EventLog, replica: EventLog) -> bool:
    try:
        return origin.end().root == replica.end().root
    except NotFound:
        return False


# --- what is replicated


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_a_replica_follows_its_origin_live(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.origin(source), logs.open(sink, "replica")
    with running(Replication(origin, target, batch_records_max=40)):
        writers = [
            writing(origin, [observations(1_000 * w + 20 * n, 20) for n in range(10)])
            for w in range(3)
        ]
        for writer in writers:
            writer.join()
        eventually(lambda: is_complete(origin, target), "the replica is complete")
    assert_equal(origin, target)
    assert target.statistics().events == 601


@pytest.mark.parametrize("source", ["memory", "kafka"])
@pytest.mark.parametrize("sink", BACKENDS)
def test_only_accepted_events_are_replicated_and_cursors_fit(
    logs: Logs, source: str, sink: str, seed: int
) -> None:
    origin, target = logs.origin(source), logs.open(sink, "replica")
    for start in range(0, 30, 3):
        origin.append_batch(mixed(start))
    Replication(origin, target).run_once()
    assert_equal(origin, target)
    counts = target.statistics()
    assert (counts.events, counts.void, counts.duplicates) == (31, 0, 0)
    indices = [stored.index for stored in events_of(target)]
    assert indices != list(range(len(indices))), "the origin has holes, and so has the replica"
    chosen = random.Random(seed)
    for _ in range(20):
        since, limit = chosen.randrange(0, 52), chosen.randrange(1, 9)
        assert target.read(since, limit=limit).events == origin.read(since, limit=limit).events
        assert target.get(since) == origin.get(since)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_a_sink_resumes_from_what_the_target_holds(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.origin(source), logs.open(sink, "replica")
    for start in range(0, 100, 20):
        origin.append_batch(observations(start, 20))
        again = Replication(logs.open(source, "origin"), logs.open(sink, "replica"))
        assert again.run_once().written == (21 if start == 0 else 20)
        status = again.status()
        assert (status.lag_records, status.lag_s, status.target_index) == (0, 0.0, start + 20)
    Replication(origin, target).run_once()
    assert_equal(origin, target)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_a_chain_keeps_identity_and_indices(logs: Logs, source: str, sink: str) -> None:
    origin = logs.origin(source)
    middle, last = logs.open(sink, "middle"), logs.open(source, "last")
    for start in range(0, 12, 3):
        # Into SQLite nobody appends what was not judged.
        origin.append_batch(observations(start, 3) if source == "sqlite" else mixed(start))
    Replication(origin, middle).run_once()
    Replication(middle, last).run_once()
    assert_equal(origin, last)
    values = [r.value for r in last.scan(0)]
    assert values == [r.value for r in middle.scan(0)], "passed on byte for byte"


@pytest.mark.parametrize("sink", BACKENDS)
def test_large_batches_are_read_ahead(logs: Logs, sink: str) -> None:
    origin, target = logs.origin("memory"), logs.open(sink, "replica")
    ahead: list[int] = []
    for start in range(0, 12_000, 4_000):
        origin.append_batch(observations(start, 4_000))
    Replication(
        origin,
        target,
        batch_records_max=2_500,
        on_progress=lambda p: ahead.append(p.queued),
    ).run_once()
    assert max(ahead) == 2_500
    assert_equal(origin, target)


def test_a_refused_event_amid_a_large_batch(logs: Logs, tmp_path: Path) -> None:
    origin, target = logs.origin("memory"), SmallLog("memory:replica")
    for start in (0, 3_000):
        origin.append_batch(observations(start, 1_700))
        origin.append(observed(start + 1_700, message="x" * SMALL_BYTES))
        origin.append_batch(observations(start + 1_701, 1_200))
    letters = DeadLetterFile(tmp_path / "dead.jsonl")
    sink = Replication(origin, target, dead_letters=letters)
    sink.run_once()
    assert sink.status().omitted == (1_701, 4_602)
    assert verify_replica(origin, target).first_difference is None
    assert target.end().next_idx == origin.end().next_idx


def test_status_says_how_far_a_sink_lags(logs: Logs) -> None:
    origin = MemoryLog("memory:origin", clock=lambda: 1_000_000)
    origin.initialize()
    sink = Replication(origin, logs.open("memory", "replica"), clock=lambda: 4_500_000)
    sink.run_once()
    origin.append_batch(observations(0, 7))
    assert (sink.status().lag_records, sink.status().lag_s) == (7, 3.5)


# --- several sinks


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_two_sinks_at_once_make_one_replica(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.origin(source), logs.open(sink, "replica")
    origin.append_batch(observations(0, 200))
    sinks = [
        Replication(logs.open(source, "origin"), logs.open(sink, "replica"), batch_records_max=7)
        for _ in range(2)
    ]
    with running(*sinks):
        writing(origin, [observations(200 + 5 * n, 5) for n in range(20)]).join()
        target_log = logs.open(sink, "replica")
        target_log.initialize(log_id=origin.end().log_id, replica=True)
        eventually(lambda: is_complete(origin, target_log), "the replica is complete")
    target.initialize(log_id=origin.end().log_id, replica=True)
    assert_equal(origin, target)
    assert target.statistics().events == 301
    if sink == "kafka":
        assert_void_are_removed(target)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_a_zombie_sink_changes_nothing(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.origin(source), logs.open(sink, "replica")
    zombie = Replication(logs.open(source, "origin"), logs.open(sink, "replica"))
    zombie.run_once()
    origin.append_batch(observations(0, 10))
    Replication(origin, target).run_once()
    first = target.scan(0, 1)[0]
    stale = [CopiedRecord(0, first.created_at, first.value or b"")]
    with pytest.raises(IndexConflict):
        target.copy_records(stale, after=-1)
    if isinstance(target, OrderedLog):
        resend(target, target.scan(0))
    assert_equal(origin, target)
    zombie.run_once()
    origin.append_batch(observations(10, 10))
    zombie.run_once()
    assert_equal(origin, target)
    assert target.statistics().events == 21


def resend(log: OrderedLog, records: Sequence[Record]) -> None:
    """Write records again, as a sink would that thinks it is somewhere else."""
    reports: list[int] = []
    for item in records:
        log.send(uuid.uuid4().bytes, item.value or b"", lambda r: reports.append(r.position))
    eventually(lambda: len(reports) == len(records), "all are written")


def test_a_sink_that_comes_between_two_copies_is_noticed(logs: Logs) -> None:
    origin, target = logs.origin("memory"), logs.open("kafka", "replica")
    slow = Replication(origin, target)
    slow.run_once()
    origin.append_batch(observations(0, 10))
    Replication(origin, logs.open("kafka", "replica")).run_once()
    held = target.scan(0)
    stale = [CopiedRecord(n, r.created_at, r.value or b"") for n, r in enumerate(held)]
    with pytest.raises(IndexConflict):
        target.copy_records(stale[1:5], after=0)
    records = target.scan(0)
    assert [r.value for r in records[11:]] == [*(r.value for r in stale[1:5]), *4 * [None]]
    assert_void_are_removed(target)
    assert slow.run_once().target_index == 10
    assert_equal(origin, target)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("source", "sink"), LASTING)
def test_a_killed_sink_loses_and_doubles_nothing(
    logs: Logs, source: str, sink: str, seed: int
) -> None:
    chosen = random.Random(f"{seed}-{source}-{sink}")
    origin = logs.origin(source)
    logs.open(sink, "replica")
    uris = [logs.uri(source, "origin"), logs.uri(sink, "replica")]
    writer = writing(origin, [observations(10 * n, 10) for n in range(200)])
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", SINK, *uris, str(chosen.randrange(1, 60))],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(chosen.randrange(1, 30)):
                assert process.stdout.readline(), "the sink ended by itself"
            process.kill()
    writer.join()
    run_sink(*uris, stop=threading.Event(), follow=False)
    target = logs.open(sink, "replica")
    target.initialize(log_id=origin.end().log_id, replica=True)
    assert_equal(origin, target)
    assert target.statistics().events == 2_001


# --- what is refused


@pytest.mark.parametrize("sink", BACKENDS)
def test_an_origin_with_another_identity_is_refused(logs: Logs, sink: str) -> None:
    target = logs.open(sink, "replica")
    Replication(logs.origin("memory"), target).run_once()
    before = target.scan(0)
    with pytest.raises(LogReplaced, match="is a replica of"):
        Replication(logs.origin("memory", "other"), logs.open(sink, "replica")).run_once()
    assert target.scan(0) == before


@pytest.mark.parametrize("sink", BACKENDS)
@pytest.mark.parametrize("grown", [False, True])
def test_an_origin_restored_from_a_backup_is_refused(
    logs: Logs, tmp_path: Path, sink: str, *, grown: bool
) -> None:
    with SqliteLog(tmp_path / "backup.db") as backup:
        backup.initialize()
        backup.append_batch(observations(0, 5))
    shutil.copy(tmp_path / "backup.db", tmp_path / "origin.db")
    target = logs.open(sink, "replica")
    origin = logs.origin("sqlite")
    origin.append_batch(observations(5, 5))
    Replication(origin, target).run_once()
    with SqliteLog(tmp_path / "backup.db") as restored:
        restored.initialize()
        if grown:
            restored.append_batch(observations(105, 9))
            with pytest.raises(Diverged, match="index 6") as caught:
                Replication(restored, logs.open(sink, "replica")).run_once()
            assert caught.value.index == 6, "five events and the first are common"
            check = verify_replica(restored, target)
            assert (check.first_difference, check.is_equal) == (6, False)
            assert root_at(restored, 6) == root_at(target, 6)
            assert root_at(restored, 7) != root_at(target, 7)
        else:
            with pytest.raises(LogTruncated, match="last event is 5"):
                Replication(restored, logs.open(sink, "replica")).run_once()
    assert_equal(origin, target)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_a_primary_log_is_no_target(logs: Logs, source: str, sink: str) -> None:
    origin, primary = logs.origin(source), logs.origin(sink, "primary")
    with pytest.raises(ReplicaRefused, match="primary"):
        Replication(origin, primary).run_once()
    assert len(primary.scan(0)) == 1


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_no_log_comes_back_to_itself(logs: Logs, source: str, sink: str) -> None:
    origin, replica = logs.origin(source), logs.open(sink, "replica")
    Replication(origin, replica).run_once()
    with pytest.raises(ReplicaRefused, match="itself, not a replica"):
        Replication(replica, logs.open(source, "origin")).run_once()
    with pytest.raises(ReplicaRefused, match="into itself"):
        Replication(origin, logs.open(source, "origin")).run_once()
    with pytest.raises(ReplicaRefused, match="into itself"):
        Replication(replica, logs.open(sink, "replica")).run_once()


def test_an_origin_is_never_created(logs: Logs, tmp_path: Path) -> None:
    uris = f"sqlite:///{tmp_path}/typo.db", f"sqlite:///{tmp_path}/replica.db"
    with pytest.raises(NotFound, match="no log yet"):
        run_sink(*uris, stop=threading.Event(), follow=False)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert run_sink(*uris, stop=stop).written == 0
    assert list(tmp_path.iterdir()) == []
    origin = logs.origin("memory")
    with pytest.raises(NotFound, match=r".*") as caught:
        Replication(origin, open_log(logs.uri("kafka", "nowhere"))).run_once()
    assert "topic create" in caught.value.hint


@pytest.mark.parametrize("sink", ["memory", "sqlite"])
def test_a_foreign_record_in_a_replica_is_named(logs: Logs, sink: str) -> None:
    origin, target = logs.origin("memory"), logs.open(sink, "replica")
    Replication(origin, target).run_once()
    foreign = replica_value(observed(0), 1, 0)
    target.copy_records([CopiedRecord(1, 1, foreign)], after=0)
    origin.append_batch(observations(0, 3))
    with pytest.raises(Corrupt, match="not of its origin"):
        Replication(origin, target).run_once()


# --- what a target refuses

SMALL_BYTES = 2_000


class SmallLog(MemoryLog):
    """A log that takes small records only."""

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        for item in records:
            if len(item.value) > SMALL_BYTES:
                raise LimitExceeded(
                    "record",
                    limit="SMALL_BYTES",
                    limit_value=SMALL_BYTES,
                    value=len(item.value),
                )
        super().copy_records(records, after=after)


def shrink(broker: Broker, topic: str) -> None:
    """Let a topic take small records only, as an administrator might who knows no better."""
    entry = ConfigEntry(
        "max.message.bytes", str(SMALL_BYTES), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def refusing(logs: Logs, backend: str, topic_name: str, broker: Broker) -> EventLog:
    if backend == "memory":
        return SmallLog("memory:replica")
    log = logs.open("kafka", "replica")
    log.identify()
    shrink(broker, f"{topic_name}-replica")
    return log


@pytest.mark.parametrize("backend", ["memory", "kafka"])
def test_a_refused_event_is_a_dead_letter_and_the_rest_flows(
    logs: Logs, tmp_path: Path, backend: str, topic_name: str, broker: Broker
) -> None:
    origin, target = logs.origin("memory"), refusing(logs, backend, topic_name, broker)
    origin.append_batch(observations(0, 30))
    origin.append(observed(30, message="x" * SMALL_BYTES))
    origin.append_batch(observations(31, 30))
    with pytest.raises(LimitExceeded) as caught:
        Replication(origin, target).run_once()
    assert (caught.value.index, target.end().next_idx) == (31, 31), "all before it is there"
    letters = tmp_path / "dead.jsonl"
    sink = Replication(origin, target, dead_letters=DeadLetterFile(letters))
    sink.run_once()
    assert [json.loads(line)["index"] for line in letters.read_text().splitlines()] == [31]
    assert sink.status().omitted == (31,)
    check = verify_replica(origin, target)
    assert (tuple(check.omitted), check.first_difference, check.is_equal) == ((31,), None, False)
    with pytest.raises(Diverged, match="stand shortened"):
        check.require_equal()
    ours, theirs = events_of(origin), events_of(target)
    assert [(e.index, e.event.event_id) for e in theirs] == [
        (e.index, e.event.event_id) for e in ours
    ]
    assert [e.index for e, f in zip(ours, theirs, strict=True) if e != f] == [31]
    if backend == "kafka":
        assert_void_are_removed(target)
    # A new sink knows the omission from the target alone, and goes on.
    origin.append_batch(observations(61, 5))
    again = Replication(origin, target)
    assert (again.run_once().written, again.status().omitted) == (5, (31,))
    # A replica of that replica is equal to it.
    last = logs.open("sqlite", "last")
    Replication(target, last).run_once()
    assert_equal(target, last)


def test_too_many_dead_letters_stop_the_sink(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belog.sink.replicate.DEAD_LETTERS_MAX", 3)
    origin, target = logs.origin("memory"), SmallLog()
    origin.append_batch([observed(n, message="x" * SMALL_BYTES) for n in range(5)])
    letters = DeadLetterFile(tmp_path / "dead.jsonl")
    with pytest.raises(LimitExceeded, match="DEAD_LETTERS_MAX"):
        Replication(origin, target, dead_letters=letters).run_once()
    assert target.end().next_idx == 4
    with pytest.raises(LimitExceeded, match="DEAD_LETTERS_MAX"):
        Replication(origin, target, dead_letters=letters).run_once()


# --- a server that goes away


@pytest.mark.timeout(240)
def test_a_broker_that_dies_is_waited_for(
    logs: Logs, topic_name: str, new_broker: Callable[..., Broker]
) -> None:
    broker = new_broker()
    uri = f"{broker.uri}/{topic_name}"
    create_topic(uri)
    origin = logs.origin("memory")
    with open_log(uri) as target:
        sink = Replication(origin, target, batch_records_max=20)
        with running(sink):
            origin.append_batch(observations(0, 500))
            eventually(lambda: sink.status().target_index > 100, "it runs")
            broker.kill()
            origin.append_batch(observations(500, 500))
            broker.start()
            eventually(lambda: is_complete(origin, target), "it goes on", timeout_s=120)
        assert_equal(origin, target)
