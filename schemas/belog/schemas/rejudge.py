"""What a log's verdicts would have been under another lifecycle. Pure.

The log is folded twice at once: under its own lifecycle, and under the changed one from its first
event on. The two folds drift apart as they accept different events, and with them the states,
owners and remembered ids: what counts is what each would have made of the whole log.
"""

import dataclasses
from collections.abc import Mapping

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.schemas.fold import Accepted, Duplicate, Fold, Outcome, Record, Verdict
from belog.schemas.lifecycle import Lifecycle
from belog.schemas.payload import JsonValue
from belog.schemas.replica import REPLICA_HEADER, decode_replica

__all__ = ["Difference", "Rejudging"]


class Difference(Struct, frozen=True, kw_only=True):
    """A record that the two lifecycles judge differently."""

    index: int
    subject: str
    """`kind:id`."""
    event_type: str
    before: str
    """The verdict that stands: `accepted: STATE`, `duplicate of INDEX`, or `void: REASON`."""
    after: str
    """The verdict under the changed lifecycle."""


class _ChangedFold(Fold):
    """A fold that one lifecycle governs, whatever the log says of it."""

    __slots__ = ("_changed",)

    def __init__(self, changed: Lifecycle) -> None:
        super().__init__(keeps_root=False)
        self._changed = changed
        self.lifecycle = changed

    def _govern(self, event: Event, body: Mapping[str, JsonValue]) -> None:
        super()._govern(event, body)
        version = self.lifecycle.version
        if version != self._changed.version:
            self._changed = dataclasses.replace(self._changed, version=version)
        self.lifecycle = self._changed


class Rejudging:
    """Judges the records of a log twice. Not thread-safe.

    Attributes:
        records: Records judged so far, tombstones not counted.
        differences: How many of them differ.
        next_position: Position of the next record.
    """

    __slots__ = ("_changed", "_own", "differences", "records")

    def __init__(self, changed: Lifecycle) -> None:
        """Start at the log's beginning.

        Args:
            changed: Judges in place of the log's own lifecycles, all of them.
        """
        self._own = Fold(keeps_root=False)
        self._changed = _ChangedFold(changed)
        self.records = 0
        self.differences = 0

    @property
    def next_position(self) -> int:
        """Position of the next record."""
        return self._own.next_position

    def apply(self, record: Record) -> Difference | None:
        """Take the next record; return where the verdicts differ.

        Two verdicts are alike where both accept and lead to the same state, both find a duplicate,
        or both find it void.

        Raises:
            NewerFormat: The record needs newer software.
        """
        outcome = self._own.apply(record)
        if outcome is None:
            return None
        value = record.value or b""
        if value[:10] == REPLICA_HEADER:
            if type(outcome.verdict) is not Accepted:
                return None  # refused by the chain, which no lifecycle decides
            record = Record(outcome.index, outcome.created_at, decode_replica(value).envelope)
        again = self._changed.apply(record)
        self.records += 1
        if again is None or _alike(outcome.verdict, again.verdict):
            return None
        self.differences += 1
        return _difference(outcome, again)


def _alike(one: Verdict, other: Verdict) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Accepted) and isinstance(other, Accepted):
        return one.after.state == other.after.state
    return True


def _difference(outcome: Outcome, again: Outcome) -> Difference:
    event = outcome.event
    return Difference(
        index=outcome.index,
        subject="" if event is None else event.subject,
        event_type="" if event is None else event.event_type,
        before=_text(outcome.verdict),
        after=_text(again.verdict),
    )


def _text(verdict: Verdict) -> str:
    if isinstance(verdict, Accepted):
        return f"accepted: {verdict.after.state}"
    if isinstance(verdict, Duplicate):
        return f"duplicate of {verdict.first_index}"
    return f"void: {verdict.reason}"
