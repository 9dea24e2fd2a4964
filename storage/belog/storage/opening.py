"""Opening logs that are there, or will be."""

import threading
from collections.abc import Callable
from typing import Final

from belog.schemas.errors import NotFound
from belog.storage.interface import EventLog, LogIdentity

__all__ = ["AWAIT_PAUSE_S", "await_log", "open_existing"]

AWAIT_PAUSE_S: Final = 1.0
"""Pause between two looks for a log that is not there yet, seconds."""


def open_existing(log: EventLog) -> LogIdentity:
    """Open a log that is there, a primary one or a replica. Never creates it.

    Raises:
        NotFound: There is no log yet.
        Unavailable: It cannot be reached.
    """
    found = log.identify()
    if found is None:
        msg = "there is no log yet"
        raise NotFound(msg, log=log.name, hint="append to it, or mend the URI")
    return log.initialize(instance=found.instance, log_id=found.log_id, replica=found.is_replica)


def await_log(
    log: EventLog, stop: threading.Event, on_wait: Callable[[], None] | None = None
) -> LogIdentity | None:
    """Open a log as soon as somebody has created it; for services that may be started before.

    Args:
        log: The log.
        stop: Set by another thread to give up.
        on_wait: Called before each pause of `AWAIT_PAUSE_S`.

    Returns:
        Its identity, or None when stopped before.

    Raises:
        NotFound: What should hold the log is not there either, as a Kafka topic is not.
        Unavailable: It cannot be reached.
    """
    while log.identify() is None:
        if on_wait is not None:
            on_wait()
        if stop.wait(AWAIT_PAUSE_S):
            return None
    return open_existing(log)
