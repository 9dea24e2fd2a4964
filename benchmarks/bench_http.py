"""Validated appends over HTTP by 100 clients, against an endpoint of the framework that does none.

Servers and clients are processes of their own; the clients send requests that were made before. How
soon an append wakes those who wait, and what a waiter takes: `bench_waiters`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Final

import msgspec

from belog.storage import open_log
from benchmarks.counting import Tally, ids_in, tally
from benchmarks.events import STEPS, builds
from benchmarks.http_load import Load, Outcome, event_json
from benchmarks.measure import Figure, absolute, paired
from benchmarks.servers import Servers

CLIENTS: Final = 100
EVENTS: Final = 5_000
"""Of one round, one event a request."""
BATCH: Final = 100
BATCHED: Final = 30_000
"""Events of one round that come in batches."""
OF: Final = CLIENTS * STEPS
"""Rounds have a multiple of this: whole builds for each client."""
ROUND_S_MAX: Final = 120
"""How long one round may take, seconds."""


def run(servers: Servers) -> Iterator[Figure]:
    """Yield single appends and batches, on SQLite and on Kafka."""
    numbers = count()
    events, batched = servers.sized(EVENTS, OF), servers.sized(BATCHED, OF)
    with ExitStack() as stack:
        bare = stack.enter_context(serving())
        for name, uri in (
            ("SQLite", f"sqlite:///{servers.folder / 'http.db'}"),
            ("Kafka", servers.topic_uri("http")),
        ):
            port = stack.enter_context(serving(uri))
            sent: list[list[bytes]] = []
            pair = paired(
                lambda port=port, sent=sent: append_rate(port, next(numbers), events, 1, sent),  # type: ignore[misc]
                partial(append_rate, bare, 0, events, 1, []),
            )
            yield pair.figure(
                f"HTTP append, {CLIENTS} clients, single events, {name}",
                "events/s",
                against="a bare endpoint of the same framework",
                must=0.35,
                aim=0.7,
                checked=str(_tally(uri, sent)),
            )
            sent = []
            batches = [append_rate(port, next(numbers), batched, BATCH, sent) for _ in range(4)]
            yield absolute(
                f"HTTP append, {CLIENTS} clients, batches of {BATCH}, {name}",
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
def serving(*log_uri: str) -> Iterator[int]:
    """Run a server; its port."""
    command = [sys.executable, "-m", "benchmarks.http_server", *log_uri]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def append_rate(port: int, number: int, total: int, batch: int, sent: list[list[bytes]]) -> float:
    """Return events a second, `batch` a request; a client's events hang together.

    Args:
        port: Of the service.
        number: Of the round.
        total: Events of all clients.
        batch: Events of a request.
        sent: Gets the ids of each client, in order.
    """
    clients: list[list[bytes]] = []
    for client in range(CLIENTS):
        chain = list(builds(total // STEPS // CLIENTS, tag=f"{number}-{client}-"))
        sent.append([event.event_id for event in chain])
        events = [event_json(event) for event in chain]
        if batch == 1:
            clients.append(events)
        else:
            clients.append(
                [
                    b'{"events":[%b]}' % b",".join(events[at : at + batch])
                    for at in range(0, len(events), batch)
                ]
            )
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_load"],
        input=msgspec.msgpack.encode(Load(port, clients)),
        stdout=subprocess.PIPE,
        timeout=ROUND_S_MAX,
        check=True,
    )
    outcome = msgspec.json.decode(done.stdout, type=Outcome)
    assert outcome.bad == 0, f"{outcome.bad} answers were no 200"
    return total / outcome.seconds
