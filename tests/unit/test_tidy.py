"""The house style where no linter knows it: sizes, banned calls, words that do not belong."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

# Put together here, or this file would accuse itself.
MACHINE_PATH = re.compile("|".join(f"/{folder}/" for folder in ("work", "farm", "root")))
SLEEPS = {"time.sleep", "asyncio.sleep"}
SKIPS = {
    "pytest.importorskip",
    "pytest.skip",
    "pytest.xfail",
    "pytest.mark.skip",
    "pytest.mark.skipif",
    "pytest.mark.xfail",
}
PRINTS = {"print", "pprint.pprint", "breakpoint"}

WAITS = {"tests/servers/wait.py"}
"""The one place where tests sleep."""

SPEAKS = "service/belog/service/"
"""Only the program itself talks to its user."""


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository that match; untracked ones too unless ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run([*command, *patterns], cwd=ROOT, check=True, capture_output=True)
    paths = [ROOT / name for name in sorted(listed.stdout.decode().split("\0")) if name]
    return [path for path in paths if path.is_file()]


def is_generated(path: Path) -> bool:
    return bool(re.search(r"_pb2(_grpc)?\.pyi?$", path.name))


SOURCES = [path for path in tracked("*.py") if not is_generated(path)]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_test(path: Path) -> bool:
    return name_of(path).startswith(("tests/", "benchmarks/"))


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def uses(path: Path, names: set[str]) -> Iterator[str]:
    """Every place in *path* that refers to one of *names*, however it was imported."""
    tree = ast.parse(path.read_text())
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, dot, rest = dotted(node).partition(".")
            if f"{aliases.get(first, first)}{dot}{rest}" in names:
                yield f"{name_of(path)}:{node.lineno}"


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}:{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_modules_are_short() -> None:
    lengths = {
        name_of(path): len(path.read_text().splitlines()) for path in SOURCES if not is_test(path)
    }
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX} == {}


@pytest.mark.parametrize(
    ("names", "where"),
    [
        pytest.param(
            SLEEPS,
            lambda path: is_test(path) and name_of(path) not in WAITS,
            id="tests await a condition by tests.servers.eventually",
        ),
        pytest.param(
            SKIPS,
            is_test,
            id="a test that cannot run here fails and says what is missing",
        ),
        pytest.param(
            PRINTS,
            lambda path: not is_test(path) and not name_of(path).startswith((SPEAKS, "scripts/")),
            id="a library does not print",
        ),
    ],
)
def test_banned_calls(names: set[str], where: Callable[[Path], bool]) -> None:
    assert [place for path in SOURCES if where(path) for place in uses(path, names)] == []


def test_no_path_of_one_machine() -> None:
    texts = (
        (path, path.read_bytes().decode(errors="ignore"))
        for path in tracked()
        if not name_of(path).startswith("tests/data/")
    )
    assert [name_of(path) for path, text in texts if MACHINE_PATH.search(text)] == []


def test_uses_sees_through_imports(tmp_path: Path) -> None:
    source = tmp_path / "example.py"
    source.write_text("from time import sleep as nap\nimport asyncio as a\nnap(1)\na.sleep(1)\n")
    tree = ast.parse(source.read_text())
    assert len(tree.body) == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "ROOT", tmp_path)
        assert list(uses(source, SLEEPS)) == ["example.py:3", "example.py:4"]
