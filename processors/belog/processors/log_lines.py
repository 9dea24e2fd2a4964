"""The log lines of a worker: JSON objects with an `event` and its fields, on `belog.worker`.

An outage is told when it begins, every few seconds while it lasts, and when it is over. What client
libraries say of it meanwhile, dozens of times a second, `Seldom` thins out.
"""

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Final

from belog.schemas.errors import Unavailable

__all__ = ["LOGGER", "PROGRESS_LOG_S", "Outage", "Seldom", "log_event"]

LOGGER: Final = logging.getLogger("belog.worker")

PROGRESS_LOG_S: Final = 5.0
"""How often what goes on (a bulk replay, an outage) is told again, seconds."""

QUIET_S: Final = 10.0
"""How long a message of a client library that was just told is held back, seconds."""

MESSAGES_MAX: Final = 1_000
"""Messages remembered as told; past that all are forgotten. Client libraries have some dozens."""

SHAPE_CHARS: Final = 80
"""Beginning of a message that tells it from others, its numbers left out: addresses come later."""

_PROJECT: Final = "belog"
_CLIENT_LINES: Final = "belog.storage.kafka"
"""Where the Kafka client's own messages go."""

_NUMBERS: Final = re.compile(r"\d+")


def log_event(event: str, level: int = logging.INFO, **fields: object) -> None:
    """Write one structured log line.

    Its text is a JSON object; a formatter that knows fields finds them in `event` and `fields`.
    """
    if LOGGER.isEnabledFor(level):
        text = json.dumps({"event": event, **fields}, default=str, ensure_ascii=False)
        LOGGER.log(level, "%s", text, extra={"event": event, "fields": fields})


class Outage:
    """Says when a server cannot be reached, and when it can again; gives up at last.

    Told of every try. Not thread-safe.
    """

    def __init__(self, retry_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with everything there.

        Args:
            retry_s: How long an outage may last, seconds.
            clock: Gives seconds.
        """
        self._retry_s = retry_s
        self._clock = clock
        self._since: float | None = None
        self._said_at = 0.0

    def lasts(self, error: Unavailable) -> None:
        """Note a try that failed: a log line at first, and one in `PROGRESS_LOG_S` after that.

        Raises:
            Unavailable: The same, when it has lasted for `retry_s`.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now - self._since > self._retry_s:
            raise error
        elif now - self._said_at < PROGRESS_LOG_S:
            return
        self._said_at = now
        since_s = round(now - self._since, 1)
        log_event("unavailable", logging.WARNING, error=str(error), since_s=since_s)

    def is_over(self) -> None:
        """Note a try that did not fail."""
        if self._since is not None:
            log_event("available", after_s=round(self._clock() - self._since, 1))
            self._since = None


class Seldom(logging.Filter):
    """Lets a client library's message through once in `QUIET_S`, with how often it came meanwhile.

    Messages that differ in numbers only are the same one. Lines of this project always pass. For
    workers, sinks and services: without it a broker that is away makes a hundred lines a second,
    and who reads them slowly holds the program up.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing told.

        Args:
            clock: Gives seconds.
        """
        super().__init__()
        self._clock = clock
        self._told: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record passes; one that others were held back for says how many."""
        own = record.name == _PROJECT or record.name.startswith(f"{_PROJECT}.")
        if own and record.name != _CLIENT_LINES:
            return True
        text = record.getMessage()
        shape = (record.name, record.levelno, _NUMBERS.sub("", text)[:SHAPE_CHARS])
        now = self._clock()
        told_at, held_back = self._told.get(shape, (None, 0))
        if told_at is not None and now - told_at < QUIET_S:
            self._told[shape] = (told_at, held_back + 1)
            return False
        if len(self._told) >= MESSAGES_MAX:
            self._told.clear()
        self._told[shape] = (now, 0)
        if held_back:
            record.msg, record.args = f"{text} (and {held_back} like it)", None
        return True
