"""The service's door for the chaos workload: append and read over HTTP, with answers as errors."""

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Conflict,
    EventIdReused,
    ExpectedMismatch,
    IllegalTransition,
    NotOwner,
    OutcomeUnknown,
    Unavailable,
)
from belog.storage import Receipt

__all__ = ["ACTOR", "append_over_http", "page_over_http"]

ACTOR = "anonymous"
"""Who a service without tokens says that everybody is."""
ANSWER_S = 15.0
"""How long a request may take, seconds; what takes longer is unknown."""

_CONFLICTS: Mapping[str, type[Conflict]] = {
    cls.code: cls
    for cls in (Conflict, IllegalTransition, NotOwner, ExpectedMismatch, EventIdReused)
}


class ServiceError(BelogError):
    """Any other error that a service told."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("message", problem.get("detail", ""))))
        self.code = str(problem["code"])  # type: ignore[misc]
        self.retriable = bool(problem.get("retriable"))  # type: ignore[misc]


def append_over_http(url: str, events: Sequence[Event]) -> list[Receipt | BelogError]:
    """Append events by one request.

    Returns:
        What became of each; `OutcomeUnknown` for all where the answer was lost.
    """
    connection = _connection(url)
    try:
        connection.connect()
    except OSError as error:
        return [Unavailable(f"the service is not there: {error}") for _ in events]
    try:
        body = json.dumps({"events": [_json_of(event) for event in events]})
        status, answer = _asked(connection, "POST", "/events", body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        msg = f"no answer: {error!r:.100}"
        return [OutcomeUnknown(msg, event_id=event.event_id) for event in events]
    finally:
        connection.close()
    if status != http.client.OK:
        return [_error(answer, event) for event in events]
    results = zip(answer["results"], events, strict=True)
    return [_result(result, event) for result, event in results]


def page_over_http(url: str, since: int, limit: int, wait_s: float) -> dict[str, Any]:
    """Read a page.

    Returns:
        `next`, `more`, and `rows`: index, created_at and event id of each event.

    Raises:
        BelogError: What the service told, or that it is not there.
    """
    connection = _connection(url)
    try:
        path = f"/events?since={since}&limit={limit}&wait_s={wait_s}"
        status, answer = _asked(connection, "GET", path, None)
    except (OSError, http.client.HTTPException, ValueError) as error:
        msg = f"no answer: {error!r:.100}"
        raise Unavailable(msg) from error
    finally:
        connection.close()
    if status != http.client.OK:
        raise ServiceError(answer)
    rows = [
        [int(e.get("index", 0)), int(e["created_at"]), UUID(e["event_id"]).hex]
        for e in answer.get("events", ())
    ]
    return {"next": int(answer["next_idx"]), "more": bool(answer.get("has_more")), "rows": rows}


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: str | None
) -> tuple[int, Any]:
    connection.request(method, path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def _json_of(event: Event) -> dict[str, object]:
    fields: dict[str, object] = {
        "event_id": str(UUID(bytes=event.event_id)),
        "event_type": event.event_type,
        "subject_kind": event.subject_kind,
        "subject_id": event.subject_id,
        "occurred_at": str(event.occurred_at),
        "body": event.body(),
    }
    if event.caused_by is not None:
        fields["caused_by"] = str(UUID(bytes=event.caused_by))
    if event.expected is not None:
        fields["expected"] = str(event.expected)
    return fields


def _result(result: Mapping[str, Any], event: Event) -> Receipt | BelogError:
    told = result.get("receipt")
    if told is None:
        return _error(result["problem"], event)
    event_id = UUID(told["event_id"]).bytes
    index, created_at = int(told.get("index", 0)), int(told.get("created_at", 0))
    return Receipt(index, created_at, event_id, duplicate=bool(told.get("duplicate")))


def _error(problem: Mapping[str, Any], event: Event) -> BelogError:
    code = problem["code"]
    message = str(problem.get("message", problem.get("detail", "")))
    if code == OutcomeUnknown.code:
        return OutcomeUnknown(message, event_id=event.event_id)
    conflict = _CONFLICTS.get(code)
    if conflict is None:
        return ServiceError(problem)
    return conflict(
        message,
        state=problem.get("state", ""),
        last_index=int(problem.get("last_index", -1)),
        allowed=tuple(problem.get("allowed", ())),
        owner=problem.get("owner") or None,
        index=int(problem.get("index", 0)),
    )
