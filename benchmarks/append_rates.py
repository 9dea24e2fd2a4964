"""Appends by many clients through a service, single and in batches, against a bare endpoint."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Final, Protocol

from msgspec import Struct

from belog.storage import open_log
from benchmarks.counting import Tally, ids_in, tally
from benchmarks.measure import Figure, absolute, paired
from benchmarks.servers import Servers

__all__ = ["BATCH", "CLIENTS", "Boundary", "Rate", "append_rows"]

CLIENTS: Final = 100
BATCH: Final = 100
"""Events of a request that is a batch."""


class Rate(Protocol):
    """Takes a rate of appends."""

    def __call__(
        self, port: int, number: int, total: int, batch: int, sent: list[list[bytes]]
    ) -> float:
        """Return events a second, `batch` a request; a client's events hang together.

        Args:
            port: Of the service.
            number: Of the round.
            total: Events of all clients.
            batch: Events of a request.
            sent: Gets the ids of each client, in order.
        """
        ...


class Boundary(Struct, frozen=True, kw_only=True):
    """How clients reach the service, and what that is compared with."""

    name: str
    against: str
    server: str
    """The module of the server's process: with a log the service itself, else what is bare."""
    rate: Rate


def append_rows(
    servers: Servers, boundary: Boundary, *, events: int, batched: int
) -> Iterator[Figure]:
    """Yield single appends and batches, on SQLite and on Kafka.

    Args:
        servers: Give the logs.
        boundary: Through which clients append.
        events: Of one round, one event a request.
        batched: Events of one round that come in batches.
    """
    numbers = count()
    name, rate = boundary.name, boundary.rate
    with ExitStack() as stack:
        bare = stack.enter_context(_serving(boundary.server))
        for store, uri in (
            ("SQLite", f"sqlite:///{servers.folder / f'{name.lower()}.db'}"),
            ("Kafka", servers.topic_uri(name.lower())),
        ):
            port = stack.enter_context(_serving(boundary.server, uri))
            sent: list[list[bytes]] = []
            pair = paired(
                lambda port=port, sent=sent: rate(port, next(numbers), events, 1, sent),  # type: ignore[misc]
                lambda: rate(bare, 0, events, 1, []),
            )
            yield pair.figure(
                f"{name} append, {CLIENTS} clients, single events, {store}",
                "events/s",
                against=boundary.against,
                must=0.35,
                aim=0.7,
                checked=str(_tally(uri, sent)),
            )
            sent = []
            batches = [rate(port, next(numbers), batched, BATCH, sent) for _ in range(4)]
            yield absolute(
                f"{name} append, {CLIENTS} clients, batches of {BATCH}, {store}",
                "events/s",
                batches[1:],
                must=20_000,
                aim=50_000,
                checked=str(_tally(uri, sent)),
            )


def _tally(uri: str, sent: list[list[bytes]]) -> Tally:
    with open_log(uri) as log:
        log.initialize()
        return tally(sent, ids_in(log))


@contextmanager
def _serving(module: str, *log_uri: str) -> Iterator[int]:
    """Run a server until the context ends; its port."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *log_uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
