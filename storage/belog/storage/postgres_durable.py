"""What is durable of a log in PostgreSQL, where commits may return before they are.

An append that others wait for commits with `synchronous_commit` off: the lock that orders the
appends is passed on as soon as the commit's record has its place in the server's write-ahead log,
not after the disk. So eight writers share one flush, where each would wait for all before it. Then
these rules keep the promise of `EventLog`, that what was acknowledged, refused or read stays:

- *Writers.* The lock is held until the commit's record has its place, so the order of indices is
  the order of those records, and a flush up to one of them covers all with lower indices. After a
  deferred commit, and after a refusal, the writer makes another transaction durable, with the
  server's own `synchronous_commit`. Its record comes after everything that the
  append saw. Only then the answer is given. So nothing is acknowledged or refused because of an
  event that can still vanish; and where the answer never comes, the outcome is unknown as before.
  Both transactions are one statement, `belog_commit`: an error between them leaves the outcome
  unknown, too (`commit`).
- *A crash* keeps a prefix of the write-ahead log, so it takes events from the log's end only, and
  no answer or reader has named those.
- *Readers* hold back what they got until it is durable (`Durable.require`): the place where the
  next record would go is asked for after the snapshot was taken, so all that the snapshot shows
  lies before it. Where it is flushed that far, which is usual, or on a standby, which gets what is
  flushed and no more, there is nothing to wait for. Else the reader looks again a moment later,
  and then flushes itself. What was found durable once is not asked for again.
- *The index of subjects* (`belog_index` and what hangs on it) is written from records that were
  read so, by a commit that is durable before it shows. What it names needs no question.
- *Synchronous standbys.* Where the server has them, nothing is deferred.

Source: https://www.postgresql.org/docs/15/wal-async-commit.html; PostgreSQL 12 to 15,
src/backend/access/transam/xact.c, `RecordTransactionCommit`.
"""

import time
from collections.abc import Sequence
from typing import Final, cast

import psycopg
from psycopg import errors

from belog.schemas.errors import NotFound
from belog.storage.postgres_client import Connection
from belog.storage.postgres_statement import Statement, call
from belog.storage.postgres_uri import Target
from belog.storage.postgres_values import bigints_of

__all__ = ["CROWDED_APPENDS", "Durable", "commit", "flush"]

LOOKS: Final = 3
"""Looks at the flushed position before a reader flushes itself: as a rule a writer is about to."""
LOOK_PAUSE_S: Final = 0.0005
"""Pause between those looks, seconds: a flush takes 0.1 to 5 ms."""
CROWDED_APPENDS: Final = 16
"""Appends that are deferred after one that met another at work. Too many cost a writer that is
alone again a transaction each; with too few, every now and then all wait for one's disk."""

# Transactional: without an id of its own a transaction would not be flushed at its commit.
_FLUSH: Final = b"SELECT pg_logical_emit_message(true, 'belog', '')"
_END: Final = """
SELECT
    next_idx,
    CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END::text,
    CASE
        WHEN pg_is_in_recovery() THEN true
        ELSE pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()
    END
FROM {schema}.belog_ends
WHERE log = %s
"""
_UNCALLED: Final = (
    errors.InsufficientPrivilege,
    errors.InvalidSchemaName,
    errors.UndefinedFunction,
)
"""Errors before `belog_commit` runs, where the server names no place in a function."""
_APPENDING: Final = "belog_append("
"""Named by the server where an error came before the first commit."""
_IS_FLUSHED: Final = "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn"


class Durable:
    """How far a log is known to be durable. Thread-safe: what a race forgets is asked again."""

    def __init__(self, target: Target) -> None:
        """Know nothing yet."""
        self._end = target.sql(_END)
        self._is_flushed = target.sql(_IS_FLUSHED)
        self._name = target.name
        self._known = 0

    def note(self, next_idx: int) -> None:
        """Take in that all before an index is durable."""
        self._known = max(self._known, next_idx)

    def require(self, connection: Connection, number: int, next_idx: int) -> None:
        """Return when all before an index is durable that the connection has shown.

        Blocks for one flush of the server's disk at most; costs nothing where it is known.
        """
        if next_idx > self._known:
            self.next_idx(connection, number)

    def next_idx(self, connection: Connection, number: int) -> int:
        """Return the log's next index when all before it is durable.

        Raises:
            NotFound: The log is gone.
        """
        row = connection.execute(self._end, [number]).fetchone()
        if row is None:
            msg = "the log is not there any more"
            raise NotFound(msg, log=self._name)
        next_idx, wanted, is_flushed = cast("tuple[int, str, bool]", row)
        if not is_flushed and next_idx > self._known:
            self._wait(connection, wanted)
        self.note(next_idx)
        return next_idx

    def _wait(self, connection: Connection, wanted: str) -> None:
        for _ in range(LOOKS):
            time.sleep(LOOK_PAUSE_S)
            row = connection.execute(self._is_flushed, [wanted]).fetchone()
            if row is not None and row[0]:
                return
        flush(connection)


def commit(
    connection: Connection, statement: Statement, parameters: Sequence[bytes | None]
) -> list[int | None]:
    """Call `belog_commit` and return its answer, which is durable; blocks for the disk.

    Raises:
        psycopg.Error: Nothing was written; or that is not known, and the connection is closed, so
            that `Pool.connection` reports it as lost.
    """
    try:
        (answer,) = call(connection, statement, parameters)
    except psycopg.Error as error:
        where = error.diag.context
        if not (_APPENDING in where if where else isinstance(error, _UNCALLED)):
            connection.close()
        raise
    return bigints_of(answer or b"")


def flush(connection: Connection) -> None:
    """Make durable what this server has committed so far; blocks for its disk.

    Raises:
        psycopg.Error: It is not known to be durable; the connection is closed then, so that
            `Pool.connection` reports it as lost.
    """
    try:
        connection.execute(_FLUSH)
    except psycopg.Error:
        connection.close()
        raise
