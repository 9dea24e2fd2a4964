"""The contract, over SQLite files; and what only several processes can show."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    InvalidUri,
    LogReplaced,
    NewerFormat,
    Unavailable,
)
from belog.storage.creation import now_us
from belog.storage.interface import CopiedRecord
from belog.storage.sqlite import WAL_PAGES_MAX, SqliteLog, from_uri
from belog.storage.testing import Clock, LogContract, MakeLog
from belog.storage.testing_base import accepted, appended, folded
from belog.storage.testing_events import observed
from tests.servers import eventually
from tests.writers import KILLS

WRITER = [sys.executable, "-m", "belog.storage.testing_writer"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "with space ü" / "log.db"


class TestSqlite(LogContract):
    takes_clock = True

    @pytest.fixture
    def make_log(self, path: Path) -> MakeLog:
        path.parent.mkdir()

        def make(clock: Clock | None = None) -> SqliteLog:
            return SqliteLog(path, clock=clock or now_us)

        return make

    @pytest.fixture
    def log_uri(self, path: Path) -> str:
        return f"sqlite:///{path}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def writer(file: Path, first: int, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*WRITER, f"sqlite:///{file}", str(first), str(count)], stdout=subprocess.PIPE, text=True
    )


def test_several_processes_create_and_write_one_log(file: Path) -> None:
    others = [writer(file, n * 1000, 40) for n in range(1, 5)]
    told: dict[int, list[int]] = {}
    for n, other in enumerate(others, 1):
        output, _ = other.communicate(timeout=60)
        assert other.returncode == 0
        told[n] = [int(line) for line in output.split()]
    with SqliteLog(file) as log:
        log.initialize()
        everything = accepted(log)
        assert [s.index for s in everything] == list(range(1 + 4 * 40))
        for n, indices in told.items():
            mine = [observed(n * 1000 + k).event_id for k in range(40)]
            assert [s.index for s in everything if s.event.event_id in set(mine)] == indices
            assert [everything[i].event.event_id for i in indices] == mine
        assert sum(s.event.event_type == "v1.system.log_created" for s in everything) == 1


@pytest.mark.chaos
@pytest.mark.parametrize("run", range(KILLS))
def test_killed_writer_loses_nothing_it_was_told(file: Path, seed: int, run: int) -> None:
    rng = random.Random(f"{seed}-{run}")
    told: list[tuple[int, int]] = []
    for round_number in range(3):
        first = 1000 * (1 + round_number)
        victim = writer(file, first, 100_000)
        assert victim.stdout is not None
        count = rng.randrange(1, 60)
        told += [(int(victim.stdout.readline()), first + n) for n in range(count)]
        os.kill(victim.pid, signal.SIGKILL)
        # What it was told and we had not read yet is acknowledged too.
        rest = victim.stdout.read().split("\n")[:-1]
        told += [(int(line), told[-1][1] + 1 + n) for n, line in enumerate(rest)]
        victim.wait(30)
        victim.stdout.close()
        with SqliteLog(file) as log:
            log.initialize()
            fold, everything = folded(log)
            assert [s.index for s in everything] == list(range(fold.next_idx))
            by_index = {s.index: s.event.event_id for s in everything}
            for index, number in told:
                assert by_index[index] == observed(number).event_id
            # At most the one event whose answer never came is there unacknowledged.
            assert len(everything) - 1 - len(told) <= round_number + 1
            (receipt,) = appended(log, [observed(900_000 + round_number, "after")])
            told.append((receipt.index, 900_000 + round_number))


def test_another_process_is_seen_while_waiting(file: Path) -> None:
    with SqliteLog(file) as log:
        log.initialize()
        with writer(file, 1000, 5) as other:
            assert eventually(lambda: log.wait(5, 0.1), "the other process wrote", timeout_s=60)
            other.communicate(timeout=60)
        assert log.next_position() == 6


def test_reading_from_many_threads_while_it_is_closed(file: Path) -> None:
    log = SqliteLog(file)
    log.initialize()
    appended(log, [observed(n) for n in range(500)])
    ready = threading.Barrier(5)
    errors: list[Exception] = []

    def read() -> None:
        ready.wait(30)
        try:
            for _ in range(2000):
                log.read(0)
        except Closed:
            return
        except Exception as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    log.read(0)
    log.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert errors == []


def test_acknowledged_means_synced_to_disk(file: Path) -> None:
    with SqliteLog(file) as log:
        log.initialize()
        writer_connection = log._writer  # noqa: SLF001 - what it was set to cannot be asked elsewhere
        assert writer_connection is not None
        assert writer_connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer_connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_single_appends_soon_write_over_what_the_database_took(file: Path) -> None:
    page_bytes, frame_bytes = 4096, 24
    few = 8
    with SqliteLog(file) as log:
        log.initialize()
        for n in range(WAL_PAGES_MAX + 4 * few):
            log.append(observed(n))
        written = file.with_name(f"{file.name}-wal").stat().st_size // (page_bytes + frame_bytes)
    assert WAL_PAGES_MAX <= written <= WAL_PAGES_MAX + few


def spoil(kind: str, file: Path) -> None:
    if kind == "text":
        file.write_text("this is no database" * 100)
        return
    if kind == "missing folder":
        return
    with sqlite3.connect(file) as connection:
        if kind == "another program":
            connection.execute("CREATE TABLE accounts (id INTEGER)")
        elif kind == "other columns":
            connection.execute("CREATE TABLE belog_meta (x TEXT)")
        elif kind == "nothing in it":
            connection.execute("CREATE TABLE belog_meta (name TEXT PRIMARY KEY, value TEXT)")
        else:
            connection.execute("CREATE TABLE belog_meta (name TEXT PRIMARY KEY, value TEXT)")
            connection.execute("INSERT INTO belog_meta VALUES ('format_version', '2')")
    connection.close()


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("text", InvalidUri),
        ("another program", InvalidUri),
        ("missing folder", InvalidUri),
        ("newer", NewerFormat),
        ("other columns", Corrupt),
        ("nothing in it", Corrupt),
    ],
)
def test_files_that_are_refused_and_left_alone(
    tmp_path: Path, kind: str, error: type[BelogError]
) -> None:
    file = tmp_path / ("nowhere/log.db" if kind == "missing folder" else "log.db")
    spoil(kind, file)
    before = file.read_bytes() if file.exists() else None
    with SqliteLog(file) as log, pytest.raises(error) as caught:
        log.initialize()
    assert str(tmp_path) in str(caught.value)
    assert (file.read_bytes() if file.exists() else None) == before


def test_damaged_file_says_so(file: Path) -> None:
    with SqliteLog(file) as log:
        log.initialize()
        appended(log, [observed(n) for n in range(2000)])
    content = bytearray(file.read_bytes())
    for at in range(8192, len(content), 4096):
        content[at : at + 64] = b"\xff" * 64
    file.write_bytes(bytes(content))
    with SqliteLog(file) as log:
        log.initialize()
        with pytest.raises(Corrupt):
            log.read()


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with SqliteLog(tmp_path) as log, pytest.raises(Unavailable):
        log.initialize()


def test_replaced_file_is_noticed_by_its_identity(tmp_path: Path) -> None:
    with SqliteLog(tmp_path / "a.db") as first:
        log_id = first.initialize().log_id
    (tmp_path / "a.db").unlink()
    with SqliteLog(tmp_path / "a.db") as second:
        second.initialize()
        with pytest.raises(LogReplaced):
            second.initialize(log_id=log_id)


def test_garbage_that_was_copied_in_is_passed_over(file: Path) -> None:
    with SqliteLog(file) as log:
        log.initialize()
        log.copy_records([CopiedRecord(1, now_us(), b"garbage")], after=0)
        appended(log, [observed(1)])
        assert [s.index for s in log.read().events] == [0, 2]
        assert log.get(1) is None
        assert log.read(0, limit=1).next_idx == 1
        assert log.statistics().void == 1
        assert log.end().root == folded(log)[0].merkle.root()


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///log.db", "log.db"),
        ("sqlite:////var/lib/log.db", "/var/lib/log.db"),
        ("sqlite:///a%20b%3F.db", "a b?.db"),
    ],
)
def test_uris(uri: str, path: str) -> None:
    assert from_uri(uri).path == Path(path)


@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///", "sqlite:log.db", "sqlite://host/log.db", "sqlite:///a?b=c"]
)
def test_uris_refused(uri: str) -> None:
    with pytest.raises(InvalidUri):
        from_uri(uri)


def test_threads_that_come_and_go_leave_no_connections(file: Path) -> None:
    def open_files() -> int:
        links = list(Path("/proc/self/fd").iterdir())
        return sum("log.db" in str(link.readlink()) for link in links if link.is_symlink())

    with SqliteLog(file) as log:
        log.initialize()
        appended(log, [observed(1)])
        counts: list[int] = []
        for _ in range(30):
            thread = threading.Thread(target=log.read, daemon=True)
            thread.start()
            thread.join(30)
            assert not thread.is_alive()
            counts.append(open_files())
        assert counts[-1] == counts[1]
    assert open_files() == 0
