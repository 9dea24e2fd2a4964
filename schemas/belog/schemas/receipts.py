"""What a log answers to who appends and to who reads, in the process or from afar. Pure data."""

from msgspec import Struct

from belog.schemas.envelope import StoredEvent

__all__ = ["EventPage", "Receipt"]


class Receipt(Struct, frozen=True, gc=False):
    """Proof that an event is in the log."""

    index: int
    created_at: int
    """Ingest time, microseconds since the epoch, UTC."""
    event_id: bytes
    duplicate: bool = False
    """The event was there before; `index` is where."""


class EventPage(Struct, frozen=True):
    """A page of events in index order."""

    events: tuple[StoredEvent, ...]
    next_idx: int
    """Pass this as `since_idx` for what follows; it moves on also where nothing matched."""
    has_more: bool
    """Whether the log held records at or after `next_idx` when the page was made."""
