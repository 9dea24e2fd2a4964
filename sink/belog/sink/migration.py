"""What a migration copies, and how it is proved. Pure: no I/O, no clock, no thread.

A migrated log is the same log in another store: same identity, same events at the same indices,
same Merkle root. `RecordSum` reads one log, either side, and adds up what that is; `Migration`
compares what the target held at the start with the origin's beginning, and then passes on what
follows.

Which records are the log's depends on the backend. Where appends are conditional, records were
judged before they entered, so all are copied, unread. Elsewhere (Kafka) void records stand between
the others; they are judged, and those that change nothing stay behind: their indices are holes.

A time range can only cut off the end. Verdicts rest on everything before, so a log without its
beginning would be another one.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct

from belog.schemas.envelope import decode_event
from belog.schemas.errors import Corrupt, Diverged, LogTruncated, Unsupported
from belog.schemas.events import Vacuumed
from belog.schemas.fold import Accepted, Fold, Record
from belog.schemas.merkle import MerkleRange
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.interface import CopiedRecord

__all__ = ["WHOLE", "Bound", "Migration", "RecordSum", "Summary"]

_NEVER: Final = 1 << 63
"""Above every index and every time, which are signed 64-bit integers."""

_VACUUMED: Final = Vacuumed.event_type.encode()


class Bound(Struct, frozen=True, kw_only=True):
    """Where a migration ends: before the first event past either bound."""

    index: int = _NEVER
    """Copy events below this index."""
    created_us: int = _NEVER
    """Copy events ingested at or before this time, microseconds since the epoch."""


WHOLE: Final = Bound()


class Summary(Struct, frozen=True, kw_only=True):
    """What the events of a log, or of its beginning, add up to."""

    events: int
    last_index: int
    """-1 for none."""
    next_position: int
    """Position after the last record that was read, of whatever kind."""
    root: bytes
    """Merkle root over the envelopes, 32 bytes."""
    indices: bytes
    """SHA-256 over the indices."""
    times: bytes
    """SHA-256 over the ingest times."""


class RecordSum:
    """Reads a log's records in order and adds them up. Not thread-safe.

    Attributes:
        is_past_bound: Whether an event past the bound was met; nothing is taken from there on.
        last_index: Index of the last event taken, -1 for none.
        next_position: Position after the last record taken.
    """

    __slots__ = (
        "_bound",
        "_fold",
        "_indices",
        "_log",
        "_merkle",
        "_times",
        "is_past_bound",
        "last_index",
        "next_position",
    )

    def __init__(self, *, judged: bool, bound: Bound = WHOLE, log: str = "") -> None:
        """Start at a log's beginning.

        Args:
            judged: Whether void records may stand in the log.
            bound: Where to stop.
            log: The log's name for errors.
        """
        self._fold = Fold(keeps_root=False) if judged else None
        self._bound = bound
        self._log = log
        self._merkle = MerkleRange()
        self._indices = sha256()
        self._times = sha256()
        self.is_past_bound = False
        self.last_index = -1
        self.next_position = 0

    def summary(self) -> Summary:
        """Return what was taken so far."""
        return Summary(
            events=self._merkle.size,
            last_index=self.last_index,
            next_position=self.next_position,
            root=self._merkle.root(),
            indices=self._indices.digest(),
            times=self._times.digest(),
        )

    def take(self, records: Sequence[Record], through: int = _NEVER) -> list[CopiedRecord]:
        """Take records up to the first event whose index is at or above `through`, inclusive.

        Returns:
            The events among them, as they are copied.

        Raises:
            Unsupported: The log was vacuumed.
            NewerFormat: A record needs newer software.
        """
        if self.is_past_bound:
            return []
        taken = self._verbatim(records, through) if self._fold is None else []
        if self._fold is not None:
            taken = self._accepted(records, self._fold, through)
        if taken:
            self._merkle.extend([envelope_of(r.value) for r in taken])
            self.last_index = taken[-1].index
            self._indices.update(array("q", [r.index for r in taken]))
            self._times.update(array("q", [r.created_at for r in taken]))
        return taken

    def _verbatim(self, records: Sequence[Record], through: int) -> list[CopiedRecord]:
        until_index, until_us = self._bound.index, self._bound.created_us
        taken: list[CopiedRecord] = []
        for record in records:
            index, created_at, value = record.position, record.created_at, record.value or b""
            if index >= until_index or created_at > until_us:
                self.is_past_bound = True
                break
            if _VACUUMED in value:
                self._refuse_vacuumed(value, index)
            taken.append(CopiedRecord(index, created_at, value))
            if index >= through:
                break
        if taken:
            self.next_position = taken[-1].index + 1
        return taken

    def _accepted(self, records: Sequence[Record], fold: Fold, through: int) -> list[CopiedRecord]:
        bound = self._bound
        taken: list[CopiedRecord] = []
        for record in records:
            outcome = fold.apply(record)
            if outcome is not None and type(outcome.verdict) is Accepted:
                index, created_at = outcome.index, outcome.created_at
                if index >= bound.index or created_at > bound.created_us:
                    self.is_past_bound = True
                    break
                value = record.value or b""
                if _VACUUMED in value:
                    self._refuse_vacuumed(value, index)
                taken.append(CopiedRecord(index, created_at, value))
                self.next_position = record.position + 1
                if index >= through:
                    break
            self.next_position = record.position + 1
        return taken

    def _refuse_vacuumed(self, value: bytes, index: int) -> None:
        """Refuse a log whose beginning has holes that verdicts would need."""
        try:
            event = decode_event(envelope_of(value))
        except Corrupt:
            return
        if event.event_type == Vacuumed.event_type:
            raise Unsupported(
                "the log was vacuumed: events that its verdicts and its root rest on are gone",
                log=self._log,
                index=index,
                hint="restore it from a snapshot at the new place",
            )


def envelope_of(value: bytes) -> bytes:
    """Return the envelope in a record value, which in a replica wraps it."""
    return value if value[:10] != REPLICA_HEADER else decode_replica(value).envelope


class Migration:
    """One run of a migration from one origin to one target. Not thread-safe.

    `receive` is called with the origin's records in order, and what it returns is written to the
    target, behind `after`, before the next call; `origin_ended` when there are no more.

    Attributes:
        after: Index behind which the target takes the next record.
        sum: The origin up to what was received; read only.
    """

    __slots__ = ("_held", "_is_proved", "_target", "after", "sum")

    def __init__(self, held: Summary, origin: RecordSum, *, is_replica: bool, target: str) -> None:
        """Start with an origin of which nothing was read.

        Args:
            held: What the target holds.
            origin: Nothing of the origin.
            is_replica: Whether both are replicas; their positions may not be indices.
            target: The target's name for errors.
        """
        self.sum = origin
        self.after = held.last_index if is_replica else held.next_position - 1
        self._held = held
        self._target = target
        self._is_proved = held.events == 0

    @property
    def is_proving(self) -> bool:
        """Whether the target holds events that the origin's reading has not come to yet."""
        return not self._is_proved

    def receive(self, records: Sequence[Record]) -> list[CopiedRecord]:
        """Take the origin's next records; return those to write now.

        Raises:
            Diverged: The target does not hold the origin's beginning.
            LogTruncated: The target is past the bound.
            Unsupported: The origin was vacuumed.
            NewerFormat: A record needs newer software.
        """
        if not self._is_proved:
            self.sum.take(records, self._held.last_index)
            if self.sum.last_index < self._held.last_index:
                if self.sum.is_past_bound:
                    raise self._ahead()
                return []
            self._prove()
            records = [r for r in records if r.position >= self.sum.next_position]
        copied = self.sum.take(records)
        if copied and copied[0].index <= self.after:
            msg = f"it has used up its positions up to {self.after} for something else"
            raise self._diverged(msg, copied[0].index)
        return copied

    def written(self, copied: Sequence[CopiedRecord]) -> None:
        """Say that the target took these records."""
        if copied:
            self.after = copied[-1].index

    def origin_ended(self) -> None:
        """Say that the origin has no more records.

        Raises:
            LogTruncated: The target holds more than the origin does.
        """
        if not self._is_proved:
            raise self._ahead()

    def _prove(self) -> None:
        found, held = self.sum.summary(), self._held
        if found.last_index > held.last_index:
            msg = f"it holds an event at {held.last_index}, its origin none"
            raise self._diverged(msg, held.last_index)
        if (found.root, found.indices) != (held.root, held.indices):
            msg = f"their events differ at or before index {held.last_index}"
            raise self._diverged(msg, held.last_index)
        self._is_proved = True

    def check_copied(self, found: Summary, *, keeps_times: bool) -> None:
        """Hold what was read back from the target against what was copied.

        Args:
            found: The whole target, read anew.
            keeps_times: Whether its ingest times must be the origin's.

        Raises:
            Diverged: It is not the same.
        """
        copied = self.sum.summary()
        for name, mine, other in (
            ("counts of events", copied.events, found.events),
            ("indices", copied.indices, found.indices),
            ("Merkle roots", copied.root, found.root),
            ("ingest times", copied.times, found.times if keeps_times else copied.times),
        ):
            if mine != other:
                msg = f"the {name} of origin and target differ after the copy"
                raise self._diverged(msg, found.last_index)

    def _ahead(self) -> LogTruncated:
        msg = f"the target holds events up to {self._held.last_index}, past what is to be copied"
        hint = "was it written to since, or the origin restored? Copy into a new log, or further"
        return LogTruncated(msg, log=self._target, index=self._held.last_index, hint=hint)

    def _diverged(self, what: str, index: int) -> Diverged:
        hint = "nothing was overwritten; copy into a new log"
        return Diverged(f"the target is no copy: {what}", log=self._target, index=index, hint=hint)
