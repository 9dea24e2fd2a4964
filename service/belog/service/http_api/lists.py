"""What lists of rows have in common: conditions, cursors, and what a restricted client may see."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from belog.processors.indexes import Order, Where
from belog.processors.rows import R
from belog.processors.tables import PAGE_ROWS, PAGE_ROWS_MAX
from belog.query.answers import Listing
from belog.schemas.errors import LimitExceeded
from belog.service.http_api.answers import Answer, json_answer
from belog.service.http_api.call import Call
from belog.service.http_api.rows import Fields, viewed

__all__ = ["listed", "rows_limit", "where_of"]

T = TypeVar("T")

_ACTIVE: dict[str | None, bool | None] = {None: None, "true": True, "false": False}


def where_of(call: Call) -> Where:
    """Return the conditions that a query asks for."""
    query = call.query
    return Where(
        states=tuple(query.get("state", ())),
        active=_ACTIVE[query.get("active")],
        build_id=query.get("build_request_id"),
        job_label=query.get("job_label"),
        client_id=query.get("client_id"),
        partition=query.get("partition_ref"),
        upstream=query.get("upstream"),
        id_prefix=query.get("prefix", ""),
        since_us=query.get("since_time"),
        until_us=query.get("until_time"),
    )


def rows_limit(call: Call) -> int:
    """Return the size of a page of rows that was asked for.

    Raises:
        LimitExceeded: It is over its bound.
    """
    limit: int = call.query.get("limit", PAGE_ROWS)
    if limit > PAGE_ROWS_MAX:
        raise LimitExceeded("limit", limit="PAGE_ROWS_MAX", limit_value=PAGE_ROWS_MAX, value=limit)
    return limit


ListName = Literal["partitions", "builds", "job_runs", "tasks"]


async def listed(
    call: Call,
    name: ListName,
    listing: Callable[[Where, Order, str | None, int], Listing[R]],
    fields: Callable[[R], Fields],
    refs: Callable[[R], Iterable[str]],
) -> Answer:
    """Answer with a page of rows.

    Args:
        call: The request.
        name: Of the list in the answer.
        listing: Gives the page; blocks.
        fields: Makes the message of a row.
        refs: The partitions that a row is about; a restricted client sees it if it is for one.
    """
    await call.reach()
    where, limit = where_of(call), rows_limit(call)
    order: Order = call.query.get("order", "recent")
    cursor: str | None = call.query.get("cursor")
    fields = viewed(fields, call.query.get("view"))

    def page() -> Answer:
        found = listing(where, order, cursor, limit)
        sees = call.grant.sees
        return json_answer(
            {
                name: [fields(row) for row in found.rows if sees(refs(row))],
                "next_page_token": found.next_cursor or "",
                "as_of_index": str(found.as_of),
            },
            found.as_of,
        )

    return await call.instance.calls.run(page)
