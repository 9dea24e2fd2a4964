"""Running the installed program as a user does: a process, its output, its exit code."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Done", "belog", "running"]

PROGRAM = Path(sys.executable).with_name("belog")
TIME_S = 120


class Done:
    """What a finished command left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def lines(self) -> list[str]:
        """Standard output, line by line."""
        return self.out.splitlines()

    def json(self) -> list[dict[str, object]]:
        """Standard output as JSON objects, one a line."""
        return [json.loads(line) for line in self.lines()]

    def ok(self) -> "Done":
        """Fail the test unless the command was done."""
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return self


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: no setting of ours, the program on the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("BELOG__")}
    path = f"{PROGRAM.parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "COLUMNS": "200", **(extra or {})}


def belog(
    *arguments: str | Path,
    cwd: Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run one command to its end."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        env=environment(env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIME_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def running(
    arguments: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[str]]:
    """Run a command that stays; ended with SIGTERM, and by force if that does not help."""
    log = (cwd / f"{'-'.join(map(str, arguments[:1]))}.stderr").open("w", encoding="utf-8")
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        cwd=cwd,
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        log.close()
