"""Snapshots in a folder, whatever happens to files, takers and names."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from belog.processors import snapshots
from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import PartitionRow
from belog.processors.snapshots import (
    image_of_tables,
    read_tables,
    restore_tables,
    save_tables,
)
from belog.processors.table_fold import TABLE_SCHEMA_VERSION, TableFold
from belog.producers import Producer
from belog.schemas.errors import Corrupt, InvalidUri, NewerFormat, NotFound, Unavailable
from belog.schemas.fold import Record
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.memory import MemoryLog
from belog.storage.snapshots import SnapshotStore, restore_fold
from belog.storage.sqlite import SqliteLog
from tests.examples import LOG_ID, OTHER_LOG_ID, T0, created, event, record, state_of
from tests.table_logs import random_records

TAKER = [sys.executable, "-m", "tests.integration.snapshot_taker"]
ROOT = Path(__file__).parents[2]


def folded(records: Sequence[Record]) -> TableFold:
    tables = TableFold()
    tables.apply(records)
    return tables


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


def filled(store: SnapshotStore, cuts: Sequence[int], *, seed: int = 1) -> list[Record]:
    records = random_records(random.Random(seed), max(cuts) + 10)
    for cut in cuts:
        save_tables(store, image_of_tables(folded(records[:cut])), taken_at=T0)
    return records


def newest(store: SnapshotStore) -> TableFold | None:
    found = store.newest_valid(LOG_ID, read_tables)
    return None if found is None else found[1]


def test_the_newest_is_taken_and_k_are_kept(store: SnapshotStore) -> None:
    assert newest(store) is None
    records = filled(store, [10, 20, 30, 40, 50])
    files = store.files(LOG_ID)
    assert [f.next_idx for f in files] == [
        folded(records[:cut]).fold.next_idx for cut in (50, 40, 30)
    ]
    assert sorted(p.name for p in store.folder.iterdir()) == sorted(f.path.name for f in files)
    tables = newest(store)
    assert tables is not None
    assert state_of(tables.fold) == state_of(folded(records[:50]).fold)


def test_logs_and_replicas_in_one_folder_are_apart(store: SnapshotStore) -> None:
    filled(store, [10])
    other = TableFold()
    other.apply([record(0, created(OTHER_LOG_ID))])
    save_tables(store, image_of_tables(other), taken_at=T0)
    assert len(store.files()) == 2
    assert [f.next_idx for f in store.files(OTHER_LOG_ID)] == [1]
    assert store.files(LOG_ID, is_replica=True) == []


def test_a_damaged_one_is_passed_by_and_said(
    store: SnapshotStore, caplog: pytest.LogCaptureFixture
) -> None:
    records = filled(store, [20, 30, 40])
    rng = random.Random(5)
    for count, file in enumerate(store.files(LOG_ID), 1):
        data = bytearray(file.path.read_bytes())
        data[rng.randrange(len(data))] ^= 1
        file.path.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "belog.snapshots"):
            tables = newest(store)
        assert len([r for r in caplog.records if "passed by" in r.message]) == count
        if count < 3:
            assert tables is not None
            cut = (40, 30, 20)[count]
            assert state_of(tables.fold) == state_of(folded(records[:cut]).fold)
        else:
            assert tables is None
            assert "from its beginning" in caplog.text


def test_a_renamed_one_is_not_believed(store: SnapshotStore) -> None:
    filled(store, [20])
    (file,) = store.files(LOG_ID)
    wrong = file.path.with_name(file.path.name.replace(str(LOG_ID), str(OTHER_LOG_ID)))
    file.path.rename(wrong)
    (found,) = store.files(OTHER_LOG_ID)
    with pytest.raises(Corrupt, match="renamed"), store.open(found):
        pass
    with pytest.raises(NotFound), store.open(file):
        pass


def test_rows_of_another_version_are_made_anew(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled(store, [30])
    log = MemoryLog()
    log.initialize(log_id=LOG_ID)
    own = TABLE_SCHEMA_VERSION
    for version in (own - 1, own + 1):
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, "TABLE_SCHEMA_VERSION", version)
            assert newest(store) is None
            assert f"version {own}" in caplog.text
            # Verdicts need no rows.
            assert store.newest_valid(LOG_ID, lambda reader: reader.fold()) is not None
    assert newest(store) is not None


def test_who_reads_one_is_not_disturbed_by_its_removal(store: SnapshotStore) -> None:
    records = filled(store, [30])
    (file,) = store.files(LOG_ID)
    with store.open(file) as reader:
        filled(store, [40, 50, 60], seed=2)
        assert not file.path.exists()
        fold = read_tables(reader).fold
    assert state_of(fold) == state_of(folded(records[:30]).fold)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(6))
def test_takers_that_are_killed_and_race_leave_whole_snapshots(
    store: SnapshotStore, seed: int
) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    records = random_records(random.Random(seed), 1_200)
    takers = [
        subprocess.Popen(
            [*TAKER, str(store.folder), str(seed)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(2)
    ]
    said: list[list[int]] = [[], []]
    for taker, mine in zip(takers, said, strict=True):
        assert taker.stdout is not None
        for _ in range(rng.randrange(3, 60)):
            mine.append(int(taker.stdout.readline()))
        taker.send_signal(signal.SIGKILL)
        taker.wait()
        taker.stdout.close()
    files = store.files(LOG_ID)
    assert files
    for file in files:
        with store.open(file) as reader:
            tables = read_tables(reader)
        expected = [r for r in records if r.position < tables.fold.next_position]
        assert state_of(tables.fold) == state_of(folded(expected).fold)
    # What was said to be stored is there, or a newer one in its place.
    assert files[0].next_idx >= max(max(mine) for mine in said)
    # The next taker removes what the killed ones left.
    save_tables(store, image_of_tables(folded(records)), taken_at=T0)
    assert [p.name for p in store.folder.iterdir() if p.suffix != ".avro"] == []
    assert len(store.files(LOG_ID)) == 3


def test_a_running_takers_file_is_left_alone(store: SnapshotStore) -> None:
    filled(store, [10])
    started, go_on = threading.Event(), threading.Event()

    def write(stream: object) -> None:
        del stream
        started.set()
        assert go_on.wait(30)

    slow = threading.Thread(target=lambda: store.save(LOG_ID, 1, write))
    slow.start()
    assert started.wait(30)
    filled(store, [20])
    temporary = [p for p in store.folder.iterdir() if p.suffix == ".tmp"]
    assert len(temporary) == 1
    go_on.set()
    slow.join()
    assert [f.next_idx for f in store.files(LOG_ID)][-1] == 1


def test_a_failed_write_leaves_nothing(store: SnapshotStore) -> None:
    filled(store, [10])
    before = sorted(p.name for p in store.folder.iterdir())

    def fail(stream: object) -> None:
        del stream
        raise OSError(28, os.strerror(28))

    with pytest.raises(Unavailable, match="No space"):
        store.save(LOG_ID, 99, fail)
    assert sorted(p.name for p in store.folder.iterdir()) == before


@pytest.mark.parametrize("location", ["", "s3://bucket/x", "file://host/x", "file:///x?y=1"])
def test_places_that_are_no_folder(location: str) -> None:
    with pytest.raises(InvalidUri):
        SnapshotStore(location)
    assert SnapshotStore("file:///a%20b").folder == Path("/a b")


# --- starting from one


def sqlite_log(path: Path) -> tuple[SqliteLog, LogIdentity]:
    log = SqliteLog(path)
    return log, log.initialize(log_id=LOG_ID)


def taken_of(log: EventLog, store: SnapshotStore) -> TableFold:
    tables = TableFold()
    while records := log.scan(tables.fold.next_position):
        tables.apply(records)
    save_tables(store, image_of_tables(tables), taken_at=T0)
    return tables


def test_producer_and_tables_start_from_it(tmp_path: Path, store: SnapshotStore) -> None:
    log, identity = sqlite_log(tmp_path / "log.db")
    with log:
        log.append_batch([event("v1.partition.observed", f"p{n % 7}", {}, n=n) for n in range(50)])
        taken_of(log, store)
        log.append_batch(
            [event("v1.partition.observed", f"p{n % 7}", {}, n=n) for n in range(50, 60)]
        )
        found = restore_fold(log, identity, store, keeps_root=False)
        assert found is not None
        assert found[1].next_idx == 51
        with Producer(log, actor="tester", fold=found[1]) as producer:
            assert producer.append_event(event("v1.partition.observed", "p3", {}, n=3)).duplicate
            receipt = producer.append_event(event("v1.partition.removed", "p1", {}, n=60))
            assert receipt.index == 61
        restored = restore_tables(log, identity, store)
        assert restored is not None
        with MemoryTables(restored[1]) as tables, MemoryTables() as anew:
            tables.catch_up(log)
            anew.catch_up(log)
            assert tables.counts() == anew.counts()
            assert tables.list_rows(PartitionRow) == anew.list_rows(PartitionRow)
            assert list(tables.indexes()) == list(anew.indexes())


def test_a_log_that_was_cut_or_written_anew_is_read_whole(
    tmp_path: Path, store: SnapshotStore, caplog: pytest.LogCaptureFixture
) -> None:
    log, identity = sqlite_log(tmp_path / "log.db")
    with log:
        log.append_batch([event("v1.partition.observed", f"p{n}", {}, n=n) for n in range(50)])
        taken_of(log, store)
    other, _ = sqlite_log(tmp_path / "other.db")
    with other:
        assert restore_fold(other, identity, store) is None
        assert "the log ends at 1" in caplog.text
        other.append_batch(
            [event("v1.partition.observed", f"q{n}", {}, n=n) for n in range(99, 160)]
        )
        assert restore_fold(other, identity, store) is None
        assert "holds another event" in caplog.text


def test_a_snapshot_of_newer_software_is_not_read(store: SnapshotStore) -> None:
    filled(store, [10])
    (file,) = store.files(LOG_ID)
    data = file.path.read_bytes()
    at = data.index(UUID(str(LOG_ID)).bytes) - 1
    assert data[at] == 2
    file.path.write_bytes(data[:at] + b"\x04" + data[at + 1 :])
    with pytest.raises(NewerFormat), store.open(file):
        pass
