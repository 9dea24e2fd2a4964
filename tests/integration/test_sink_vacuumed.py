"""A sink and a verify whose origin was vacuumed: they begin from a snapshot, or say which."""

import threading
from pathlib import Path

import pytest

from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import Diverged, Gone
from belog.schemas.fold import Fold
from belog.sink import Replication, run_sink, verify_replica
from belog.storage import CopiedRecord, EventLog, open_log
from belog.storage.interface import fold_log
from belog.storage.memory import MemoryLog
from belog.storage.snapshots import SnapshotStore, restore_fold
from belog.storage.sqlite import SqliteLog
from belog.storage.testing_vacuum import EVER, snapshot_of
from tests.examples import event

pytestmark = pytest.mark.integration

SUBJECTS = 5


def observations(first: int, count: int) -> list[Event]:
    return [
        event("v1.partition.observed", f"data/{n % SUBJECTS}", n=n + 1)
        for n in range(first, first + count)
    ]


def replicate(origin: EventLog, target: EventLog, store: SnapshotStore | None = None) -> int:
    return Replication(origin, target, snapshots=store).run_once().written


def fold_of(log: EventLog, store: SnapshotStore) -> Fold:
    found = restore_fold(log, log.initialize(), store)
    return fold_log(log, Fold() if found is None else found[1])


@pytest.fixture
def origin(tmp_path: Path) -> SqliteLog:
    """A log of 61 events."""
    log = SqliteLog(tmp_path / "origin.db")
    log.initialize()
    log.append_batch(observations(0, 60))
    return log


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


def vacuum(origin: EventLog, store: SnapshotStore) -> None:
    snapshot_of(store, fold_of(origin, store))
    assert origin.vacuum(EVER, dry_run=False, snapshots=store).removed > 0


def test_it_goes_on_from_a_snapshot(origin: SqliteLog, store: SnapshotStore) -> None:
    target = MemoryLog("memory:replica")
    assert replicate(origin, target) == 61
    vacuum(origin, store)
    origin.append_batch(observations(60, 20))
    # The `vacuumed` event, too. A new object knows nothing of the run before.
    assert replicate(origin, target, store) == 21
    assert replicate(origin, target, store) == 0
    check = verify_replica(origin, target, store)
    assert (check.is_equal, check.events, check.since_idx) == (True, 82, 61)
    assert check.origin_root == fold_of(origin, store).merkle.root()
    # A snapshot past the replica's end is no use to it, one before is.
    snapshot_of(store, fold_of(origin, store))
    origin.append_batch(observations(80, 1))
    snapshot_of(store, fold_of(origin, store))
    assert replicate(origin, target, store) == 1


def test_it_goes_on_where_the_origin_is_vacuumed_beneath_it(
    origin: SqliteLog, store: SnapshotStore
) -> None:
    target = MemoryLog("memory:replica")
    sink = Replication(origin, target, snapshots=store)
    assert sink.run_once().written == 61
    vacuum(origin, store)
    origin.append_batch(observations(60, 20))
    assert sink.run_once().written == 82


def test_without_a_snapshot_it_says_which(origin: SqliteLog, store: SnapshotStore) -> None:
    target = MemoryLog("memory:replica")
    replicate(origin, target)
    vacuum(origin, store)
    (file,) = store.files()
    for way in (
        lambda: replicate(origin, target),
        lambda: verify_replica(origin, target),
    ):
        with pytest.raises(Gone) as raised:
            way()
        assert file.path.as_uri() in str(raised.value)
        assert "--snapshots" in str(raised.value)
    empty = SnapshotStore(store.folder / "empty")
    with pytest.raises(Gone, match=r"ends at index 60, and .*empty holds no snapshot") as raised:
        replicate(origin, target, empty)
    assert file.path.as_uri() in str(raised.value)


def test_a_replica_that_lacks_what_was_removed_is_told(
    origin: SqliteLog, store: SnapshotStore
) -> None:
    vacuum(origin, store)
    with pytest.raises(Gone, match="ends at index -1, events before index 56 were vacuumed"):
        replicate(origin, MemoryLog("memory:replica"), store)


@pytest.mark.parametrize("index", [30, 57, 60])
def test_another_history_is_seen(
    origin: SqliteLog, store: SnapshotStore, tmp_path: Path, index: int
) -> None:
    """A replica of a log that was the same up to an index, and is not from there on."""
    other = SqliteLog(tmp_path / "other.db")
    other.initialize(log_id=origin.initialize().log_id, empty=True)
    records = origin.scan(0)
    changed = observations(500, 61 - index)
    events = [r.value or b"" for r in records[:index]]
    values = [*events, *(encode_event(e) for e in changed)]
    other.copy_records([CopiedRecord(n, n + 1, v) for n, v in enumerate(values)], after=-1)
    target = MemoryLog("memory:replica")
    replicate(other, target)
    vacuum(origin, store)
    check = verify_replica(origin, target, store)
    assert not check.is_equal
    assert check.first_difference == 60
    with pytest.raises(Diverged, match="here or before"):
        check.require_equal()
    with pytest.raises(Diverged):
        replicate(origin, target, store)


def test_by_uri(origin: SqliteLog, store: SnapshotStore, tmp_path: Path) -> None:
    uris = f"sqlite:///{tmp_path / 'origin.db'}", f"sqlite:///{tmp_path / 'replica.db'}"
    run_sink(*uris, stop=threading.Event(), follow=False)
    vacuum(origin, store)
    progress = run_sink(*uris, stop=threading.Event(), follow=False, snapshots=store.folder)
    assert progress.written == 1
    with open_log(uris[1]) as replica:
        replica.initialize(replica=True)
        assert replica.next_position() == 62
