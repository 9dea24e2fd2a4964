"""What a group of waiting appends becomes, for backends that commit groups.

Pure but for what the argument `looked_up` does.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, IndexConflict, OutcomeUnknown
from belog.storage.interface import CopiedRecord, Receipt
from belog.storage.recent import RecentRecords

__all__ = ["Append", "Batch", "Plan", "Result", "again", "plan_appends"]

Batch = Sequence[tuple[int, int, bytes]]
"""Index, created_at and value of records that become visible together."""

Result = list[Receipt] | BaseException


class Append(Struct, frozen=True):
    """One call that waits to be committed."""

    events: Sequence[Event]
    values: Sequence[bytes]
    """The record value of each event, or of each copied record."""
    at: int | None = None
    seen_idx: int | None = None
    copied: Sequence[CopiedRecord] = ()
    after: int | None = None
    """Set for copied records: the index of the last record the log must hold."""


class Plan(Struct, frozen=True):
    """What is to be written, and what each call is told once it is."""

    batches: list[Batch]
    results: list[Result]
    """A result per call, in order."""

    def failed_by(self, error: BelogError) -> list[Result]:
        """Return the results where nothing could be written."""
        return [r if isinstance(r, BaseException) else again(error) for r in self.results]

    def unknown(
        self, group: Sequence[Append], message: str, *, log: str, cause: BaseException
    ) -> list[Result]:
        """Return the results where nobody can say whether it was written."""
        results: list[Result] = []
        for item, result in zip(group, self.results, strict=True):
            if isinstance(result, BaseException):
                results.append(result)
                continue
            event_id = item.events[0].event_id if item.events else b""
            error = OutcomeUnknown(message, event_id=event_id, log=log)
            error.__cause__ = cause
            results.append(error)
        return results


def plan_appends(
    group: Sequence[Append],
    *,
    next_idx: int,
    created_at: int,
    recent: RecentRecords,
    looked_up: Callable[[Sequence[Event], int], bool],
    log: str,
) -> Plan:
    """Decide in order which calls of a group can be written, each against those before it.

    Args:
        group: The calls.
        next_idx: The log's next index.
        created_at: Ingest time of what is appended now, not before that of the last record.
        recent: What is known of the newest records; takes up what is planned, so forget it all if
            the plan is not carried out.
        looked_up: Whether one of the events is touched by a record of the log from an index on;
            asked only where `recent` does not reach back.
        log: The log's name for errors.
    """
    plan = Plan([], [])
    for item in group:
        refused = _refused(item, next_idx, recent, looked_up, log)
        if refused is not None:
            plan.results.append(refused)
            continue
        batch: Batch
        if item.after is not None:
            batch = [(r.index, r.created_at, r.value) for r in item.copied]
            plan.results.append([])
            if batch:
                created_at = max(created_at, batch[-1][1])
        else:
            batch = [(next_idx + n, created_at, v) for n, v in enumerate(item.values)]
            plan.results.append(
                [Receipt(next_idx + n, created_at, e.event_id) for n, e in enumerate(item.events)]
            )
            recent.extend(next_idx, item.events)
        if batch:
            plan.batches.append(batch)
            next_idx = batch[-1][0] + 1
        if item.after is not None:
            recent.forget(next_idx)
    return plan


def _refused(
    item: Append,
    next_idx: int,
    recent: RecentRecords,
    looked_up: Callable[[Sequence[Event], int], bool],
    log: str,
) -> BelogError | None:
    if item.at is not None and item.at != next_idx:
        msg = f"the log's next index is {next_idx}, not {item.at}"
        return IndexConflict(msg, next_idx=next_idx, log=log)
    if item.after is not None and item.after != next_idx - 1:
        msg = f"the log's last index is {next_idx - 1}, not {item.after}"
        return IndexConflict(msg, next_idx=next_idx, log=log)
    seen_idx = item.seen_idx
    if seen_idx is None or seen_idx == next_idx:
        return None
    if seen_idx > next_idx:
        msg = f"the log ends at {next_idx}, it was judged up to {seen_idx}"
        return IndexConflict(msg, next_idx=next_idx, log=log)
    touched = recent.touched(seen_idx, item.events)
    if not touched and seen_idx < recent.since:
        try:
            touched = looked_up(item.events, seen_idx)
        except BelogError as error:
            return error
    if touched:
        msg = "a record in between concerns one of the events"
        return IndexConflict(msg, next_idx=next_idx, log=log)
    return None


def again(error: BelogError) -> BelogError:
    """Return an error of its own for each caller: a traceback belongs to one thread."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin
