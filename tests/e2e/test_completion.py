"""Completion in the shell, as a user has it."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import environment

pytestmark = [pytest.mark.e2e]

ASK = """
eval "$(belog --show-completion)"
complete -p belog
COMP_WORDS=(belog token create --ro) COMP_CWORD=3
_belog_completion belog
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    (tmp_path / "belog.toml").write_text("[wrong]\n")
    done = subprocess.run(
        ["bash", "-c", ASK],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    function, completed = done.stdout.splitlines()
    assert function.endswith("-F _belog_completion belog")
    assert completed == "--role"
