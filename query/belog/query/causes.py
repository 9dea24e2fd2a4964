"""Why a partition is in its state: which events to look at, and the chain that they make. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from belog.processors.rows import BuildRow, JobRunRow, PartitionRow
from belog.query.answers import Cause, Dependency, Explanation, Link
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Corrupt

__all__ = ["CAUSES_MAX", "WAITS_FOR_MAX", "Surroundings", "chain_of", "clues", "explanation"]

CAUSES_MAX: Final = 32
"""Events of one chain: a retry that led to a retry shows, and each costs at most one look-up."""

WAITS_FOR_MAX: Final = 100
"""Missing upstream partitions that are listed."""

UNDER_WAY: Final = frozenset({"requested", "scheduled", "building", "delegated"})


class Surroundings(Struct, frozen=True, kw_only=True):
    """The rows around a partition, as far as they are known."""

    row: PartitionRow
    job_run: JobRunRow | None = None
    build: BuildRow | None = None
    upstream: PartitionRow | None = None
    """The one that made it stale."""
    dependencies: tuple[Dependency, ...] = ()
    """Of an attempt under way."""


def concerns_data(row: PartitionRow) -> bool:
    """Whether the state is one of the data, not of an attempt."""
    return row.state in {"available", "stale", "removed"}


def names_of(row: PartitionRow) -> tuple[str | None, str | None, str | None]:
    """Return the job run, the build and the upstream partition that the state has to do with."""
    if concerns_data(row):
        data = row.available
        if data is None:
            return None, None, None
        cause = data.cause_partition if row.state == "stale" else None
        return data.job_run_id, data.build_id, cause
    attempt = row.attempt
    return (None, None, None) if attempt is None else (attempt.job_run_id, attempt.build_id, None)


def clues(around: Surroundings) -> Mapping[int, Link]:
    """Return the indices of the events that the rows know of, and why each matters."""
    row, run, build = around.row, around.job_run, around.build
    found: dict[int, Link] = {row.index: "state"}
    if concerns_data(row):
        if row.available is not None:
            found.setdefault(row.available.index, "attempt")
            if row.available.stale_index is not None:
                found.setdefault(row.available.stale_index, "attempt")
    elif row.attempt is not None:
        found.setdefault(row.attempt.requested_index, "attempt")
    if run is not None:
        found.setdefault(run.index, "job_run")
        found.setdefault(run.first_seen, "job_run")
    if build is not None:
        found.setdefault(build.first_seen, "build")
        if build.state in {"failed", "cancelled"}:
            found.setdefault(build.index, "build")
    if around.upstream is not None:
        found.setdefault(around.upstream.index, "upstream")
    return found


def chain_of(events: Iterable[tuple[StoredEvent, Link]]) -> tuple[Cause, ...]:
    """Return events as causes, the latest first, each once; the first link given counts."""
    found: dict[int, Cause] = {}
    for stored, link in events:
        if stored.index not in found:
            found[stored.index] = _cause(stored, link)
    return tuple(found[index] for index in sorted(found, reverse=True))


def _cause(stored: StoredEvent, link: Link) -> Cause:
    event = stored.event
    try:
        body = event.body()
    except Corrupt:
        body = {}  # of an unknown type
    texts = (body.get("reason"), body.get("message"))
    return Cause(
        index=stored.index,
        at=stored.created_at,
        event_type=event.event_type,
        subject_kind=event.subject_kind,
        subject_id=event.subject_id,
        actor=event.actor,
        link=link,
        reason=next((text for text in texts if isinstance(text, str) and text), None),
    )


def explanation(around: Surroundings, causes: Sequence[Cause]) -> Explanation:
    """Return the explanation that rows and events make."""
    row = around.row
    return Explanation(
        ref=row.ref,
        state=row.state,
        summary=_summary(around),
        row=row,
        causes=tuple(causes),
        waits_for=around.dependencies,
    )


def _summary(around: Surroundings) -> str:
    row = around.row
    parts = [row.state if not concerns_data(row) or row.available is None else _of_data(around)]
    if not concerns_data(row) and row.attempt is not None:
        parts = [_of_attempt(around)]
    if around.dependencies:
        first = ", ".join(f"{dep.ref} ({dep.state or 'never seen'})" for dep in _few(around))
        more = len(around.dependencies) - len(_few(around))
        parts.append(f"not available upstream: {first}" + (f" and {more} more" if more else ""))
    if not concerns_data(row) and row.available is not None and row.has_data:
        parts.append(f"data from index {row.available.index} is still there")
    return "; ".join(parts)


def _few(around: Surroundings) -> tuple[Dependency, ...]:
    return around.dependencies[:3]


def _of_data(around: Surroundings) -> str:
    row, data = around.row, around.row.available
    if data is None:
        return row.state
    if data.build_id is None:
        made = f"found by {data.source}" if data.source else "found"
    else:
        made = f"made by build {data.build_id}"
        if data.job_run_id is not None:
            made += f", job run {data.job_run_id}"
    if row.state == "available":
        return f"available: {made}"
    cause = f" because of {data.cause_partition}" if data.cause_partition else ""
    reason = f": {data.reason}" if data.reason else ""
    return f"{row.state}{cause if row.state == 'stale' else ''}{reason} ({made})"


def _of_attempt(around: Surroundings) -> str:
    row, attempt, run = around.row, around.row.attempt, around.job_run
    if attempt is None:
        return row.state
    whose = f"{row.state} in build {attempt.build_id}"
    if around.build is not None:
        whose += f" ({around.build.state})"
    if row.state == "delegated":
        made = f"made by build {attempt.delegated_to_build} of {attempt.delegated_to_log}"
        # A service says there what its configuration calls the other instance.
        return f"{whose}: {made}" + (f" ({row.message})" if row.message else "")
    parts = [whose]
    if run is not None:
        code = f" with exit code {run.exit_code}" if run.exit_code is not None else ""
        parts.append(f"job run {run.job_run_id} is {run.state}{code}")
        if run.reason and run.reason != attempt.failure_reason:
            parts.append(run.reason)
    if row.state == "failed" and attempt.failure_reason:
        parts.append(attempt.failure_reason)
    return ": ".join(parts)
