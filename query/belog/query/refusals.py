"""Attempts that a service refused, kept for audits. In memory: the log holds accepted events only.

Who must keep them for longer writes them to a log of its own.
"""

import threading
from collections import deque
from typing import Final

from belog.query.answers import AuditEntry
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError

__all__ = ["REFUSALS_KEPT_MAX", "Refusals"]

REFUSALS_KEPT_MAX: Final = 10_000
"""Refused attempts that are remembered, the newest; about 5 MB."""


class Refusals:
    """The last refused attempts. Thread-safe."""

    def __init__(self, kept_max: int = REFUSALS_KEPT_MAX) -> None:
        """Start with none.

        Args:
            kept_max: How many are kept.
        """
        self._kept: deque[AuditEntry] = deque(maxlen=kept_max)
        self._lock = threading.Lock()

    def record(self, event: Event, error: BelogError, *, at: int) -> None:
        """Remember that an event was refused.

        Args:
            event: What was to be appended, with the authenticated actor.
            error: Why it was not.
            at: When, microseconds since the epoch.
        """
        entry = AuditEntry(
            at=at,
            actor=event.actor,
            event_type=event.event_type,
            subject_kind=event.subject_kind,
            subject_id=event.subject_id,
            event_id=event.event_id,
            result=error.code,
            index=error.index,
            reason=error.message,
        )
        with self._lock:
            self._kept.append(entry)

    def entries(self) -> tuple[AuditEntry, ...]:
        """Return what is remembered, in order of arrival."""
        with self._lock:
            return tuple(self._kept)
