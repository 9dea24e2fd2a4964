"""What runs a server: a process of this machine, a container, or somebody else.

`Runner` is the seam. A server (`Broker`, `Redis`, `Postgres`) hands over a `Plan`:
one shell script that prepares its data where there is none and then becomes the
server by `exec`. The same script runs on this machine and in a container, so both
providers start the same thing.
"""

import abc
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.wait import eventually

__all__ = ["ExternalRunner", "LocalRunner", "NotOursError", "Plan", "Runner"]

STOP_S = 30.0
"""How long a server may take to stop when asked to, before it is killed."""

LOG_TAIL_BYTES = 4_000
"""How much of a server's log an error message quotes."""


class NotOursError(RuntimeError):
    """The server was not started by these tests, so it is not killed or paused."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to start a server, the same for every provider."""

    name: str
    """`kafka`, `redis` or `postgres`."""

    port: int
    """The port of 127.0.0.1 that clients connect to; the same after a restart."""

    script: str
    """For `sh`. Finds the data directory in `$DATA`, the address to listen on in `$BIND`."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """More variables for the script."""

    user: str | None = None
    """The account to run as where the tests run as root; None for their own."""


class Runner(abc.ABC):
    """One server's process or container. Not thread-safe."""

    provider: str
    """`local`, `docker` or `external`."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start on the data that is there. Returns before the server is ready."""

    @abc.abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send *number* to the server; for SIGKILL and SIGTERM, wait until it ended."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill the server if it runs and remove its data. May be called again."""

    @abc.abstractmethod
    def why_not_running(self) -> str | None:
        """Return None while the server runs, else what is known: exit code, end of log."""


class ExternalRunner(Runner):
    """A server that an environment variable names. It is used and left alone."""

    provider = "external"

    def start(self) -> None:
        """Do nothing: it runs."""

    def signal(self, number: signal.Signals) -> None:
        """Refuse.

        Raises:
            NotOursError: Always.
        """
        raise NotOursError(f"{number.name} is not sent to a server that the environment names")

    def close(self) -> None:
        """Leave it running."""

    def why_not_running(self) -> str | None:
        """Return None: nothing is known of its process."""
        return None


class LocalRunner(Runner):
    """A server as a child process, with its data in a directory of its own."""

    provider = "local"

    def __init__(self, plan: Plan) -> None:
        """Make the data directory of *plan*."""
        self._plan = plan
        self._account = _account(plan.user)
        # Not under pytest's own temporary directory: only its owner may enter
        # that, and PostgreSQL runs as another user when the tests run as root.
        self.dir = Path(tempfile.mkdtemp(prefix=f"belog-{plan.name}-"))
        if self._account:
            os.chown(self.dir, self._account.pw_uid, self._account.pw_gid)
        self._log = self.dir / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the server that was started last."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        account = self._account
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-euc", self._plan.script],
                cwd=self.dir,
                env={**os.environ, **self._plan.env, "DATA": str(self.dir), "BIND": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests: they still need their servers to end well.
                start_new_session=True,
                user=account.pw_uid if account else None,
                group=account.pw_gid if account else None,
                extra_groups=[] if account else None,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to the process and what it started in its group.

        SIGKILL reaches what it started outside its group, too, and all are gone afterwards.
        """
        assert self._process is not None, "not started"
        if number is signal.SIGKILL:
            self._kill(self._process)
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
            if number is signal.SIGSTOP:
                # The signal is sent and not yet heard: a thread may still answer somebody.
                eventually(self._stands_still, "every thread stands still", ignoring=(OSError,))
        if number is signal.SIGTERM:
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                raise

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self.pid}/task")
        if not threads.is_dir():
            return _stat_of(self.pid).startswith("T")
        # The state comes after the name, which stands in parentheses and may hold any others.
        states = [stat.read_text().rpartition(") ")[2][:1] for stat in threads.glob("*/stat")]
        return set(states) <= {"T", "Z", "X"}

    @staticmethod
    def _kill(process: "subprocess.Popen[bytes]") -> None:
        """Kill a process and its children, and wait until none is left."""
        if process.poll() is not None:
            return
        # PostgreSQL's backends have sessions of their own. One that outlives its parent
        # holds the shared memory, and the next server refuses to start beside it.
        os.killpg(process.pid, signal.SIGSTOP)
        children = _children(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait()
        eventually(lambda: not any(map(_is_alive, children)), "the server's children are gone")

    def close(self) -> None:
        """Kill the process and remove the directory."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def why_not_running(self) -> str | None:
        """Return the exit code and the end of the log of a process that ended."""
        if self._process is None:
            return "not started"
        code = self._process.poll()
        return None if code is None else f"exited with {code}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return "(no log)"


def _children(parent: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True
    )
    pairs = (map(int, line.split()) for line in listed.stdout.splitlines())
    return [pid for pid, above in pairs if above == parent]


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent's look does not."""
    state = _stat_of(pid)
    return bool(state) and not state.startswith("Z")


def _stat_of(pid: int) -> str:
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    return listed.stdout.strip()


def _account(user: str | None) -> pwd.struct_passwd | None:
    if user is None or os.geteuid() != 0:
        return None
    return pwd.getpwnam(user)
