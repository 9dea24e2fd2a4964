"""Commands that call off what goes on."""

from typing import Annotated

import typer

from belog.query import Cancelled, Repositories
from belog.service import options
from belog.service.cli_tables import build_app, job_app, task_app
from belog.service.querying import open_queries, producer_of
from belog.service.rendering import struct_json
from belog.service.terminal import put, put_json

__all__ = ["build_app", "job_app", "task_app"]

ActorOption = Annotated[
    str, typer.Option("--actor", envvar="BELOG__PRODUCER__ACTOR", help="Who writes.")
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; stands in the events.")]


def _put_cancelled(done: Cancelled, *, as_json: bool) -> None:
    if as_json:
        put_json(struct_json(done))
        return
    before = " before" if done.was_cancelled else ""
    put(
        f"{done.subject_kind.replace('_', ' ')} {done.subject_id} was cancelled{before} at index "
        f"{done.index}; job runs ended: {done.job_runs}, partitions released: {done.partitions}"
    )


@build_app.command("cancel")
def build_cancel(
    build_id: Annotated[str, typer.Argument(metavar="ID")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    reason: ReasonOption = None,
    actor: ActorOption = "cli",
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off a build: cancel its unfinished job runs, and free its partitions for others.

    Example: belog build cancel nightly --reason "wrong day" --log sqlite:///demo.db
    """
    with (
        open_queries(log, tables, snapshots) as queries,
        producer_of(queries.log, actor, snapshots) as producer,
    ):
        done = Repositories(queries).builds.cancel(producer, build_id, reason=reason)
    _put_cancelled(done, as_json=as_json)


@job_app.command("cancel")
def job_cancel(
    job_run_id: Annotated[str, typer.Argument(metavar="ID")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    reason: ReasonOption = None,
    actor: ActorOption = "cli",
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off a job run: its partitions go back to its build.

    Example: belog job cancel run-17 --log sqlite:///demo.db
    """
    with (
        open_queries(log, tables, snapshots) as queries,
        producer_of(queries.log, actor, snapshots) as producer,
    ):
        done = Repositories(queries).jobs.cancel(producer, job_run_id, reason=reason)
    _put_cancelled(done, as_json=as_json)


@task_app.command("cancel")
def task_cancel(
    build_id: Annotated[str, typer.Argument(metavar="BUILD")],
    task_id: Annotated[str, typer.Argument(metavar="TASK")],
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    reason: ReasonOption = None,
    actor: ActorOption = "cli",
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off the unfinished job runs of a task.

    Example: belog task cancel nightly load --log sqlite:///demo.db
    """
    with (
        open_queries(log, tables, snapshots) as queries,
        producer_of(queries.log, actor, snapshots) as producer,
    ):
        found = Repositories(queries).tasks.cancel(producer, build_id, task_id, reason=reason)
    for done in found:
        _put_cancelled(done, as_json=as_json)
