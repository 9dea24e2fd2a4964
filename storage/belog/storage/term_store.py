"""What an index of subjects asks of the store that keeps it; see `belog.storage.selective`."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from belog.schemas.fold import Record
from belog.storage.terms import Field, PatternRange

__all__ = ["Entries", "IndexState", "Name", "TermStore"]


class Name(Struct, frozen=True, gc=False):
    """A name in the index."""

    number: int
    term: str
    events: int
    """How many events it lists."""


class IndexState(Struct, frozen=True, gc=False):
    """How far an index goes, and what it counted."""

    indexed_to: int = 0
    events: int = 0
    void: int = 0
    """Records that are no event."""
    bytes: int = 0


class Entries(Struct, frozen=True):
    """What one step adds to an index."""

    state: IndexState
    """After the step."""
    indices: Mapping[tuple[Field, str], Sequence[int]]
    """Where each name occurs, growing. Of fields in `belog.storage.terms.COUNTED_ONLY` only the
    number counts."""
    first_runs: Mapping[str, int]
    """Index of the first event of each job run that begins here, by its name."""
    ids: Sequence[tuple[bytes, int]]
    """Event ids; the first of equal ones counts."""


class TermStore(Protocol):
    """Where an index and its records live. Every call may block for I/O; thread-safe."""

    def records(self, since: int, limit: int) -> Sequence[Record]:
        """Return records in order, as `EventLog.scan`."""
        ...

    def records_at(self, indices: Sequence[int]) -> Sequence[Record]:
        """Return the records at growing indices, in order."""
        ...

    def index_at(self, created_at: int) -> int:
        """Return the first index ingested at or after a time, else the next index."""
        ...

    def state(self) -> IndexState:
        """Return how far the index goes, making an empty one where there is none.

        Raises:
            Unsupported: There is none and none can be made, or newer software made it.
        """
        ...

    def counts(self) -> tuple[IndexState, Mapping[str, int], Mapping[str, int]]:
        """Return the state, and events by type and by subject kind, all of one moment."""
        ...

    def extend(self, since: int, entries: Entries) -> bool:
        """Add a step that begins at `since`, atomically; False where the index ends elsewhere.

        Raises:
            Unsupported: The store cannot be written.
        """
        ...

    def names(self, field: Field, terms: Sequence[str]) -> Sequence[Name]:
        """Return those of the names that are in the index."""
        ...

    def names_within(self, found: PatternRange, limit: int) -> Sequence[Name]:
        """Return partitions in a range that are LIKE its pattern, at most `limit`."""
        ...

    def postings(self, names: Sequence[Name], since: int, until: int, limit: int) -> Sequence[int]:
        """Return the first `limit` indices in [since, until) that one of the names lists."""
        ...

    def having(self, indices: Sequence[int], names: Sequence[Name]) -> Sequence[int]:
        """Return those of growing indices that one of the names lists, in order."""
        ...

    def first_runs(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the index of the first event of job runs, by name, where there is one."""
        ...

    def index_of(self, event_id: bytes) -> int | None:
        """Return the first index of an event id."""
        ...
