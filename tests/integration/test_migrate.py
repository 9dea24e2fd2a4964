"""Migration between every two stores: what is kept, what is refused, and going on after a kill."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Diverged,
    Gone,
    LogReplaced,
    LogTruncated,
    NotFound,
    Unsupported,
)
from belog.schemas.payload import JsonValue
from belog.sink import Bound, MigrationProgress, Replication, migrate_log, verify_replica
from belog.storage import CopiedRecord, EventLog, open_log
from belog.storage.interface import Removal
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from tests.examples import LOG_ID, OTHER_LOG_ID, event
from tests.servers import Broker, Postgres, eventually

BACKENDS = ("memory", "sqlite", "file", "delta", "postgres", "kafka")
LASTING = BACKENDS[1:]
PAIRS = [(a, b) for a in BACKENDS for b in BACKENDS]
KILLS_MAX = 8
"""Kills of one migration before it is let run to its end."""

pytestmark = pytest.mark.integration

MIGRATE = """
import sys
from belog.sink import migrate_log
from belog.storage import open_log
with open_log(sys.argv[1]) as origin, open_log(sys.argv[2]) as target:
    migrate_log(origin, target, batch_records_max=int(sys.argv[3]),
                on_progress=lambda p: print(p.step, p.position, flush=True))
"""


class Logs:
    """Makes logs of any backend that this test alone uses."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, name: str) -> None:
        self._request, self._folder, self._name = request, folder, name
        self._stack = ExitStack()
        self._memory: dict[str, MemoryLog] = {}

    def uri(self, backend: str, name: str) -> str:
        if backend == "kafka":
            broker: Broker = self._request.getfixturevalue("broker")
            return f"{broker.uri}/{self._name.replace('_', '-')}-{name}"
        if backend == "postgres":
            server: Postgres = self._request.getfixturevalue("postgres_server")
            schema: str = self._request.getfixturevalue("postgres_schema")
            return f"{server.uri}?schema={schema}&log={name}"
        return f"{backend}:///{self._folder / f'{name}.{backend}'}"

    def open(self, backend: str, name: str) -> EventLog:
        """Return a log, another object at each call but for one in memory; not initialized."""
        if backend == "memory":
            return self._memory.setdefault(name, MemoryLog(f"memory:{name}"))
        uri = self.uri(backend, name)
        if backend == "kafka":
            create_topic(uri)
        return self._stack.enter_context(open_log(uri))

    def origin(self, backend: str, count: int = 30) -> EventLog:
        log = self.open(backend, "origin")
        log.initialize(instance="here", log_id=LOG_ID)
        if count:
            log.append_batch(observations(1, count))
        return log

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def logs(request: pytest.FixtureRequest, tmp_path: Path, unique_name: str) -> Iterator[Logs]:
    made = Logs(request, tmp_path, unique_name)
    yield made
    made.close()


def observed(n: int) -> Event:
    return event("v1.partition.observed", f"data://example/{n % 50}", {"source": f"s{n}"}, n=n)


def observations(start: int, count: int) -> list[Event]:
    return [observed(n) for n in range(start, start + count)]


def events_of(log: EventLog) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    since_idx = 0
    while True:
        page = log.read(since_idx)
        found += page.events
        since_idx = page.next_idx
        if not page.has_more:
            return found


def values_of(log: EventLog) -> list[tuple[int, bytes]]:
    """Index and value of each record; a topic's void records and tombstones are left out."""
    accepted = {stored.index for stored in events_of(log)}
    return [(r.position, r.value) for r in log.scan(0) if r.value and r.position in accepted]


def assert_same(origin: EventLog, target: EventLog) -> None:
    assert values_of(target) == values_of(origin)
    assert (target.end().root, target.end().log_id) == (origin.end().root, origin.end().log_id)
    if target.capabilities.explicit_index:
        assert events_of(target) == events_of(origin)


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_every_store_to_every_other(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.origin(source), logs.open(sink, "target")
    report = migrate_log(origin, target, batch_records_max=7)
    assert (report.events, report.copied, report.last_index) == (31, 31, 30)
    assert (report.log_id, report.root) == (LOG_ID, origin.end().root)
    assert report.keeps_times == (sink != "kafka")
    assert_same(origin, target)
    origin.append_batch(observations(31, 12))
    again = migrate_log(origin, target)
    assert (again.events, again.copied) == (43, 12)
    assert_same(origin, target)
    assert migrate_log(origin, target).copied == 0
    assert target.append(observed(99)).index == 43, "the copy is a log that can be written to"
    assert target.identify() == origin.identify()


@pytest.mark.parametrize("sink", BACKENDS)
def test_holes_stay_holes(logs: Logs, sink: str) -> None:
    origin, target = logs.origin("kafka", 0), logs.open(sink, "target")
    void = event("v1.partition.building", "data://never", n=1_000)
    for n in range(1, 20, 3):
        origin.append_batch([observed(n), void, observed(n), observed(n + 1)])
    report = migrate_log(origin, target, batch_records_max=3)
    assert report.events == 15
    assert [stored.index for stored in events_of(target)] == [
        0,
        *(4 * n + k for n in range(7) for k in (1, 4)),
    ]
    assert_same(origin, target)
    statistics = target.statistics()
    assert (statistics.void, statistics.duplicates) == (0, 0)
    assert statistics.gaps + statistics.tombstones == 14


@pytest.mark.parametrize(("source", "sink"), [("kafka", "kafka"), ("sqlite", "kafka")])
def test_a_log_that_does_not_start_at_0(logs: Logs, source: str, sink: str) -> None:
    origin, target = logs.open(source, "origin"), logs.open(sink, "target")
    before = logs.origin("memory", 9)
    # As in a topic where the first record lost a race.
    copies = [CopiedRecord(r.position + 2, r.created_at, r.value or b"") for r in before.scan(0)]
    origin.initialize(instance="here", log_id=LOG_ID, empty=True)
    origin.copy_records(copies, after=-1)
    assert migrate_log(origin, target).last_index == 11
    assert_same(origin, target)
    assert [r.value for r in target.scan(0, 3)][:2] == [None, None]


@pytest.mark.parametrize("sink", ["sqlite", "kafka"])
def test_until_and_on(logs: Logs, sink: str) -> None:
    times = iter(range(1_000, 9_000, 100))
    origin = MemoryLog("memory:origin", clock=lambda: next(times))
    origin.initialize(log_id=LOG_ID)
    for n in range(1, 20):
        origin.append(observed(n))
    target = logs.open(sink, "target")
    assert migrate_log(origin, target, bound=Bound(index=5)).last_index == 4
    assert migrate_log(origin, target, bound=Bound(created_us=2_100)).last_index == 10
    with pytest.raises(LogTruncated, match="up to 10"):
        migrate_log(origin, target, bound=Bound(index=10))
    assert migrate_log(origin, target).copied == 9
    assert_same(origin, target)


@pytest.mark.parametrize("sink", BACKENDS)
def test_other_targets_are_refused_and_stay_as_they_are(logs: Logs, sink: str) -> None:
    origin = logs.origin("memory", 9)
    other = logs.open(sink, "other")
    other.initialize(log_id=OTHER_LOG_ID)
    with pytest.raises(LogReplaced):
        migrate_log(origin, other)
    assert other.next_position() == 1
    target = logs.open(sink, "target")
    migrate_log(origin, target)
    target.append(observed(50))
    with pytest.raises(LogTruncated):
        migrate_log(origin, target)
    origin.append(observed(51))
    with pytest.raises(Diverged):
        migrate_log(origin, target)
    assert target.next_position() == 11
    with pytest.raises(LogReplaced, match="itself"):
        migrate_log(target, target)
    replica = logs.open(sink, "replica")
    Replication(origin, replica).run_once()
    with pytest.raises(LogReplaced, match="a replica"):
        migrate_log(origin, replica)


def test_an_origin_that_is_not_there_is_not_made(logs: Logs, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        migrate_log(logs.open("sqlite", "origin"), logs.open("file", "target"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sink", BACKENDS)
@pytest.mark.parametrize("source", ["sqlite", "kafka"])
def test_a_replica_is_migrated_as_a_replica(logs: Logs, source: str, sink: str) -> None:
    origin = logs.origin("kafka", 0)
    void = event("v1.partition.building", "data://never", n=1_000)
    for n in range(1, 20, 2):
        origin.append_batch([observed(n), void, observed(n + 1)])
    replica, target = logs.open(source, "replica"), logs.open(sink, "target")
    sink_of_origin = Replication(origin, replica)
    sink_of_origin.run_once()
    report = migrate_log(replica, target, batch_records_max=4)
    assert (report.is_replica, report.keeps_times, report.events) == (True, True, 21)
    verify_replica(origin, target).require_equal()
    assert events_of(target) == events_of(origin)
    origin.append_batch(observations(30, 5))
    sink_of_origin.run_once()
    assert migrate_log(replica, target).copied == 5
    verify_replica(origin, target).require_equal()


@pytest.mark.parametrize("source", ["sqlite", "postgres", "file", "kafka"])
def test_a_vacuumed_origin_is_refused(logs: Logs, source: str) -> None:
    origin, target = logs.origin(source), logs.open("sqlite", "target")
    body: dict[str, JsonValue] = {"horizon": 9, "removed_count": 5, "snapshot": "file:///s"}
    origin.append(event("v1.system.vacuumed", str(LOG_ID), body, n=900))
    with pytest.raises(Unsupported, match="vacuumed"):
        migrate_log(origin, target)
    keys = {record.position: record.key for record in origin.scan(0)}
    if source != "kafka":  # where compaction takes its time
        origin.remove([Removal(n, keys[n]) for n in range(2, 7)])
        with pytest.raises(Gone, match="vacuumed"):
            migrate_log(origin, logs.open("sqlite", "another"))


def test_progress_names_its_steps(logs: Logs) -> None:
    origin, target = logs.origin("sqlite", 50), logs.open("file", "target")
    seen: list[MigrationProgress] = []
    migrate_log(origin, target, bound=Bound(index=20))
    migrate_log(origin, target, batch_records_max=10, on_progress=seen.append)
    steps = list(dict.fromkeys(progress.step for progress in seen))
    assert steps == ["looking", "proving", "copying", "verifying"]
    assert [p.position for p in seen if p.step == "verifying"] == [10, 20, 30, 40, 50, 51]
    assert all(0 < p.position <= p.end_position <= 51 for p in seen)


@pytest.mark.parametrize("sink", LASTING)
def test_goes_on_after_kill_9(logs: Logs, sink: str, seed: int) -> None:
    origin = logs.origin("sqlite", 1_500)
    logs.open(sink, "target")
    uris = [logs.uri("sqlite", "origin"), logs.uri(sink, "target")]
    rng = random.Random(f"{seed}-kill")
    copied = 0
    for _ in range(KILLS_MAX):
        command = [sys.executable, "-c", MIGRATE, *uris, str(rng.randint(5, 40))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            left = rng.randint(0, 6)
            for line in process.stdout:
                left -= line.startswith("copying")
                if left < 0:
                    break
            process.kill()
        target = logs.open(sink, "target")
        target.initialize(log_id=LOG_ID, empty=True)
        held = target.next_position()
        assert held >= copied
        copied = held
    assert 0 < copied < 1_501
    report = finished(logs, origin, sink)
    assert report == 1_501
    assert_same(origin, opened(logs.open(sink, "target")))


def finished(logs: Logs, origin: EventLog, sink: str) -> int:
    """Migrate to the end, once the server let go of the killed process's writes."""
    events = 0

    def is_done() -> bool:
        nonlocal events
        try:
            events = migrate_log(origin, logs.open(sink, "target")).events
        except BelogError as error:
            if not error.retriable:
                raise
            return False
        return True

    eventually(is_done, "the migration ends")
    return events


def opened(log: EventLog) -> EventLog:
    log.initialize(log_id=LOG_ID)
    return log
