"""What the gRPC service is bound to, and its limits."""

from typing import Final

import grpc
from msgspec import Struct

from belog.schemas.errors import InvalidInput, LimitExceeded
from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX

__all__ = [
    "ANSWER_BYTES_MAX",
    "CONNECTION_STREAMS_MAX",
    "MESSAGE_BYTES_MAX",
    "PAGE_EVENTS",
    "RPCS_MAX",
    "STREAMS_MAX",
    "WAIT_S_MAX",
    "GrpcSettings",
    "count_within",
    "index_from",
]

HOST: Final = "127.0.0.1"
"""This machine alone, where nothing else is said."""

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest request, bytes: a batch of `BATCH_EVENTS_MAX` events of usual size is some 5 MB."""

ANSWER_BYTES_MAX: Final = 3_500_000
"""Largest answer, bytes, where it can be cut: clients take 4 MiB (4,194,304) unless told
otherwise, and an event of the largest size fits."""

RPCS_MAX: Final = 12_000
"""Calls under way at once, waiting ones and streams too: twice the waiters one process was measured
with, and some. More are refused with RESOURCE_EXHAUSTED before they are looked at."""

STREAMS_MAX: Final = 5_000
"""Streams among them: each may hold some pages in buffers."""

CONNECTION_STREAMS_MAX: Final = 1_000
"""Calls under way on one connection; a client's further ones wait at the client."""

WAIT_S_MAX: Final = 60.0
"""Longest wait of a `ListEvents`, seconds: not above the idle limits of usual proxies. A longer one
is cut to it."""

PAGE_EVENTS: Final = 1_000
"""Events of a page where nothing is said."""

INDEX_WAIT_S: Final = 10.0
"""Longest wait for `min_index`, seconds: tables take milliseconds, a worker's failover ten."""

REQUEST_WAIT_S_MAX: Final = 3_600.0
"""Longest wait of a `RequestPartition`, seconds: builds take that long. A longer one is cut."""

HEARTBEAT_S: Final = 15.0
"""Longest silence of a stream of pages, seconds, before an empty page carries the cursor on."""

KEEPALIVE_S: Final = 60.0
"""After so much silence a connection is tried, seconds, so that clients who vanished are found."""

KEEPALIVE_TIMEOUT_S: Final = 20.0
"""How long the other side may take to answer that, seconds."""

CLIENT_PING_S: Final = 10.0
"""Least time between a client's own tries, seconds; who tries more often is sent away."""


class GrpcSettings(Struct, frozen=True, kw_only=True):
    """What the gRPC service is bound to, and its limits, which can be lowered."""

    host: str = HOST
    port: int = 0
    """0 for any that is free."""
    credentials: grpc.ServerCredentials | None = None
    """For TLS; with a client's CA in them, for mutual TLS. None for plain text."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    rpcs_max: int = RPCS_MAX
    streams_max: int = STREAMS_MAX
    connection_streams_max: int = CONNECTION_STREAMS_MAX
    wait_s_max: float = WAIT_S_MAX
    page_events_max: int = PAGE_EVENTS_MAX
    batch_events_max: int = BATCH_EVENTS_MAX
    index_wait_s: float = INDEX_WAIT_S
    request_wait_s_max: float = REQUEST_WAIT_S_MAX
    heartbeat_s: float = HEARTBEAT_S


def count_within(name: str, value: int, *, otherwise: int, limit: str, limit_value: int) -> int:
    """Return how many of something a request is to give.

    Args:
        name: The field.
        value: What it holds; 0 is the server's choice.
        otherwise: That choice.
        limit: Name of its bound.
        limit_value: The bound.

    Raises:
        InvalidInput: Below 0.
        LimitExceeded: Over the bound.
    """
    if value < 0:
        msg = f"{name} is {value}, below 0"
        raise InvalidInput(msg)
    if value > limit_value:
        raise LimitExceeded(name, limit=limit, limit_value=limit_value, value=value)
    return value or min(otherwise, limit_value)


def index_from(name: str, value: int) -> int:
    """Return an index that a request names.

    Raises:
        InvalidInput: Below 0.
    """
    if value < 0:
        msg = f"{name} is {value}; indices begin at 0"
        raise InvalidInput(msg)
    return value
