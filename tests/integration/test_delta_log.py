import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import deltalake
import duckdb
import polars as pl
import pytest

from belog.schemas.envelope import encode_event
from belog.schemas.errors import (
    BelogError,
    Corrupt,
    IndexConflict,
    InvalidUri,
    LimitExceeded,
    NewerFormat,
    Unavailable,
)
from belog.schemas.filters import EventFilter
from belog.storage import open_log
from belog.storage.delta import DeltaLog
from belog.storage.delta_table import CommitLost, DeltaStore
from belog.storage.delta_turns import HOLDER_S_MAX, LOOK_S_MAX, TURN_NAME, Turns
from belog.storage.delta_uri import local_location
from belog.storage.interface import CopiedRecord
from tests.examples import event, replica_value
from tests.servers import eventually
from tests.writers import (
    Follower,
    all_events,
    check_log,
    fill_up,
    kill_at_random,
    observed,
    writing,
)

DAY_US = 86_400_000_000
T0 = 1_750_000_000_000_000


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DeltaLog]:
    with DeltaLog(tmp_path / "log") as made:
        made.initialize()
        yield made


def test_the_store_fails_the_second_writer_of_a_version(log: DeltaLog, tmp_path: Path) -> None:
    location = local_location(tmp_path / "log")
    first, second = DeltaStore(location), DeltaStore(location)
    first.load()
    second.load()
    row = (1, T0, encode_event(observed(1)))
    first.commit([row], "a")
    with pytest.raises(CommitLost):
        second.commit([(1, T0, encode_event(observed(2)))], "b")
    second.refresh()
    assert second.next_idx == 2
    assert second.holds("a", 0)
    assert not second.holds("b", 0)
    assert [r.event.event_id for r in all_events(log)[1:]] == [observed(1).event_id]


@pytest.mark.timeout(300)
def test_racing_processes_leave_no_gap_and_followers_miss_nothing(
    tmp_path: Path, seed: int
) -> None:
    uri = f"delta://{tmp_path}/log"
    followers: list[Follower] = []
    # The creation is raced too.
    with writing(uri, "a", "b", "c", "d", batches=25, threads=2, seed=seed) as writers:
        for writer in writers[:2]:
            writer.until_writing()
            log = DeltaLog(tmp_path / "log")
            log.initialize()
            followers.append(Follower(log))
        for writer in writers:
            writer.until_done()
        acknowledged = [ack for writer in writers for ack in writer.acknowledged]
        total = len(acknowledged) + 1
        for follower in followers:
            follower.until(total)
            follower.end()
            assert follower.indices == list(range(total))
    with DeltaLog(tmp_path / "log") as log:
        log.initialize()
        check_log(log, acknowledged)
        assert log.next_position() == total
        # Who won a commit must not win the next ones: measured 31 and less, and 54 to 150 without
        # a queue.
        firsts = (s.event for s in all_events(log)[1:] if " 0/" in str(s.event.body()["source"]))
        turns = [event.actor for event in firsts]
        assert max(longest_wait(turns, name) for name in "abcd") <= BATCHES_OF_OTHERS_MAX


BATCHES_OF_OTHERS_MAX = 45
"""Appends of four writers with two threads between two of one of them: chance alone makes more of
them once in a million runs."""


def longest_wait(turns: Sequence[str], name: str) -> int:
    """How many appends come between two of one writer, at most."""
    own = [n for n, actor in enumerate(turns) if actor == name]
    return max(later - before for before, later in pairwise(own))


def test_a_writer_that_is_frozen_in_its_turn_delays_others_once(log: DeltaLog) -> None:
    log.append(observed(1))
    with ExitStack() as frozen:
        held = frozen.enter_context((Path(log.name.removeprefix("delta://")) / TURN_NAME).open("w"))
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        log.append(observed(2))
        once = time.monotonic()
        log.append(observed(3))
        log.append(observed(4))
        assert once - began >= HOLDER_S_MAX
        assert time.monotonic() - once < HOLDER_S_MAX
    assert log.next_position() == 5


def test_a_writer_that_cannot_queue_writes_all_the_same(log: DeltaLog, tmp_path: Path) -> None:
    (tmp_path / "log" / TURN_NAME).mkdir()
    assert log.append(observed(1)).index == 1


def test_who_just_had_a_turn_lets_who_waits_have_one(tmp_path: Path) -> None:
    busy, waiting = Turns(tmp_path), Turns(tmp_path)
    turns = 0
    is_served = threading.Event()

    def work() -> None:
        nonlocal turns
        while not is_served.is_set():
            with busy.turn():
                turns += 1
                # A commit: the waiting writer has time to see that the turn is taken.
                threading.Event().wait(2 * LOOK_S_MAX)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: turns > 2, "the busy writer commits")
    waited: list[int] = []
    for _ in range(20):
        before = turns
        with waiting.turn():
            waited.append(turns - before)
    is_served.set()
    thread.join()
    assert sum(waited) < 4 * len(waited)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    kill_at_random(f"delta://{tmp_path}/log", seed, threads=2)


def test_refusals_are_by_the_log_as_it_is_now(log: DeltaLog, tmp_path: Path) -> None:
    with DeltaLog(tmp_path / "log") as other:
        other.initialize()
        other.append(observed(1, "data://a"))
        # `log` has not looked since, and must not refuse by what it knew.
        assert log.append_batch([observed(2, "data://b")], at=2)
        other.append(observed(3, "data://c"))
        with pytest.raises(IndexConflict) as conflict:
            log.append_batch([observed(4)], at=3)
        assert conflict.value.next_idx == 4
        other.append(observed(5, "data://a"))
        assert log.append_unless_touched([observed(6, "data://z")], seen_idx=2)[0].index == 5
        with pytest.raises(IndexConflict):
            log.append_unless_touched([observed(7, "data://a")], seen_idx=3)
    assert [r.position for r in log.scan(0)] == list(range(6))


def test_threads_share_commits(log: DeltaLog, tmp_path: Path) -> None:
    def work(thread: int) -> None:
        for n in range(10):
            log.append(observed(100 * thread + n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.next_position() == 81
    commits = list((tmp_path / "log" / "_delta_log").glob("*.json"))
    assert len(commits) < 60


def test_optimize_and_vacuum_break_no_reader(tmp_path: Path) -> None:
    with DeltaLog(tmp_path / "log") as log, DeltaLog(tmp_path / "log") as reader:
        log.initialize()
        for n in range(20):
            log.append(observed(n))
        reader.initialize()
        assert reader.next_position() == 21
        before = [(r.position, r.value) for r in log.scan(0)]
        report = log.optimize()
        assert (report.added, report.removed) == (1, 21)
        # A reader of the version before goes on to find its files.
        assert [(r.position, r.value) for r in reader.scan(0, 21)] == before
        assert log.append(observed(50)).index == 21
        assert [(r.position, r.value) for r in log.scan(0)][:21] == before
        assert log.vacuum_files().removed == 0
        with pytest.raises(LimitExceeded):
            log.vacuum_files(1)
        # Even where somebody deletes them all the same, it finds the new ones.
        table = deltalake.DeltaTable(str(tmp_path / "log"))
        assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert [(r.position, r.value) for r in reader.scan(0, 21)] == before
        assert [e.index for e in all_events(reader)] == list(range(22))


def test_appends_go_on_while_files_are_optimized(tmp_path: Path) -> None:
    with DeltaLog(tmp_path / "log") as log:
        log.initialize()
        stop = threading.Event()

        def care() -> None:
            while not stop.is_set():
                log.optimize()

        thread = threading.Thread(target=care)
        thread.start()
        for n in range(30):
            assert log.append(observed(n)).index == n + 1
        stop.set()
        thread.join()
        assert [r.position for r in log.scan(0)] == list(range(31))


def test_a_time_range_reads_the_files_of_its_days_only(tmp_path: Path) -> None:
    clock = Clock()
    with DeltaLog(tmp_path / "log", clock=clock) as log:
        log.initialize()
        for day in range(5):
            clock.now = T0 + day * DAY_US
            log.append_batch([observed(10 * day + n) for n in range(3)])
        wanted = EventFilter(created_from=T0 + 2 * DAY_US, created_to=T0 + 3 * DAY_US)
        folders = sorted((tmp_path / "log").glob("day=*"))
        assert len(folders) == 5
        # The other days are unreadable, and are not read.
        for folder in [*folders[:2], *folders[3:]]:
            for path in folder.glob("*.parquet"):
                path.write_bytes(b"gone")
        page = log.read(0, wanted)
        assert [e.index for e in page.events] == [7, 8, 9]
        assert (page.next_idx, page.has_more) == (16, False)
        with pytest.raises((Corrupt, Unavailable)):
            log.scan(0)


def test_analysts_read_it_without_this_project(tmp_path: Path) -> None:
    clock = Clock()
    with DeltaLog(tmp_path / "log", clock=clock) as log:
        log.initialize()
        log.append_batch([observed(n) for n in range(3)])
        clock.now += DAY_US
        log.append(
            event(
                "v1.build.received", "b1", {"requested_partitions": ["data://ü"]}, n=9, expected=-1
            )
        )
        stored = all_events(log)
    table = deltalake.DeltaTable(str(tmp_path / "log"))
    paths = table.file_uris()
    # Any Parquet reader will do: DuckDB's own reader of Delta tables is a download.
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT subject_kind, count(*), max(index) FROM read_parquet(?)"
            " GROUP BY ALL ORDER BY ALL",
            [paths],
        ).fetchall()
        refs = database.execute(
            "SELECT payload_json::JSON->>'$.requested_partitions[0]' FROM read_parquet(?)"
            " WHERE event_type = 'v1.build.received'",
            [paths],
        ).fetchall()
    assert rows == [("build", 1, 4), ("partition", 3, 3), ("system", 1, 0)]
    assert refs == [("data://ü",)]
    frame = pl.scan_delta(str(tmp_path / "log")).sort("index").collect()
    assert frame["index"].to_list() == [0, 1, 2, 3, 4]
    assert frame["event_id"].to_list() == [str(UUID(bytes=e.event.event_id)) for e in stored]
    assert frame["payload"].to_list() == [e.event.payload for e in stored]
    assert frame["digest"].to_list() == [e.event.payload_digest for e in stored]
    assert frame["expected"].to_list() == [None, None, None, None, -1]
    occurred_at = datetime.fromtimestamp(0, UTC) + timedelta(
        microseconds=stored[1].event.occurred_at
    )
    assert frame["occurred_at"][1] == occurred_at
    assert frame["day"].n_unique() == 2
    assert json.loads(frame["payload_json"][1]) == {"source": "t"}


def rewritten(path: Path, old: str, new: str) -> bytes:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path.read_bytes()


def test_a_folder_whose_maker_died_before_its_first_commit_becomes_a_log(tmp_path: Path) -> None:
    with DeltaLog(tmp_path / "log") as log:
        log.initialize()
    shutil.rmtree(tmp_path / "log" / "_delta_log")
    assert [path.name[:4] for path in (tmp_path / "log").iterdir()] == ["day="]
    with DeltaLog(tmp_path / "log") as log:
        assert log.identify() is None
        log.initialize()
        assert log.append(observed(1)).index == 1


def test_what_is_another_table_or_newer_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("foreign", "newer table", "newer log"):
        with DeltaLog(tmp_path / name) as log:
            log.initialize()
    first = "_delta_log/00000000000000000000.json"
    contents = {
        "foreign": rewritten(tmp_path / "foreign" / first, '"name":"belog"', '"name":"x"'),
        "newer table": rewritten(
            tmp_path / "newer table" / first, '"minReaderVersion":1', '"minReaderVersion":99'
        ),
        "newer log": rewritten(
            tmp_path / "newer log" / first, '\\"format_version\\": 1', '\\"format_version\\": 2'
        ),
    }
    (tmp_path / "file").write_text("mine")
    (tmp_path / "strangers").mkdir()
    (tmp_path / "strangers" / "letter.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for name, error in (
        ("foreign", InvalidUri),
        ("newer table", NewerFormat),
        ("newer log", NewerFormat),
        ("file", InvalidUri),
        ("strangers", InvalidUri),
        ("nowhere/log", InvalidUri),
    ):
        with pytest.raises(error):
            DeltaLog(tmp_path / name).initialize()
    assert sorted(tmp_path.rglob("*")) == before
    for name, content in contents.items():
        assert (tmp_path / name / first).read_bytes() == content


def test_a_replica_keeps_indices_with_holes(tmp_path: Path) -> None:
    values = {
        index: replica_value(observed(index), index, index - 1) for index in (0, 3, 4, 900_000)
    }
    with DeltaLog(tmp_path / "log") as log:
        log.initialize(replica=True)
        assert log.next_position() == 0
        records = [CopiedRecord(index, T0 + index, value) for index, value in values.items()]
        log.copy_records(records[:2], after=-1)
        log.copy_records(records[2:], after=3)
        with pytest.raises(IndexConflict):
            log.copy_records([CopiedRecord(900_001, T0, values[4])], after=4)
        with pytest.raises(BelogError, match="replica"):
            log.append(observed(1))
    with DeltaLog(tmp_path / "log") as log:
        log.initialize(replica=True)
        assert [(r.position, r.value) for r in log.scan(0)] == list(values.items())
        assert [r.created_at for r in log.scan(0)] == [T0 + index for index in values]
        assert [r.position for r in log.scan(5, 1)] == [900_000]


def test_a_record_that_is_no_event_is_kept(tmp_path: Path) -> None:
    with DeltaLog(tmp_path / "log") as log:
        log.initialize()
        log.copy_records([CopiedRecord(1, T0, b"garbage")], after=0)
        assert log.scan(1)[0].value == b"garbage"
        assert [e.index for e in all_events(log)] == [0]
        with pytest.raises(LimitExceeded):
            log.copy_records([CopiedRecord(2, 2**62, b"garbage")], after=1)


@pytest.mark.parametrize("disk_kb", [400] if os.geteuid() == 0 else [])
def test_a_full_disk_leaves_no_half_event(tmp_path: Path, disk_kb: int) -> None:
    size = f"size={disk_kb}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(tmp_path)], check=True)
    try:
        (tmp_path / "ballast").write_bytes(bytes(200_000))
        with DeltaLog(tmp_path / "log") as log:
            log.initialize()
            done = fill_up(log, 10_000)
            assert [r.position for r in log.scan(0)] == list(range(2 * done + 1))
            (tmp_path / "ballast").unlink()
            assert log.append(observed(30_000)).index == 2 * done + 1
            assert [r.position for r in log.scan(0)] == list(range(2 * done + 2))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_an_unreachable_store_says_so_without_secrets() -> None:
    uri = (
        "delta+s3://bucket/log?aws_endpoint_url=http://127.0.0.1:9&aws_region=x"
        "&aws_access_key_id=someone&aws_secret_access_key=hunter2-hunter2&aws_allow_http=true"
        "&max_retries=0&timeout=2s"
    )
    with open_log(uri) as log, pytest.raises(Unavailable) as error:
        log.initialize()
    assert log.name == "delta+s3://bucket/log"
    assert "hunter2" not in str(error.value)
    assert "someone" not in str(error.value)
