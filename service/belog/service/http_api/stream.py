"""The route of server-sent events: the feed as messages, for as long as somebody listens."""

import re
from typing import Final

from belog.schemas.errors import BelogError, InvalidInput
from belog.schemas.filters import EventFilter, Matcher
from belog.service.http_api.answers import problem
from belog.service.http_api.call import SENT_BYTES_MAX, Call
from belog.service.http_api.events import Written, filter_of
from belog.service.http_api.settings import READ_EVENTS_MAX
from belog.storage.interface import EventPage

__all__ = ["stream_events"]

RETRY_MS: Final = 1_000
"""What a client is told to wait before it connects again, milliseconds: a restart takes longer, and
a proxy's cut is mended at once."""

EVENT_STREAM: Final = b"text/event-stream"

_ID: Final = re.compile(rb"[0-9]{1,18}")


async def stream_events(call: Call) -> None:
    """Answer `GET /events/stream`."""
    wanted = call.grant.narrow(filter_of(call.query))
    # Refuses what cannot be evaluated, before the answer begins; so does the first page.
    Matcher(wanted)
    feed = call.instance.feed
    since = _since(call)
    first = await feed.page(feed.end if since is None else since, wanted, limit=READ_EVENTS_MAX)
    await call.while_connected(_stream(call, first, wanted))


def _since(call: Call) -> int | None:
    """Return the first index wanted: what a client that comes back has seen counts most."""
    last_id = call.header(b"last-event-id")
    if last_id:
        if not _ID.fullmatch(last_id):
            msg = "Last-Event-ID is not the id of a message of this stream"
            raise InvalidInput(msg)
        return int(last_id)
    since: int | None = call.query.get("since")
    return since


async def _stream(call: Call, page: EventPage, wanted: EventFilter) -> None:
    headers = [
        (b"content-type", EVENT_STREAM),
        (b"cache-control", b"no-store"),
        # Proxies that gather answers would hold events back.
        (b"x-accel-buffering", b"no"),
        *call.instance.which,
    ]
    await call.begin(headers)
    await call.go_on(b"retry: %d\n\n" % RETRY_MS)
    sent_idx = -1
    try:
        while True:
            sent_idx = await _send_page(call, page, sent_idx)
            # A token that was taken back ends the stream at its next message.
            call.recheck()
            page = await call.instance.feed.page(
                page.next_idx,
                wanted,
                limit=READ_EVENTS_MAX,
                wait_s=0 if page.has_more else call.settings.heartbeat_s,
            )
    except BelogError as error:
        await call.go_on(b"event: problem\ndata: %b\n\n" % problem(error).body, more=False)


async def _send_page(call: Call, page: EventPage, sent_idx: int) -> int:
    """Send a page; return the id of the last message."""
    written: Written = call.scope["app"].state.written
    parts: list[bytes] = []
    size = 0
    for stored in page.events:
        sent_idx = stored.index + 1
        parts.append(b"id: %d\ndata: %b\n\n" % (sent_idx, written.of(stored)))
        size += len(parts[-1])
        if size >= SENT_BYTES_MAX:
            await call.go_on(b"".join(parts))
            parts, size = [], 0
    if not page.events and page.next_idx == sent_idx:
        parts.append(b":\n\n")
    elif page.next_idx > sent_idx and not page.has_more:
        sent_idx = page.next_idx
        parts.append(b'id: %d\nevent: cursor\ndata: {"next_idx":"%d"}\n\n' % (sent_idx, sent_idx))
    if parts:
        await call.go_on(b"".join(parts))
    return sent_idx
