"""The bounds of the HTTP service, each with its unit and the reason for the number. Pure."""

from typing import Final

from msgspec import Struct

from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX
from belog.service.configuration import BODY_BYTES_MAX, WAIT_S_MAX, WAITERS_MAX

__all__ = [
    "BODY_IDLE_S",
    "BODY_S_MAX",
    "COMPRESS_BYTES_MIN",
    "HEADER_BYTES_MAX",
    "HEADER_S_MAX",
    "HEARTBEAT_S",
    "PAGE_EVENTS",
    "QUERY_TERMS_MAX",
    "READ_EVENTS_MAX",
    "STALLED_S_MAX",
    "URL_BYTES_MAX",
    "HttpSettings",
]

URL_BYTES_MAX: Final = 16_384
"""Path and query, bytes: a ref of 1,024 bytes takes 3,072 when all of it is percent-encoded, and a
filter of some hundred refs of usual length fits. Who has more asks with patterns."""

HEADER_BYTES_MAX: Final = 32_768
"""Request line and headers of one request, bytes: twice the URL, which stands in them."""

HEADER_S_MAX: Final = 15.0
"""How long the headers of a request may take from their first byte, seconds."""

BODY_IDLE_S: Final = 15.0
"""How long nothing may come of a body that was begun, seconds."""

BODY_S_MAX: Final = 60.0
"""How long a whole body may take, seconds: 16 MiB at 300 kB/s."""

STALLED_S_MAX: Final = 60.0
"""How long a client may take nothing of its answer, seconds, before it is cut off."""

QUERY_TERMS_MAX: Final = 1_100
"""Parameters of one query string: as many as a filter has terms, and some."""

PAGE_EVENTS: Final = 1_000
"""Events of a page when nothing is said: about 1 MB."""

READ_EVENTS_MAX: Final = 500
"""Events read from the log at once: at the largest size of an event a page is built from pieces of
some hundred MB at the very most, and usually of 150 kB."""

COMPRESS_BYTES_MIN: Final = 1_024
"""Smallest answer that is compressed, bytes: below it the packet is sent anyway."""

HEARTBEAT_S: Final = 15.0
"""Longest silence on a stream, seconds: below what proxies cut off (often 60, sometimes 30)."""


class HttpSettings(Struct, frozen=True, kw_only=True):
    """What can be set. Everything else is a constant of this module."""

    body_bytes_max: int = BODY_BYTES_MAX
    """Of a request, bytes, as sent and as decompressed."""
    answer_bytes_max: int = 16 * 1024 * 1024
    """A page of events ends at the event that exceeds it, bytes."""
    batch_events_max: int = BATCH_EVENTS_MAX
    """Events of one append."""
    page_events_max: int = PAGE_EVENTS_MAX
    """Events of one page."""
    wait_s_max: float = WAIT_S_MAX
    """Longest wait of one request, seconds."""
    reach_s: float = 10.0
    """How long `min_index` waits when nothing is said, seconds: tables that are further behind are
    out of order."""
    waiters_max: int = WAITERS_MAX
    """Requests that wait, and streams, at once."""
    heartbeat_s: float = HEARTBEAT_S
    """Longest silence on a stream, seconds."""
    hosts: frozenset[str] | None = None
    """Names that it is called by, where everyone may do everything; None for any."""
    title: str = "belog"
    """Name of the service in its OpenAPI document."""
