"""Parameters of queries: what a route takes, and how its text is read. Pure."""

import math
import re
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct

from belog.schemas.errors import InvalidInput, LimitExceeded
from belog.service.http_api.settings import QUERY_TERMS_MAX

__all__ = ["Kind", "Parameter", "Query", "parse_query", "path_text"]

Kind = Literal["int", "seconds", "text", "texts", "choice", "choices"]

Query = dict[str, Any]
"""Values by name; a parameter that was not given is not there."""

_INT: Final = re.compile(r"-?[0-9]{1,19}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_INT64: Final = 2**63


class Parameter(Struct, frozen=True):
    """One parameter of a query."""

    name: str
    kind: Kind
    about: str
    """For people."""
    low: int = -_INT64
    """Least integer."""
    choices: tuple[str, ...] = ()


def path_text(segment: str) -> str:
    """Return the text of a percent-encoded path segment.

    Raises:
        InvalidInput: It is not UTF-8.

    >>> path_text("s3%3A%2F%2Flake%2Fday=1%23a")
    's3://lake/day=1#a'
    """
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        msg = "the path is not percent-encoded UTF-8"
        raise InvalidInput(msg) from error


def parse_query(parameters: Sequence[Parameter], query: bytes) -> Query:
    """Return the values of a query string.

    Args:
        parameters: Those that the route takes.
        query: Without the question mark.

    Raises:
        InvalidInput: An unknown parameter, one that is given twice and is no list, a value that is
            not of its kind; not percent-encoded UTF-8.
        LimitExceeded: More than `QUERY_TERMS_MAX`.
    """
    if not query:
        return {}
    parts = query.split(b"&")
    if len(parts) > QUERY_TERMS_MAX:
        raise LimitExceeded(
            "parameters of the query",
            limit="QUERY_TERMS_MAX",
            limit_value=QUERY_TERMS_MAX,
            value=len(parts),
        )
    known = {parameter.name: parameter for parameter in parameters}
    found: Query = {}
    for part in parts:
        if not part:
            continue
        name, _, raw = part.partition(b"=")
        parameter = known.get(_text(name))
        if parameter is None:
            msg = f"there is no parameter {_text(name)!r:.80}"
            raise InvalidInput(msg, hint="there are: " + ", ".join(sorted(known)))
        value = _value(parameter, _text(raw))
        if parameter.kind in {"texts", "choices"}:
            found.setdefault(parameter.name, []).append(value)
        elif parameter.name in found:
            msg = f"{parameter.name} is given more than once"
            raise InvalidInput(msg)
        else:
            found[parameter.name] = value
    return found


def _text(raw: bytes) -> str:
    try:
        return unquote(raw.decode().replace("+", " "), errors="strict")
    except UnicodeDecodeError as error:
        msg = "the query is not percent-encoded UTF-8"
        raise InvalidInput(msg) from error


def _value(parameter: Parameter, text: str) -> object:
    name = parameter.name
    match parameter.kind:
        case "int":
            number = int(text) if _INT.fullmatch(text) else _INT64
            if not max(parameter.low, -_INT64) <= number < _INT64:
                msg = f"{name} is not an integer from {parameter.low} to {_INT64 - 1}: {text!r:.80}"
                raise InvalidInput(msg)
            return number
        case "seconds":
            seconds = float(text) if _SECONDS.fullmatch(text) else math.nan
            if math.isnan(seconds):
                msg = f"{name} is not a number of seconds: {text!r:.80}"
                raise InvalidInput(msg)
            return seconds
        case "choice" | "choices":
            if text not in parameter.choices:
                msg = f"{name} is none of {', '.join(parameter.choices)}: {text!r:.80}"
                raise InvalidInput(msg)
            return text
        case _:
            return text
