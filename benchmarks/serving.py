"""`belog serve` as a process of its own, and what it takes."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError
from urllib.request import urlopen

from msgspec import Struct

from tests.servers import eventually, free_port

__all__ = ["Service", "resident_mb", "served"]

ANSWER_S: Final = 60.0
"""How long the first answer may take: a log of a million events without a snapshot is read in half
of that."""


class Service(Struct, frozen=True):
    """A service that runs."""

    process: "subprocess.Popen[bytes]"
    port: int

    @classmethod
    def spawn(cls, log_uri: str, *flags: str) -> Self:
        """Start it; it does not answer yet."""
        port = free_port()
        program = Path(sys.executable).with_name("belog")
        command = [str(program), "serve", "--log", log_uri, "--port", str(port), *flags]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BELOG__")}
        return cls(subprocess.Popen(command, env=kept, stderr=subprocess.DEVNULL), port)

    def answer(self, path: str = "/healthz") -> Self:
        """Wait for the first answer to a question, and return the service."""
        eventually(
            lambda: self.get(path),
            f"{path} is answered",
            timeout_s=ANSWER_S,
            ignoring=(URLError, OSError),
            unless=lambda: None if self.process.poll() is None else "it ended",
        )
        return self

    def get(self, path: str) -> bytes:
        """Return the answer to a question; only 200 is one."""
        url = f"http://127.0.0.1:{self.port}{path}"
        with urlopen(url, timeout=ANSWER_S) as answer:
            body: bytes = answer.read()
            return body

    def kill(self) -> None:
        """End it as the system does when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(ANSWER_S)

    def stop(self) -> None:
        """End it as an operator does."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(ANSWER_S)


@contextmanager
def served(log_uri: str, *flags: str) -> Generator[Service]:
    """Run a service that answers."""
    service = Service.spawn(log_uri, *flags)
    try:
        yield service.answer()
    finally:
        service.stop()


def resident_mb(pid: int | None = None) -> float:
    """Return the resident memory of a process, MB; of this one where none is named."""
    # Not ru_maxrss: a new process starts with the peak of the one that made it.
    stat = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii")
    return int(stat.split()[1]) * resource.getpagesize() / 1e6
