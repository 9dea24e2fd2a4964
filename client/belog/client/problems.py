"""Errors of a service as the errors that they were there. Pure."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from belog.schemas import errors
from belog.schemas.errors import (
    BelogError,
    Conflict,
    Gone,
    IndexConflict,
    LimitExceeded,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
)

__all__ = ["Problem", "error_from", "problem_in"]


class Problem(Struct, frozen=True, kw_only=True):
    """A problem document (RFC 9457), or the `Problem` of one event of a batch."""

    code: str
    detail: str = ""
    message: str = ""
    """Of a batch, what `detail` is of a document."""
    hint: str = ""
    index: int | None = None
    subject: str = ""
    state: str = ""
    last_index: int = -1
    allowed: tuple[str, ...] = ()
    owner: str = ""
    retriable: bool = False
    next_idx: int = 0
    horizon: int = 0
    snapshot: str = ""
    limit: str = ""
    limit_value: int = 0
    value: int = 0
    event_id: str = ""


# Not strict: integers of 64 bits are text in JSON.
def problem_in(body: bytes) -> Problem | None:
    """Return the problem document that a body is; None where it is none, such as a proxy's page."""
    try:
        return msgspec.convert(msgspec.json.decode(body), Problem, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _tree(cls: type[BelogError]) -> Iterator[type[BelogError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _tree(below)


_CLASSES: Final = {cls.code: cls for cls in _tree(BelogError)}
_BY_STATUS: Final[dict[int, type[BelogError]]] = {
    400: errors.InvalidInput,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.Unsupported,
    413: errors.InvalidInput,
    414: errors.InvalidInput,
    415: errors.InvalidInput,
    421: errors.Forbidden,
    422: errors.InvalidInput,
    429: errors.Overloaded,
    431: errors.InvalidInput,
    501: errors.Unsupported,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""For answers that are no problem documents of ours, or hold the code of newer software."""


def error_from(
    problem: Problem | None, *, status: int | None = None, url: str, event_id: bytes = bytes(16)
) -> BelogError:
    """Return the error that a service answered with, with its coordinates.

    Args:
        problem: What it said.
        status: Of the answer, where the problem is not an event's.
        url: Of the service, for what does not say who speaks.
        event_id: Of the event that it is about, if one.
    """
    if problem is None:
        cls = _BY_STATUS.get(status or 0, BelogError)
        return _plain(cls, f"{url} answered {status}, without a problem document", Problem(code=""))
    cls = _CLASSES.get(problem.code) or _BY_STATUS.get(status or 0, BelogError)
    text = problem.detail or problem.message or problem.code
    error = _with_own_fields(cls, text, problem, event_id)
    error.args = (text,)
    error.message = text
    error.hint = problem.hint or error.hint
    error.index = problem.index
    error.subject = problem.subject or None
    return error


def _with_own_fields(
    cls: type[BelogError], text: str, problem: Problem, event_id: bytes
) -> BelogError:
    if issubclass(cls, Conflict):
        return cls(
            text,
            state=problem.state,
            last_index=problem.last_index,
            allowed=problem.allowed,
            owner=problem.owner or None,
        )
    if issubclass(cls, IndexConflict):
        return cls(text, next_idx=problem.next_idx or problem.index or 0)
    if issubclass(cls, Gone):
        return cls(text, horizon=problem.horizon or problem.index or 0, snapshot=problem.snapshot)
    if issubclass(cls, LimitExceeded):
        return cls(text, limit=problem.limit, limit_value=problem.limit_value, value=problem.value)
    if issubclass(cls, OutcomeUnknown):
        return cls(text, event_id=_uuid(problem.event_id) or event_id)
    if issubclass(cls, Misconfigured):
        return cls(text, setting="", hint=problem.hint)
    if issubclass(cls, errors.Closed):
        # The service is closing, not this client: as good as away.
        return Unavailable(text)
    return _plain(cls, text, problem)


def _plain(cls: type[BelogError], text: str, problem: Problem) -> BelogError:
    return cls(text, hint=problem.hint)


def _uuid(text: str) -> bytes | None:
    try:
        return UUID(text).bytes
    except ValueError:
        return None
