"""Commands on the tables: partitions, builds, jobs, tasks."""

from typing import Annotated, Final, NamedTuple

import typer

from belog.processors.indexes import Where
from belog.processors.replay import WHOLE_LOG, Until
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow, task_key
from belog.processors.tables import PAGE_ROWS_MAX, TableReader
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import NotFound
from belog.schemas.filters import EventFilter
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.service import options
from belog.service.opening import existing_log, open_tables
from belog.service.rendering import event_json, event_line, row_json, row_line, row_titles
from belog.service.terminal import note, put, put_fields, put_json, put_table

__all__ = ["build_app", "job_app", "partition_app", "task_app"]

DEFAULT_ROWS: Final = 100
"""Rows listed when no limit is given."""

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


class Source(NamedTuple):
    """What a command reads."""

    log: str
    tables: str
    snapshots: str | None
    until: Until = WHOLE_LOG


def _list(
    source: Source,
    kind: type[R],
    where: Where,
    *,
    limit: int,
    by_id: bool,
    as_json: bool,
) -> None:
    rows: list[R] = []
    with open_tables(*source) as reader:
        cursor: str | None = None
        while len(rows) < limit:
            page = reader.list_rows(
                kind,
                where,
                order="id" if by_id else "recent",
                cursor=cursor,
                limit=min(limit - len(rows), PAGE_ROWS_MAX),
            )
            rows.extend(page.rows)
            cursor = page.next_cursor
            if cursor is None:
                break
    if as_json:
        for row in rows:
            put_json(row_json(row))
    else:
        put_table(row_titles[kind.kind], [row_line(row) for row in rows])
    if cursor is not None:
        note(f"there are more than {limit}; see --limit")


def _show(
    source: Source,
    kind: type[R],
    row_id: str,
    wanted: EventFilter,
    *,
    with_events: bool,
    as_json: bool,
) -> None:
    with open_tables(*source) as reader:
        row = _require(reader, kind, row_id)
    shown = row_json(row)
    found = _events(source, wanted) if with_events else []
    if as_json:
        put_json({**shown, "events": [event_json(e) for e in found]} if with_events else shown)
        return
    put_fields(shown)
    for stored in found:
        put(event_line(stored))


def _require(reader: TableReader, kind: type[R], row_id: str) -> R:
    answer = reader.get(kind, row_id)
    if answer.value is None:
        msg = f"there is no {kind.kind.replace('_', ' ')} {row_id!r}"
        raise NotFound(msg, index=answer.applied, hint="the tables are as of that index")
    return answer.value


def _events(source: Source, wanted: EventFilter) -> list[StoredEvent]:
    with existing_log(source.log, source.snapshots) as opened:
        found: list[StoredEvent] = []
        horizon = opened.horizon()
        cursor = 0 if horizon is None else horizon.index
        if horizon is not None:
            note(f"events before index {horizon.index} were vacuumed")
        while True:
            page = opened.read(cursor, wanted, PAGE_EVENTS_MAX)
            found.extend(page.events)
            cursor = page.next_idx
            if not page.has_more:
                return found


@partition_app.command("list")
def partition_list(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
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
    """
    where = Where(
        states=tuple(state or ()),
        active=active,
        build_id=build,
        job_label=label,
        id_prefix=prefix,
    )
    _list(
        Source(log, tables, snapshots, options.bound_of(until, until_occurred)),
        PartitionRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
    )


@partition_app.command("show")
def partition_show(
    ref: Annotated[str, typer.Argument(metavar="REF")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one partition: the attempt under way, and the data that is there.

    Example: belog partition show sales/2026-01-31 --log sqlite:///demo.db --events
    """
    wanted = EventFilter(partition_refs=(ref,))
    _show(
        Source(log, tables, snapshots),
        PartitionRow,
        ref,
        wanted,
        with_events=events,
        as_json=as_json,
    )


@build_app.command("list")
def build_list(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
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
        Source(log, tables, snapshots, options.bound_of(until, until_occurred)),
        BuildRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
    )


@build_app.command("show")
def build_show(
    build_id: Annotated[str, typer.Argument(metavar="ID")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one build request.

    Example: belog build show nightly --log sqlite:///demo.db --events
    """
    wanted = EventFilter(build_request_ids=(build_id,))
    _show(
        Source(log, tables, snapshots),
        BuildRow,
        build_id,
        wanted,
        with_events=events,
        as_json=as_json,
    )


@job_app.command("list")
def job_list(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
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
        Source(log, tables, snapshots, options.bound_of(until, until_occurred)),
        JobRunRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
    )


@job_app.command("show")
def job_show(
    job_run_id: Annotated[str, typer.Argument(metavar="ID")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one job run.

    Example: belog job show run-17 --log sqlite:///demo.db
    """
    wanted = EventFilter(job_run_ids=(job_run_id,))
    _show(
        Source(log, tables, snapshots),
        JobRunRow,
        job_run_id,
        wanted,
        with_events=events,
        as_json=as_json,
    )


@task_app.command("list")
def task_list(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
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
        Source(log, tables, snapshots, options.bound_of(until, until_occurred)),
        TaskRow,
        where,
        limit=limit,
        by_id=by_id,
        as_json=as_json,
    )


@task_app.command("show")
def task_show(
    build_id: Annotated[str, typer.Argument(metavar="BUILD")],
    task_id: Annotated[str, typer.Argument(metavar="TASK")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    events: EventsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show one task of a build, with its runs.

    Example: belog task show nightly load --log sqlite:///demo.db
    """
    wanted = EventFilter(build_request_ids=(build_id,), task_ids=(task_id,))
    key = task_key(build_id, task_id)
    _show(Source(log, tables, snapshots), TaskRow, key, wanted, with_events=events, as_json=as_json)
