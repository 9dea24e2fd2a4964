"""When a writer who wins every commit lets others have one. Pure.

Who loses a commit has to read the winner's before it can try again, and the winner has nothing to
read: left alone, the winner of today is the winner of the next minute, and it cannot even see that
others wait, because who loses leaves no trace. So a writer gives way after a time of winning,
whether it sees others or not: often where it has just met some, seldom where it never does.
"""

from typing import Final

__all__ = ["LOSER_PAUSE_S_MAX", "Courtesy", "loser_pause_s"]

LOSER_PAUSE_S_MAX: Final = 0.05
"""Longest pause before a lost commit is tried again, seconds. It must not grow with the losses:
the more often one has lost, the sooner it should be its turn."""
TURN_S_MIN: Final = 0.2
"""How long a writer goes on that knows of others, seconds: several commits on a local disk, about
one in an object store."""
TURN_S_MAX: Final = 10.0
"""How long a writer goes on that has met nobody, seconds; so long may another one wait at first."""
GAP_S_MAX: Final = 2.0
"""Longest time for which it gives way, seconds, however slow the store is."""
CYCLES: Final = 2
"""How many of its own commits last as long as a loser needs to read one and to make one."""


class Courtesy:
    """How one writer shares with those it may not see. Not thread-safe; times are monotonic."""

    def __init__(self) -> None:
        """Know of nobody."""
        self._turn_s = TURN_S_MAX
        self._began = 0.0
        self._ended = 0.0
        self._gave_way = False

    def pause_s(self, now_s: float, commit_s: float) -> float:
        """Return how long to wait before the next commit, seconds; 0 most of the time.

        Args:
            now_s: When the commit would begin.
            commit_s: What a commit takes in this store.
        """
        gap_s = min(CYCLES * commit_s + LOSER_PAUSE_S_MAX, GAP_S_MAX)
        if now_s - self._ended >= gap_s:
            # Whoever waited had time enough.
            self._began = now_s
            return 0.0
        if now_s - self._began < self._turn_s:
            return 0.0
        self._began = now_s + gap_s
        self._gave_way = True
        return gap_s

    def won(self, now_s: float) -> None:
        """Take note of a commit of one's own."""
        if self._gave_way:
            self._turn_s = min(self._turn_s * 2, TURN_S_MAX)
            self._gave_way = False
        self._ended = now_s

    def lost(self, now_s: float) -> None:
        """Take note of a commit that was lost: there are others."""
        self._turn_s = TURN_S_MIN
        self._gave_way = False
        self._began = self._ended = now_s


def loser_pause_s(share: float, losses: int) -> float:
    """Return how long to wait after a lost commit, seconds.

    Args:
        share: Drawn from 0 to 1, so that writers who lost together do not come back together.
        losses: How often in a row it was lost, 1 or more.
    """
    return share * min(LOSER_PAUSE_S_MAX, 0.001 * 2.0 ** min(losses, 10))
