"""The dead-letter file: what a replica's store refused, whole, one JSON object a line.

A file and not a log: a refused event is as large as an event may be, so it would not fit into
another event, and people look at dead letters with the tools they have. Each line holds `at` (µs
since the epoch), `origin_log_id`, `index`, `event_id`, `event_type`, `subject`, `code` and `reason`
of the refusal, and `envelope`, the origin's record value in base64.
"""

import base64
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from belog.schemas.envelope import decode_event
from belog.schemas.errors import BelogError, Corrupt, Unavailable
from belog.schemas.replica import decode_replica
from belog.storage.creation import now_us
from belog.storage.interface import CopiedRecord

__all__ = ["DEAD_LETTERS_MAX", "DeadLetterFile", "DeadLetters"]

DEAD_LETTERS_MAX: Final = 100
"""Refused events of one replica after which its sink stops: a hundred are an accident of single
events, more are a setting of the target that somebody should mend."""


class DeadLetters(Protocol):
    """Where refused events go."""

    def put(self, record: CopiedRecord, error: BelogError) -> None:
        """Keep a refused record of a replica. Durable on return; the same one again is no second.

        Raises:
            Unavailable: It could not be kept.
        """
        ...


class DeadLetterFile:
    """Dead letters in a file of JSON lines. Thread-safe; one process writes it at a time."""

    def __init__(self, path: Path | str, *, clock: Callable[[], int] = now_us) -> None:
        """Name a file; it is made with the first dead letter.

        Args:
            path: The file; what it holds stays.
            clock: Gives the time of `at`, microseconds since the epoch.
        """
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._known: set[tuple[str, int]] | None = None

    def put(self, record: CopiedRecord, error: BelogError) -> None:
        """See `DeadLetters.put`."""
        wrapped = decode_replica(record.value)
        event = decode_event(wrapped.envelope)
        log_id = str(UUID(bytes=wrapped.origin_log_id))
        line = {
            "at": self._clock(),
            "origin_log_id": log_id,
            "index": record.index,
            "event_id": str(UUID(bytes=event.event_id)),
            "event_type": event.event_type,
            "subject": event.subject,
            "code": error.code,
            "reason": error.message,
            "envelope": base64.b64encode(wrapped.envelope).decode(),
        }
        with self._lock:
            try:
                known = self._read()
                if (log_id, record.index) not in known:
                    self._write(json.dumps(line, ensure_ascii=False))
                    known.add((log_id, record.index))
            except OSError as cause:
                msg = f"the dead letter could not be written to {self.path}: {cause.strerror}"
                raise Unavailable(msg, index=record.index, subject=event.subject) from cause

    def _read(self) -> set[tuple[str, int]]:
        if self._known is None:
            known: set[tuple[str, int]] = set()
            if self.path.exists():
                lines = self.path.read_bytes().splitlines(keepends=True)
                for number, text in enumerate(lines, 1):
                    if not text.endswith(b"\n"):
                        break  # cut off by a crash: `_write` ends it, and it is written again
                    try:
                        letter = json.loads(text)
                        known.add((letter["origin_log_id"], letter["index"]))
                    except (ValueError, KeyError, TypeError) as error:
                        if number > 1 and text.strip() == b"":
                            continue
                        msg = f"line {number} of {self.path} is no dead letter"
                        raise Corrupt(msg, hint="name another file") from error
            self._known = known
        return self._known

    def _write(self, line: str) -> None:
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    self._cut_last_line(file.fileno())
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _cut_last_line(self, descriptor: int) -> None:
        whole = self.path.read_bytes()
        os.ftruncate(descriptor, whole.rfind(b"\n") + 1)
