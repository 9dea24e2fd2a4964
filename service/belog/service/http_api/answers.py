"""What is sent back: answers, and problem documents (RFC 9457). Pure."""

import math
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from belog.schemas.errors import (
    BelogError,
    Closed,
    Conflict,
    Gone,
    IndexConflict,
    LimitExceeded,
    OutcomeUnknown,
    Overloaded,
    Unauthenticated,
    Unavailable,
    status_of,
)
from belog.schemas.wire_json import to_json, uuid_text

__all__ = ["JSON", "PROBLEM_JSON", "RETRY_AFTER_S", "Answer", "json_answer", "problem"]

JSON: Final = b"application/json"
PROBLEM_JSON: Final = b"application/problem+json"

RETRY_AFTER_S: Final = 1
"""What a client is told to wait after a 503, seconds: queues empty within that."""

Header = tuple[bytes, bytes]


class Answer(Struct, frozen=True):
    """What a route answers."""

    body: bytes
    as_of: int | None = None
    """It holds the effects of all events below this index."""
    status: int = 200
    content_type: bytes = JSON
    headers: tuple[Header, ...] = ()


def json_answer(plain: object, as_of: int | None = None, *, status: int = 200) -> Answer:
    """Return an answer of plain values."""
    return Answer(to_json(plain), as_of, status)


class ProblemDocument(Struct, omit_defaults=True):
    """The message `HttpProblem`, by the mapping."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    index: str | UnsetType = UNSET
    subject: str = ""
    state: str | UnsetType = UNSET
    last_index: str | UnsetType = UNSET
    allowed: tuple[str, ...] | UnsetType = UNSET
    owner: str = ""
    retriable: bool | UnsetType = UNSET
    next_idx: str | UnsetType = UNSET
    horizon: str | UnsetType = UNSET
    snapshot: str = ""
    limit: str = ""
    limit_value: str | UnsetType = UNSET
    value: str | UnsetType = UNSET
    event_id: str = ""


def problem(
    error: BelogError,
    *,
    status: int | None = None,
    code: str | None = None,
    headers: tuple[Header, ...] = (),
) -> Answer:
    """Return the problem document of an error.

    Args:
        error: What happened; its message holds no secrets.
        status: Instead of the one its class has.
        code: Instead of its class's.
        headers: To add.
    """
    status = status_of(error).http if status is None else status
    code = error.code if code is None else code
    document = ProblemDocument(
        type=f"urn:belog:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=error.message,
        code=code,
        hint=error.hint,
        index=UNSET if error.index is None else str(error.index),
        subject=error.subject or "",
        retriable=error.retriable or isinstance(error, Closed),
    )
    _add_what_the_class_has(document, error)
    if isinstance(error, (Overloaded, Unavailable, Closed)):
        headers = (*headers, (b"retry-after", b"%d" % RETRY_AFTER_S))
    if isinstance(error, Unauthenticated):
        headers = (*headers, (b"www-authenticate", b'Bearer realm="belog"'))
    return Answer(
        msgspec.json.encode(document), None, status, content_type=PROBLEM_JSON, headers=headers
    )


def _add_what_the_class_has(document: ProblemDocument, error: BelogError) -> None:
    match error:
        case Conflict():
            document.state = error.state
            document.last_index = str(error.last_index)
            document.allowed = error.allowed
            document.owner = error.owner or ""
        case IndexConflict():
            document.next_idx = str(error.next_idx)
        case Gone():
            document.horizon = str(error.horizon)
            document.snapshot = error.snapshot
        case LimitExceeded():
            document.limit = error.limit
            document.limit_value = str(math.floor(error.limit_value))
            document.value = str(math.floor(error.value))
        case OutcomeUnknown():
            document.event_id = uuid_text(error.event_id)
        case _:
            pass
