"""Every program and every command of docs/clients.md runs, in order, against a service."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from belog.service.configuration_files import read_configuration
from belog.service.federation import upstream_settings
from tests.e2e.program import belog, environment, running
from tests.servers import eventually, free_port, port_is_open

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    port = free_port()
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    serve, *others = (command.replace("8000", str(port)) for command in commands)
    assert [command.split()[1] for command in others] == ["spool"] * 3
    outputs: list[str] = []
    with running(shlex.split(serve)[1:], cwd=tmp_path):
        eventually(lambda: port_is_open(port), "the service answers", timeout_s=90)
        for number, block in enumerate(blocks("python")):
            program = tmp_path / f"program_{number}.py"
            program.write_text(block.replace("8000", str(port)), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, program],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            outputs.append(done.stdout)
        for command in others:
            belog(*shlex.split(command)[1:], cwd=tmp_path).ok()
    assert "v1.partition.observed" in outputs[0]
    assert outputs[2].splitlines()[0].startswith("available ")
    assert outputs[4] == "0\n"
    assert outputs[5] == "stale\n"


def test_the_spool_is_flushed_by_command(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = (
        "from belog.client import Client\n"
        f"with Client({url!r}, spool='kept', retry_s=0.2) as client:\n"
        "    for ref in ('a', 'b'):\n"
        "        client.record('v1.partition.stale', ref)\n"
        "        client.record('v1.partition.observed', ref)\n"
        "    client.close()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    listed = belog("spool", "list", "--spool", "kept", "--json", cwd=tmp_path).ok().json()
    assert [line["number"] for line in listed] == [0, 1, 2, 3]
    away = belog("spool", "flush", "--spool", "kept", "--url", url, cwd=tmp_path)
    assert (away.code, away.lines()) == (5, ["sent 0, refused 0, left 4"])
    with running(["serve", "--log", "sqlite:///a.db", "--port", str(port)], cwd=tmp_path):
        eventually(lambda: port_is_open(port), "the service answers", timeout_s=90)
        done = belog("spool", "flush", "--spool", "kept", "--url", url, cwd=tmp_path)
    assert (done.code, done.lines()) == (3, ["sent 2, refused 2, left 0"])
    refused = belog("spool", "conflicts", "--spool", "kept", "--json", cwd=tmp_path).ok().json()
    assert [line["code"] for line in refused] == ["illegal_transition"] * 2
    assert "pending: 0" in belog("spool", "list", "--spool", "kept", cwd=tmp_path).ok().lines()


def test_the_configuration_of_upstreams_is_one(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    token = tmp_path / "lake.token"
    token.write_text("belog_" + "x" * 43 + "\n", encoding="utf-8")
    path = tmp_path / "belog.toml"
    path.write_text(block.replace("/etc/belog/lake.token", str(token)), encoding="utf-8")
    assert tomllib.loads(block)
    (found,) = upstream_settings(read_configuration({}, {}, named=str(path)).federation)
    assert (found.name, found.patterns) == ("lake", ("lake/**",))
    assert found.token == "belog_" + "x" * 43
