"""What `belog_commit` is given: waiting appends, in the server's binary form."""

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final, TypeVar

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.storage.postgres_rows import keys_of, rows_of
from belog.storage.postgres_statement import Statement
from belog.storage.postgres_uri import Target
from belog.storage.postgres_values import (
    BIGINT,
    BIGINT_ARRAY,
    BOOLEAN,
    BYTEA,
    INTEGER,
    INTEGER_ARRAY,
    TEXT,
    bigint_array,
    integer_array,
    word_array,
)
from belog.storage.touch import TOUCH_RECORDS_MAX

__all__ = ["Call", "append_statement", "parameters_of"]

T = TypeVar("T")

_SQL: Final = """
CALL {schema}.belog_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, NULL)
"""
_TYPES: Final = (
    *(INTEGER, TEXT, BIGINT, BOOLEAN),
    *(INTEGER_ARRAY, BIGINT_ARRAY, BIGINT_ARRAY),
    *(INTEGER_ARRAY, INTEGER_ARRAY, INTEGER_ARRAY, INTEGER_ARRAY),
    *(INTEGER_ARRAY, INTEGER_ARRAY, BYTEA),
)


class Call(Struct, frozen=True):
    """One append that waits for its commit.

    Attributes:
        events: In order.
        values: Their envelopes.
        at: The next index that it demands.
        seen_idx: Up to where its events were judged.
    """

    events: Sequence[Event]
    values: Sequence[bytes]
    at: int | None
    seen_idx: int | None


def append_statement(target: Target) -> Statement:
    """Return the call of `belog_commit`; see `sql/postgres/0004_pages.sql` for its answer."""
    return Statement(b"belog_commit", target.script(_SQL), _TYPES)


def parameters_of(
    number: int,
    channel: str,
    calls: Sequence[Call],
    *,
    defer: bool | None,
) -> list[bytes | None]:
    """Return the statement's parameters.

    Args:
        number: The log's key in the tables.
        channel: Where the append is announced.
        calls: What to append, in order.
        defer: Whether the first commit may return before it is durable; see there.
    """
    laid = [rows_of(call.values) for call in calls]
    *starts, _ = accumulate(_joined([rows.sizes for rows in laid]), initial=0)
    return [
        number.to_bytes(4, "big"),
        channel.encode(),
        TOUCH_RECORDS_MAX.to_bytes(8, "big"),
        None if defer is None else defer.to_bytes(1, "big"),
        integer_array([len(call.events) for call in calls]),
        bigint_array([call.at for call in calls]),
        bigint_array([call.seen_idx for call in calls]),
        integer_array([len(rows.sizes) for rows in laid]),
        integer_array(_joined([rows.firsts for rows in laid])),
        integer_array(_joined([rows.counts for rows in laid])),
        integer_array(starts),
        integer_array(_joined([rows.ends for rows in laid])),
        word_array(keys_of(_joined([call.events for call in calls]))),
        b"".join(_joined([call.values for call in calls])),
    ]


def _joined(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
