"""Where a reader is in a log, and in which. Pure."""

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import InvalidInput
from belog.schemas.receipts import EventPage

__all__ = ["START", "Cursor", "Page", "cursor_at"]

_TEXT: Final = re.compile(r"(\d{1,19})(?:@([0-9a-f-]{36})(?:\+(\d{1,19}):([0-9a-f]{32}))?)?")


class Cursor(Struct, frozen=True):
    """Where to go on. Immutable; keep it where the result of what was read is kept.

    It knows the log that it belongs to, and the last event that was seen there, so that neither
    another log nor one that was restored from an older backup is taken for the same.

    >>> Cursor.parse("17")
    Cursor(next_idx=17, log_id=None, last_index=None, last_event_id=None)
    >>> str(Cursor.parse("17"))
    '17'
    """

    next_idx: int = 0
    """First index wanted; 0 is the beginning."""
    log_id: UUID | None = None
    """None: whichever log there is; it is filled in by the first answer."""
    last_index: int | None = None
    """Index of an event that was seen, the newest that is known; before `next_idx`."""
    last_event_id: bytes | None = None

    def __str__(self) -> str:
        """Return it as one word, to be kept in files, environments and databases."""
        if self.log_id is None:
            return str(self.next_idx)
        known = ""
        if self.last_index is not None and self.last_event_id is not None:
            known = f"+{self.last_index}:{self.last_event_id.hex()}"
        return f"{self.next_idx}@{self.log_id}{known}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor that a text is, as `str` gave it; a bare index is one, too.

        Raises:
            InvalidInput: It is none.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            msg = f"{text!r:.120} is no cursor"
            raise InvalidInput(msg, hint="pass what str(cursor) gave, or an index")
        next_idx, log_id, last_index, event_id = found.groups()
        try:
            return cls(
                int(next_idx),
                None if log_id is None else UUID(log_id),
                None if last_index is None else int(last_index),
                None if event_id is None else bytes.fromhex(event_id),
            )
        except ValueError as error:
            msg = f"{text!r:.120} is no cursor"
            raise InvalidInput(msg) from error

    def after(self, stored: StoredEvent) -> "Cursor":
        """Return where to go on after an event."""
        return replace(
            self,
            next_idx=stored.index + 1,
            last_index=stored.index,
            last_event_id=stored.event.event_id,
        )

    def after_page(self, page: EventPage) -> "Cursor":
        """Return where to go on after a page, which may be empty."""
        cursor = self.after(page.events[-1]) if page.events else self
        return replace(cursor, next_idx=page.next_idx)


START: Final = Cursor()
"""The beginning of whichever log there is."""


def cursor_at(since: Cursor | int) -> Cursor:
    """Return a cursor; an index is one of whichever log there is."""
    return Cursor(since) if isinstance(since, int) else since


class Page(Struct, frozen=True):
    """Events in index order, and where to go on after them."""

    events: tuple[StoredEvent, ...]
    cursor: Cursor
    has_more: bool
    """There is more already."""

    def steps(self) -> Iterator[tuple[StoredEvent, Cursor]]:
        """Give each event with where to go on after it; after the last one, after the page."""
        for stored in self.events[:-1]:
            yield stored, self.cursor.after(stored)
        if self.events:
            yield self.events[-1], self.cursor
