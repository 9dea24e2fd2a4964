"""The vacuum horizon of a log, as its readers meet it.

A vacuum first records in the log (`v1.system.vacuumed`) up to where it removes events, and removes
them then. So whoever meets a gap and finds no such record has met an ordinary gap, and whoever
meets one below a recorded horizon must not go on: what is missing there is in a snapshot. Readers
above the horizon, and logs without gaps, pay nothing for this.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import Corrupt, Gone, NewerFormat, Unsupported
from belog.schemas.fold import Fold, Record
from belog.schemas.payload import decode_payload
from belog.schemas.replica import REPLICA_HEADER

if TYPE_CHECKING:
    from belog.storage.interface import EventLog, EventPage
    from belog.storage.snapshots import SnapshotStore

__all__ = ["Horizon", "Removal", "VacuumReport", "Vacuumable", "horizon_in", "steps_of"]

VACUUMED: Final = "v1.system.vacuumed"
_NEEDLE: Final = VACUUMED.encode()
LOOK_RECORDS: Final = 10_000
"""Records of one look for a horizon; the newest one is near the log's end as a rule."""


REMOVE_RECORDS: Final = 5_000
"""Records removed in one step, about 50 ms: other writers wait no longer than that."""


class Horizon(Struct, frozen=True):
    """Up to where a log was vacuumed."""

    index: int
    """First index that can be read without a hole."""
    snapshot: str
    """A snapshot at or past it."""


class Removal(Struct, frozen=True, gc=False):
    """A record that a vacuum removes."""

    position: int
    key: bytes | None
    """On ordered logs: what its tombstone names."""


class VacuumReport(Struct, frozen=True, kw_only=True):
    """What a vacuum removed, or would."""

    removed: int
    horizon: int
    """First index that can be read without a hole afterwards."""
    dry_run: bool


def steps_of(removals: Sequence[Removal]) -> Iterator[Sequence[Removal]]:
    """Yield removals in steps of `REMOVE_RECORDS`."""
    for at in range(0, len(removals), REMOVE_RECORDS):
        yield removals[at : at + REMOVE_RECORDS]


def horizon_in(records: Sequence[Record]) -> Horizon | None:
    """Return the horizon that the last vacuum among some records of a primary log recorded."""
    for record in reversed(records):
        value = record.value
        if value is None or _NEEDLE not in value or value[: len(REPLICA_HEADER)] == REPLICA_HEADER:
            continue
        try:
            found = _horizon_of(decode_event(value), record.position)
        except (Corrupt, NewerFormat):
            continue
        if found is not None:
            return found
    return None


def _horizon_of(event: Event, position: int) -> Horizon | None:
    if event.event_type != VACUUMED:
        return None
    body = decode_payload(event.payload)
    index, snapshot = body.get("horizon"), body.get("snapshot")
    if isinstance(index, int) and isinstance(snapshot, str) and 0 < index <= position:
        return Horizon(index, snapshot)
    return None


class Vacuumable(ABC):
    """The part of a log that a vacuum needs, and what it means for readers."""

    name: str
    _horizon: tuple[Horizon | None, int] = (None, 0)
    """What was found, and the position up to which the log was searched for it."""

    @abstractmethod
    def scan(self, since_position: int, limit: int = LOOK_RECORDS) -> list[Record]:
        """See `EventLog.scan`."""

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """Return records as `scan` does, also behind the horizon: what is left there.

        For the vacuum itself and for counting; a fold of such records is none of the log.
        """
        return self.scan(since_position, limit)

    @abstractmethod
    def next_position(self) -> int:
        """See `EventLog.next_position`."""

    def vacuum(
        self, before: int, *, dry_run: bool = True, snapshots: "SnapshotStore | None" = None
    ) -> VacuumReport:
        """Remove superseded events that the newest snapshot holds; see `vacuum_log`.

        Args:
            before: Ingest time, microseconds since the epoch, exclusive.
            dry_run: Only count.
            snapshots: Where snapshots of the log are; nothing is removed without one.

        Raises:
            Unsupported: The backend keeps everything.
            NotFound: There is no snapshot that could be used.
            As `belog.storage.vacuum.vacuum_log`.
        """
        from belog.storage.vacuum import vacuum_log  # noqa: PLC0415 - it stands on this module

        return vacuum_log(cast("EventLog", self), snapshots, before, dry_run=dry_run)

    def horizon(self) -> Horizon | None:
        """Return up to where the log was vacuumed, None where it never was.

        The first call reads the log backwards until it finds a record of it, at worst whole; later
        ones read what is new.

        Raises:
            Unavailable: The log cannot be reached.
        """
        found, searched = self._horizon
        end = self.next_position()
        at = end
        while at > searched:
            start = max(searched, at - LOOK_RECORDS)
            records = [r for r in self.scan_raw(start, LOOK_RECORDS) if r.position < at]
            newer = horizon_in(records)
            if newer is not None:
                found = newer
                break
            at = start
        self._horizon = found, max(end, searched)
        return found

    def _checked(self, since_position: int, records: list[Record]) -> list[Record]:
        """Return scanned records, unless some are missing from them behind the horizon.

        Raises:
            Gone: They are.
        """
        known, _ = self._horizon
        if known is None or since_position >= known.index:
            if not records or records[-1].position - since_position + 1 == len(records):
                return records
            if (records[0].value or b"")[: len(REPLICA_HEADER)] == REPLICA_HEADER:
                return records
            known = self.horizon()
        self._refuse_behind(known, since_position)
        return records

    def _checked_page(
        self, since_idx: int, page: "EventPage", vacuums: "Callable[[int], EventPage]"
    ) -> "EventPage":
        """Return a page that an index gave, unless some events are missing behind the horizon.

        Args:
            since_idx: First index wanted.
            page: The page.
            vacuums: Gives the `vacuumed` events from an index on.

        Raises:
            Gone: They are.
        """
        # Asked for afterwards: what is missing from the page was recorded before it was removed.
        found, searched = self._horizon
        newer = vacuums(searched)
        for stored in newer.events:
            found = _horizon_of(stored.event, stored.index) or found
        self._horizon = found, max(newer.next_idx, searched)
        self._refuse_behind(found, since_idx)
        return page

    def _refuse_behind(self, known: Horizon | None, since: int) -> None:
        if known is not None and since < known.index:
            msg = f"events before index {known.index} were vacuumed, {since} is wanted"
            raise Gone(msg, horizon=known.index, snapshot=known.snapshot, log=self.name)

    def remove(self, removals: Sequence[Removal]) -> None:
        """Remove records that lie behind the recorded horizon; durable, and safe to repeat.

        Other indices stay as they are. On ordered logs the records are tombstoned: compaction
        removes them some time later.

        Raises:
            Unsupported: The backend keeps everything.
            Unavailable: The log cannot be reached; some may be removed.
        """
        del removals
        msg = "this backend keeps everything"
        raise Unsupported(msg, log=self.name)

    def use_snapshots(self, source: Callable[[], Fold | None]) -> None:
        """Name where judged reads start if the log was vacuumed.

        Args:
            source: Returns a fold at or past the horizon with its root, the earlier the better;
                None where there is none. Called when it is needed.
        """
        view = getattr(self, "_view", None)
        if view is not None:
            view.source = source
