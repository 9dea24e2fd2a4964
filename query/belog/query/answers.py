"""What queries answer. Pure data.

Every answer says what it is `as_of`: it holds the effects of all events below that index. Where an
answer takes several looks, what was looked at later may be newer.
"""

from collections.abc import Mapping
from typing import Final, Generic, Literal, TypeVar

from msgspec import Struct

from belog.processors.rows import (
    BuildRow,
    JobRunRow,
    PartitionRow,
    R,
)
from belog.processors.tables import Counts
from belog.schemas.envelope import StoredEvent

__all__ = [
    "ActiveBuild",
    "Activity",
    "Answer",
    "AuditEntry",
    "BuildSummary",
    "Cause",
    "Count",
    "Dependency",
    "EdgeKind",
    "EventList",
    "Explanation",
    "Graph",
    "GraphEdge",
    "GraphNode",
    "JobMetrics",
    "Lag",
    "Listing",
    "Rates",
    "Shown",
]

T = TypeVar("T")


class Answer(Struct, Generic[T], frozen=True):
    """A value, and what it is as of."""

    value: T
    as_of: int


class Count(Struct, frozen=True):
    """How many there are; with a bound on the counting, at least how many."""

    value: int
    is_exact: bool


class Listing(Struct, Generic[R], frozen=True):
    """A page of rows."""

    rows: tuple[R, ...]
    next_cursor: str | None
    """Opaque; where the list goes on, None at its end. A page may be short, even empty, and still
    have a next one."""
    as_of: int


class EventList(Struct, frozen=True):
    """Some events of a query, in its order."""

    events: tuple[StoredEvent, ...]
    has_more: bool
    """Whether there are more after these."""
    as_of: int


class Shown(Struct, Generic[R], frozen=True):
    """A row with the events that concern its subject, the first to come first."""

    row: R
    events: tuple[StoredEvent, ...]
    has_more_events: bool
    as_of: int


Role = Literal["owner", "joined", "asked"]


class ActiveBuild(Struct, frozen=True, kw_only=True):
    """A build with an interest in a partition that is not made yet."""

    partition: str
    build_id: str
    role: Role
    """`owner` of the attempt; `joined` it; `asked` for the partition, and nothing came of it yet.
    """
    status: str
    """The partition's state; "" for never seen."""
    build_state: str | None
    """None: no event of the build itself is known."""
    requesting_clients: tuple[str, ...] = ()
    """Of the whole attempt."""
    started_at: int | None = None
    """When the attempt was requested, microseconds; for `asked`, when the build was received."""


class BuildSummary(Struct, frozen=True, kw_only=True):
    """A build request with what became of its parts."""

    row: BuildRow
    requested: Mapping[str, int]
    """The partitions it was asked for, by state; "" for never seen."""
    missing: tuple[str, ...]
    """Those of them that are not available now; the first `SUMMARY_REFS_MAX`."""
    partitions: Mapping[str, int]
    """The partitions that its events name (made, joined or tried), by state."""
    job_runs: Mapping[str, int]
    tasks: Mapping[str, int]
    duration_us: int | None
    """From `received` to its end, or to now while it is not ended."""
    is_partial: bool
    """It has more parts than a summary counts (`SUMMARY_ROWS_MAX` of each kind)."""


class Rates(Struct, frozen=True, kw_only=True):
    """What happened in the last `window_s` seconds.

    Rows that are in a state since then, not events: a partition that was made twice counts once.
    """

    window_s: float
    events: int
    """Records of the log, by the time that the log gave them."""
    partitions_available: int
    partitions_failed: int
    builds_completed: int
    builds_failed: int
    job_runs_completed: int
    job_runs_failed: int


class Lag(Struct, frozen=True):
    """How far the tables are behind the log."""

    records: int
    seconds: float
    """Since the first record that is not in the tables was ingested; 0 where there is none."""


class Activity(Struct, frozen=True, kw_only=True):
    """What goes on."""

    counts: Counts
    """Rows by kind and state."""
    running: tuple[JobRunRow, ...]
    """Job runs under way, the last heard of first; at most `ACTIVITY_ROWS_MAX`, as below."""
    builds: tuple[BuildRow, ...]
    """Builds under way."""
    failed_partitions: tuple[PartitionRow, ...]
    failed_builds: tuple[BuildRow, ...]
    failed_job_runs: tuple[JobRunRow, ...]
    """What failed within the window and was not mended since, the latest first."""
    rates: Rates
    lag: Lag


EdgeKind = Literal["DEPENDS_ON", "PRODUCES"]


class GraphNode(Struct, frozen=True):
    """A partition in a dependency graph."""

    ref: str
    status: str
    """"" for never seen."""
    last_updated: int | None
    """Microseconds; None for never seen."""
    job_label: str | None = None
    """Who makes it, by the last attempt or the data."""


class GraphEdge(Struct, frozen=True):
    """How two partitions hang together.

    `DEPENDS_ON`: the source was said to need the target, by its last attempt or its data.
    `PRODUCES`: data of the target that is there was made from the source.
    """

    source: str
    target: str
    kind: EdgeKind


class Graph(Struct, frozen=True):
    """What a partition is made from, and what is made from it, over all graphs in the log."""

    root: str
    nodes: tuple[GraphNode, ...]
    """The root first, then in the order of their distance."""
    edges: tuple[GraphEdge, ...]
    """All between these nodes."""
    is_truncated: bool
    """A bound cut it off; what is beyond `depth` does not count."""


Link = Literal["state", "caused_by", "attempt", "job_run", "build", "upstream"]


class Cause(Struct, frozen=True, kw_only=True):
    """One event in a chain of causes."""

    index: int
    at: int
    """Ingest time, microseconds."""
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    link: Link
    """Why it is here: it made the state; an event of the chain names it in `caused_by`; or it is an
    event of the attempt, its job run, its build, or of the partition that made this one stale."""
    reason: str | None = None
    """What the event itself gives as reason or message."""


class Dependency(Struct, frozen=True):
    """An upstream partition and its state; "" for never seen."""

    ref: str
    state: str


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a partition is in its state."""

    ref: str
    state: str
    summary: str
    """In one line, for people."""
    row: PartitionRow
    causes: tuple[Cause, ...]
    """The latest first."""
    waits_for: tuple[Dependency, ...]
    """Upstream partitions that are not available, while an attempt is under way; the first
    `WAITS_FOR_MAX`."""


class JobMetrics(Struct, frozen=True, kw_only=True):
    """How the runs of a job went; of the newest `METRIC_RUNS_MAX` of them."""

    job_label: str
    runs: int
    by_state: Mapping[str, int]
    success_rate: float | None
    """Completed among those that completed or failed; None where there are none."""
    duration_p50_us: int | None
    """Of completed runs, from the first `running` to the end; None where there are none."""
    duration_p95_us: int | None
    oldest_at: int
    """Last event of the oldest run that was looked at, microseconds."""
    newest_at: int
    is_partial: bool
    """There are older runs that were not looked at."""


ACCEPTED: Final = "accepted"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """Who did what, when, with what result."""

    at: int
    """Ingest time, or when it was refused; microseconds."""
    actor: str
    event_type: str
    subject_kind: str
    subject_id: str
    event_id: bytes
    result: str
    """`accepted`, or the code of the error that refused it."""
    index: int | None
    """Where it stands; of a refused one, the index it was judged at, where that is known."""
    reason: str | None = None
