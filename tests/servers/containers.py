"""The Docker provider, by testcontainers."""

import functools
import signal
import subprocess
from typing import TYPE_CHECKING, Any, cast

from tests.servers.runner import LOG_TAIL_BYTES, STOP_S, Plan, Runner
from tests.servers.wait import eventually

if TYPE_CHECKING:
    from docker.models.containers import Container

__all__ = ["CONTAINER_PORTS", "IMAGES", "DockerRunner", "image_of"]

IMAGES = {
    "kafka": ("belog-test/kafka", "apache/kafka:4.4.0"),
    "redis": ("belog-test/redis", "redis:7-bookworm"),
    "postgres": ("belog-test/postgres", "postgres:16-bookworm"),
}
"""Per server the image of scripts/docker-images, which is preferred, and the published one."""

CONTAINER_PORTS = {"kafka": 9092, "redis": 6379, "postgres": 5432}
"""The port that a server listens on inside its container."""

ANSWER_S = 10
"""An engine that takes longer to answer is not used."""

PULL_S = 120
"""The bound on pulling one image. Without a registry it ends in a second or two."""

DATA = "/var/tmp/belog"  # noqa: S108 - inside the container, where nobody else is


class DockerRunner(Runner):
    """A server as a container, with its data in the container's own file system."""

    provider = "docker"

    def __init__(self, plan: Plan, image: str) -> None:
        """Prepare a container of *image*; nothing runs yet."""
        # Imported late: it takes a second, and needs no engine only when unused.
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        # The reaper is one more image to pull. `close` removes the container.
        testcontainers_config.ryuk_disabled = True
        user = plan.user or "root"
        self._spec = (
            DockerContainer(image)
            .with_kwargs(entrypoint=["/bin/sh", "-euc"], user=user)
            .with_command([f'mkdir -p "$DATA"; cd "$DATA"\n{plan.script}'])
            .with_envs(**plan.env, DATA=DATA, BIND="0.0.0.0")  # noqa: S104 - the container's
        )
        # with_bind_ports would publish on every interface of the machine.
        published = {f"{CONTAINER_PORTS[plan.name]}/tcp": ("127.0.0.1", plan.port)}
        self._spec.ports = cast("Any", published)
        self._started = False

    @property
    def container(self) -> "Container":
        """The running container, as docker-py shows it."""
        return self._spec.get_wrapped_container()

    def start(self) -> None:
        """Create the container, or start the one that was stopped."""
        if self._started:
            self.container.start()
        else:
            self._spec.start()
            self._started = True

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to the container's first process; pause stops all of them."""
        container = self.container
        if number is signal.SIGSTOP:
            container.pause()
        elif number is signal.SIGCONT:
            container.unpause()
        elif number is signal.SIGTERM:
            container.stop(timeout=int(STOP_S))
        else:
            container.kill(number.name)
            eventually(lambda: self._state() == "exited", "the container ended")

    def close(self) -> None:
        """Remove the container and its data."""
        if self._started:
            self._spec.stop(force=True, delete_volume=True)
            self._started = False

    def why_not_running(self) -> str | None:
        """Return the state and the end of the log of a container that ended."""
        if not self._started:
            return "not started"
        state = self._state()
        if state not in {"exited", "dead"}:
            return None
        log = self.container.logs()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"container is {state}:\n{log}"

    def _state(self) -> str:
        self.container.reload()
        return str(self.container.status)


@functools.cache
def image_of(name: str) -> str | None:
    """Return the image to use for *name*, pulled where needed, or None without one."""
    if not _succeeds("docker", "info", timeout_s=ANSWER_S):
        return None
    for image in IMAGES[name]:
        if _succeeds("docker", "image", "inspect", image, timeout_s=ANSWER_S):
            return image
    published = IMAGES[name][-1]
    return published if _succeeds("docker", "pull", published, timeout_s=PULL_S) else None


def _succeeds(*command: str, timeout_s: float) -> bool:
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
