"""Care for a Delta table: removing records, and writing small files together.

Records are removed by deletions by ranges of indices, each a commit of its own.

A deletion writes the files it touches anew and leaves the old ones for who reads them. The table is
append-only by its own setting, so that no other tool changes it by mistake; a vacuum lifts that
while it works.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from belog.schemas.errors import Overloaded
from belog.storage.delta_table import CommitLost, DeltaStore
from belog.storage.delta_turns import Turns

__all__ = ["FilesReport", "optimize_files", "remove_records"]

RANGES_MAX: Final = 500
"""Ranges of one deletion: its condition stays below what a planner takes without pain."""
TRIES_MAX: Final = 20
"""How often a deletion is tried against commits of others: these take milliseconds."""
OPTIMIZE_TRIES_MAX: Final = 100
"""Tries to write files together against commits of others, which take milliseconds."""


class FilesReport(Struct, frozen=True, kw_only=True):
    """What care for a table's files did."""

    added: int = 0
    removed: int = 0
    """Files replaced by `optimize` (they stay for the retention), or deleted by `vacuum_files`."""
    dry_run: bool = False


def optimize_files(store: DeltaStore) -> FilesReport:
    """Write small files together, in one commit. Appends of others go on meanwhile.

    Args:
        store: This call's own; it is loaded anew.

    Raises:
        Overloaded: A writer was faster each time.
        Unavailable: The table cannot be reached.
    """
    turns = Turns(None)
    for _ in range(OPTIMIZE_TRIES_MAX):
        store.load()
        try:
            added, removed = store.optimize()
        except CommitLost:
            turns.lost()
            continue
        return FilesReport(added=added, removed=removed)
    msg = "writers were faster each time"
    raise Overloaded(msg, log=store.location.name, hint="try again later")


def remove_records(store: DeltaStore, positions: Sequence[int]) -> None:
    """Remove records; durable, and safe to repeat.

    Args:
        store: Loaded; this call's own.
        positions: Indices of the records, in any order.

    Raises:
        Overloaded: Other writers were faster all the time; some may be removed.
        Unavailable: The table cannot be reached; some may be removed.
    """
    ranges = list(_ranges(sorted(positions)))
    if not ranges:
        return
    turns = Turns(store.location.folder)
    _persist(store, turns, lambda: store.set_append_only(wanted=False))
    for at in range(0, len(ranges), RANGES_MAX):
        step = ranges[at : at + RANGES_MAX]
        condition = " OR ".join(f"index BETWEEN {first} AND {last}" for first, last in step)
        # What bounds the whole is what files are skipped by.
        within = f"index >= {step[0][0]} AND index <= {step[-1][1]} AND ({condition})"
        _persist(store, turns, partial(store.delete, within))
    _persist(store, turns, lambda: store.set_append_only(wanted=True))


def _persist(store: DeltaStore, turns: Turns, commit: Callable[[], None]) -> None:
    for _ in range(TRIES_MAX):
        with turns.turn():
            if store.is_behind():
                store.refresh()
            try:
                return commit()
            except CommitLost:
                store.refresh()
        turns.lost()
    msg = f"other writers were faster {TRIES_MAX} times"
    raise Overloaded(msg, log=store.location.name, hint="vacuum when less is written")


def _ranges(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches of indices that follow each other: the first and the last of each."""
    first = last = -1
    for position in positions:
        if position == last + 1 and first >= 0:
            last = position
            continue
        if first >= 0:
            yield first, last
        first = last = position
    if first >= 0:
        yield first, last
