"""What a client does with a log: append, read, follow; each call as steps. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from typing import Final, cast
from urllib.parse import quote, urlencode
from uuid import UUID

from msgspec.structs import replace

from belog.client.answers import (
    batch_body,
    event_to_append,
    message_of,
    page_of,
    receipt_of,
    results_of,
    stored_of,
)
from belog.client.cursors import START, Cursor, Page
from belog.client.steps import (
    Came,
    Exchange,
    Request,
    Response,
    Retrying,
    Session,
    Step,
    Steps,
    exchange,
    raise_refusal,
)
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Closed,
    Conflict,
    Corrupt,
    Forbidden,
    LimitExceeded,
    LogReplaced,
    LogTruncated,
    NewerFormat,
    NotFound,
    Unauthenticated,
    WrongLog,
)
from belog.schemas.filters import EventFilter
from belog.schemas.limits import BATCH_EVENTS_MAX
from belog.schemas.receipts import Receipt
from belog.schemas.wire_json import to_json, uuid_text
from belog.v1 import event_log_pb2

__all__ = [
    "ASKED_BY_HEADER",
    "FOLLOW_EVENTS",
    "FOLLOW_WAIT_S",
    "LOG_ID_HEADER",
    "PROCESS_HEADER",
    "Checked",
    "FollowSteps",
    "append",
    "append_batch",
    "check_cursor",
    "find_event",
    "follow",
    "page",
    "status",
]

FOLLOW_WAIT_S: Final = 25.0
"""Longest wait of one long-poll of a follower, seconds: below the half minute after which some
proxies cut idle connections off."""

FOLLOW_EVENTS: Final = 1_000
"""Events of one page of a follower: about 1 MB."""

ASKED_BY_HEADER: Final = "belog-asked-by"
"""Of a request for a partition: the logs whose instances passed it on, so that it ends."""

LOG_ID_HEADER: Final = "belog-log-id"
PROCESS_HEADER: Final = "belog-process"
"""Which log answered, and which run of a service: another run may have been given another log."""

_FILTER_NAMES: Final = {
    "partition_refs": "partition_ref",
    "partition_patterns": "partition_pattern",
    "job_labels": "job_label",
    "job_run_ids": "job_run_id",
    "build_request_ids": "build_request_id",
    "task_ids": "task_id",
    "event_types": "event_type",
    "subject_kinds": "subject_kind",
    "actors": "actor",
}
_FILTER_TIMES: Final = ("created_from", "created_to", "occurred_from", "occurred_to")


def _quoted(segment: str) -> str:
    """Return a name as one segment; dots alone would be taken for the way up (RFC 3986, 5.2.4)."""
    quoted = quote(segment, safe="")
    return quoted.replace(".", "%2E") if segment in {".", ".."} else quoted


def path_of(*segments: str, query: Sequence[tuple[str, object]] = ()) -> str:
    """Return a path of percent-encoded segments.

    >>> path_of("partitions", "s3://a/b c", query=[("min_index", 3)])
    '/partitions/s3%3A%2F%2Fa%2Fb%20c?min_index=3'
    >>> path_of("partitions", "..", "request")
    '/partitions/%2E%2E/request'
    """
    path = "".join(f"/{_quoted(segment)}" for segment in segments)
    return f"{path}?{urlencode(query)}" if query else path


def filter_query(wanted: EventFilter) -> list[tuple[str, object]]:
    """Return a filter as parameters of a query."""
    query: list[tuple[str, object]] = []
    for field, name in _FILTER_NAMES.items():
        query.extend((name, term) for term in cast("tuple[str, ...]", getattr(wanted, field)))
    times = ((name, getattr(wanted, name)) for name in _FILTER_TIMES)
    return query + [(name, time) for name, time in times if time is not None]


def get(session: Session, path: str, *, wait_s: float = 0) -> Steps[Response]:
    """Return the answer to a read.

    Raises:
        BelogError: It was refused, or did not come in time.
    """
    request = Request(method="GET", path=path, timeout_s=session.timeout_s + wait_s)
    done = yield from exchange(session, request)
    raise_refusal(session, done.response)
    return done.response


# --- appending


def append(session: Session, event: Event) -> Steps[Receipt]:
    """Append one event; see `belog.client.Client.append_event`."""
    request = Request(
        method="POST",
        path="/events",
        body=to_json(event_to_append(event)),
        timeout_s=session.timeout_s,
    )
    done = yield from exchange(session, request, event_id=event.event_id)
    try:
        raise_refusal(session, done.response)
    except Conflict:
        # Perhaps the event that it conflicts with is itself.
        receipt = yield from _accepted_before(session, event, done)
        if receipt is None:
            raise
        return receipt
    return receipt_of(done.response.body)


def _accepted_before(session: Session, event: Event, done: Exchange) -> Steps[Receipt | None]:
    """Return the receipt of an event that an earlier try appended, though a later was refused.

    An event with `expected` is refused the second time, not recognised as a duplicate once it has
    left the log's window.
    """
    if not done.is_repeated:
        return None
    stored = yield from find_event(session, event.event_id)
    if stored is None:
        return None
    return Receipt(stored.index, stored.created_at, event.event_id, duplicate=True)


def append_batch(
    session: Session, events: Sequence[Event], *, atomic: bool, at: int | None
) -> Steps[list[Receipt | BelogError]]:
    """Append events in order; see `belog.client.Client.append_batch`."""
    if not events:
        return []
    if len(events) > BATCH_EVENTS_MAX:
        raise LimitExceeded(
            "events", limit="BATCH_EVENTS_MAX", limit_value=BATCH_EVENTS_MAX, value=len(events)
        )
    request = Request(
        method="POST",
        path="/events",
        body=batch_body(list(events), atomic=atomic, at=at),
        timeout_s=session.timeout_s,
    )
    done = yield from exchange(session, request, event_id=events[0].event_id)
    raise_refusal(session, done.response)
    ids = [event.event_id for event in events]
    results = results_of(done.response.body, ids, session.url)
    for n, (event, result) in enumerate(zip(events, results, strict=True)):
        if isinstance(result, Conflict):
            results[n] = (yield from _accepted_before(session, event, done)) or result
    return results


# --- reading


def status(session: Session, min_index: int | None = None) -> Steps[event_log_pb2.LogStatus]:
    """Ask where the log ends."""
    query = [] if min_index is None else [("min_index", min_index)]
    answer = yield from get(session, path_of("status", query=query))
    return message_of(answer.body, event_log_pb2.LogStatus)


def find_event(session: Session, which: int | bytes) -> Steps[StoredEvent | None]:
    """Look an event up by its index or its id."""
    name = str(which) if isinstance(which, int) else uuid_text(which)
    try:
        answer = yield from get(session, path_of("events", name))
    except NotFound:
        return None
    return stored_of(answer.body)


def _page_request(
    session: Session, cursor: Cursor, wanted: EventFilter, *, limit: int, wait_s: float
) -> Request:
    query: list[tuple[str, object]] = [("since", cursor.next_idx), ("limit", limit)]
    if wait_s:
        query.append(("wait_s", f"{wait_s:.3f}"))
    query += filter_query(wanted)
    return Request(
        method="GET", path=path_of("events", query=query), timeout_s=session.timeout_s + wait_s
    )


def page(
    session: Session,
    checked: "Checked",
    cursor: Cursor,
    wanted: EventFilter,
    *,
    limit: int,
    wait_s: float,
) -> Steps[Page]:
    """Read a page; see `belog.client.Client.events`."""
    request = _page_request(session, cursor, wanted, limit=limit, wait_s=wait_s)
    done = yield from exchange(session, request)
    log_id = done.response.headers.get(LOG_ID_HEADER)
    if log_id is not None and cursor.log_id not in {None, UUID(log_id)}:
        # Of another log every cursor is wrong; what its service says of this one means nothing.
        raise other_log(session, cursor, UUID(log_id))
    raise_refusal(session, done.response)
    return (yield from checked_page(session, checked, cursor, done.response))


def checked_page(
    session: Session, checked: "Checked", cursor: Cursor, response: Response
) -> Steps[Page]:
    """Return the page of an answer that comes from the log that the cursor belongs to."""
    cursor = yield from checked.check(session, cursor, response)
    found = page_of(response.body)
    after = cursor.after_page(found)
    checked.passed(cursor, response)
    checked.passed(after, response)
    return Page(found.events, after, found.has_more)


# --- whether the log is the one that is meant

CHECKED_MAX: Final = 1_000
"""Cursors of which it is remembered that they were checked: far more than one program follows."""


class Checked:
    """Which cursors were seen to belong to the log of which run of a service.

    A run has its log open and keeps it; what may be exchanged is the log of the next run. So it is
    enough to look when another run answers.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._places: OrderedDict[tuple[str, UUID | None, int], None] = OrderedDict()

    def check(self, session: Session, cursor: Cursor, response: Response) -> Steps[Cursor]:
        """Return the cursor with its log, after a look whether it is the same log as before.

        Raises:
            LogReplaced: It is another log, or holds another event where one was seen.
            LogTruncated: It is shorter than the cursor.
        """
        log_id = response.headers.get(LOG_ID_HEADER)
        if log_id is not None and cursor == START:
            return Cursor(log_id=UUID(log_id))
        is_same = log_id is None or cursor.log_id == UUID(log_id)
        if is_same and _place(cursor, response) in self._places:
            return cursor
        return (yield from check_cursor(session, cursor))

    def passed(self, cursor: Cursor, response: Response) -> None:
        """Take note of a cursor that an answer led to; it need not be checked for this run."""
        if PROCESS_HEADER in response.headers:
            self._places[_place(cursor, response)] = None
            if len(self._places) > CHECKED_MAX:
                self._places.popitem(last=False)


def _place(cursor: Cursor, response: Response) -> tuple[str, UUID | None, int]:
    return response.headers.get(PROCESS_HEADER, ""), cursor.log_id, cursor.next_idx


def other_log(session: Session, cursor: Cursor, log_id: UUID) -> LogReplaced:
    """Return the error of a cursor that belongs to another log than the one that is served."""
    msg = f"the cursor belongs to log {cursor.log_id}, {session.url} serves {log_id}"
    return LogReplaced(msg, index=cursor.next_idx, hint="was it made anew, or is the URL wrong?")


def check_cursor(session: Session, cursor: Cursor) -> Steps[Cursor]:
    """Return a cursor with its log, after a look whether that is the log that it belongs to.

    Raises:
        LogReplaced: It is another log, or holds another event where one was seen.
        LogTruncated: It is shorter than the cursor.
    """
    there = yield from status(session)
    log_id = UUID(there.log_id)
    if cursor.log_id is not None and cursor.log_id != log_id:
        raise other_log(session, cursor, log_id)
    if there.next_idx < cursor.next_idx:
        msg = f"the log ends at {there.next_idx}, the cursor is at {cursor.next_idx}"
        hint = "was it restored from an older backup? what was read since is not in it"
        raise LogTruncated(msg, log=there.log_id, index=there.next_idx, hint=hint)
    if cursor.last_index is not None:
        stored = yield from find_event(session, cursor.last_index)
        # None: removed by a vacuum, which is no change of history.
        if stored is not None and stored.event.event_id != cursor.last_event_id:
            msg = f"at index {cursor.last_index} stands another event than the one that was read"
            hint = "was it restored from an older backup, and written on since?"
            raise LogReplaced(msg, log=there.log_id, index=cursor.last_index, hint=hint)
    return replace(cursor, log_id=log_id)


# --- following

FollowSteps = Generator[Step | Page, Came, None]
"""As `Steps`; a page is what the caller gets, and is answered by None."""


def follow(
    session: Session,
    cursor: Cursor,
    wanted: EventFilter,
    *,
    limit: int,
    wait_s: float,
    idle_s: float | None,
    patience_s: float | None,
    on_trouble: Callable[[BelogError], None] | None,
) -> FollowSteps:
    """Give pages for ever; see `belog.client.Client.follow_pages`."""
    checked = Checked()
    retrying = Retrying(session, patience_s)
    quiet_since_s = session.clock()
    is_shaken = False
    while True:
        # After trouble the log may be another one: that is looked at before anything is waited for.
        left_s = 0.0 if is_shaken else wait_s
        if idle_s is not None and not is_shaken:
            left_s = max(0.0, min(wait_s, quiet_since_s + idle_s - session.clock()))
        request = _page_request(session, cursor, wanted, limit=limit, wait_s=left_s)
        try:
            done = yield from exchange(session, request, patience_s=0)
            raise_refusal(session, done.response)
            found = yield from checked_page(session, checked, cursor, done.response)
        except BelogError as error:
            pause = None if _is_final(error) else retrying.pause()
            if pause is None:
                raise
            if on_trouble is not None:
                on_trouble(error)
            is_shaken = True
            yield pause
            continue
        retrying.succeeded()
        is_shaken = False
        if found.events or found.cursor != cursor:
            yield found
        cursor = found.cursor
        if found.events or found.has_more:
            quiet_since_s = session.clock()
        elif idle_s is not None and session.clock() - quiet_since_s >= idle_s:
            return


def _is_final(error: BelogError) -> bool:
    """Whether asking again is no use: the fault is the caller's, or somebody has to decide."""
    stops = (Closed, Forbidden, NewerFormat, Unauthenticated, WrongLog, Corrupt)
    return error.deterministic or isinstance(error, stops)
