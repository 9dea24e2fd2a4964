"""The example of docs/events.md does what the page says."""

import re
from pathlib import Path

import pytest

from tests.e2e.program import belog

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def block(language: str) -> str:
    """The one fenced block of a language."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_example_is_accepted_as_shown(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(block("json"), encoding="utf-8")
    command, answer = block("console").splitlines()
    program, *arguments = command.removeprefix("$ ").split()
    assert program == "belog"
    assert belog(*arguments, cwd=tmp_path).ok().lines() == [answer]
    log = arguments[arguments.index("--log") + 1]
    listed = belog("events", "--log", log, "--json", cwd=tmp_path).ok().json()
    assert len(listed) == 1 + len(block("json").splitlines())
    row = belog("partition", "show", "sales/2026-01-31", "--log", log, "--json", cwd=tmp_path)
    assert row.ok().json()[0]["state"] == "available"
