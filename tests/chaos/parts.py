"""The parts of a deployment: processes of ours, and servers."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.deployment import Kind
from tests.servers import Server
from tests.servers.runner import LocalRunner

__all__ = ["ROOT", "ProcessPart", "ServerPart"]

ROOT = Path(__file__).parents[2]
ERRORS_CHARS_MAX = 3_000
"""How much of what a process said on standard error is shown."""


class ProcessPart:
    """A process of the system under test. Its standard error goes to a file, life after life."""

    server: Server | None = None

    def __init__(
        self, name: str, kind: Kind, command: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> None:
        """Say what to start; nothing runs yet."""
        self.name = name
        self.kind: Kind = kind
        self.errors_path = folder / f"{name}.stderr"
        self.exits: list[int] = []
        """Exit codes of earlier lives."""
        self._command = [sys.executable, *command]
        self._env = {**os.environ, **env}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.is_alive() else None

    def start(self) -> None:
        if self.is_alive():
            return
        self._collect()
        with self.errors_path.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def _collect(self) -> None:
        if self._process is not None:
            self.exits.append(self._process.wait())
            self._close_input()
            self._process = None

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill9(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop_signal(self) -> None:
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_done(self) -> bool:
        return self._process is not None and self._process.poll() == 0

    def tell(self, line: str) -> None:
        """Write a line to its standard input; one that has gone is told nothing."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()
            except OSError:
                return

    def end_input(self) -> None:
        """Close its standard input: it is to finish."""
        self._close_input()

    def crashes(self) -> list[int]:
        """Exit codes of lives that ended by a fault of the software: neither killed, nor done, nor
        by an error that says so."""
        codes = [*self.exits, *([self._process.returncode] if self._process else [])]
        return [
            code for code in codes if code not in {None, 0, 3, -signal.SIGKILL, -signal.SIGTERM}
        ]

    def errors(self) -> str:
        """The end of what it said on standard error."""
        if not self.errors_path.exists():
            return ""
        return self.errors_path.read_text(errors="replace")[-ERRORS_CHARS_MAX:]

    def close(self) -> None:
        """Kill it if it runs."""
        self.kill9()
        self._collect()


class ServerPart:
    """A server of the tests as a part."""

    def __init__(self, name: str, kind: Kind, server: Server) -> None:
        """Wrap a server, which stays the caller's to close."""
        self.name = name
        self.kind: Kind = kind
        self.server: Server | None = server
        self._wrapped = server

    @property
    def pid(self) -> int | None:
        runner = self._wrapped.runner
        return runner.pid if isinstance(runner, LocalRunner) and self.is_alive() else None

    def start(self) -> None:
        if not self.is_alive():
            self._wrapped.start()

    def kill9(self) -> None:
        self._wrapped.kill()

    def stop_signal(self) -> None:
        self._wrapped.pause()

    def cont(self) -> None:
        self._wrapped.resume()

    def is_alive(self) -> bool:
        return self._wrapped.runner.why_not_running() is None

    def is_done(self) -> bool:
        return False
