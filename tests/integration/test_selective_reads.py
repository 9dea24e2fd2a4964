"""Filtered reads over an index, held against a model that looks at every event."""

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.events import (
    BuildReceived,
    JobCompleted,
    JobRunning,
    JobScheduled,
    PartitionAvailable,
    PartitionObserved,
    PartitionRequested,
    PartitionScheduled,
    Payload,
    new_event,
)
from belog.schemas.filters import EventFilter, Matcher, Terms, terms_of
from belog.storage import selective
from belog.storage.interface import ConditionalLog
from belog.storage.postgres import PostgresLog
from belog.storage.sqlite import SqliteLog
from tests.servers import Postgres

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

T0 = 1_750_000_000_000_000


class Story:
    """Events of a few builds, partitions and job runs, in an order that no graph would choose."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.refs = [f"data/{a}/{n:02}/é_{a}%" for a in "abc" for n in range(20)]
        self.builds = [f"build-{n}" for n in range(15)]
        self.runs = [f"run-{n}" for n in range(80)]
        self.tasks = [f"task-{n}" for n in range(9)]
        self.labels = [f"label {n}" for n in range(5)]
        self.actors = [f"actor-{n}" for n in range(4)]

    def one_of(self, values: list[str]) -> str:
        return self.random.choice(values)

    def event(self) -> Event:
        payload, subject = self._payload()
        return new_event(
            payload,
            subject,
            event_id=self.random.randbytes(16),
            actor=self.one_of(self.actors),
            occurred_at=T0 + self.random.randrange(1000),
        )

    def _payload(self) -> tuple[Payload, str]:
        ref, build, run = self.one_of(self.refs), self.one_of(self.builds), self.one_of(self.runs)
        outputs = self.random.sample(self.refs, self.random.randrange(4))
        task, label = self.one_of(self.tasks), self.one_of(self.labels)
        return self.random.choice(
            [
                (BuildReceived(requested_partitions=outputs), build),
                (
                    JobScheduled(
                        build_request_id=build, task_id=task, job_label=label, outputs=outputs
                    ),
                    run,
                ),
                (JobRunning(), run),
                (JobCompleted(), run),
                (PartitionRequested(build_request_id=build), ref),
                (PartitionScheduled(build_request_id=build, job_run_id=run, task_id=task), ref),
                (PartitionAvailable(build_request_id=build, job_run_id=run), ref),
                (PartitionObserved(), ref),
            ]
        )

    def filter(self, created: list[int]) -> EventFilter:
        some = self._some
        patterns = [
            "data/a/**",
            "data/*/0?/*",
            "**/é_b%",
            "data/[ab]/1[!3-9]/*",
            "x*",
            "data/c/07/*",
        ]
        times = sorted(
            time + self.random.randrange(2) for time in self.random.choices(created, k=2)
        )
        return EventFilter(
            partition_refs=some([*self.refs, "data/none"], 0.2),
            partition_patterns=some(patterns, 0.3),
            job_labels=some(self.labels, 0.15),
            job_run_ids=some(self.runs, 0.15),
            build_request_ids=some(self.builds, 0.2),
            task_ids=some(self.tasks, 0.15),
            event_types=some(["v1.job.running", "v1.partition.available", "v9.a.b"], 0.2),
            subject_kinds=some(["partition", "job_run", "build"], 0.1),
            actors=some(self.actors, 0.15),
            created_from=times[0] if self.random.random() < 0.15 else None,
            created_to=times[1] if self.random.random() < 0.15 else None,
            occurred_from=T0 + 300 if self.random.random() < 0.05 else None,
        )

    def _some(self, values: list[str], chance: float) -> tuple[str, ...]:
        if self.random.random() > chance:
            return ()
        return tuple(self.random.sample(values, self.random.randrange(1, len(values))))


def expected(events: list[StoredEvent], wanted: EventFilter) -> list[StoredEvent]:
    """What a filter wants of a whole log, by looking at each event once, in order."""
    matcher = Matcher(wanted)
    runs: dict[str, Terms] = {}
    found: list[StoredEvent] = []
    for stored in events:
        terms = terms_of(stored.event, runs.get)
        if stored.event.subject_kind == "job_run":
            runs.setdefault(stored.event.subject_id, terms)
        if matcher.matches(stored, terms):
            found.append(stored)
    return found


def read_all(log: ConditionalLog, wanted: EventFilter, limit: int) -> list[StoredEvent]:
    """Page through a log, checking that each page moves on and ends where it should."""
    found: list[StoredEvent] = []
    cursor = 0
    while True:
        page = log.read(cursor, wanted, limit)
        assert len(page.events) <= limit
        assert all(cursor <= stored.index < page.next_idx for stored in page.events)
        found.extend(page.events)
        assert page.has_more == (page.next_idx < log.next_position())
        if not page.has_more:
            assert page.next_idx == log.next_position()
            return found
        assert page.next_idx > cursor
        cursor = page.next_idx


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every bound of the index so small that a short log meets it."""
    monkeypatch.setattr(selective, "TAIL_RECORDS_MAX", 50)
    monkeypatch.setattr(selective, "STEP_RECORDS_MAX", 120)
    monkeypatch.setattr(selective, "CHUNK_INDICES", 20)
    monkeypatch.setattr(selective, "PATTERN_NAMES_MAX", 25)
    monkeypatch.setattr(selective, "RUNS_CACHED_MAX", 10)


Open = Callable[[], ConditionalLog]


@pytest.fixture(params=["sqlite", "postgres"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    logs: list[ConditionalLog] = []
    uri = ""
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres_server")
        uri = f"{server.uri}?schema={request.getfixturevalue('postgres_schema')}"

    def make() -> ConditionalLog:
        log = PostgresLog(uri) if uri else SqliteLog(tmp_path / "log.db")
        log.initialize()
        logs.append(log)
        return log

    yield make
    for log in logs:
        log.close()


@pytest.mark.usefixtures("small_steps")
def test_filters_agree_with_a_model(open_log: Open, seed: int) -> None:
    story = Story(f"{seed}-model")
    log, other = open_log(), open_log()
    for _ in range(8):
        for _ in range(10):
            log.append_batch([story.event() for _ in range(story.random.randrange(1, 12))])
        events = list(log.read().events)
        assert len(events) == log.next_position()
        fresh = open_log()
        for _ in range(25):
            wanted = story.filter([stored.created_at for stored in events])
            reader = story.random.choice([log, other, fresh])
            limit = story.random.choice([1, 3, 30, 1000])
            assert read_all(reader, wanted, limit) == expected(events, wanted), wanted


@pytest.mark.usefixtures("small_steps")
def test_ids_and_statistics_agree_with_a_model(open_log: Open, seed: int) -> None:
    story = Story(f"{seed}-ids")
    log, other = open_log(), open_log()
    for _ in range(5):
        log.append_batch([story.event() for _ in range(70)])
        events = list(log.read().events)
        for stored in story.random.sample(events, 20):
            assert log.get_by_id(stored.event.event_id) == stored
            assert other.get_by_id(stored.event.event_id) == stored
        assert log.get_by_id(b"0" * 16) is None
        for reader in (log, other):
            counted = reader.statistics()
            types = [stored.event.event_type for stored in events]
            assert counted.by_type == {name: types.count(name) for name in types}
            kinds = [stored.event.subject_kind for stored in events]
            assert counted.by_subject_kind == {name: kinds.count(name) for name in kinds}
            assert (counted.events, counted.first_index) == (len(events), 0)
            assert (counted.last_index, counted.gaps) == (len(events) - 1, 0)
            assert counted.last_created_at == events[-1].created_at


@pytest.mark.usefixtures("small_steps")
def test_job_run_describes_only_what_came_after_it(open_log: Open, seed: int) -> None:
    story = Story(f"{seed}-late")

    def event(payload: Payload, subject: str) -> Event:
        event_id = story.random.randbytes(16)
        return new_event(payload, subject, event_id=event_id, actor="a", occurred_at=T0)

    log = open_log()
    available = PartitionAvailable(build_request_id="b", job_run_id="late")
    log.append(event(available, "early"))
    log.append(event(JobScheduled(build_request_id="b", job_label="rare"), "late"))
    log.append(event(JobRunning(), "late"))
    log.append(event(available, "after"))
    wanted = EventFilter(job_run_ids=("late",), job_labels=("rare",))
    for _ in range(2):
        assert [stored.index for stored in log.read(0, wanted).events] == [2, 3, 4]
        assert [stored.index for stored in open_log().read(0, wanted).events] == [2, 3, 4]
        log.append_batch([event(PartitionObserved(), "other") for _ in range(200)])
    assert [stored.index for stored in log.read(0, wanted).events] == [2, 3, 4]


@pytest.mark.usefixtures("small_steps")
def test_many_readers_extend_one_index(open_log: Open, seed: int) -> None:
    story = Story(f"{seed}-readers")
    log = open_log()
    log.append_batch([story.event() for _ in range(2000)])
    events = list(log.read().events)
    wanted = EventFilter(job_labels=(story.labels[0],))
    found: list[list[StoredEvent]] = []
    readers = [open_log() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda r=reader: found.append(read_all(r, wanted, 100)))
        for reader in [*readers, log, log]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected(events, wanted)] * 6


def test_follower_with_a_filter_misses_nothing(open_log: Open, seed: int) -> None:
    story = Story(f"{seed}-follow")
    log, other = open_log(), open_log()
    wanted = EventFilter(build_request_ids=tuple(story.builds[:3]))
    found: list[StoredEvent] = []
    stop = threading.Event()
    last = new_event(
        BuildReceived(), story.builds[0], event_id=b"z" * 16, actor="a", occurred_at=T0
    )

    def follow() -> None:
        for stored in other.follow(0, wanted, stop=stop):
            found.append(stored)
            if stored.event == last:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for _ in range(60):
        log.append_batch([story.event() for _ in range(50)])
    log.append(last)
    thread.join()
    assert found == expected(list(log.read().events), wanted)


@pytest.mark.usefixtures("small_steps")
def test_file_that_cannot_be_written_is_scanned(tmp_path: Path, seed: int) -> None:
    story = Story(f"{seed}-read-only")
    path = tmp_path / "log.db"
    with SqliteLog(path) as log:
        log.initialize()
        log.append_batch([story.event() for _ in range(300)])
        wanted = EventFilter(build_request_ids=tuple(story.builds[:3]))

        def refuse(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA query_only = ON")

        with log._writing() as connection:  # noqa: SLF001 - there is no other way to its pragma
            refuse(connection)
        judged = read_all(log, wanted, 50)
        assert judged
        names = {row[0] for row in sqlite3.connect(path).execute("SELECT name FROM sqlite_master")}
    assert "belog_index" not in names
