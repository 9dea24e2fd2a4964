"""Requests for partitions by 50 clients at once, against one append each, over HTTP."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Final

import msgspec

from benchmarks.http_clients import post_request, seconds_for
from benchmarks.measure import Figure, paired
from benchmarks.servers import Servers
from benchmarks.serving import served

CLIENTS: Final = 50
EACH: Final = 20
"""Requests of one client in one round."""
ROUNDS: Final = 4


def run(servers: Servers) -> Iterator[Figure]:
    """Yield requests that begin an attempt, and such that all but one join it, on both backends."""
    numbers = count()
    each = servers.sized(EACH)
    for name, uri in (
        ("SQLite", f"sqlite:///{servers.folder / 'request.db'}"),
        ("Kafka", servers.topic_uri("request")),
    ):
        with served(uri) as service:
            append = partial(_append_ms, service.port, numbers, each)
            for what, refs in (("of its own", _own), ("that all 50 ask for", _shared)):
                yield paired(
                    partial(_request_ms, service.port, numbers, each, refs), append, ROUNDS
                ).figure(
                    f"request_partition, {CLIENTS} clients, each a partition {what}, {name}",
                    "ms a client",
                    against="one append",
                    must=3.0,
                    aim=1.5,
                    better="lower",
                    checked="all answered 200",
                )


Refs = Callable[[int, int, int], str]
"""The ref that a client asks for: round, client, n."""


def _own(number: int, client: int, n: int) -> str:
    return f"own-{number}-{client}-{n}"


def _shared(number: int, _client: int, n: int) -> str:
    return f"shared-{number}-{n}"


def _request_ms(port: int, numbers: Iterator[int], each: int, refs: Refs) -> float:
    number = next(numbers)
    clients = [
        [
            post_request(
                msgspec.json.encode({"client_id": f"client-{client}"}),
                f"/partitions/{refs(number, client, n)}/request",
            )
            for n in range(each)
        ]
        for client in range(CLIENTS)
    ]
    return seconds_for(port, clients) * 1e3 / each


def _append_ms(port: int, numbers: Iterator[int], each: int) -> float:
    number = next(numbers)
    clients = [
        [
            post_request(
                msgspec.json.encode(
                    {
                        "event_type": "v1.partition.observed",
                        "subject_id": f"append-{number}-{client}-{n}",
                        "body": {"source": "bench"},
                    }
                )
            )
            for n in range(each)
        ]
        for client in range(CLIENTS)
    ]
    return seconds_for(port, clients) * 1e3 / each
