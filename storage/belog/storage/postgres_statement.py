"""One statement that is called very often, in the binary form of libpq.

The driver looks at each parameter of each call for what it is and how to send it, which costs as
much as all else that an append of a hundred events does in this process. Waits, time limits and
errors are those of `Connection`.

Source: https://www.postgresql.org/docs/15/libpq-async.html
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from psycopg import errors
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from belog.storage.postgres_client import Connection

__all__ = ["Statement", "call"]

_DONE: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Statement(Struct, frozen=True):
    """A statement that a connection prepares once.

    Attributes:
        name: Under which the server keeps it; no other statement of a connection has it.
        sql: With parameters `$1` and so on.
        types: What each parameter is, as object ids of the server.
    """

    name: bytes
    sql: bytes
    types: Sequence[int]


def call(
    connection: Connection, statement: Statement, parameters: Sequence[bytes | None]
) -> list[bytes | None]:
    """Run a statement that returns one row; return its columns in binary form.

    Blocks as `Connection.wait`. What the connection prepares otherwise may be dropped together with
    this (DEALLOCATE ALL); then it is prepared again.

    Args:
        connection: In autocommit mode, or in a transaction.
        statement: Which.
        parameters: In binary form; None is NULL.

    Raises:
        psycopg.Error: As `Connection.execute`.
    """
    formats = [Format.BINARY] * len(parameters)
    pgconn = connection.pgconn
    if pgconn.transaction_status != TransactionStatus.IDLE:
        # An error would end the transaction, so nothing is tried here.
        pgconn.send_query_params(statement.sql, parameters, statement.types, formats, Format.BINARY)
        return _columns(_result(connection))
    while True:
        is_known = statement.name in connection.prepared
        if not is_known:
            pgconn.send_prepare(statement.name, statement.sql, statement.types)
            _result(connection)
            connection.prepared |= {statement.name}
        pgconn.send_query_prepared(statement.name, parameters, formats, Format.BINARY)
        try:
            return _columns(_result(connection))
        except errors.InvalidSqlStatementName:
            if not is_known:
                raise
            connection.prepared -= {statement.name}


def _result(connection: Connection) -> PGresult:
    results = connection.wait(execute(connection.pgconn))
    result: PGresult = results[-1]
    if result.status not in _DONE:
        raise errors.error_from_result(result, connection.info.encoding)
    return result


def _columns(result: PGresult) -> list[bytes | None]:
    return [result.get_value(0, column) for column in range(result.nfields)]
