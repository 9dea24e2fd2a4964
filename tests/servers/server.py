"""What all servers have in common: a life cycle, and a way to see that they are ready."""

import abc
import functools
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

from tests.servers.containers import DockerRunner, image_of
from tests.servers.runner import ExternalRunner, LocalRunner, Plan, Runner
from tests.servers.wait import eventually

__all__ = ["Provider", "Server", "provider_of"]

Provider = Literal["docker", "local"]

READY_S = 60.0
"""A broker is ready in 3 to 9 s on two free cores; they are not always free."""

OBTAIN_S = 600
"""The bound on what scripts/servers may take for one server: it downloads."""

ROOT = Path(__file__).parents[2]


class Server(abc.ABC):
    """A server that tests can start, kill, pause and start again.

    `start` returns when the server answers. Its port and its data stay the same over
    kill, stop and restart, until `close`. Use it in a `with` statement, or call `close`.
    Not thread-safe, but every method may be called from any thread.
    """

    def __init__(self, runner: Runner, port: int) -> None:
        """Bind a server to its *runner*; nothing runs yet."""
        self.runner = runner
        self.port = port

    @property
    def provider(self) -> str:
        """`local`, `docker` or `external`."""
        return self.runner.provider

    @property
    @abc.abstractmethod
    def uri(self) -> str:
        """How clients name this server."""

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Ask the server a question that only a ready one answers; do not wait."""

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            TimeoutError: It did not. Quotes the end of its log.
        """
        self.runner.start()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until the server answers.

        Raises:
            TimeoutError: It did not, or it ended. Quotes the end of its log.
        """
        eventually(
            self.is_ready,
            f"{type(self).__name__} answers",
            timeout_s=READY_S,
            unless=self.runner.why_not_running,
        )

    def kill(self) -> None:
        """End the server by SIGKILL, as a crash would."""
        self.runner.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End the server by SIGTERM and wait until it has."""
        self.runner.signal(signal.SIGTERM)

    def restart(self) -> None:
        """Kill the server, start it on the same data and wait until it answers."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop the server's clock: it holds its connections and answers nothing."""
        self.runner.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self.runner.signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the server if it runs and remove its data. May be called again."""
        self.runner.close()

    def __enter__(self) -> Self:
        """Start the server."""
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the server."""
        self.close()


def runner_for(plan: Plan, provider: Provider | None = None) -> Runner:
    """Return a runner of *plan*, by *provider* or the one that `provider_of` chooses.

    Raises:
        RuntimeError: Docker is asked for, and no engine answers with the image.
    """
    if (provider or provider_of(plan.name)) == "local":
        return LocalRunner(plan)
    image = image_of(plan.name)
    if image is None:
        raise RuntimeError(f"no Docker engine answers with an image of {plan.name}")
    return DockerRunner(plan, image)


def external(name: str) -> tuple[ExternalRunner, str] | None:
    """Return the running server that `BELOG_TEST_<NAME>` names, if it names one."""
    uri = os.environ.get(f"BELOG_TEST_{name.upper()}")
    return (ExternalRunner(), uri) if uri else None


def provider_of(name: str) -> Provider:
    """Choose the provider: what `BELOG_TEST_SERVERS` says, else Docker if it can.

    Raises:
        ValueError: The variable holds something else.
    """
    forced = os.environ.get("BELOG_TEST_SERVERS") or "auto"
    if forced == "docker" or (forced == "auto" and image_of(name)):
        return "docker"
    if forced not in {*get_args(Provider), "auto"}:
        raise ValueError(f"BELOG_TEST_SERVERS={forced}: expected docker, local or auto")
    return "local"


@functools.cache
def obtain(name: str) -> None:
    """Let scripts/servers see to it that *name* can be started on this machine.

    Raises:
        RuntimeError: It cannot. Says what is missing and how to get it.
    """
    env = {**os.environ, "BELOG_TEST_SERVERS": "local", f"BELOG_TEST_{name.upper()}": ""}
    done = subprocess.run(
        [ROOT / "scripts" / "servers", name],
        check=False,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=OBTAIN_S,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
