"""Validated appends over gRPC by 100 clients, against an rpc of the same messages that does none.

In one run with the others: `python -m benchmarks grpc`. The servers are processes of their own, the
clients one, which sends requests that were made before: on two cores it takes its share all the
same, of both sides alike.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import grpc

from belog.schemas.envelope import Event
from belog.schemas.wire import event_to_wire
from belog.storage import open_log
from belog.v1 import event_log_pb2 as pb
from benchmarks.counting import Tally, ids_in, tally
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, absolute, paired, rate
from benchmarks.servers import Servers

CLIENTS: Final = 100
CHANNELS: Final = 4
"""Connections that the clients share."""
EVENTS: Final = 2_000
"""Of one round, one event an rpc."""
BATCH: Final = 100
BATCHED: Final = 20_000
"""Events of one round that come in batches."""
OF: Final = CLIENTS * STEPS
"""Rounds have a multiple of this: whole builds for each client."""

APPEND: Final = "/belog.v1.EventLogService/Append"
APPEND_BATCH: Final = "/belog.v1.EventLogService/AppendBatch"


def run(servers: Servers) -> Iterator[Figure]:
    """Yield single appends and batches, on SQLite and on Kafka."""
    numbers = count()
    events, batched = servers.sized(EVENTS, OF), servers.sized(BATCHED, OF)
    with ExitStack() as stack:
        bare = stack.enter_context(serving())
        for name, uri in (
            ("SQLite", f"sqlite:///{servers.folder / 'grpc.db'}"),
            ("Kafka", servers.topic_uri("grpc")),
        ):
            port = stack.enter_context(serving(uri))
            sent: list[list[bytes]] = []
            pair = paired(
                lambda port=port, sent=sent: append_rate(port, next(numbers), events, sent),  # type: ignore[misc]
                partial(append_rate, bare, 0, events, []),
            )
            yield pair.figure(
                f"gRPC append, {CLIENTS} clients, single events, {name}",
                "events/s",
                against="a bare rpc",
                must=0.35,
                aim=0.7,
                checked=str(_tally(uri, sent)),
            )
            sent = []
            batches = [batch_rate(port, next(numbers), batched, sent) for _ in range(4)]
            yield absolute(
                f"gRPC append, {CLIENTS} clients, batches of {BATCH}, {name}",
                "events/s",
                batches[1:],
                must=20_000,
                aim=50_000,
                checked=str(_tally(uri, sent)),
            )


@contextmanager
def serving(*log_uri: str) -> Iterator[int]:
    """Run a server; its port."""
    command = [sys.executable, "-m", "benchmarks.grpc_server", *log_uri]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def _tally(uri: str, sent: list[list[bytes]]) -> Tally:
    with open_log(uri) as log:
        log.initialize()
        return tally(sent, ids_in(log))


def append_rate(port: int, number: int, total: int, sent: list[list[bytes]]) -> float:
    """Return events a second, one an rpc; a chain of events that hang together is one client's."""
    chains = [
        [pb.AppendRequest(event=event_to_wire(event)).SerializeToString() for event in chain]
        for chain in _chains(total, number, sent)
    ]
    return rate(total, lambda: asyncio.run(_sent(port, APPEND, chains)))


def batch_rate(port: int, number: int, total: int, sent: list[list[bytes]]) -> float:
    """Return events a second, `BATCH` an rpc."""
    chains = [
        [
            pb.AppendBatchRequest(
                events=map(event_to_wire, chain[at : at + BATCH])
            ).SerializeToString()
            for at in range(0, len(chain), BATCH)
        ]
        for chain in _chains(total, number, sent)
    ]
    return rate(total, lambda: asyncio.run(_sent(port, APPEND_BATCH, chains)))


def _chains(total: int, number: int, sent: list[list[bytes]]) -> list[list[Event]]:
    each = total // STEPS // CLIENTS
    chains = [list(builds(each, tag=f"{number}-{client}-")) for client in range(CLIENTS)]
    sent.extend([event.event_id for event in chain] for chain in chains)
    return chains


async def _sent(port: int, path: str, chains: Sequence[Sequence[bytes]]) -> None:
    channels = [
        # Else all of one process share one connection.
        grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        for _ in range(CHANNELS)
    ]

    async def client(n: int, requests: Sequence[bytes]) -> None:
        call: Any = channels[n % CHANNELS].unary_unary(path)
        for request in requests:
            answer = await call(request)
            assert answer

    await asyncio.gather(*(client(n, requests) for n, requests in enumerate(chains)))
    for channel in channels:
        await channel.close()
