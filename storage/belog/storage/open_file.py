"""Whether a path still names the file that was opened by it.

A file that was removed or replaced stays there for whoever has it open: he reads a log that nobody
else sees any more, and what he writes is lost when he closes it. As long as it is open nothing else
gets its inode, so one look at the path tells.
"""

import os
import time
from typing import Final

from belog.schemas.errors import LogReplaced, Unavailable

__all__ = ["LOOK_S", "OpenFile"]

LOOK_S: Final = 1.0
"""How often those that read look, seconds: who waits for events learns within that time that none
will come any more, and a look costs about 2 µs, as much as a short read does."""

_GONE: Final = (FileNotFoundError, NotADirectoryError)


class OpenFile:
    """A file that the caller keeps open, and the path of it. Thread-safe.

    Attributes:
        path: Absolute, as of the opening.
    """

    def __init__(self, path: str, name: str) -> None:
        """Name a file; nothing is looked at before `remember`.

        Args:
            path: Of the file, absolute.
            name: The log's name for errors.
        """
        self.path = path
        self._name = name
        self._file: tuple[int, int] | None = None
        self._next_look_s = 0.0

    def remember(self, descriptor: int | None = None) -> None:
        """Remember which file is open.

        Args:
            descriptor: Of the file; None to take what is there now for it, right after the opening.

        Raises:
            Unavailable: The path cannot be looked at.
        """
        self._file = self._now() if descriptor is None else _key(os.fstat(descriptor))
        self._next_look_s = 0.0

    def check(self) -> None:
        """Look, with one call of the system, whether it is the same file still.

        Raises:
            LogReplaced: It is not, or there is none.
            Unavailable: The path cannot be looked at.
        """
        if self._file != self._now():
            msg = f"{self.path} was removed, or another file put in its place, while it was open"
            raise LogReplaced(msg, log=self._name, hint="restart what has it open, also a service")

    def check_at_times(self) -> None:
        """As `check`, but for a look less than `LOOK_S` ago that found the same file."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self.check()
            # Only after a look that was good: the error has to come again.
            self._next_look_s = now_s + LOOK_S

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - a third of the price, at each append
        except _GONE:
            return None
        except OSError as error:
            msg = f"{error.strerror or error} {self.path}"
            hint = "look at the disk and at the rights of the folder"
            raise Unavailable(msg, log=self._name, hint=hint) from error
        return _key(found)


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
