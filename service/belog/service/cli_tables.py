"""Commands on the tables: partitions, builds, jobs, tasks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from belog.processors.indexes import Order, Where
from belog.processors.replay import Until
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, RowKind, TaskRow
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import InvalidFilter
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1, SubjectKind
from belog.service import options
from belog.service.placing import placed
from belog.service.rendering import event_json, event_line, row_json, row_line, row_titles
from belog.service.sources import Source
from belog.service.terminal import note, put, put_fields, put_json, put_table

__all__ = ["build_app", "job_app", "partition_app", "task_app"]

DEFAULT_ROWS: Final = 100
"""Rows listed when no limit is given."""

_SUBJECTS: Final[Mapping[RowKind, SubjectKind]] = {
    "partition": "partition",
    "build": "build",
    "job_run": "job_run",
    # A task is in the state of its newest run.
    "task": "job_run",
}

partition_app = typer.Typer(no_args_is_help=True, help="Partitions: what is there, who makes what.")
build_app = typer.Typer(no_args_is_help=True, help="Build requests.")
job_app = typer.Typer(no_args_is_help=True, help="Job runs: single tries of tasks.")
task_app = typer.Typer(no_args_is_help=True, help="Tasks: planned work of builds.")

StateTerms = Annotated[list[str] | None, typer.Option("--state", help="In one of these states.")]
ActiveOption = Annotated[
    bool | None, typer.Option("--active/--ended", help="Under way, or not.", show_default=False)
]
BuildOption = Annotated[str | None, typer.Option("--build", metavar="ID", help="Of this build.")]
LabelOption = Annotated[str | None, typer.Option("--label", help="Of jobs with this label.")]
PrefixOption = Annotated[str, typer.Option("--prefix", help="With an id that starts like this.")]
ByIdOption = Annotated[
    bool, typer.Option("--by-id", help="Sorted by id, not the latest change first.")
]
EventsOption = Annotated[bool, typer.Option("--events", help="With the events that led to it.")]


def _list(
    source: Source,
    kind: type[R],
    where: Where,
    *,
    limit: int,
    by_id: bool,
    as_json: bool,
    until: Until,
) -> None:
    known = LIFECYCLE_1.states(_SUBJECTS[kind.kind])
    for state in where.states:
        if state not in known:
            msg = f"{state!r} is no state of such a thing"
            raise InvalidFilter(msg, hint=f"one of {', '.join(known)}")
    order: Order = "id" if by_id else "recent"
    rows, has_more = source.rows(kind, where, order=order, limit=limit, until=until)
    if as_json:
        for row in rows:
            put_json(row_json(row))
    else:
        put_table(row_titles[kind.kind], [row_line(row) for row in rows])
    if has_more:
        note(f"there are more than {limit}; see --limit")


def _show(
    source: Source,
    kind: type[R],
    *key: str,
    wanted: EventFilter,
    with_events: bool,
    as_json: bool,
) -> None:
    row = source.row(kind, *key)
    shown = row_json(row)
    found: Sequence[StoredEvent] = ()
    if with_events:
        found, horizon = source.history(wanted)
        if horizon:
            note(f"events before index {horizon} were vacuumed")
    if as_json:
        put_json({**shown, "events": [event_json(e) for e in found]} if with_events else shown)
        return
    put_fields(shown)
    for stored in found:
        put(event_line(stored))


@partition_app.command("list")
@placed
def partition_list(
    source: Source,
    *,
    state: StateTerms = None,
    active: ActiveOption = None,
    build: BuildOption = None,
    label: LabelOption = None,
    prefix: PrefixOption = "",
    until: options.UntilOption = None,
    until_occurred: options.UntilOccurredOption = None,
    by_id: ByIdOption = False,
    limit: options.LimitOption = DEFAULT_ROWS,
    as_json: options.JsonOption = False,
) -> None:
    """List partitions, the latest change first; with a bound, as they were then.

    Example: belog partition list --log sqlite:///demo.db --state available

    Example: belog partition list --url http://localhost:8000 --active
    """
    where = Where(
        states=tuple(state or ()),
        active=active,
        build_id=build,
        job_label=label,
        id_prefix=prefix,
    )
    _list(
        source,
        PartitionRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
        until=options.bound_of(until, until_occurred),
    )


@partition_app.command("show")
@placed
def partition_show(
    source: Source,
    ref: Annotated[str, typer.Argument(metavar="REF")],
    *,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one partition: the attempt under way, and the data that is there.

    Example: belog partition show sales/2026-01-31 --log sqlite:///demo.db --events
    """
    wanted = EventFilter(partition_refs=(ref,))
    _show(source, PartitionRow, ref, wanted=wanted, with_events=events, as_json=as_json)


@build_app.command("list")
@placed
def build_list(
    source: Source,
    *,
    state: StateTerms = None,
    active: ActiveOption = None,
    client: Annotated[str | None, typer.Option("--client", help="Asked for by this one.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="REF", help="That asked for this one.")
    ] = None,
    until: options.UntilOption = None,
    until_occurred: options.UntilOccurredOption = None,
    by_id: ByIdOption = False,
    limit: options.LimitOption = DEFAULT_ROWS,
    as_json: options.JsonOption = False,
) -> None:
    """List build requests, the latest change first.

    Example: belog build list --log sqlite:///demo.db --active
    """
    where = Where(states=tuple(state or ()), active=active, client_id=client, partition=partition)
    _list(
        source,
        BuildRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
        until=options.bound_of(until, until_occurred),
    )


@build_app.command("show")
@placed
def build_show(
    source: Source,
    build_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one build request.

    Example: belog build show nightly --log sqlite:///demo.db --events
    """
    wanted = EventFilter(build_request_ids=(build_id,))
    _show(source, BuildRow, build_id, wanted=wanted, with_events=events, as_json=as_json)


@job_app.command("list")
@placed
def job_list(
    source: Source,
    *,
    state: StateTerms = None,
    active: ActiveOption = None,
    build: BuildOption = None,
    label: LabelOption = None,
    until: options.UntilOption = None,
    until_occurred: options.UntilOccurredOption = None,
    by_id: ByIdOption = False,
    limit: options.LimitOption = DEFAULT_ROWS,
    as_json: options.JsonOption = False,
) -> None:
    """List job runs, the latest change first.

    Example: belog job list --log sqlite:///demo.db --state failed
    """
    where = Where(states=tuple(state or ()), active=active, build_id=build, job_label=label)
    _list(
        source,
        JobRunRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
        until=options.bound_of(until, until_occurred),
    )


@job_app.command("show")
@placed
def job_show(
    source: Source,
    job_run_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one job run.

    Example: belog job show run-17 --log sqlite:///demo.db
    """
    wanted = EventFilter(job_run_ids=(job_run_id,))
    _show(source, JobRunRow, job_run_id, wanted=wanted, with_events=events, as_json=as_json)


@task_app.command("list")
@placed
def task_list(
    source: Source,
    *,
    state: StateTerms = None,
    active: ActiveOption = None,
    build: BuildOption = None,
    label: LabelOption = None,
    until: options.UntilOption = None,
    until_occurred: options.UntilOccurredOption = None,
    by_id: ByIdOption = False,
    limit: options.LimitOption = DEFAULT_ROWS,
    as_json: options.JsonOption = False,
) -> None:
    """List tasks, the latest change first.

    Example: belog task list --log sqlite:///demo.db --build nightly
    """
    where = Where(states=tuple(state or ()), active=active, build_id=build, job_label=label)
    _list(
        source,
        TaskRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
        until=options.bound_of(until, until_occurred),
    )


@task_app.command("show")
@placed
def task_show(
    source: Source,
    build_id: Annotated[str, typer.Argument(metavar="BUILD")],
    task_id: Annotated[str, typer.Argument(metavar="TASK")],
    *,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one task of a build, with its runs.

    Example: belog task show nightly load --log sqlite:///demo.db
    """
    wanted = EventFilter(build_request_ids=(build_id,), task_ids=(task_id,))
    _show(source, TaskRow, build_id, task_id, wanted=wanted, with_events=events, as_json=as_json)
