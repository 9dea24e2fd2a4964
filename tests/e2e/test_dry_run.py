"""A changed lifecycle, tried on a log that is there."""

import re
from pathlib import Path

import pytest

from tests.e2e.program import belog

pytestmark = pytest.mark.e2e

LOG = "sqlite:///builds.db"
DOCS = Path(__file__).parents[2] / "docs" / "replay.md"


@pytest.fixture
def tried(tmp_path: Path) -> Path:
    """A folder with a log and the example of the documentation."""
    (example,) = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "changed.toml").write_text(example)
    for ref in ("a", "b"):
        belog("append", "v1.partition.observed", ref, "--log", LOG, cwd=tmp_path).ok()
    return tmp_path


def test_a_change_that_changes_nothing_exits_with_0(tried: Path) -> None:
    command = ["replay", "--log", LOG, "--dry-run", "--lifecycle", "changed.toml"]
    done = belog(*command, cwd=tried).ok()
    assert done.out == "0 of 3 records would be judged differently\n"
    assert belog(*command, "--json", cwd=tried).ok().json() == [
        {"records": 3, "differences": 0, "listed": []}
    ]


def test_a_change_that_matters_is_listed_and_exits_with_1(tried: Path) -> None:
    never = '{"row": [{"event": "v1.partition.observed", "from": [], "to": "available"}]}'
    (tried / "never.json").write_text(never)
    command = ["replay", "--log", LOG, "--dry-run", "--lifecycle", "never.json"]
    done = belog(*command, cwd=tried)
    assert done.code == 1
    assert done.lines()[-1] == "2 of 3 records would be judged differently"
    assert re.fullmatch(
        r"1 +partition:a +v1\.partition\.observed +accepted: available +void: illegal_transition",
        done.lines()[1],
    )
    report = belog(*command, "--json", "--until", "2", cwd=tried).json()[0]
    assert (report["records"], report["differences"]) == (2, 1)
    assert belog("events", "--log", LOG, cwd=tried).ok().lines()[2:], "the log is as it was"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dry-run"], "needs the changed lifecycle"),
        (["--lifecycle", "changed.toml"], "add --dry-run"),
        (["--dry-run", "--lifecycle", "none.toml"], "cannot be read"),
        (["--dry-run", "--lifecycle", "builds.db"], "neither a .toml nor a .json"),
        (["--dry-run", "--lifecycle", "wrong.toml"], "unknown field `rows`"),
    ],
)
def test_what_cannot_be_tried_is_said(tried: Path, arguments: list[str], says: str) -> None:
    (tried / "wrong.toml").write_text("rows = []")
    done = belog("replay", "--log", LOG, *arguments, cwd=tried)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
