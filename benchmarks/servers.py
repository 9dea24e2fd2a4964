"""Real servers for the benchmarks, started when the first one asks for them."""

import uuid
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from belog.storage.kafka_topic import create_topic
from benchmarks.million import PARTITIONS, Million, make_million
from tests.servers import Broker, Postgres, Redis

__all__ = ["QUICK_DIVISOR", "Servers"]

QUICK_DIVISOR: Final = 20
"""A quick run does so much less: minutes become seconds, and starting servers is most of it."""


class Servers:
    """One server of each kind for all benchmarks of a run, and a folder on disk."""

    def __init__(self, stack: ExitStack, *, quick: bool = False) -> None:
        """Start nothing yet; the stack ends what gets started.

        Args:
            stack: Ends what gets started.
            quick: Do a twentieth of the work: the figures mean little, that the program works does.
        """
        self._stack = stack
        self.quick = quick

    def sized(self, count: int, of: int = 1) -> int:
        """Return a count, or a twentieth of it in a quick run; a multiple of `of`, at least one."""
        return max(count // QUICK_DIVISOR // of, 1) * of if self.quick else count

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

    @cached_property
    def million(self) -> Million:
        """A log of a million events in SQLite, its tables, and a snapshot near its end."""
        return make_million(self.folder, partitions=self.sized(PARTITIONS, 100))

    def topic_uri(self, name: str) -> str:
        """Make a topic and return its log's URI."""
        uri = f"kafka://{self.broker.bootstrap}/{name}-{uuid.uuid4().hex[:8]}"
        create_topic(uri)
        return uri
