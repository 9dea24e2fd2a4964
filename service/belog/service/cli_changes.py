"""The command that publishes the tables of a log as changes."""

from typing import Annotated

import typer

from belog.service import options
from belog.service.cli_run import stop_on_signal
from belog.service.terminal import note
from belog.service.watched_commands import log_as_configured, warn_seldom
from belog.sink.run import run_changes

__all__ = ["changes"]


def changes(
    context: typer.Context,
    origin: options.FromOption,
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URI",
            callback=options.connected,
            help="kafka://host:port/NAME, for the topics NAME.partitions and NAME.builds.",
        ),
    ],
    *,
    once: Annotated[bool, typer.Option("--once", help="Publish what is there, and end.")] = False,
    snapshots: options.SnapshotsOption = None,
) -> None:
    """Publish every change of the tables as Avro on two compacted topics, until stopped.

    For Kafka Connect, Flink and others that know nothing of belog. It resumes from what the topics
    hold, however it ended before. Make the topics first, with belog topic create.

    Example: belog changes --from kafka://a:9092/builds --to kafka://a:9092/tables
    """
    log_as_configured(context)
    with stop_on_signal() as stop:
        progress = run_changes(
            origin,
            target,
            snapshots=snapshots,
            stop=stop,
            follow=not once,
            on_error=warn_seldom(),
        )
    note(f"{progress.written} changes written; the topics are as of {progress.next_idx}")
