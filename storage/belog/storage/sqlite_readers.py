"""One reading connection for each thread, that another thread can close.

SQLite's library must not be closed under a call that runs: each connection has a lock, held while
it is used, and closing takes it.
"""

import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from msgspec import Struct

__all__ = ["Reader", "ReaderConnections"]


class Reader(Struct, frozen=True):
    """A connection and what keeps it open."""

    connection: sqlite3.Connection
    lock: threading.Lock
    thread: threading.Thread


class ReaderConnections:
    """The reading connections of one log. Thread-safe."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Open nothing yet.

        Args:
            connect: Opens a connection, on the thread that is to use it.
        """
        self._connect = connect
        self._local = threading.local()
        self._all: list[Reader] = []
        self._lock = threading.Lock()

    @contextmanager
    def use(self, check_open: Callable[[], None]) -> Generator[sqlite3.Connection]:
        """Give the calling thread's connection, which is not closed while it is used.

        Args:
            check_open: Raises where `close` was called or is about to be.
        """
        reader = self.own(check_open)
        with reader.lock:
            check_open()
            yield reader.connection

    def own(self, check_open: Callable[[], None]) -> Reader:
        """Return the calling thread's connection, opened where there is none; as `use`.

        Take its lock, and then ask `check_open` again, to use it.
        """
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._open(check_open)
        return reader

    def _open(self, check_open: Callable[[], None]) -> Reader:
        connection = self._connect()
        reader = Reader(connection, threading.Lock(), threading.current_thread())
        with self._lock:
            try:
                check_open()
            except BaseException:
                connection.close()
                raise
            # Threads end without telling: whoever comes new clears up after them.
            ended = [other for other in self._all if not other.thread.is_alive()]
            self._all = [other for other in self._all if other.thread.is_alive()]
            self._all.append(reader)
        for other in ended:
            other.connection.close()
        return reader

    def close(self) -> None:
        """Close all connections; queries that run are interrupted and waited for.

        The caller has seen to it that `check_open` raises from now on.
        """
        with self._lock:
            readers, self._all = self._all, []
        for reader in readers:
            reader.connection.interrupt()
        for reader in readers:
            with reader.lock:
                reader.connection.close()
