"""Log lines of the long-running commands: text for people, or one JSON object a line.

Any module logs with the standard library, and adds what it knows as fields:
`LOGGER.info("snapshot taken", extra={"fields": {"index": 7}})`. Errors of this project bring their
code and coordinates along, a request brings its actor and trace. One formatter writes all of it,
and takes out what must not be in a log, wherever it stands: passwords, tokens and secret settings.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, Literal, TextIO, cast

import msgspec

from belog.schemas.errors import BelogError
from belog.service.access import TOKEN_PREFIX

__all__ = [
    "FIELD_CHARS_MAX",
    "LogFormat",
    "LogLevel",
    "StructuredFormatter",
    "bind",
    "configure_logging",
    "request_fields",
    "without_secrets",
]

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

FIELD_CHARS_MAX: Final = 4_096
"""Longest field, characters: a ref of the greatest length fits; what a client sends cannot fill a
disk by being logged."""

FIELD_NAMES_MAX: Final = 1_000
"""Names of fields that are remembered as secret or not; the program has some dozens."""

MESSAGE_CHARS_MAX: Final = 20_000
"""Longest message, characters: an error that lists all it found fits."""

STACK_CHARS_MAX: Final = 20_000
"""Longest stack, characters: some two hundred frames; the last ones are kept."""

HIDDEN: Final = "***"

# Repetitions have bounds, so that no text takes more than linear time.
_NAMES: Final = ("password", "passwd", "secret", "token", "credential", "jaas", "apikey", "api_key")
_WORDS: Final = rf"(?:{'|'.join(_NAMES)})[\w.\-]{{0,40}}"
# Without one of these there is no secret to be found, and looking for them is much faster.
_MARKS: Final = ("@", "bearer", "basic", TOKEN_PREFIX, *_NAMES)
_SECRETS: Final = re.compile(
    # The login of a URI; up to the last @ before its path, as passwords may hold one.
    r"(?P<login>://[^\s/:@'\"]*):[^\s/'\"]*@"
    # An assignment, as in the query of a URI.
    rf"|(?P<setting>{_WORDS}=)[^\s&'\",;]+"
    # A member of a mapping, in JSON or as Python shows it.
    rf"|(?P<member>[\"'][\w.\-]{{0,60}}{_WORDS}[\"']\s*:\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,}}]+)"
    r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=\-]{6,}"
    # A token: names of metrics start in the same way, and are shorter.
    rf"|{TOKEN_PREFIX}[\w\-]{{40,}}",
    re.IGNORECASE,
)
_SECRET_FIELD: Final = re.compile(_WORDS, re.IGNORECASE)

_BOUND: ContextVar[dict[str, object] | None] = ContextVar("belog_log_fields", default=None)

TraceIds = Callable[[], str | None]
"""Gives the trace that the present code belongs to, None for none."""


def without_secrets(text: str) -> str:
    """Return a text with passwords, tokens and secret settings replaced by `***`.

    >>> without_secrets("redis://worker:pa55@cache:6379/0?password=abc is away")
    'redis://worker:***@cache:6379/0?password=*** is away'
    """
    lowered = text.lower()
    for mark in _MARKS:
        if mark in lowered:
            break
    else:
        return text
    return _SECRETS.sub(_hidden, text)


def _hidden(match: "re.Match[str]") -> str:
    if match["login"] is not None:
        return f"{match['login']}:{HIDDEN}@"
    return (match["setting"] or match["member"] or match["scheme"] or "") + HIDDEN


class request_fields:  # noqa: N801 - used as the function that it would be, were it as fast
    """Give the fields that all log lines of a request carry; `bind` adds to them.

    A context manager. They go where the context goes: into tasks, and into threads by `Calls`.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> dict[str, object]:
        """Begin a request."""
        fields: dict[str, object] = {}
        self._token = _BOUND.set(fields)
        return fields

    def __exit__(self, *_: object) -> None:
        """End it."""
        _BOUND.reset(self._token)


def bind(**fields: object) -> None:
    """Add fields to all further log lines of the present request; nothing outside of one.

    Args:
        fields: Such as `actor`, `subject`, `event_id`, `index`; `error` is the `BelogError` that it
            is answered with, whose code and coordinates are added.
    """
    bound = _BOUND.get()
    if bound is not None:
        bound.update(fields)


class StructuredFormatter(logging.Formatter):
    """Formats records with their fields. Thread-safe; raises nothing for whatever is logged."""

    def __init__(self, log_format: LogFormat, trace_ids: TraceIds | None = None) -> None:
        """Choose a form.

        Args:
            log_format: `text` or `json`.
            trace_ids: Where `trace_id` comes from.
        """
        super().__init__()
        self._is_json = log_format == "json"
        self._trace_ids = trace_ids

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; as text an exception's stack follows on lines of its own."""
        at = datetime.fromtimestamp(record.created, UTC)
        time = f"{at.isoformat(timespec='microseconds')[:-6]}Z"
        message = _shown(_message(record))[:MESSAGE_CHARS_MAX]
        fields = self._fields(record)
        exception = _exception(record)
        if self._is_json:
            line: dict[str, object] = {
                "time": time,
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message,
            }
            line |= {name: value for name, value in fields.items() if name not in line}
            if exception is not None:
                line["exception"] = exception
            return msgspec.json.encode(line).decode()
        parts = [time, f"{record.levelname:<7}", record.name, _one_line(message)]
        parts += [f"{name}={_quoted(value)}" for name, value in fields.items()]
        text = " ".join(parts)
        return text if exception is None else f"{text}\n{exception['stack']}"

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        found: dict[str, object] = {}
        if record.exc_info and isinstance(record.exc_info[1], BelogError):
            found |= _error_fields(record.exc_info[1])
        bound = _BOUND.get() or {}
        error = bound.get("error")
        if isinstance(error, BelogError):
            found |= _error_fields(error)
        found |= bound
        given = record.__dict__.get("fields")
        if isinstance(given, Mapping):
            found |= cast("Mapping[str, object]", given)
        if self._trace_ids is not None and (trace_id := self._trace_ids()) is not None:
            found["trace_id"] = trace_id
        return {
            name: HIDDEN if _is_secret(name) else _value(value)
            for name, value in found.items()
            if value is not None
        }


@lru_cache(maxsize=FIELD_NAMES_MAX)
def _is_secret(name: str) -> bool:
    return _SECRET_FIELD.search(name) is not None


def _message(record: logging.LogRecord) -> str:
    # The worker's lines are named by what happened; their text repeats the fields.
    event = record.__dict__.get("event")
    if isinstance(event, str):
        return event
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _error_fields(error: BelogError) -> dict[str, object]:
    return {
        "error_code": error.code,
        "log": error.log,
        "index": error.index,
        "subject": error.subject,
        "hint": error.hint or None,
    }


def _value(value: object) -> object:
    if isinstance(value, int | float):
        return value
    if isinstance(value, BelogError):
        value = value.message
    text = value.hex() if isinstance(value, bytes) else str(value)
    return _shown(text)[:FIELD_CHARS_MAX]


def _exception(record: logging.LogRecord) -> dict[str, str] | None:
    if not record.exc_info or record.exc_info[1] is None:
        return None
    kind, error, trace = record.exc_info
    stack = "".join(traceback.format_exception(kind, error, trace)).rstrip()
    return {
        "type": type(error).__name__,
        "message": _shown(str(error))[:FIELD_CHARS_MAX],
        "stack": _shown(stack)[-STACK_CHARS_MAX:],
    }


def _shown(text: str) -> str:
    shown = without_secrets(text)
    # Half a surrogate pair, as a file's name may hold, is not text that could be written.
    return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode()


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _quoted(value: object) -> str:
    text = str(value)
    return msgspec.json.encode(text).decode() if re.search(r"[\s\"=]", text) else text


def configure_logging(
    log_format: LogFormat = "text",
    level: LogLevel = "info",
    *,
    stream: TextIO | None = None,
    filters: Iterable[logging.Filter] = (),
    trace_ids: TraceIds | None = None,
) -> None:
    """Send all log lines of the process to standard error in one form; for commands only.

    Lines of other packages show from `warning` on. What no one caught, in any thread, is logged too
    rather than printed, so that every line of a JSON log is JSON. Called again it replaces what it
    did before.

    Args:
        log_format: `text` or `json`.
        level: The least severity of belog's own lines.
        stream: Where to, instead of standard error.
        filters: Hold back what need not be written.
        trace_ids: Where `trace_id` comes from.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(StructuredFormatter(log_format, trace_ids))
    for held_back in filters:
        handler.addFilter(held_back)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("belog").setLevel(level.upper())
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_uncaught_in_thread


def _on_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if isinstance(error, KeyboardInterrupt):
        return
    logging.getLogger("belog").critical("not caught", exc_info=(kind, error, trace))


def _on_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    logging.getLogger("belog").critical(
        "not caught",
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
        extra={"fields": {"thread": None if args.thread is None else args.thread.name}},
    )
