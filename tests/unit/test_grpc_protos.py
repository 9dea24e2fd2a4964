"""The .proto files: their rules, and that the code made of them is theirs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "schemas"
BUF = Path(sys.executable).with_name("buf")


def lint(folder: Path) -> str:
    command: list[str | Path] = [BUF, "lint", folder]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode in {0, 100}, done.stderr
    return done.stdout


def test_names_and_comments_are_as_the_rules_say() -> None:
    assert lint(SCHEMAS) == ""


@pytest.mark.parametrize(
    ("written", "instead", "complaint"),
    [
        ("// Most events of the page", "int32 other = 9;\n  // Most", "non-empty comment"),
        ("int32 wait_ms = 4;", "int32 waitMs = 4;", "lower_snake_case"),
        ("rpc ListEvents(", "rpc list_events(", "PascalCase"),
    ],
)
def test_the_rules_find_what_they_are_for(
    written: str, instead: str, complaint: str, tmp_path: Path
) -> None:
    shutil.copy(SCHEMAS / "buf.yaml", tmp_path)
    (tmp_path / "belog" / "v1").mkdir(parents=True)
    for source in (SCHEMAS / "belog" / "v1").glob("*.proto"):
        shutil.copy(source, tmp_path / "belog" / "v1")
    graph = tmp_path / "belog" / "v1" / "graph.proto"
    text = graph.read_text()
    assert written in text
    graph.write_text(text.replace(written, instead))
    assert complaint in lint(tmp_path)
