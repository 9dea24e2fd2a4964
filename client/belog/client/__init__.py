"""Clients of the service: append, follow, ask; and a spool for when it is away.

`Client` blocks, `AsyncClient` does not; both do the same steps, which are written once.
"""

from belog.client.async_client import AsyncClient
from belog.client.catalog import Available, Building, Delegated, PartitionState, Requested
from belog.client.client import Client
from belog.client.cursors import START, Cursor, Page
from belog.client.flushing import Flushed, flush
from belog.client.recording import Spooled
from belog.client.settings import ClientOptions
from belog.client.spool import Spool
from belog.client.spool_words import Refusal, SpoolStatus
from belog.client.subscription import CursorFile, Subscription, reaction_id
from belog.schemas.receipts import Receipt

__all__ = [
    "START",
    "AsyncClient",
    "Available",
    "Building",
    "Client",
    "ClientOptions",
    "Cursor",
    "CursorFile",
    "Delegated",
    "Flushed",
    "Page",
    "PartitionState",
    "Receipt",
    "Refusal",
    "Requested",
    "Spool",
    "SpoolStatus",
    "Spooled",
    "Subscription",
    "flush",
    "reaction_id",
]
