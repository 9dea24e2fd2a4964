"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from belog.processors.replay import Until
from belog.schemas.filters import EventFilter
from belog.service.configuration import Configuration
from belog.service.rendering import micros
from belog.service.uris import connected_uri

__all__ = [
    "ActorOption",
    "DagFiles",
    "FromOption",
    "InstanceOption",
    "JsonOption",
    "LimitOption",
    "LogOption",
    "SnapshotsOption",
    "SubjectKindOption",
    "TablesOption",
    "ToOption",
    "UntilOccurredOption",
    "UntilOption",
    "bound_of",
    "connected",
    "event_filter",
]


def connected(ctx: typer.Context, uri: str | None) -> str | None:
    """Return a URI from the command line with the settings that the configuration has for it."""
    found = ctx.find_root().obj
    if uri is None or not isinstance(found, Configuration):
        return uri
    return connected_uri(uri, found)


LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        envvar="BELOG__LOG__URI",
        metavar="URI",
        callback=connected,
        # What is configured is a default too, and may hold a password.
        show_default=False,
        help="The log: sqlite:///path, kafka://host:port/topic, …",
    ),
]
TablesOption = Annotated[
    str,
    typer.Option(
        "--tables",
        envvar="BELOG__TABLES__URI",
        metavar="URI",
        callback=connected,
        show_default="memory:",
        help="The tables: redis://host:port/db, or memory: to fold the log here and now.",
    ),
]
SnapshotsOption = Annotated[
    str | None,
    typer.Option(
        "--snapshots",
        envvar="BELOG__SNAPSHOTS__URI",
        metavar="DIR",
        help="Start from the newest snapshot in this folder.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="INDEX|TIME",
        help="Only events below this index, or ingested up to then.",
    ),
]
UntilOccurredOption = Annotated[
    str | None,
    typer.Option(
        "--until-occurred",
        metavar="TIME",
        help="Only events before the first that occurred later; for imported histories.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object a line instead of text for people.")
]
FromOption = Annotated[
    str, typer.Option("--from", metavar="URI", callback=connected, help="The log to copy.")
]
ToOption = Annotated[str, typer.Option("--to", metavar="URI", callback=connected, help="Where to.")]
SubjectKindOption = Annotated[
    str | None,
    typer.Option(
        "--subject-kind",
        metavar="KIND",
        help="build, partition, job_run or system; where TYPE does not tell.",
    ),
]
InstanceOption = Annotated[
    str,
    typer.Option(
        "--instance",
        envvar="BELOG__LOG__INSTANCE",
        help="Name of this instance, for a log that is made.",
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        envvar="BELOG__PRODUCER__ACTOR",
        show_default="cli",
        help="Who writes; a service knows by the token.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Most entries to show.")]
DagFiles = Annotated[
    list[Path],
    typer.Argument(metavar="FILE…", help="DAG files; each is one graph, named after the file."),
]


class Kind(StrEnum):
    """Subject kinds, as a command line names them."""

    BUILD = "build"
    PARTITION = "partition"
    JOB_RUN = "job_run"
    SYSTEM = "system"


PartitionTerms = Annotated[
    list[str] | None, typer.Option("--partition", metavar="REF", help="Concerning this partition.")
]
PatternTerms = Annotated[
    list[str] | None,
    typer.Option("--pattern", metavar="GLOB", help="Concerning partitions like this: * ** ? […]."),
]
LabelTerms = Annotated[list[str] | None, typer.Option("--label", help="Of jobs with this label.")]
JobRunTerms = Annotated[list[str] | None, typer.Option("--job-run", metavar="ID")]
BuildTerms = Annotated[list[str] | None, typer.Option("--build", metavar="ID")]
TaskTerms = Annotated[list[str] | None, typer.Option("--task", metavar="ID")]
TypeTerms = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE")]
KindTerms = Annotated[list[Kind] | None, typer.Option("--kind")]
ActorTerms = Annotated[list[str] | None, typer.Option("--actor", metavar="NAME")]
FromTime = Annotated[
    str | None, typer.Option("--created-from", metavar="TIME", help="Ingested at or after.")
]
ToTime = Annotated[
    str | None, typer.Option("--created-to", metavar="TIME", help="Ingested before.")
]


def bound_of(until: str | None, until_occurred: str | None) -> Until:
    """Return the bound that a command's options make.

    Raises:
        InvalidInput: A time is not ISO 8601 with a zone.
    """
    occurred_us = None if until_occurred is None else micros(until_occurred)
    if until is None:
        return Until(occurred_us=occurred_us)
    if until.isdigit():
        return Until(index=int(until), occurred_us=occurred_us)
    return Until(created_us=micros(until), occurred_us=occurred_us)


def event_filter(
    *,
    partition: list[str] | None,
    pattern: list[str] | None,
    label: list[str] | None,
    job_run: list[str] | None,
    build: list[str] | None,
    task: list[str] | None,
    event_type: list[str] | None,
    kind: list[Kind] | None,
    actor: list[str] | None,
    created_from: str | None,
    created_to: str | None,
) -> EventFilter:
    """Return the filter that a command's options make."""
    return EventFilter(
        partition_refs=tuple(partition or ()),
        partition_patterns=tuple(pattern or ()),
        job_labels=tuple(label or ()),
        job_run_ids=tuple(job_run or ()),
        build_request_ids=tuple(build or ()),
        task_ids=tuple(task or ()),
        event_types=tuple(event_type or ()),
        subject_kinds=tuple(k.value for k in kind or ()),
        actors=tuple(actor or ()),
        created_from=None if created_from is None else micros(created_from),
        created_to=None if created_to is None else micros(created_to),
    )
