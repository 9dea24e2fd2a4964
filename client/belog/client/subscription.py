"""Following a log for good: where one is survives, and each event is reacted to once.

A subscription keeps its cursor in a file of its own, moved on after each event that was handled. So
a program that dies is given the last event again when it starts, and no other: a reaction has to be
one that may be repeated. A reaction that is an event of a belog log is that, if its id is made of
the event that it reacts to (`reaction_id`): the log takes it once.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, Self
from uuid import UUID, uuid5

from belog.client.client import Client
from belog.client.cursors import Cursor
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Corrupt, InvalidInput, Unavailable
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.receipts import Receipt

__all__ = ["CursorFile", "CursorStore", "Subscription", "reaction_id"]

_REACTIONS: Final = UUID("5f0d7c1e-0f52-4b3f-9b56-3ad0f6a1c7c4")
"""Namespace of ids of reactions; drawn once. Part of the format: it must never change."""


def reaction_id(log_id: UUID, index: int, name: str) -> UUID:
    """Return the event id of a reaction; the same whenever it is asked for.

    Args:
        log_id: The log that the event stands in which is reacted to.
        index: Where it stands.
        name: Of the reaction, for an event may be reacted to in several ways.

    >>> log = UUID("0bc9094a-ffac-4f60-80f2-1bed0da34337")
    >>> reaction_id(log, 7, "copy") == reaction_id(log, 7, "copy") != reaction_id(log, 8, "copy")
    True
    """
    return uuid5(_REACTIONS, f"{log_id}/{index}/{name}")


class CursorStore(Protocol):
    """Keeps one cursor."""

    def load(self) -> Cursor | None:
        """Return what was saved last, None for nothing yet."""
        ...

    def save(self, cursor: Cursor) -> None:
        """Keep a cursor; durable on return."""
        ...


class CursorFile:
    """A cursor in a file, replaced in one step; held by one process at a time."""

    def __init__(self, path: str | Path) -> None:
        """Hold a file, which need not be there yet.

        Args:
            path: On a local disk. `path.lock` beside it is the lock.

        Raises:
            Unavailable: It cannot be written, or another process holds it.
        """
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(
                self._path.with_name(self._path.name + ".lock"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            msg = f"the cursor {path} cannot be kept: {error.strerror}"
            raise Unavailable(msg) from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock_fd)
            msg = f"another process follows with the cursor {path}"
            raise Unavailable(msg, hint="one subscription, one process") from error

    def load(self) -> Cursor | None:
        """Return what was saved last, None for nothing yet.

        Raises:
            Corrupt: The file holds no cursor.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return Cursor.parse(text)
        except InvalidInput as error:
            msg = f"the file {self._path} holds no cursor"
            raise Corrupt(msg, hint="put in the index to go on from") from error

    def save(self, cursor: Cursor) -> None:
        """Keep a cursor; durable on return.

        Raises:
            Unavailable: The disk cannot be written; the one before stays.
        """
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(f"{cursor}\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            msg = f"the cursor {self._path} cannot be kept: {error.strerror}"
            raise Unavailable(msg, hint="is there room?") from error

    def close(self) -> None:
        """Let another process have it. Idempotent."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class Subscription:
    """The events of a log that are wanted, each handled and then passed for good.

    Not thread-safe.

    Attributes:
        cursor: After the last event that was handled.
    """

    def __init__(
        self,
        client: Client,
        store: CursorStore,
        wanted: EventFilter = ALL,
        *,
        start: Cursor | int = 0,
    ) -> None:
        """Go on from where the store says.

        Args:
            client: Of the log; stays the caller's.
            store: Where the cursor is kept; stays the caller's.
            wanted: Which events.
            start: Where to begin where nothing is stored yet.

        Raises:
            Corrupt: What is stored is no cursor.
        """
        self._client = client
        self._store = store
        self._log_id: UUID | None = None
        self._may_be_repeated = True
        self._wanted = wanted
        saved = store.load()
        given = Cursor(start) if isinstance(start, int) else start
        self.cursor: Cursor = saved if saved is not None else given

    def run(
        self,
        handle: Callable[[StoredEvent], None],
        *,
        idle_s: float | None = None,
        patience_s: float | None = None,
        on_trouble: Callable[[BelogError], None] | None = None,
    ) -> None:
        """Handle events as they come, in order, until `handle` raises or the time is over.

        The cursor is saved after each event that was handled, and where pages without one carried
        it on. An event whose handling raises is handled again by the next `run`.

        Args:
            handle: Told of each event.
            idle_s: End when nothing came for so long, seconds; 0 at the log's end; None never.
            patience_s: Raise when the service is away for so long, seconds; None never.
            on_trouble: Told of each error of the service that is passed over.

        Raises:
            LogReplaced: The log is another one than the cursor's, or has another history.
            LogTruncated: It is shorter than the cursor.
            Gone: The cursor lies behind the vacuum horizon.
        """
        for page in self._client.follow_pages(
            self.cursor, self._wanted, idle_s=idle_s, patience_s=patience_s, on_trouble=on_trouble
        ):
            self._log_id = page.cursor.log_id
            for stored, cursor in page.steps():
                handle(stored)
                self._may_be_repeated = False
                self._move(cursor)
            if not page.events:
                self._move(page.cursor)

    def reaction_id(self, stored: StoredEvent, name: str = "") -> UUID:
        """Return the id of the event that reacts to one of this log; see `reaction_id`."""
        log_id = self._log_id or self.cursor.log_id
        if log_id is None:
            log_id = UUID(self._client.status().log_id)
        return reaction_id(log_id, stored.index, name)

    def append_once(self, log: Client, event: Event) -> Receipt:
        """Append a reaction to the event that is being handled, however often that is handled.

        Exact over any time: the one event that may have been handled before a crash is looked up;
        the log itself only knows its newest ids.

        Args:
            log: Where to; often another log than the one that is followed.
            event: With an id from `reaction_id`.

        Raises:
            BelogError: See `Client.append_event`.
        """
        if self._may_be_repeated and (stored := log.event(event.event_id)) is not None:
            return Receipt(stored.index, stored.created_at, event.event_id, duplicate=True)
        return log.append_event(event)

    def _move(self, cursor: Cursor) -> None:
        if cursor != self.cursor:
            self._store.save(cursor)
            self.cursor = cursor
