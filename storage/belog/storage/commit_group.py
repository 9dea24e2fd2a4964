"""Group commit over the threads of one process: who comes while one commits, goes with the next.

The first thread that finds nobody at work leads: it takes all that waits, commits it in one piece,
and passes the lead to the first thread that came meanwhile. So there is no thread of its own, a
single writer waits for nobody, and what it costs to make something durable is shared by all who
wait for it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from belog.schemas.errors import Unavailable

__all__ = ["GROUP_BYTES_MAX", "CommitGroup"]

Item = TypeVar("Item")
Result = TypeVar("Result")

GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Weight of one group, bytes: a fraction of a second of writing on a slow disk. A heavier single
item is a group of its own."""


class _Ticket(Generic[Item, Result]):
    """One waiting call."""

    __slots__ = ("error", "item", "leads", "result", "wake", "weight")

    def __init__(self, item: Item, weight: int) -> None:
        self.item = item
        self.weight = weight
        self.wake = threading.Lock()
        self.wake.acquire()
        self.leads = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class CommitGroup(Generic[Item, Result]):
    """Commits items in groups, in the order in which they came. Thread-safe."""

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Sequence[Result | BaseException]],
        *,
        group_bytes_max: int = GROUP_BYTES_MAX,
    ) -> None:
        """Start with nobody waiting.

        Args:
            commit: Makes a group durable and returns a result or an error per item, in order. What
                it raises is raised to each caller of the group. Never called twice at once.
            group_bytes_max: Weight at which a group is closed.
        """
        self._commit = commit
        self._bytes_max = group_bytes_max
        self._lock = threading.Lock()
        self._waiting: deque[_Ticket[Item, Result]] = deque()
        self._busy = False
        self._crowded = False

    def submit(self, item: Item, weight_bytes: int) -> Result:
        """Commit an item together with those that wait; blocks until it is durable.

        Raises:
            BaseException: What `commit` returned for the item, or raised for the group.
        """
        ticket: _Ticket[Item, Result] = _Ticket(item, weight_bytes)
        with self._lock:
            self._waiting.append(ticket)
            leads = not self._busy
            self._busy = True
        if not leads:
            ticket.wake.acquire()
            leads = ticket.leads
        if leads:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    def _take(self) -> list[_Ticket[Item, Result]]:
        if self._crowded:
            # Those of the last group were woken just now: let them come along. Measured with 8
            # threads: groups of 6.8 instead of 4.6, and a tenth more events per second.
            time.sleep(0)
        with self._lock:
            group = [self._waiting.popleft()]
            weight = group[0].weight
            while self._waiting and weight + self._waiting[0].weight <= self._bytes_max:
                group.append(self._waiting.popleft())
                weight += group[-1].weight
            self._crowded = len(group) > 1
            return group

    def _lead(self, own: _Ticket[Item, Result]) -> None:
        group = self._take()
        try:
            results = self._commit([ticket.item for ticket in group])
            for ticket, result in zip(group, results, strict=True):
                if isinstance(result, BaseException):
                    ticket.error = result
                else:
                    ticket.result = result
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for it
            # Also an interrupt of the leader: nobody may wait for a result it will not give.
            for ticket in group:
                ticket.error = error if ticket is own else _lost(error)
        finally:
            with self._lock:
                follower = self._waiting[0] if self._waiting else None
                self._busy = follower is not None
            for ticket in group:
                if ticket is not own:
                    ticket.wake.release()
            if follower is not None:
                follower.leads = True
                follower.wake.release()


def _lost(error: BaseException) -> BaseException:
    if isinstance(error, Exception):
        return error
    lost = Unavailable(
        "the commit was interrupted", hint="append again: the event id makes it safe"
    )
    lost.__cause__ = error
    return lost
