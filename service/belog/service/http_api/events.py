"""The routes of events: append, page, one."""

from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

from belog.producers.ids import random_uuid
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Gone, InvalidInput, LimitExceeded, NotFound
from belog.schemas.filters import ALL, EventFilter, Matcher
from belog.schemas.wire_json import (
    AppendBody,
    append_body,
    event_from_json,
    event_to_json,
    page_to_json,
    receipt_to_json,
    results_to_json,
)
from belog.service.http_api.answers import Answer, problem
from belog.service.http_api.call import Call
from belog.service.http_api.parameters import Query
from belog.service.http_api.settings import PAGE_EVENTS, READ_EVENTS_MAX
from belog.storage.interface import EventPage, Receipt

__all__ = ["Written", "append_events", "filter_of", "get_event", "list_events", "page_answer"]

INLINE_EVENTS_MAX: Final = 50
"""Events that are read or written as JSON in the loop: under a millisecond; more go to a thread."""

INLINE_BYTES_MAX: Final = 131_072
"""Largest body that is looked through in the loop, bytes: well under a millisecond."""

WRITTEN_KEPT: Final = 1_024
"""JSON of events that is kept for those who are woken by the same one; about 1 MB."""

_LISTS: Final = {
    "partition_ref": "partition_refs",
    "partition_pattern": "partition_patterns",
    "job_label": "job_labels",
    "job_run_id": "job_run_ids",
    "build_request_id": "build_request_ids",
    "task_id": "task_ids",
    "event_type": "event_types",
    "subject_kind": "subject_kinds",
    "actor": "actors",
}
_TIMES: Final = ("created_from", "created_to", "occurred_from", "occurred_to")


# --- reading


class Written:
    """JSON of events of one log, kept for a while. For the loop's thread."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._kept: OrderedDict[int, tuple[StoredEvent, bytes]] = OrderedDict()

    def of(self, stored: StoredEvent) -> bytes:
        """Return the JSON of an event."""
        kept = self._kept.get(stored.index)
        if kept is not None and kept[0] is stored:
            return kept[1]
        data = event_to_json(stored)
        self._kept[stored.index] = stored, data
        if len(self._kept) > WRITTEN_KEPT:
            self._kept.popitem(last=False)
        return data


def filter_of(query: Query) -> EventFilter:
    """Return the filter that the parameters of a query make."""
    fields: dict[str, Any] = {
        field: tuple(query[name]) for name, field in _LISTS.items() if name in query
    }
    fields |= {name: query[name] for name in _TIMES if name in query}
    return EventFilter(**fields) if fields else ALL


def limit_of(call: Call, otherwise: int = PAGE_EVENTS) -> int:
    """Return the size of a page of events that was asked for.

    Raises:
        LimitExceeded: It is over its bound.
    """
    bound = call.settings.page_events_max
    limit: int = call.query.get("limit", min(otherwise, bound))
    if limit > bound:
        raise LimitExceeded("limit", limit="page_events_max", limit_value=bound, value=limit)
    return limit


async def list_events(call: Call) -> Answer:
    """Answer `GET /events`."""
    query = call.query
    wanted = call.grant.narrow(filter_of(query))
    # Refuses what cannot be evaluated, before anybody waits.
    Matcher(wanted)
    limit = limit_of(call)
    if "min_index" in query:
        await call.reach()
    since: int = query.get("since", 0)
    wait_s = call.wait_s(0.0)
    feed = call.instance.feed
    first = min(limit, READ_EVENTS_MAX)
    if wait_s and feed.end <= since:
        page = await call.while_connected(feed.page(since, wanted, limit=first, wait_s=wait_s))
    else:
        page = await feed.page(since, wanted, limit=first)
        if wait_s and not page.events and not page.has_more:
            page = await call.while_connected(
                feed.page(page.next_idx, wanted, limit=first, wait_s=wait_s)
            )
    return await whole_page(call, page, wanted, limit)


async def whole_page(call: Call, page: EventPage, wanted: EventFilter, limit: int) -> Answer:
    """Answer with a page, and with what follows it while there is more and room for it."""
    written: list[bytes] = []
    room = call.settings.answer_bytes_max
    while True:
        for stored, data in zip(page.events, await _json_of(call, page), strict=True):
            if written and len(data) > room:
                return page_answer(written, stored.index, has_more=True)
            room -= len(data)
            written.append(data)
        left = limit - len(written)
        if not page.has_more or left <= 0 or room <= 0:
            return page_answer(written, page.next_idx, has_more=page.has_more)
        page = await call.instance.feed.page(
            page.next_idx, wanted, limit=min(left, READ_EVENTS_MAX)
        )


async def _json_of(call: Call, page: EventPage) -> list[bytes]:
    if len(page.events) <= INLINE_EVENTS_MAX:
        written: Written = call.scope["app"].state.written
        return [written.of(stored) for stored in page.events]
    return await call.instance.calls.run(_json_of_all, page)


def _json_of_all(page: EventPage) -> list[bytes]:
    return [event_to_json(stored) for stored in page.events]


def page_answer(written: list[bytes], next_idx: int, *, has_more: bool) -> Answer:
    """Return the answer of a page; it is as of its own cursor."""
    return Answer(page_to_json(written, next_idx, has_more=has_more), next_idx)


async def get_event(call: Call) -> Answer:
    """Answer `GET /events/{index}`."""
    await call.reach()
    name = call.name("index")
    log = call.instance.log
    if name.isascii() and name.isdigit() and len(name) < len(str(2**63)):
        found = await call.instance.calls.run(log.get, int(name))
    else:
        try:
            event_id = UUID(name).bytes
        except ValueError as error:
            msg = f"{name!r:.80} is neither an index nor an event_id"
            raise InvalidInput(msg) from error
        found = await call.instance.calls.run(log.get_by_id, event_id)
    as_of = call.instance.feed.end
    if found is None or not await _may_see(call, found):
        msg = f"there is no event {name}"
        raise NotFound(msg, index=as_of, hint="removed events and void records have no event")
    return Answer(event_to_json(found), max(as_of, found.index + 1))


async def _may_see(call: Call, stored: StoredEvent) -> bool:
    if not call.grant.is_restricted:
        return True
    wanted = call.grant.narrow(ALL)
    try:
        page = await call.instance.calls.run(call.instance.log.read, stored.index, wanted, 1)
    except Gone:
        return False
    return bool(page.events) and page.events[0].index == stored.index


# --- appending


async def append_events(call: Call) -> Answer:
    """Answer `POST /events`."""
    data = await call.body()
    if len(data) <= INLINE_BYTES_MAX:
        asked = append_body(data)
    else:
        asked = await call.instance.calls.run(append_body, data)
    bound = call.settings.batch_events_max
    if len(asked.events) > bound:
        raise LimitExceeded(
            "events", limit="batch_events_max", limit_value=bound, value=len(asked.events)
        )
    now_us = call.instance.queries.clock()
    if not asked.is_batch:
        event = event_from_json(
            asked.events[0], event_id=random_uuid, occurred_at=now_us, actor=call.grant.actor
        )
        (result,) = await call.instance.append(call.grant, [event])
        if isinstance(result, BelogError):
            return problem(result)
        return Answer(receipt_to_json(result), result.index + 1)
    return await _append_batch(call, asked, now_us)


async def _append_batch(call: Call, asked: AppendBody, now_us: int) -> Answer:
    if len(asked.events) <= INLINE_EVENTS_MAX:
        read = _events(asked, now_us, call.grant.actor)
    else:
        read = await call.instance.calls.run(_events, asked, now_us, call.grant.actor)
    good = [event for event in read if isinstance(event, Event)]
    results: list[Receipt | BelogError] = []
    if good:
        results = await call.instance.append(call.grant, good, atomic=asked.atomic, at=asked.at)
    if len(good) < len(read):
        done = iter(results)
        results = [next(done) if isinstance(event, Event) else event for event in read]
    indices = [result.index for result in results if isinstance(result, Receipt)]
    as_of = max(indices) + 1 if indices else call.instance.feed.end
    return Answer(results_to_json(results), as_of)


def _events(asked: AppendBody, now_us: int, actor: str) -> list[Event | BelogError]:
    """Return what was sent, with an error in place of what cannot be an event.

    Raises:
        BelogError: The same, where nothing is to be written without it.
    """
    read: list[Event | BelogError] = []
    for data in asked.events:
        try:
            read.append(
                event_from_json(data, event_id=random_uuid, occurred_at=now_us, actor=actor)
            )
        except BelogError as error:
            if asked.atomic or asked.at is not None:
                raise
            read.append(error)
    return read
