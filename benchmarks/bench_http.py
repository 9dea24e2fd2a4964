"""Validated appends over HTTP by 100 clients, against an endpoint of the framework that does none.

Servers and clients are processes of their own; the clients send requests that were made before. How
soon an append wakes those who wait, and what a waiter takes: `bench_waiters`.
"""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.append_rates import CLIENTS, Boundary, append_rows
from benchmarks.events import STEPS, builds
from benchmarks.http_load import Load, Outcome, event_json
from benchmarks.measure import Figure
from benchmarks.servers import Servers

EVENTS: Final = 5_000
"""Of one round, one event a request."""
BATCHED: Final = 30_000
"""Events of one round that come in batches."""
OF: Final = CLIENTS * STEPS
"""Rounds have a multiple of this: whole builds for each client."""
ROUND_S_MAX: Final = 120
"""How long one round may take, seconds."""


def run(servers: Servers) -> Iterator[Figure]:
    """Yield single appends and batches, on SQLite and on Kafka."""
    boundary = Boundary(
        name="HTTP",
        against="a bare endpoint of the same framework",
        server="benchmarks.http_server",
        rate=append_rate,
    )
    events, batched = servers.sized(EVENTS, OF), servers.sized(BATCHED, OF)
    yield from append_rows(servers, boundary, events=events, batched=batched)


def append_rate(port: int, number: int, total: int, batch: int, sent: list[list[bytes]]) -> float:
    """See `benchmarks.append_rates.Rate`."""
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
