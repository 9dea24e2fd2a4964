"""Commands that call off what goes on."""

from typing import Annotated

import typer

from belog.processors.rows import BuildRow, JobRunRow, R, TaskRow
from belog.service import options
from belog.service.cli_tables import build_app, job_app, task_app
from belog.service.placing import placed
from belog.service.rendering import struct_json
from belog.service.sources import Source
from belog.service.terminal import put, put_json

__all__ = ["build_app", "job_app", "task_app"]

ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; stands in the events.")]


def _cancel(
    source: Source,
    kind: type[R],
    *key: str,
    reason: str | None,
    actor: str | None,
    as_json: bool,
) -> None:
    for done in source.cancel(kind, *key, reason=reason, actor=actor):
        if as_json:
            put_json(struct_json(done))
            continue
        before = " before" if done.was_cancelled else ""
        put(
            f"{done.subject_kind.replace('_', ' ')} {done.subject_id} was cancelled{before} at "
            f"index {done.index}; job runs ended: {done.job_runs}, partitions released: "
            f"{done.partitions}"
        )


@build_app.command("cancel")
@placed
def build_cancel(
    source: Source,
    build_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    reason: ReasonOption = None,
    actor: options.ActorOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off a build: cancel its unfinished job runs, and free its partitions for others.

    Example: belog build cancel nightly --reason "wrong day" --log sqlite:///demo.db
    """
    _cancel(source, BuildRow, build_id, reason=reason, actor=actor, as_json=as_json)


@job_app.command("cancel")
@placed
def job_cancel(
    source: Source,
    job_run_id: Annotated[str, typer.Argument(metavar="ID")],
    *,
    reason: ReasonOption = None,
    actor: options.ActorOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off a job run: its partitions go back to its build.

    Example: belog job cancel run-17 --log sqlite:///demo.db
    """
    _cancel(source, JobRunRow, job_run_id, reason=reason, actor=actor, as_json=as_json)


@task_app.command("cancel")
@placed
def task_cancel(
    source: Source,
    build_id: Annotated[str, typer.Argument(metavar="BUILD")],
    task_id: Annotated[str, typer.Argument(metavar="TASK")],
    *,
    reason: ReasonOption = None,
    actor: options.ActorOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Call off the unfinished job runs of a task.

    Example: belog task cancel nightly load --log sqlite:///demo.db
    """
    _cancel(source, TaskRow, build_id, task_id, reason=reason, actor=actor, as_json=as_json)
