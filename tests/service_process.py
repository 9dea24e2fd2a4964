"""A service as a process of its own, which can be killed, paused and started again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers import eventually, free_port

__all__ = ["ServiceProcess"]

START_S = 60.0
STOP_S = 20.0

PROGRAM = """
import json, logging, os, sys
from belog.service.configuration_files import read_configuration
from belog.service.serving import serve_configured
logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s %(message)s")
configuration = read_configuration(json.loads(sys.argv[1]), os.environ, named=sys.argv[2])
serve_configured(configuration, say=print)
"""


class ServiceProcess:
    """`belog serve` over one log, on one port whatever happens to it."""

    def __init__(self, log: str, folder: Path, *, configuration: str = "", **flags: object) -> None:
        self.log = log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._flags = {"log.uri": log, "server.port": self.port, **flags}
        self._output = folder / f"service-{self.port}.out"
        file = folder / f"service-{self.port}.toml"
        self._arguments = [json.dumps(self._flags), str(file)]
        self.configure = file.write_text
        """Takes the configuration for the next start."""
        self.configure(configuration)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, and wait until it answers."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BELOG__")}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *self._arguments],
                env=kept,
                stdout=output,
                stderr=output,
            )
        eventually(
            self.is_up, f"{self.url} answers", timeout_s=START_S, unless=self._why_not_running
        )
        return self

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self.url}/healthz", timeout=2) as answer:  # noqa: S310 - our own
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def output(self) -> str:
        """What it said so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def _why_not_running(self) -> str | None:
        assert self._process is not None
        code = self._process.poll()
        return None if code is None else f"it ended with {code}: {self.output()[-3000:]}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; for SIGKILL and SIGTERM, wait until it ended."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._process.wait(STOP_S)

    def kill(self) -> None:
        """End it as the system does when memory is short."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator does."""
        self.signal(signal.SIGTERM)

    def restart(self) -> None:
        """Kill and start it again."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()
