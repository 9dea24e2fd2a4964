"""Waking those who wait for a commit of any process, by NOTIFY.

Notifications make waiting short and are not relied upon: they can be lost with a connection, or
kept back by a proxy. Who waits looks at the log itself every `POLL_S`.
"""

import select
import socket
import threading
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg.sql import SQL, Identifier

from belog.schemas.errors import BelogError
from belog.storage.postgres_client import Connection

__all__ = ["POLL_S", "Listener"]

POLL_S: Final = 0.25
"""How often a waiting reader looks at the log itself, seconds: four statements a second cost
nothing, and nobody who watches a feed minds a quarter of a second."""

RETRY_S: Final = 2.0
"""Pause after the listening connection was lost, seconds; waiting readers poll meanwhile."""


class Listener:
    """One thread that listens on a channel for all who wait in this process. Thread-safe."""

    def __init__(self, connect: Callable[[], Connection], channel: str) -> None:
        """Open nothing yet.

        Args:
            connect: Opens a connection for this listener alone.
            channel: Where appends announce the log's next index.
        """
        self._connect = connect
        self._channel = channel
        self._changed = threading.Condition()
        self._next_idx = 0
        self._stop = threading.Event()
        self._wake: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def note(self, next_idx: int) -> None:
        """Take in that the log has grown, from whatever source."""
        with self._changed:
            if next_idx > self._next_idx:
                self._next_idx = next_idx
                self._changed.notify_all()

    def wait(self, position: int, timeout_s: float) -> bool:
        """Block until the log is known to reach past a position, for at most a while."""
        with self._changed:
            if self._thread is None and not self._stop.is_set():
                woken, self._wake = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run, args=[woken], name=f"{self._channel} listener", daemon=True
                )
                self._thread.start()
            return self._changed.wait_for(
                lambda: self._stop.is_set() or self._next_idx > position, timeout_s
            )

    def close(self) -> None:
        """Stop listening and let all who wait return. Idempotent; blocks until the thread ended."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()
            thread, wake = self._thread, self._wake
            self._thread = self._wake = None
        if wake is not None:
            # The thread sees the end of the stream.
            wake.close()
        if thread is not None:
            thread.join()

    def _run(self, woken: socket.socket) -> None:
        with woken:
            while not self._stop.is_set():
                try:
                    with self._connect() as connection:
                        self._listen(connection, woken.fileno())
                except (psycopg.Error, BelogError, OSError):
                    # Whoever waits polls, and meets the same fault with an error of its own.
                    self._stop.wait(RETRY_S)

    def _listen(self, connection: Connection, woken: int) -> None:
        connection.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
        pgconn = connection.pgconn
        while not self._stop.is_set():
            ready, _, _ = select.select([pgconn.socket, woken], [], [])
            if woken in ready:
                return
            pgconn.consume_input()
            while notice := pgconn.notifies():
                self.note(int(notice.extra))
