"""The state diagrams of build requests, job runs and partitions, as tables.

Three kinds of subject each have a machine of their own; a fourth, `system`, holds what the log
says of itself. The machines do not move each other: an event moves its own subject and no other.
A row reads "from any of these states, this event leads to that state"; what is in no row is
illegal. `NEVER_SEEN` is the state of a subject of which the log holds nothing.

Everything that decides whether an event is legal stands in this file, as data: the tables, the
states in which an attempt has an owner, and the events that any build may send to an attempt of
another. A shipped lifecycle never changes. A change is a new `Lifecycle` with the next version,
and a `v1.system.lifecycle_adopted` event says from where on it governs a log.

The diagrams in `docs/lifecycle.md` are drawn from these tables by `belog.schemas.diagrams`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = [
    "KINDS",
    "LIFECYCLES",
    "LIFECYCLE_1",
    "LIFECYCLE_ADOPTED",
    "LIFECYCLE_VERSION_NEWEST",
    "LOG_CREATED",
    "NEVER_SEEN",
    "Lifecycle",
    "Row",
    "SubjectKind",
    "kind_of_type",
]

SubjectKind = Literal["build", "partition", "job_run", "system"]

KINDS: Final[tuple[SubjectKind, ...]] = ("build", "partition", "job_run", "system")
"""In the order of the Avro enum, which is part of the format."""

NEVER_SEEN: Final = ""
"""The state of a subject that no accepted event has named, written ∅ in diagrams."""

LOG_CREATED: Final = "v1.system.log_created"
LIFECYCLE_ADOPTED: Final = "v1.system.lifecycle_adopted"

_SLUG_KINDS: Final[Mapping[str, SubjectKind]] = {
    "build": "build",
    "partition": "partition",
    "job": "job_run",
    "system": "system",
}


def kind_of_type(event_type: str) -> SubjectKind | None:
    """Return the subject kind that the second segment of an event type names, or None.

    >>> kind_of_type("v1.job.running")
    'job_run'
    """
    segments = event_type.split(".")
    return _SLUG_KINDS.get(segments[1]) if len(segments) > 1 else None


@dataclass(frozen=True, slots=True)
class Row:
    """One event of a machine: the states it is legal in, and the state it leads to."""

    event_type: str
    sources: tuple[str, ...]
    target: str | None
    """None: the state stays what it was."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """One version of all machines. Frozen for ever once shipped."""

    version: int
    machines: Mapping[SubjectKind, tuple[Row, ...]]
    owned_states: frozenset[str]
    """Partition states in which the attempt belongs to the build that requested it."""
    attempt_events: frozenset[str]
    """Partition events that must name a build request."""
    open_to_others: frozenset[str]
    """Attempt events that any build may send to another build's attempt."""
    targets: Mapping[SubjectKind, Mapping[tuple[str, str], str]] = field(init=False)
    """Kind → `(state, event type)` → state after it; the lookup the verdict makes. By kind, because
    two machines may have states of one name."""
    kinds: Mapping[str, SubjectKind] = field(init=False)
    """Event type → the kind of subject it moves; the types that this version knows."""

    def __post_init__(self) -> None:
        """Flatten the rows into the lookup table."""
        targets = {
            kind: {
                (source, row.event_type): source if row.target is None else row.target
                for row in rows
                for source in row.sources
            }
            for kind, rows in self.machines.items()
        }
        object.__setattr__(self, "targets", targets)
        kinds = {row.event_type: kind for kind, rows in self.machines.items() for row in rows}
        object.__setattr__(self, "kinds", kinds)

    def allowed(self, kind: SubjectKind, state: str) -> tuple[str, ...]:
        """Return the event types legal for a subject of `kind` in `state`, in table order."""
        return tuple(r.event_type for r in self.machines[kind] if state in r.sources)

    def states(self, kind: SubjectKind) -> tuple[str, ...]:
        """Return the states of a machine but `NEVER_SEEN`, in the order the rows name them."""
        seen = dict.fromkeys(r.target for r in self.machines[kind] if r.target is not None)
        return tuple(s for s in seen if s)


_BUILD: Final = (
    Row("v1.build.received", (NEVER_SEEN,), "received"),
    Row("v1.build.planning", ("received",), "planning"),
    Row("v1.build.analysis_completed", ("planning",), "analysis_completed"),
    Row("v1.build.executing", ("analysis_completed",), "executing"),
    Row("v1.build.completed", ("analysis_completed", "executing"), "completed"),
    Row(
        "v1.build.failed",
        ("received", "planning", "analysis_completed", "executing"),
        "failed",
    ),
    Row(
        "v1.build.cancelled",
        ("received", "planning", "analysis_completed", "executing"),
        "cancelled",
    ),
)

_JOB_RUN: Final = (
    Row("v1.job.scheduled", (NEVER_SEEN,), "scheduled"),
    Row("v1.job.skipped", (NEVER_SEEN, "scheduled"), "skipped"),
    Row("v1.job.running", ("scheduled", "running"), "running"),
    Row("v1.job.completed", ("running",), "completed"),
    Row("v1.job.failed", ("scheduled", "running"), "failed"),
    Row("v1.job.cancelled", ("scheduled", "running"), "cancelled"),
)

_PARTITION: Final = (
    Row(
        "v1.partition.requested",
        # From the last three the owner gives a step back: its job was cancelled or skipped.
        (
            NEVER_SEEN,
            "available",
            "failed",
            "stale",
            "removed",
            "scheduled",
            "building",
            "delegated",
        ),
        "requested",
    ),
    Row("v1.partition.joined", ("requested", "scheduled", "building", "delegated"), None),
    Row("v1.partition.scheduled", ("requested",), "scheduled"),
    Row("v1.partition.building", ("scheduled",), "building"),
    Row("v1.partition.available", ("building", "delegated"), "available"),
    Row("v1.partition.delegated", ("requested",), "delegated"),
    Row("v1.partition.failed", ("requested", "scheduled", "building", "delegated"), "failed"),
    Row("v1.partition.stale", ("available",), "stale"),
    Row("v1.partition.removed", ("available", "stale", "failed"), "removed"),
    Row(
        "v1.partition.observed",
        (NEVER_SEEN, "available", "stale", "failed", "removed"),
        "available",
    ),
)

_SYSTEM: Final = (
    Row(LOG_CREATED, (NEVER_SEEN,), "open"),
    Row(LIFECYCLE_ADOPTED, ("open",), "open"),
    Row("v1.system.snapshot_taken", ("open",), "open"),
    Row("v1.system.vacuumed", ("open",), "open"),
)

LIFECYCLE_1: Final = Lifecycle(
    version=1,
    machines={
        "build": _BUILD,
        "job_run": _JOB_RUN,
        "partition": _PARTITION,
        "system": _SYSTEM,
    },
    owned_states=frozenset({"requested", "scheduled", "building", "delegated"}),
    attempt_events=frozenset(
        f"v1.partition.{name}"
        for name in (
            "requested",
            "joined",
            "scheduled",
            "building",
            "available",
            "delegated",
            "failed",
        )
    ),
    open_to_others=frozenset({"v1.partition.joined"}),
)

LIFECYCLES: Final[Mapping[int, Lifecycle]] = {1: LIFECYCLE_1}
LIFECYCLE_VERSION_NEWEST: Final = max(LIFECYCLES)
