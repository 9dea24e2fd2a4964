"""Every command and every program in the README does what it says."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import belog, environment, running
from tests.servers import Broker, Redis, eventually, free_port, port_is_open

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


LOG = "sqlite:///builds.db"
SERVE = "belog serve --log sqlite:///builds.db --port 8000"


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> Iterator[str]:
    """The commands of all console blocks, in order, without their comments."""
    for block in blocks("console"):
        for line in block.splitlines():
            assert line.startswith("$ "), line
            yield line[2:].partition("   #")[0].partition(" # ")[0].rstrip()


def of(prefix: str) -> list[str]:
    """The commands that start with a word."""
    return [command for command in commands() if command.startswith(prefix)]


def shell(command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command line as typed; return what it printed."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    assert {command.split()[0] for command in commands()} == {
        *("belog", "curl", "export", "make", "pip")
    }
    assert set(of("make")) == {"make demo", "make test"}


def test_make_demo_runs() -> None:
    before = set(ROOT.glob("belog-demo*"))
    try:
        assert "equal Merkle roots" in shell("make demo", ROOT)
    finally:
        for folder in set(ROOT.glob("belog-demo*")) - before:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()


def test_make_test_runs_what_runs_this() -> None:
    assert "pytest" in shell("make --dry-run --always-make test", ROOT)
    assert "make check" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", of("pip"))
def test_pip_lines_resolve(command: str, tmp_path: Path) -> None:
    # What is published is built from here.
    here = re.sub(r"'?belog(\[[a-z,]+\])?'?$", rf"'{ROOT}\1'", command)
    assert here != command
    shell(here.replace("pip install", f"{sys.executable} -m pip install --dry-run"), tmp_path)


def test_the_embedded_commands_and_programs_run_in_order(tmp_path: Path) -> None:
    setting = of("export")[0].removeprefix("export ").split("=", 1)
    env = {setting[0]: setting[1]}
    local = [c for c in of("belog") if "localhost" not in c and c != SERVE]
    assert len(local) >= 9
    for command in local:
        if "--follow" in command:
            with running(shlex.split(command)[1:], cwd=tmp_path, env=env) as tail:
                assert tail.stdout is not None
                assert '"index":' in tail.stdout.readline()
            continue
        assert shell(command, tmp_path, env) or "sink" in command
    for number, program in enumerate(p for p in blocks("python") if "localhost" not in p):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program, encoding="utf-8")
        assert shell(f"{sys.executable} {path.name}", tmp_path)


def test_the_service_and_who_asks_it_run_in_order(tmp_path: Path) -> None:
    port = free_port()
    to = f"localhost:{port}"
    there = [c.replace("localhost:8000", to) for c in commands() if "localhost:8000" in c]
    belog("append", "v1.partition.observed", "sales/1", "--log", LOG, cwd=tmp_path).ok()
    with running(shlex.split(SERVE.replace("8000", str(port)))[1:], cwd=tmp_path):
        eventually(lambda: port_is_open(port), "the service answers", timeout_s=60)
        for command in there:
            # A stream has no end.
            ending = " --max-time 3 || test $? = 28" if "/events/stream" in command else ""
            assert "sales/" in shell(command + ending, tmp_path)
        (program,) = [p for p in blocks("python") if "localhost:8000" in p]
        path = tmp_path / "program.py"
        path.write_text(program.replace("localhost:8000", to), encoding="utf-8")
        assert "v1.partition.observed" in shell(f"{sys.executable} {path.name}", tmp_path)


def test_the_commands_on_kafka_and_redis_run_in_order(
    tmp_path: Path, broker: Broker, redis_server: Redis, topic_name: str, redis_prefix: str
) -> None:
    tables = f"{redis_server.uri}?prefix={redis_prefix}"

    def placed(command: str) -> str:
        command = command.replace("localhost:9092/builds", f"{broker.bootstrap}/{topic_name}")
        return command.replace("redis://localhost:6379/0", f"'{tables}'")

    there = [placed(c) for c in of("belog") if "localhost:9092" in c]
    create, worker, *rest = there
    assert "topic create" in create
    assert "worker" in worker
    shell(create, tmp_path)
    log = f"kafka://{broker.bootstrap}/{topic_name}"
    belog("append", "v1.partition.observed", "sales/1", "--log", log, cwd=tmp_path).ok()
    with running(shlex.split(worker)[1:], cwd=tmp_path):

        def caught_up() -> bool:
            done = belog("status", "--log", log, "--tables", tables, "--json", cwd=tmp_path)
            return done.code == 0 and done.json()[0]["lag_records"] == 0

        eventually(caught_up, "the worker caught up", timeout_s=60)
        for command in rest:
            assert shell(command, tmp_path)
        assert "sales/1" in shell(there[-1], tmp_path)
