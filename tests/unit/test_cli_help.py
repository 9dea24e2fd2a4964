"""Every command says what it does, with an example; every option's variable is a key."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from belog.service.cli import app
from belog.service.configuration_merge import ENV_PREFIX, keys, variable_of

ROOT = typer.main.get_command(app)


def walk(
    command: Any = ROOT,  # noqa: ANN401 - of one of two versions of click
    path: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands that can be run, with their names."""
    inner = getattr(command, "commands", {})
    if path and (not inner or command.invoke_without_command):
        yield path, command
    for name, below in inner.items():
        yield from walk(below, (*path, name))


COMMANDS = dict(walk())


def examples(command: Any) -> list[str]:  # noqa: ANN401 - as above
    """Its examples, each on one line."""
    found = re.findall(r"^ *Example: (.*?)(?:\n\s*\n|\Z)", command.help, re.DOTALL | re.MULTILINE)
    return [" ".join(example.split()) for example in found]


def test_all_commands_are_found() -> None:
    assert {("events",), ("partition", "list"), ("config",), ("config", "check")} <= COMMANDS.keys()
    assert len(COMMANDS) > 30


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_examples_that_name_options_there_are(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help.splitlines()[0].strip().endswith((".", ":"))
    assert [e for e in examples(command) if f"belog {' '.join(path)}" in e]
    known = {name for param in (*command.params, *ROOT.params) for name in param.opts}
    known |= {name for param in command.params for name in param.secondary_opts}
    for example in examples(command):
        named = {word for word in shlex.split(example) if re.match(r"--[a-z]", word)}
        assert named <= known, f"{example}: {named - known}"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_variables_of_options_are_keys(path: tuple[str, ...]) -> None:
    variables = {variable_of(key.name) for key in keys()}
    named = {param.envvar for param in COMMANDS[path].params if param.envvar is not None}
    assert {name for name in named if name.startswith(ENV_PREFIX)} <= variables


def test_help_is_shown() -> None:
    shown = CliRunner().invoke(app, ["config", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "Example: belog config --json" in shown.output
