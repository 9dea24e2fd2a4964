"""Validated appends over gRPC by 100 clients, against an rpc of the same messages that does none.

In one run with the others: `python -m benchmarks grpc`. The servers are processes of their own, the
clients one, which sends requests that were made before: on two cores it takes its share all the
same, of both sides alike.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc

from belog.schemas.envelope import Event
from belog.schemas.wire import event_to_wire
from belog.v1 import event_log_pb2 as pb
from benchmarks.append_rates import CLIENTS, Boundary, append_rows
from benchmarks.events import STEPS, builds
from benchmarks.measure import Figure, rate
from benchmarks.servers import Servers

CHANNELS: Final = 4
"""Connections that the clients share."""
EVENTS: Final = 2_000
"""Of one round, one event an rpc."""
BATCHED: Final = 20_000
"""Events of one round that come in batches."""
OF: Final = CLIENTS * STEPS
"""Rounds have a multiple of this: whole builds for each client."""

APPEND: Final = "/belog.v1.EventLogService/Append"
APPEND_BATCH: Final = "/belog.v1.EventLogService/AppendBatch"


def run(servers: Servers) -> Iterator[Figure]:
    """Yield single appends and batches, on SQLite and on Kafka."""
    boundary = Boundary(
        name="gRPC", against="a bare rpc", server="benchmarks.grpc_server", rate=append_rate
    )
    events, batched = servers.sized(EVENTS, OF), servers.sized(BATCHED, OF)
    yield from append_rows(servers, boundary, events=events, batched=batched)


def append_rate(port: int, number: int, total: int, batch: int, sent: list[list[bytes]]) -> float:
    """See `benchmarks.append_rates.Rate`."""
    chains = _chains(total, number, sent)
    if batch == 1:
        requests = [
            [pb.AppendRequest(event=event_to_wire(event)).SerializeToString() for event in chain]
            for chain in chains
        ]
        return rate(total, lambda: asyncio.run(_sent(port, APPEND, requests)))
    requests = [
        [
            pb.AppendBatchRequest(
                events=map(event_to_wire, chain[at : at + batch])
            ).SerializeToString()
            for at in range(0, len(chain), batch)
        ]
        for chain in chains
    ]
    return rate(total, lambda: asyncio.run(_sent(port, APPEND_BATCH, requests)))


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
