"""Real servers for the benchmarks, started when the first one asks for them."""

import uuid
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from belog.storage.kafka_topic import create_topic
from tests.servers import Broker, Postgres, Redis

__all__ = ["Servers"]


class Servers:
    """One server of each kind for all benchmarks of a run, and a folder on disk."""

    def __init__(self, stack: ExitStack) -> None:
        """Start nothing yet; the stack ends what gets started."""
        self._stack = stack

    @cached_property
    def broker(self) -> Broker:
        """A broker on 127.0.0.1."""
        return self._stack.enter_context(Broker.create())

    @cached_property
    def redis(self) -> Redis:
        """A Redis on 127.0.0.1."""
        return self._stack.enter_context(Redis.create())

    @cached_property
    def postgres(self) -> Postgres:
        """A PostgreSQL on 127.0.0.1."""
        return self._stack.enter_context(Postgres.create()).start()

    @cached_property
    def folder(self) -> Path:
        """An empty folder."""
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="belog-bench-")))

    def topic_uri(self, name: str) -> str:
        """Make a topic and return its log's URI."""
        uri = f"kafka://{self.broker.bootstrap}/{name}-{uuid.uuid4().hex[:8]}"
        create_topic(uri)
        return uri
