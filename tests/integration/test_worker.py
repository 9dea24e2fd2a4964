"""The worker on real servers: it follows, dies, is frozen, is replaced; the tables stay right."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from belog.processors.factory import open_tables
from belog.processors.tables import TableReader, TablesStatus
from belog.processors.verify import verify_tables
from belog.processors.worker import (
    Watchdog,
    WorkerSettings,
    run_worker,
    worker_status,
)
from belog.schemas.envelope import encode_event
from belog.schemas.errors import Diverged, InvalidUri, LogTruncated
from belog.storage import EventLog, open_log
from belog.storage.kafka_topic import create_topic
from tests.examples import event
from tests.servers import Broker, Redis, eventually
from tests.table_logs import random_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S = 6.0
"""The shortest session that a broker allows by default."""

PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
logging.getLogger("belog.worker").setLevel(logging.INFO)
from belog.processors.worker import WorkerSettings, run_worker
from belog.schemas.errors import BelogError, status_of
log, tables, tail = sys.argv[1:4]
try:
    run_worker(log, tables, WorkerSettings(tail=tail, session_timeout_s=float(sys.argv[4])))
except BelogError as error:
    print(f"{error.code}: {error}", file=sys.stderr)
    sys.exit(status_of(error).exit_code)
"""


class Worker:
    """A worker process with its log lines in a file."""

    def __init__(self, log: str, tables: str, lines: Path, *, tail: str = "auto") -> None:
        self.lines = lines
        with lines.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, log, tables, tail, str(SESSION_S)], stderr=file
            )

    def said(self, event_name: str) -> bool:
        return f'"event": "{event_name}"' in self.lines.read_text()

    def why_not_running(self) -> str | None:
        if self.process.poll() is None:
            return None
        return f"the worker ended with {self.process.returncode}: {self.lines.read_text()[-2000:]}"

    def wait_for(self, event_name: str) -> None:
        eventually(
            lambda: self.said(event_name),
            f"the worker says {event_name}",
            timeout_s=60,
            unless=self.why_not_running,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


class Site:
    """A log, tables of it, and the workers in between."""

    def __init__(self, log_uri: str, tables_uri: str, folder: Path, stack: ExitStack) -> None:
        self.log_uri = log_uri
        self.tables_uri = tables_uri
        self._folder = folder
        self._stack = stack
        self._workers = 0
        self._events = 0
        self.log: EventLog = stack.enter_context(open_log(log_uri))
        self.log.initialize()
        self.reader: TableReader = stack.enter_context(open_tables(tables_uri))

    def worker(self, tail: str = "auto") -> Worker:
        self._workers += 1
        lines = self._folder / f"worker-{self._workers}.log"
        worker = Worker(self.log_uri, self.tables_uri, lines, tail=tail)
        self._stack.callback(worker.kill)
        return worker

    def write(self, count: int) -> int:
        """Append events; return the index of the last."""
        first = self._events
        self._events += count
        receipts = self.log.append_batch(
            [
                event("v1.partition.observed", f"p{n % 500}", {}, n=n)
                for n in range(first, first + count)
            ]
        )
        last = receipts[-1]
        assert not isinstance(last, Exception)
        return last.index

    def caught_up(self, *workers: Worker) -> None:
        """Wait until the tables hold the whole log, and check that they are right."""
        end = self.log.next_position()
        eventually(
            lambda: self.reader.status().position >= end,
            f"the tables reach {end}",
            timeout_s=60,
            unless=lambda: next(filter(None, (w.why_not_running() for w in workers)), None),
        )
        assert verify_tables(self.log, self.reader) == []


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tables_uri(redis_server: Redis, redis_prefix: str) -> str:
    return f"{redis_server.uri}?prefix={redis_prefix}"


@pytest.fixture
def site(
    broker: Broker, topic_name: str, tables_uri: str, tmp_path: Path, stack: ExitStack
) -> Site:
    log_uri = f"{broker.uri}/{topic_name}"
    create_topic(log_uri)
    return Site(log_uri, tables_uri, tmp_path, stack)


def test_rows_become_visible_and_a_stop_is_clean(site: Site) -> None:
    site.write(2_000)
    worker = site.worker()
    worker.wait_for("assigned")
    for _ in range(20):
        assert site.reader.wait_for(site.write(3), 10)
    status = worker_status(site.log, site.reader)
    assert (status.lag_records, status.is_same_log) == (0, True)
    site.caught_up(worker)
    assert worker.stop() == 0
    assert worker.said("stopped")


def test_killed_in_the_stream_a_worker_goes_on_where_the_tables_are(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        worker = site.worker()
        worker.wait_for("caught_up")
        stop = threading.Event()
        writing = threading.Thread(target=write_until, args=(site, stop))
        writing.start()
        start = site.reader.applied()
        assert site.reader.wait_for(start + rng.randrange(50, 500), 30)
        worker.kill()
        stop.set()
        writing.join(30)
    # Nobody has left the group, so the next one gets the log when the last session is over.
    site.caught_up(site.worker())


def write_until(site: Site, stop: threading.Event) -> None:
    while not stop.is_set():
        site.write(20)


def test_a_second_worker_stands_by_and_takes_over(site: Site) -> None:
    site.write(100)
    first = site.worker()
    first.wait_for("assigned")
    second = site.worker()
    second.wait_for("tailing")
    site.write(100)
    site.caught_up(first, second)
    assert not second.said("assigned")
    first.kill()
    site.write(100)
    second.wait_for("assigned")
    site.caught_up(second)
    assert site.reader.wait_for(site.write(1), 10)
    assert second.stop() == 0


def test_a_frozen_worker_that_wakes_changes_nothing(site: Site) -> None:
    first = site.worker()
    first.wait_for("assigned")
    second = site.worker()
    second.wait_for("tailing")
    site.write(50)
    site.caught_up(first)
    first.process.send_signal(signal.SIGSTOP)
    site.write(200)
    second.wait_for("assigned")
    site.caught_up(second)
    site.write(50)
    first.process.send_signal(signal.SIGCONT)
    site.write(50)
    site.caught_up(second)
    assert site.reader.wait_for(site.write(1), 20)
    assert second.why_not_running() is None


def test_flushed_tables_come_back(
    site: Site, new_redis: Callable[..., Redis], tmp_path: Path, stack: ExitStack
) -> None:
    server = new_redis()
    own = Site(site.log_uri, f"{server.uri}?prefix=own", tmp_path, stack)
    own.write(3_000)
    worker = own.worker()
    worker.wait_for("assigned")
    own.caught_up(worker)
    server.flush()
    own.caught_up(worker)
    own.write(10)
    server.flush()
    own.write(10)
    own.caught_up(worker)


def test_redis_may_die_and_come_back_older(
    site: Site, new_redis: Callable[..., Redis], tmp_path: Path, stack: ExitStack
) -> None:
    server = new_redis(persistence="dump")
    own = Site(site.log_uri, f"{server.uri}?prefix=own", tmp_path, stack)
    own.write(500)
    worker = own.worker()
    worker.wait_for("assigned")
    own.caught_up(worker)
    server.dump()
    with server.connect() as client:
        client.config_set("save", "")
    own.write(500)
    own.caught_up(worker)
    server.kill()
    own.write(500)
    server.start()
    own.caught_up(worker)
    assert worker.why_not_running() is None


def test_records_that_are_no_events_change_nothing(
    site: Site, broker: Broker, topic_name: str, seed: int
) -> None:
    worker = site.worker()
    worker.wait_for("assigned")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n, item in enumerate(random_records(random.Random(seed), 400)[1:]):
        producer.produce(topic_name, key=str(n), value=item.value)
        if n % 50 == 0:
            producer.flush()
    producer.flush()
    site.caught_up(worker)


def test_a_newer_format_stops_the_worker_and_says_so(
    site: Site, broker: Broker, topic_name: str
) -> None:
    worker = site.worker()
    worker.wait_for("assigned")
    last = site.write(5)
    newer = b"\xc3\x01" + b"\x07" * 8 + encode_event(event("v1.build.received", "b", {}, n=1))[10:]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic_name, key="newer", value=newer)
    producer.flush()
    assert worker.process.wait(60) == 1
    assert "newer_format: record has an envelope schema" in worker.lines.read_text()
    assert site.reader.applied() == last + 1
    assert site.worker().process.wait(60) == 1


def test_a_log_without_faust_is_followed_too(
    tables_uri: str, tmp_path: Path, stack: ExitStack
) -> None:
    site = Site(f"sqlite:///{tmp_path}/log.db", tables_uri, tmp_path, stack)
    workers = [site.worker(), site.worker()]
    for worker in workers:
        worker.wait_for("caught_up")
    for _ in range(30):
        assert site.reader.wait_for(site.write(5), 10)
    site.caught_up(*workers)
    workers[0].kill()
    assert site.reader.wait_for(site.write(5), 10)
    site.caught_up(workers[1])
    assert workers[1].stop() == 0


def test_a_plain_reader_can_follow_kafka(site: Site) -> None:
    worker = site.worker(tail="plain")
    worker.wait_for("caught_up")
    assert site.reader.wait_for(site.write(5), 10)
    site.caught_up(worker)
    assert worker.stop() == 0


def test_a_worker_refuses_what_it_cannot_follow(tables_uri: str, tmp_path: Path) -> None:
    log_uri = f"sqlite:///{tmp_path}/log.db"
    with open_log(log_uri) as log:
        log.initialize()
    with pytest.raises(InvalidUri):
        run_worker(log_uri, "memory:", stop=threading.Event())
    with pytest.raises(InvalidUri):
        run_worker(log_uri, tables_uri, WorkerSettings(tail="faust"), stop=threading.Event())


def test_a_worker_waits_for_a_log_that_is_not_there_yet(
    tables_uri: str, tmp_path: Path, stack: ExitStack
) -> None:
    log_uri = f"sqlite:///{tmp_path}/later.db"
    worker = Worker(log_uri, tables_uri, tmp_path / "worker.log")
    stack.callback(worker.kill)
    worker.wait_for("waiting_for_log")
    assert not (tmp_path / "later.db").exists()
    site = Site(log_uri, tables_uri, tmp_path, stack)
    site.write(3)
    site.caught_up(worker)
    assert worker.stop() == 0


def test_a_log_that_was_cut_is_refused(tables_uri: str, tmp_path: Path, stack: ExitStack) -> None:
    site = Site(f"sqlite:///{tmp_path}/log.db", tables_uri, tmp_path, stack)
    site.write(20)
    stop = threading.Event()
    stop.set()
    run_worker(site.log_uri, tables_uri, stop=stop)
    worker = site.worker()
    worker.wait_for("caught_up")
    site.caught_up(worker)
    assert worker.stop() == 0
    with open_log(f"sqlite:///{tmp_path}/shorter.db") as shorter:
        shorter.initialize(log_id=site.log.initialize().log_id)
    with pytest.raises(LogTruncated):
        run_worker(f"sqlite:///{tmp_path}/shorter.db", tables_uri, stop=stop)


def test_the_watchdog_barks_when_tables_stand_still() -> None:
    now = 0.0
    dog = Watchdog(10.0, clock=lambda: now)

    def status(position: int) -> TablesStatus:
        return TablesStatus(
            log_id="x", applied=position, position=position, schema_version=1, created_at=0
        )

    dog.look(status(5), 5)
    now = 100.0
    dog.look(status(5), 5)
    now = 109.0
    dog.look(status(5), 6)
    now = 111.0
    with pytest.raises(Diverged):
        dog.look(status(5), 7)
    dog.look(status(6), 7)
    now = 130.0
    dog.pause()
    now = 139.0
    dog.look(status(6), 7)
    now = 141.0
    with pytest.raises(Diverged):
        dog.look(status(6), 7)
