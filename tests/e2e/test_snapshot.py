"""Taking, using and checking snapshots as a user does."""

import json
from pathlib import Path

import pytest

from belog.storage.sqlite import SqliteLog
from tests.e2e.program import belog
from tests.examples import event

pytestmark = pytest.mark.e2e

LOG = "sqlite:///builds.db"
REPLICA = "sqlite:///replica.db"
ALONE = ["--log", LOG]
HERE = ["--log", LOG, "--snapshots", "snapshots"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a log of 201 events."""
    with SqliteLog(tmp_path / "builds.db") as log:
        log.initialize()
        log.append_batch(
            [event("v1.partition.observed", f"sales/{n % 50}", {}, n=n) for n in range(200)]
        )
    return tmp_path


def test_a_snapshot_is_taken_told_checked_and_used(folder: Path) -> None:
    (taken,) = belog("snapshot", *HERE, "--json", cwd=folder).ok().json()
    assert (taken["next_idx"], taken["events"], taken["subjects"]) == (201, 201, 51)
    marker = belog("events", "--log", LOG, "--since", "201", "--json", cwd=folder).ok().json()[0]
    assert marker["event_type"] == "v1.system.snapshot_taken"
    payload = marker["payload"]
    assert isinstance(payload, dict)
    assert payload["index"] == 201
    assert payload["content_digest"] == taken["content_digest"]
    assert payload["location"] == (folder / str(taken["file"])).as_uri()
    (status,) = belog("status", "--log", LOG, "--root", "--json", cwd=folder).ok().json()
    assert status["root"] != taken["root"]

    verified = belog("verify", *HERE, "--snapshot", "newest", "--json", cwd=folder).ok().json()[0]
    assert verified["differences"] == []
    shown = verified["snapshot"]
    assert isinstance(shown, dict)
    assert (shown["root"], shown["rows"]) == (taken["root"], taken["rows"])

    removed = ["append", "v1.partition.removed", "sales/7"]
    assert belog(*removed, *HERE, cwd=folder).ok().out == "accepted at index 202\n"
    assert belog(*removed, *HERE, cwd=folder).code == 3
    for more in ([], ["--snapshots", "snapshots"]):
        command = ["partition", "list", "--log", LOG, *more, "--json", "--limit", "1000"]
        rows = belog(*command, cwd=folder).ok().lines()
        assert len(rows) == 50
        assert json.loads(rows[0])["state"] == "removed"
        replayed = belog("replay", "--log", LOG, *more, "--until", "150", "--json", cwd=folder)
        assert replayed.ok().json()[0]["applied"] == 150


def test_a_start_reads_nothing_before_the_snapshot(folder: Path) -> None:
    belog("snapshot", *HERE, cwd=folder).ok()
    with SqliteLog(folder / "builds.db") as log:
        log.initialize()
        log._writer.execute("UPDATE belog_records SET value = x'00' WHERE idx BETWEEN 1 AND 150")  # type: ignore[union-attr]  # noqa: SLF001
    assert len(belog("partition", "list", *HERE, cwd=folder).ok().lines()) == 51
    belog("append", "v1.partition.removed", "sales/7", *HERE, cwd=folder).ok()
    # Whoever reads it all sees the damage, and so does who checks the snapshot.
    found = belog("verify", *HERE, "--snapshot", "newest", cwd=folder)
    assert found.code == 1
    assert "DIFFERENT snapshot: root" in found.out


def test_the_newest_is_damaged(folder: Path) -> None:
    belog("snapshot", *HERE, cwd=folder).ok()
    belog("append", "v1.partition.removed", "sales/7", "--log", LOG, cwd=folder).ok()
    belog("snapshot", *HERE, cwd=folder).ok()
    older, newest = sorted((folder / "snapshots").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data)
    listed = belog("partition", "list", *HERE, cwd=folder).ok()
    assert len(listed.lines()) == 51
    assert f"{newest.name} is passed by" in listed.err
    checked = belog("verify", *HERE, "--snapshot", "newest", cwd=folder)
    assert checked.code == 1
    assert "damaged" in checked.err
    belog("verify", *HERE, "--snapshot", older, cwd=folder).ok()
    assert belog("verify", *HERE, "--snapshot", "nothing.avro", cwd=folder).code == 4
    assert belog("verify", "--log", LOG, "--snapshot", "newest", cwd=folder).code == 2


def test_k_are_kept(folder: Path) -> None:
    for n in range(4):
        belog("snapshot", *HERE, "--keep", "2", cwd=folder).ok()
        belog("append", "v1.partition.stale", f"sales/{n}", "--log", LOG, cwd=folder).ok()
    assert len(list((folder / "snapshots").iterdir())) == 2


def test_a_replica_is_not_told(folder: Path) -> None:
    belog("sink", "--from", LOG, "--to", REPLICA, "--once", cwd=folder).ok()
    replica = ["--log", REPLICA, "--snapshots", "snapshots"]
    belog("snapshot", *replica, cwd=folder).ok()
    belog("snapshot", *HERE, cwd=folder).ok()
    names = [path.name for path in (folder / "snapshots").iterdir()]
    assert sorted(name[37] for name in names) == ["p", "r"]
    assert len(belog("events", "--log", REPLICA, "--since", "201", cwd=folder).ok().lines()) == 0
    belog("verify", *replica, "--snapshot", "newest", cwd=folder).ok()
    assert len(belog("partition", "list", *replica, cwd=folder).ok().lines()) == 51
    wrong = next(path for path in (folder / "snapshots").iterdir() if path.name[37] == "p")
    assert "not of" in belog("verify", *replica, "--snapshot", wrong, cwd=folder).err


def test_a_vacuum_counts_first_and_then_removes(folder: Path) -> None:
    command = ["vacuum", "--before", "2100-01-01T00:00:00Z", *HERE]
    assert "no snapshot" in belog(*command, cwd=folder).err
    belog("snapshot", *HERE, cwd=folder).ok()
    root = belog("status", "--log", LOG, "--root", "--json", cwd=folder).ok().json()[0]
    counted = belog(*command, cwd=folder).ok()
    assert counted.out.startswith("150 events would be removed")
    assert "--yes" in counted.err
    assert belog("status", "--log", LOG, "--root", "--json", cwd=folder).ok().json()[0] == root
    (done,) = belog(*command, "--yes", "--json", cwd=folder).ok().json()
    assert done == {"removed": 150, "horizon": 151, "dry_run": False}
    # Who starts from the snapshot goes on; who wants the beginning is told where to start.
    assert len(belog("partition", "list", *ALONE, cwd=folder).ok().lines()) == 51
    belog("append", "v1.partition.removed", "sales/7", *ALONE, cwd=folder).ok()
    for behind in (
        ["events", "--log", LOG],
        ["verify", "--log", LOG],
    ):
        gone = belog(*behind, cwd=folder)
        assert (gone.code, gone.out) == (4, "")
        assert "start from snapshot file://" in gone.err
    # Unnamed, the one that the log names is looked for where it was.
    away = (folder / "snapshots").rename(folder / "elsewhere")
    gone = belog("append", "v1.partition.stale", "sales/8", *ALONE, cwd=folder)
    assert (gone.code, gone.out) == (4, "")
    away.rename(folder / "snapshots")
    assert len(belog("events", *HERE, "--since", "151", cwd=folder).ok().lines()) == 53
    show = ["partition", "show", "sales/7", "--events"]
    assert len([x for x in belog(*show, *HERE, cwd=folder).ok().lines() if "v1." in x]) == 2
    belog("verify", *HERE, "--snapshot", "newest", cwd=folder).ok()
    belog("snapshot", *HERE, cwd=folder).ok()
    belog("verify", *HERE, "--snapshot", "newest", cwd=folder).ok()
    again = belog(*command, "--yes", "--json", cwd=folder).ok().json()
    assert again == [{"removed": 1, "horizon": 159, "dry_run": False}]


def test_questions_and_replicas_of_a_vacuumed_log_begin_with_its_snapshot(folder: Path) -> None:
    sink = ["sink", "--from", LOG, "--to", REPLICA, "--once"]
    belog(*sink, cwd=folder).ok()
    belog("snapshot", *HERE, cwd=folder).ok()
    belog("vacuum", "--before", "2100-01-01T00:00:00Z", *HERE, "--yes", cwd=folder).ok()
    # Each of them with the folder that is named, or with the one that the log names.
    for question, where in (
        (["partition", "explain", "sales/7"], HERE),
        (["partition", "graph", "sales/7"], ALONE),
        (["partition", "wait", "sales/7"], HERE),
        (["activity"], ALONE),
        (["stats"], HERE),
        (["status", "--root"], ALONE),
        (["partition", "request", "sales/8", "--build", "anew"], ALONE),
    ):
        belog(*question, *where, cwd=folder).ok()
    verify = ["verify", *HERE, "--replica", REPLICA]
    for command in (sink, ["verify", "--log", LOG, "--replica", REPLICA]):
        gone = belog(*command, cwd=folder)
        assert (gone.code, gone.out) == (4, "")
        assert "snapshot file://" in gone.err
    belog(*sink, "--snapshots", "snapshots", cwd=folder).ok()
    belog(*verify, cwd=folder).ok()
