"""Redis: one server, in memory unless persistence is asked for."""

from typing import Literal, Self
from urllib.parse import urlsplit

import redis as client
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.containers import CONTAINER_PORTS
from tests.servers.runner import Plan, Runner
from tests.servers.server import Provider, Server, external, obtain, provider_of, runner_for
from tests.servers.wait import eventually, free_port

__all__ = ["Persistence", "Redis"]

Persistence = Literal["none", "dump", "append"]
"""What survives a kill: nothing, what was there at the last `SAVE`, or every write."""

ANSWER_S = 2.0
"""How long one look at the server may take."""

SETTINGS: dict[Persistence, str] = {
    "none": '--save "" --appendonly no',
    "dump": "--save 1 1 --appendonly no",
    "append": '--save "" --appendonly yes --appendfsync always',
}


class Redis(Server):
    """A Redis server on 127.0.0.1."""

    def __init__(self, runner: Runner, port: int, uri: str) -> None:
        """Use `create`."""
        super().__init__(runner, port)
        self._uri = uri

    @classmethod
    def create(cls, *, persistence: Persistence = "none", provider: Provider | None = None) -> Self:
        """Make a server of our own, not started.

        Args:
            persistence: What survives a kill.
            provider: None for what the environment and the machine suggest.

        Raises:
            RuntimeError: It cannot be had here. Says what is missing.
        """
        port = free_port()
        provider = provider or provider_of("redis")
        if provider == "local":
            obtain("redis")
        inside = port if provider == "local" else CONTAINER_PORTS["redis"]
        script = (
            f'exec redis-server --port {inside} --bind "$BIND" --protected-mode no '
            f'--dir "$DATA" {SETTINGS[persistence]}'
        )
        plan = Plan(name="redis", port=port, script=script)
        return cls(runner_for(plan, provider), port, f"redis://127.0.0.1:{port}/0")

    @classmethod
    def shared(cls) -> Self:
        """Return the server that `BELOG_TEST_REDIS=redis://…` names, else a new one."""
        named = external("redis")
        if not named:
            return cls.create()
        runner, uri = named
        return cls(runner, urlsplit(uri).port or CONTAINER_PORTS["redis"], uri)

    @property
    def uri(self) -> str:
        """`redis://host:port/0`."""
        return self._uri

    def connect(self) -> client.Redis:
        """Return a new client that tries everything once; the caller closes it."""
        return client.Redis.from_url(
            self._uri, socket_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
        )

    def flush(self) -> None:
        """Remove every key, of every test."""
        with self.connect() as redis:
            redis.flushall()

    def dump(self) -> None:
        """Write what it holds now to disk, also where it is about to do so by itself."""
        with self.connect() as redis:
            eventually(redis.save, "a dump is written", ignoring=(client.ResponseError,))

    def is_ready(self) -> bool:
        """Ask for a pong; a server that still loads its data gives none."""
        with self.connect() as redis:
            try:
                return bool(redis.ping())
            except client.RedisError:
                return False
