"""One log moved through all stores and back, as a user would."""

import gzip
import random
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.program import belog
from tests.servers import Broker, Postgres

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

OWID = Path(__file__).parents[1] / "data" / "owid"
"""A part of a real history; `--owid DIR` takes the whole."""
ROWS = 600
REFS = 120


def history(path: Path) -> Path:
    """Files that are added, modified and deleted, some of them against the order."""
    rng = random.Random(20)
    live: set[str] = set()
    lines = ["time\tchange\tref"]
    for n in range(ROWS):
        ref = f"snapshots/ggdc/2020-10-01/table_{rng.randrange(REFS)}.xlsx"
        change = rng.choice("MMD") if ref in live else rng.choice("AAAAD")
        live = live - {ref} if change == "D" else live | {ref}
        lines.append(f"2022-11-24T{n // 60:02}:{n % 60:02}:00+01:00\t{change}\t{ref}")
    path.write_text("\n".join(lines) + "\n")
    return path


def records(path: Path) -> list[tuple[int, int, bytes]]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT * FROM belog_records ORDER BY idx").fetchall()


def test_through_all_stores_and_back(  # noqa: PLR0917 - fixtures
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker: Broker,
    postgres_server: Postgres,
    postgres_schema: str,
    topic_name: str,
) -> None:
    owid = Path(request.config.getoption("--owid") or OWID)
    uris = [
        "sqlite:///first.db",
        f"{postgres_server.uri}?schema={postgres_schema}",
        "delta:table",
        "file:segments",
        f"{broker.uri}/{topic_name}",
        "sqlite:///last.db",
    ]
    rows = owid / "snapshot-history.tsv.gz"
    belog("import", "history", rows, "--log", uris[0], cwd=tmp_path).ok()
    belog("topic", "create", "--log", uris[4], cwd=tmp_path).ok()
    first = records(tmp_path / "first.db")
    with gzip.open(rows, "rb") as file:
        assert len(first) == len(file.readlines()), (
            "a row an event, and the log's first for the title"
        )
    roots: set[object] = set()
    for origin, target in pairwise(uris):
        moved = belog("migrate", "--from", origin, "--to", target, "--json", cwd=tmp_path).ok()
        (report,) = moved.json()
        assert (report["copied"], report["events"]) == (len(first), len(first))
        assert report["last_index"] == len(first) - 1
        assert ("broker" in moved.err) == ("kafka" in target)
        roots.add(report["root"])
        status = belog("status", "--log", target, "--root", "--json", cwd=tmp_path).ok().json()[0]
        roots.add(status["root"])
        assert status["next_idx"] == len(first)
    assert len(roots) == 1
    last = records(tmp_path / "last.db")
    assert [(index, value) for index, _, value in last] == [(i, v) for i, _, v in first]


def test_until_then_on_then_refused(tmp_path: Path) -> None:
    belog("import", "history", history(tmp_path / "h.tsv"), "--log", "sqlite:///a.db", cwd=tmp_path)
    move = ["migrate", "--from", "sqlite:///a.db", "--to", "file:b"]
    assert "100 events copied" in belog(*move, "--until", "100", cwd=tmp_path).ok().out
    total = len(records(tmp_path / "a.db"))
    assert f"{total - 100} events copied, {total} verified" in belog(*move, cwd=tmp_path).ok().out
    ahead = belog(*move, "--until", "100", cwd=tmp_path)
    assert (ahead.code, ahead.out) == (1, "")
    assert "past what is to be copied" in ahead.err
    other = belog("migrate", "--from", "sqlite:///none.db", "--to", "file:c", cwd=tmp_path)
    assert other.code == 4
    assert not (tmp_path / "c").exists()
    assert belog(*move, "--until", "0", cwd=tmp_path).code == 2
