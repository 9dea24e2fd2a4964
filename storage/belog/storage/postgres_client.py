"""Connections to PostgreSQL: a pool, time limits, and what an error of the driver means.

Every wait has an end: connecting, a lock, a statement on the server, and, for a server that says
nothing any more, the answer to a statement as the client sees it.
"""

import select
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from belog.schemas.errors import (
    BelogError,
    Closed,
    InvalidConfiguration,
    Misconfigured,
    NotFound,
    Overloaded,
    Unavailable,
    Unsupported,
)
from belog.storage.postgres_uri import Target
from belog.storage.postgres_values import register

__all__ = ["RECONNECT_S", "Connection", "Lost", "Pool", "connect"]

CONNECT_S: Final = 6
"""Longest time for connecting to all hosts of a URI together, seconds: with the first statement it
stays below the ten seconds within which an unreachable server is reported."""
CONNECT_HOST_S_MIN: Final = 2
"""The least that one host of several gets, seconds; libpq takes no less."""
FIRST_ANSWER_S: Final = 3.0
"""Longest wait for the answer to the statement that opens a connection, seconds."""
STATEMENT_S: Final = 60
"""Longest run of one statement, seconds: the largest batch and a step of the index take about one,
the migration of a long log some tens."""
LOCK_S: Final = 20
"""Longest wait for a lock, seconds: hundreds of the largest batches of other writers."""
ANSWER_S: Final = STATEMENT_S + 5.0
"""Longest wait for an answer, seconds: a server past its own limit is not there any more."""
POOL_CONNECTIONS_MAX: Final = 8
"""Connections of one log in one process. PostgreSQL allows 100 to all by default; a statement takes
a fraction of a millisecond, so that 8 serve more threads than a process has."""
POOL_WAIT_S: Final = 30.0
"""Longest wait for a connection that other threads use, seconds."""
RECONNECT_S: Final = 8.0
"""How long a server that cannot be reached is tried again, seconds."""
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Pauses between tries, seconds; the last one repeats."""
SERVER_VERSION_MIN: Final = 120_000
"""PostgreSQL 12, the oldest that the SQL files were written for."""

_MISTAKES: Final = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "authentication failed",
    "is not permitted to log in",
    "permission denied",
    "SSL",
)
"""What the server says where trying again does not help. The driver gives no SQLSTATE for a
connection that was never made."""

RV = TypeVar("RV")
T = TypeVar("T")


class Lost(Exception):
    """The connection broke while a statement ran: what it did is not known."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for ever."""

    answer_s: float = FIRST_ANSWER_S
    prepared: frozenset[bytes] = frozenset()
    """Names of statements that `belog.storage.postgres_statement` has prepared."""

    def wait(self, gen: PQGen[RV], interval: float = 0.0, timeout: float | None = None) -> RV:
        """Run one exchange with the server, for at most `answer_s`.

        Raises:
            OperationalError: No answer came in time; the connection is closed then.
        """
        del interval
        deadline = time.monotonic() + (self.answer_s if timeout is None else timeout)
        poll = select.poll()
        socket = self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                mask = (select.POLLIN if wanted & 1 else 0) | (select.POLLOUT if wanted & 2 else 0)
                poll.register(socket, mask)
                left_s = deadline - time.monotonic()
                ready = poll.poll(left_s * 1000) if left_s > 0 else []
                if not ready:
                    self.pgconn.finish()
                    msg = "the server does not answer any more"
                    raise psycopg.OperationalError(msg)
                found = ready[0][1]
                # A hang-up is read, too: that is how libpq learns of it.
                state = 2 if found & select.POLLOUT else 0
                state |= 1 if found & ~select.POLLOUT else 0
                wanted = gen.send(state)
        except StopIteration as stop:
            value: RV = stop.value
            return value

    def is_idle(self) -> bool:
        """Whether the connection is open, in no transaction, and has not been hung up."""
        if self.closed or self.pgconn.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        # An idle server has nothing to say but that it goes away.
        return not poll.poll(0)


def connect(target: Target) -> Connection:
    """Open a connection with all limits set. Blocks for at most about ten seconds.

    Raises:
        InvalidConfiguration: The server refuses the user, the password or the database.
        Misconfigured: A setting of the server breaks a promise of the log.
        Unavailable: It cannot be reached.
    """
    host_s = max(CONNECT_HOST_S_MIN, CONNECT_S // target.hosts)
    settings: dict[str, Any] = {
        "connect_timeout": host_s,
        "application_name": "belog",
        "keepalives_idle": 30,
        "tcp_user_timeout": int(ANSWER_S * 1000),
        **target.conninfo,
    }
    try:
        connection = Connection.connect(**settings, autocommit=True, prepare_threshold=1)
    except psycopg.Error as error:
        raise _not_connected(error, target) from None
    try:
        register(connection.adapters)
        _prepare(connection, target)
    except psycopg.Error as error:
        connection.close()
        raise translated(error, target.name) from error
    except BelogError:
        connection.close()
        raise
    connection.answer_s = ANSWER_S
    return connection


def _not_connected(error: psycopg.Error, target: Target) -> BelogError:
    # One line about each host; the driver's advice is left out, ours follows.
    lines = [line.strip().removeprefix("- ") for line in str(error).splitlines()]
    text = "; ".join(line for line in lines if line and not line.startswith("Is the server"))
    password = target.conninfo.get("password")
    if password:
        text = text.replace(str(password), "***")
    if any(mistake in text for mistake in _MISTAKES):
        hint = "check user, password and database of the URI"
        return InvalidConfiguration(f"the server refuses: {text}", log=target.name, hint=hint)
    hint = "is the server up, and are host and port right?"
    return Unavailable(f"cannot connect: {text}", log=target.name, hint=hint)


def _prepare(connection: Connection, target: Target) -> None:
    row = connection.execute(
        "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
        " set_config('idle_in_transaction_session_timeout', %s, false),"
        " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
        " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),"
        " current_setting('fsync'), current_setting('server_encoding')",
        [f"{STATEMENT_S}s", f"{LOCK_S}s", f"{STATEMENT_S}s"],
    ).fetchone()
    fsync, encoding = row[4:] if row else ("", "")
    name = target.name
    if connection.info.server_version < SERVER_VERSION_MIN:
        msg = f"the server is PostgreSQL {connection.info.server_version // 10_000}"
        raise Misconfigured(msg, setting="server_version", hint="use 12 or newer", log=name)
    if fsync != "on":
        msg = "the server does not make commits durable"
        raise Misconfigured(msg, setting="fsync", hint="set fsync = on", log=name)
    if encoding != "UTF8":
        msg = f"the database has the encoding {encoding}"
        hint = "create the database with ENCODING 'UTF8'"
        raise Misconfigured(msg, setting="server_encoding", hint=hint, log=name)


def translated(error: psycopg.Error, name: str) -> BelogError:
    """Return what an error of a statement means that surely changed nothing."""
    text = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    if isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
        return Unsupported(f"the server does not allow it: {text}", log=name)
    if isinstance(error, errors.UndefinedTable | errors.UndefinedFunction | errors.NoDataFound):
        return NotFound(f"the log is not there any more: {text}", log=name)
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable):
        return Unavailable(f"the server was too slow: {text}", log=name)
    return Unavailable(f"PostgreSQL: {text}", log=name)


class _Patience:
    """How long to pause between tries, and when to give up."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._tries = 0

    def next_pause_s(self) -> float | None:
        """Return the next pause, None when the time is over."""
        pause_s = _BACKOFF_S[min(self._tries, len(_BACKOFF_S) - 1)]
        self._tries += 1
        return pause_s if time.monotonic() + pause_s <= self._deadline else None


class Pool:
    """Connections to one server, made when they are wanted. Thread-safe."""

    def __init__(self, target: Target) -> None:
        """Open nothing yet."""
        self._target = target
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(POOL_CONNECTIONS_MAX)
        self._idle: list[Connection] = []
        self._closed = threading.Event()

    def close(self) -> None:
        """Close what is idle now and the rest when it comes back. Idempotent."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def check_open(self) -> None:
        """Refuse to go on after `close`.

        Raises:
            Closed: The pool was closed.
        """
        if self._closed.is_set():
            msg = "the log was closed"
            raise Closed(msg, log=self._target.name)

    @contextmanager
    def connection(self, *, patient: bool = False) -> Generator[Connection]:
        """Lend a connection in autocommit mode, with which nobody else works meanwhile.

        Args:
            patient: Whether a server that cannot be reached is tried again for `RECONNECT_S`. That
                is safe for writes: nothing was sent yet.

        Raises:
            Lost: The connection broke while it was lent.
            Overloaded: All connections are in use for `POOL_WAIT_S`.
            BelogError: As `connect`, and what an error of a statement means.
        """
        self.check_open()
        if not self._slots.acquire(timeout=POOL_WAIT_S):
            msg = f"all {POOL_CONNECTIONS_MAX} connections were in use for {POOL_WAIT_S:g} s"
            raise Overloaded(msg, log=self._target.name)
        connection: Connection | None = None
        try:
            connection = self._take()
            if connection is None:
                connection = self._connect(_Patience(RECONNECT_S if patient else 0.0))
            yield connection
        except psycopg.Error as error:
            if connection is not None and connection.closed:
                self.check_open()
                raise Lost(str(error).strip().partition("\n")[0]) from error
            raise translated(error, self._target.name) from error
        finally:
            if connection is not None:
                self._give_back(connection)
            self._slots.release()

    def _connect(self, patience: "_Patience") -> Connection:
        while True:
            try:
                return connect(self._target)
            except Unavailable as error:
                self._pause(patience, error)

    def _pause(self, patience: "_Patience", error: BelogError) -> None:
        """Wait before another try, or raise what is wrong."""
        pause_s = patience.next_pause_s()
        if pause_s is None:
            raise error
        self._closed.wait(pause_s)
        self.check_open()

    def _take(self) -> Connection | None:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.is_idle():
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            if not self._closed.is_set():
                self._idle.append(connection)
                return
        connection.close()

    def repeat(self, work: Callable[[Connection], T]) -> T:
        """Do what may be done twice, again while the server cannot be reached; blocks.

        Raises:
            Unavailable: It could not be reached for `RECONNECT_S`.
            Closed: The pool was closed meanwhile.
        """
        patience = _Patience(RECONNECT_S)
        while True:
            try:
                with self.connection() as connection:
                    return work(connection)
            except Lost as lost:
                error: BelogError = Unavailable(f"PostgreSQL: {lost}", log=self._target.name)
                error.__cause__ = lost
            except Unavailable as unavailable:
                error = unavailable
            self._pause(patience, error)
