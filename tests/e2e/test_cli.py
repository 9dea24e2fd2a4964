"""The commands on the embedded default, as a user types them."""

import json
import sqlite3
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.e2e.program import PROGRAM, belog, environment, running
from tests.servers import Redis, eventually

pytestmark = pytest.mark.e2e

LOG = "sqlite:///builds.db"
BUILD = '{"build_request_id": "nightly"}'


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder whose log holds one partition, from requested to available."""
    for name in ("requested", "scheduled", "building", "available"):
        event = f"v1.partition.{name}"
        belog("append", event, "sales/1", "--payload", BUILD, "--log", LOG, cwd=tmp_path).ok()
    return tmp_path


def test_append_says_where_and_a_retry_says_the_same(tmp_path: Path) -> None:
    event_id = str(uuid.uuid4())
    command = ["append", "v1.partition.observed", "sales/1", "--log", LOG, "--event-id", event_id]
    first = belog(*command, cwd=tmp_path).ok()
    assert first.out == "accepted at index 1\n"
    assert "created log" in first.err
    own = "append", "v1.review.done", "sales/1", "--log", LOG
    assert "does not tell its subject_kind" in belog(*own, cwd=tmp_path).err
    assert belog(*own, "--subject-kind", "partition", cwd=tmp_path).ok().out.endswith("index 2\n")
    again = belog(*command, "--json", cwd=tmp_path).ok()
    assert again.json()[0]["index"] == 1
    assert again.json()[0]["duplicate"] is True
    line = {"event_id": event_id, "event_type": "v1.partition.observed", "subject_id": "sales/1"}
    known = belog("append", "--from", "-", "--log", LOG, cwd=tmp_path, stdin=json.dumps(line)).ok()
    assert known.out == "1 accepted (1 of them there before), 0 refused\n"


def test_an_illegal_event_is_a_conflict_and_leaves_no_trace(built: Path) -> None:
    refused = belog(
        "append",
        "v1.partition.building",
        "sales/1",
        "--payload",
        BUILD,
        "--log",
        LOG,
        "--json",
        cwd=built,
    )
    assert (refused.code, refused.out) == (3, "")
    error = json.loads(refused.err)["error"]
    assert error["code"] == "illegal_transition"
    assert error["state"] == "available"
    assert "v1.partition.stale" in error["allowed"]
    assert len(belog("events", "--log", LOG, cwd=built).ok().lines()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["append", "v1.partition.nonsense", "x", "--log", LOG], 2, "not one of this version"),
        (["append", "v1.partition.stale", "x", "--log", LOG, "--payload", "{"], 2, "not JSON"),
        (["append", "v1.partition.stale", "--log", LOG], 2, "SUBJECT"),
        (["events", "--log", "sqlite:///nowhere.db"], 4, "no log"),
        (["events", "--log", "carrier-pigeon://x"], 2, "supported"),
        (["events"], 2, "--log"),
        (["partition", "show", "nothing/here", "--log", LOG], 4, "no partition"),
        (["events", "--log", LOG, "--pattern", "[a"], 2, "bracket"),
        (["events", "--log", LOG, "--created-from", "2026-01-01"], 2, "zone"),
        (["status", "--log", "kafka://127.0.0.1:1/x"], 5, "127.0.0.1:1"),
        (["partition", "list", "--log", LOG, "--tables", "redis://127.0.0.1:1/0"], 5, "127.0.0.1"),
    ],
)
def test_what_is_wrong_is_said_with_its_exit_code(
    built: Path, arguments: list[str], code: int, says: str
) -> None:
    done = belog(*arguments, cwd=built)
    assert done.code == code, done.err
    assert says in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert not (built / "nowhere.db").exists()


def test_rows_show_attempt_and_data_apart(built: Path) -> None:
    belog(
        "append",
        "v1.partition.requested",
        "sales/1",
        "--payload",
        '{"build_request_id": "next", "requesting_clients": ["ann"]}',
        "--log",
        LOG,
        cwd=built,
    ).ok()
    row = belog("partition", "show", "sales/1", "--log", LOG, "--json", cwd=built).ok().json()[0]
    assert row["state"] == "requested"
    assert row["attempt"] == {
        "build_id": "next",
        "requested_index": 5,
        "requested_at": row["updated_at"],
        "requesting_clients": ["ann"],
    }
    available = row["available"]
    assert isinstance(available, dict)
    assert (available["index"], available["build_id"]) == (4, "nightly")
    table = belog("partition", "list", "--log", LOG, cwd=built).ok().lines()
    assert table[0].split() == ["partition", "state", "data", "build", "index", "updated"]
    assert table[1].split()[:4] == ["sales/1", "requested", "yes", "next"]


def test_lines_from_a_pipe_get_a_result_each(tmp_path: Path) -> None:
    lines = [
        {"event_type": "v1.partition.observed", "subject_id": "a"},
        {
            "event_type": "v1.partition.building",
            "subject_id": "a",
            "payload": {"build_request_id": "b"},
        },
        {"event_type": "v1.partition.observed", "subject_id": "b"},
    ]
    text = "\n".join(map(json.dumps, lines))
    done = belog("append", "--from", "-", "--log", LOG, "--json", cwd=tmp_path, stdin=text)
    assert done.code == 3
    results = done.json()
    assert [r.get("index") for r in results] == [1, None, 2]
    assert [r["line"] for r in results] == [1, 2, 3]


def test_a_bad_line_keeps_its_batch_out(tmp_path: Path) -> None:
    text = '{"event_type": "v1.partition.observed", "subject_id": "a"}\n{"subject_id": 3}\n'
    done = belog("append", "--from", "-", "--log", LOG, cwd=tmp_path, stdin=text)
    assert done.code == 2
    assert "line 2" in done.err
    assert len(belog("events", "--log", LOG, cwd=tmp_path).ok().lines()) == 1


def test_events_filter_page_and_follow(built: Path) -> None:
    listed = (
        belog("events", "--log", LOG, "--partition", "sales/1", "--json", cwd=built).ok().json()
    )
    assert [e["index"] for e in listed] == [1, 2, 3, 4]
    page = belog("events", "--log", LOG, "--since", "1", "--limit", "2", cwd=built).ok()
    assert len(page.lines()) == 2
    assert "--since 3" in page.err
    with running(["events", "--log", LOG, "--since", "4", "--follow", "--json"], cwd=built) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["index"] == 4
        belog("append", "v1.partition.stale", "sales/1", "--log", LOG, cwd=built).ok()
        assert json.loads(tail.stdout.readline())["event_type"] == "v1.partition.stale"


def test_a_reader_that_goes_away_is_no_error(built: Path) -> None:
    command = f"'{PROGRAM}' events --log {LOG} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=built,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_replica_verify_and_replay_to_a_moment(built: Path) -> None:
    replica = "sqlite:///replica.db"
    belog("sink", "--from", LOG, "--to", replica, "--once", cwd=built).ok()
    done = belog("verify", "--log", LOG, "--replica", replica, "--json", cwd=built).ok()
    report = done.json()[0]
    assert report["differences"] == []
    shown = belog("partition", "show", "sales/1", "--log", replica, "--json", cwd=built).ok().json()
    assert shown[0]["state"] == "available"
    refused = belog("append", "v1.partition.stale", "sales/1", "--log", replica, cwd=built)
    # As a service of it answers.
    assert refused.code == 3
    assert "replica" in refused.err
    at = belog("replay", "--log", LOG, "--until", "3", "--json", cwd=built).ok().json()[0]
    assert at["applied"] == 3
    counts = at["counts"]
    assert isinstance(counts, dict)
    assert counts["partition"] == {"scheduled": 1}


def test_a_sink_that_stays_follows_and_stops(built: Path) -> None:
    replica = "sqlite:///replica.db"
    with running(["sink", "--from", LOG, "--to", replica], cwd=built) as sink:

        def copied() -> bool:
            done = belog("events", "--log", replica, "--json", cwd=built)
            return done.code == 0 and len(done.lines()) == 6

        eventually((built / "replica.db").exists, "the sink made the replica")
        belog("append", "v1.partition.stale", "sales/1", "--log", LOG, cwd=built).ok()
        eventually(copied, "the new event is in the replica", timeout_s=30)
        sink.terminate()
        assert sink.wait(20) == 0


def test_demo_shows_it_all(tmp_path: Path) -> None:
    out = belog("demo", cwd=tmp_path).ok().out
    for said in (
        "answered building",
        "delegated",
        "IllegalTransition",
        "equal Merkle roots",
        "The files are in belog-demo/",
    ):
        assert said in out
    suggested = [line.strip() for line in out.splitlines() if line.startswith("   belog ")]
    assert len(suggested) >= 5
    for command in suggested:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout
    again = belog("demo", cwd=tmp_path).ok().out
    assert "belog-demo-2/" in again


def test_damage_within_a_log_is_found_and_named(built: Path) -> None:
    with sqlite3.connect(built / "builds.db") as raw:
        (value,) = raw.execute("SELECT value FROM belog_records WHERE idx = 3").fetchone()
        flipped = bytearray(value)
        flipped[-10] ^= 1
        raw.execute("UPDATE belog_records SET value = ? WHERE idx = 3", (bytes(flipped),))
    raw.close()
    done = belog("verify", "--log", LOG, "--json", cwd=built)
    assert done.code == 1
    differences = done.json()[0]["differences"]
    assert isinstance(differences, list)
    assert differences[0] == "log: index 3: void, wrong_digest"
    assert "index 4" in differences[1]


def test_a_missing_record_is_pointed_at(built: Path) -> None:
    with sqlite3.connect(built / "builds.db") as raw:
        raw.execute("DELETE FROM belog_records WHERE idx = 4")
        raw.execute(
            "INSERT INTO belog_records SELECT 5, created_at, value FROM belog_records LIMIT 1"
        )
    raw.close()
    done = belog("verify", "--log", LOG, cwd=built)
    assert "no record at index 4" in done.err
    assert done.code == 1


def test_a_list_that_is_cut_says_so_in_both_forms(built: Path) -> None:
    lines = [json.dumps({"event_type": "v1.partition.observed", "subject_id": n}) for n in "abc"]
    belog("append", "--from", "-", "--log", LOG, cwd=built, stdin="\n".join(lines)).ok()
    for form in ([], ["--json"]):
        done = belog("partition", "list", "--log", LOG, "--limit", "2", *form, cwd=built).ok()
        assert "more than 2" in done.err


def test_a_circle_is_wrong_input_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "round.yml").write_text("steps: {a: [b], b: [a]}", encoding="utf-8")
    done = belog("import", "dag", "round.yml", "--log", LOG, cwd=tmp_path)
    assert done.code == 2
    assert "a → b → a" in done.err
    assert not (tmp_path / "builds.db").exists()


def test_what_a_terminal_cannot_show_is_spelled_out(built: Path) -> None:
    belog("append", "v1.partition.observed", "blé/1", "--log", LOG, cwd=built).ok()
    env = {"PYTHONIOENCODING": "ascii"}
    done = belog("partition", "list", "--log", LOG, cwd=built, env=env).ok()
    assert "bl\\xe9/1" in done.out


def test_health_checks_know_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    done = belog("status", "--ready", "--log", LOG, cwd=tmp_path).ok()
    assert "log_id: -" in done.out
    assert not (tmp_path / "builds.db").exists()


@pytest.mark.integration
def test_health_checks_fail_where_no_worker_follows(
    built: Path, redis_server: Redis, redis_prefix: str
) -> None:
    tables = f"{redis_server.uri}?prefix={redis_prefix}"
    status = ["status", "--ready", "--log", LOG, "--tables", tables]
    with running(["worker", "--log", LOG, "--tables", tables], cwd=built):
        eventually(lambda: belog(*status, cwd=built).code == 0, "the worker follows", timeout_s=60)
    belog("append", "v1.partition.stale", "sales/1", "--log", LOG, cwd=built).ok()
    done = belog(*status, cwd=built)
    assert done.code == 5
    assert "the log ends at 6" in done.err


@pytest.mark.parametrize(
    "uri", ["sqlite://bob:geheim@h/x", "bob:geheim@x/y", "sqlite:///c.db?key=geheim"]
)
def test_no_password_is_shown_wherever_it_stands(tmp_path: Path, uri: str) -> None:
    done = belog("events", "--log", uri, cwd=tmp_path)
    assert done.code == 2
    assert "geheim" not in done.err
