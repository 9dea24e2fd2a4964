"""The fixtures that every test relies on: the seed, and names of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUN_S = 60.0

EXAMPLE = """
def test_draws(seed):
    assert seed == 1

def test_draws_nothing():
    assert False
"""


def run_pytest(path: Path, *arguments: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments, str(path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    return done.stdout + done.stderr


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "test_example.py"
    path.write_text(EXAMPLE)
    return path


def test_seed_is_printed_where_it_was_used(example: Path) -> None:
    output = run_pytest(example, "--seed", "77")
    assert "seed: 77 (replay with --seed)" in output
    assert "servers: kafka " in output
    assert output.count("replay with: pytest ") == 1
    assert "::test_draws' --seed 77" in output


def test_seed_is_replayed(example: Path) -> None:
    assert "1 failed, 1 passed" in run_pytest(example, "--seed", "1")


@pytest.mark.parametrize("part", ["a b/c", "Ä" * 100])
def test_names_are_short_and_plain(unique_name: str, topic_name: str, part: str) -> None:
    assert part
    assert unique_name.replace("_", "").isalnum()
    assert unique_name.isascii()
    assert unique_name.startswith("test_names_are_short_and_plain")
    assert len(unique_name) <= 63
    assert topic_name.replace("-", "_") == unique_name
