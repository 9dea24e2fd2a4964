"""Turns of the processes that write one Delta table.

Beside a table on a local disk lie two files that writers lock (`flock`): who holds the first is
next, who holds the second commits. So nobody who has just committed can come again before one that
waits, nobody prepares a commit that is lost before it is written, and a process that ends leaves
the queue. They are a hint and nothing else: what makes indices exact is the put-if-absent of the
commit's file. A writer that cannot lock them goes on without, and so does one who sees that
whoever holds the lock does nothing (a frozen process). Then, and in object stores, which have no
such locks, writers share by `belog.storage.delta_courtesy`.

Delta ignores files whose names begin with an underscore, and its vacuum leaves them.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from belog.storage.delta_courtesy import Courtesy, loser_pause_s

__all__ = ["NEXT_NAME", "TURN_NAME", "Turns"]

NEXT_NAME: Final = "_belog_next.lock"
TURN_NAME: Final = "_belog_turn.lock"
HOLDER_S_MAX: Final = 2.0
"""How long one turn may last before others go on without it, seconds: a hundred commits of a quiet
disk. A process that is frozen in its turn delays each other one by this once."""
QUEUE_S_MAX: Final = 10.0
"""Longest wait in the queue, seconds, while others have their turns: some 300 commits."""
LOOK_S_MIN: Final = 0.0005
LOOK_S_MAX: Final = 0.002
"""Shortest and longest time between two looks at a lock, seconds: a tenth of a commit. Drawn, so
that nobody comes first all the time."""


class Turns:
    """The turns of one writer. Not thread-safe: a writer commits one group at a time."""

    def __init__(self, folder: Path | None) -> None:
        """Name the table; nothing is opened.

        Args:
            folder: Where a local table is, None in an object store.
        """
        self._folder = folder
        self._seen: tuple[int, float] = (-1, 0.0)
        self._courtesy = Courtesy()
        self._commit_s = 0.0
        self._losses = 0

    @contextmanager
    def turn(self) -> Generator[None]:
        """Wait for a turn, and have it. Blocks, up to `QUEUE_S_MAX`; raises nothing of its own."""
        with ExitStack() as held:
            if not self._is_given(held):
                time.sleep(self._courtesy.pause_s(time.monotonic(), self._commit_s))
            began = time.monotonic()
            yield
            self._commit_s = time.monotonic() - began

    def won(self) -> None:
        """Say that the commit of this turn was made."""
        self._losses = 0
        self._courtesy.won(time.monotonic())

    def lost(self) -> None:
        """Say that another one came first. Blocks for some milliseconds, so not within a turn."""
        self._losses += 1
        self._courtesy.lost(time.monotonic())
        time.sleep(loser_pause_s(_share(), self._losses))

    def _is_given(self, held: ExitStack) -> bool:
        """Wait in the queue; whether the turn's lock was given, which `held` then gives back."""
        if self._folder is None:
            return False
        deadline = time.monotonic() + QUEUE_S_MAX
        # Opened for each turn: to close them is to leave, whatever happens, and costs 20 us.
        with ExitStack() as opened, suppress(OSError):
            # No rights, no room or no locks in this file system: then without; what stands in the
            # way of the commit, too, the commit says.
            door = _open(self._folder / NEXT_NAME, opened)
            turn = _open(self._folder / TURN_NAME, opened)
            if self._locks(door, turn, deadline) and self._locks(turn, turn, deadline):
                os.utime(turn)
                fcntl.flock(door, fcntl.LOCK_UN)
                held.push(opened.pop_all())
                return True
        return False

    def _locks(self, descriptor: int, turn: int, deadline: float) -> bool:
        """Wait for a lock, unless whoever has the turn does nothing with it."""
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._is_stuck(turn) or time.monotonic() > deadline:
                    return False
            else:
                return True
            time.sleep(LOOK_S_MIN + _share() * (LOOK_S_MAX - LOOK_S_MIN))

    def _is_stuck(self, turn: int) -> bool:
        """Whether it has been the same turn for too long."""
        now = time.monotonic()
        began = os.fstat(turn).st_mtime_ns
        if began != self._seen[0]:
            self._seen = (began, now)
        return now - self._seen[1] > HOLDER_S_MAX


def _open(path: Path, opened: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    opened.callback(os.close, descriptor)
    return descriptor


def _share() -> float:
    return int.from_bytes(os.urandom(2), "big") / 0xFFFF
