"""What a log holds after a rate was taken, counted from the log itself.

A rate of appends that are lost, doubled or swapped is worth nothing. So beside each stands what a
reader of the log finds afterwards, whatever the writers were told.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.storage import EventLog

__all__ = ["Tally", "ids_in", "tally", "tally_log", "total"]

ID_START: Final = 10
ID_END: Final = 26
"""Where the event id is in a record's value: after Avro's mark and fingerprint. Decoding all of an
event would take longer than many of the rates that are checked."""


class Tally(Struct, frozen=True):
    """What is wrong with a log, in events."""

    missed: int = 0
    """Sent and acknowledged, and not there."""
    doubled: int = 0
    """There more than once, each further time."""
    out_of_order: int = 0
    """After a later one of the same writer."""

    def __add__(self, other: "Tally") -> "Tally":
        """Add another round's."""
        return Tally(
            self.missed + other.missed,
            self.doubled + other.doubled,
            self.out_of_order + other.out_of_order,
        )

    def __str__(self) -> str:
        """Return the words of the tables."""
        return f"{self.missed} missed, {self.doubled} doubled, {self.out_of_order} out of order"


def tally(sent: Iterable[Sequence[bytes]], found: Iterable[bytes]) -> Tally:
    """Compare what writers sent with what is there.

    Args:
        sent: By writer, the ids in the order of sending; an id is sent once.
        found: The ids that are there, in order; those that nobody sent do not count.
    """
    expected = {
        event_id: (writer, n) for writer, ids in enumerate(sent) for n, event_id in enumerate(ids)
    }
    seen: set[bytes] = set()
    furthest: dict[int, int] = {}
    doubled = out_of_order = 0
    for event_id in found:
        if (place := expected.get(event_id)) is None:
            continue
        if event_id in seen:
            doubled += 1
            continue
        seen.add(event_id)
        writer, n = place
        out_of_order += n < furthest.get(writer, -1)
        furthest[writer] = max(n, furthest.get(writer, -1))
    return Tally(len(expected) - len(seen), doubled, out_of_order)


def ids_in(log: EventLog, since_position: int = 0) -> Iterator[bytes]:
    """Yield the event ids of the records of a log, in order; reads it from its beginning."""
    while records := log.scan(since_position):
        since_position = records[-1].position + 1
        yield from (r.value[ID_START:ID_END] for r in records if r.value is not None)


def tally_log(log: EventLog, sent: Iterable[Sequence[Event]], since_position: int = 0) -> Tally:
    """Read a log and compare it with what writers sent, by writer."""
    ids = [[event.event_id for event in events] for events in sent]
    return tally(ids, ids_in(log, since_position))


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of all rounds."""
    return sum(chain(tallies), Tally())
