"""The `belog` command: its parts put together, and errors turned into exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 conflict, 4 not found, 5 unavailable; 130
interrupted.
"""

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, Final

import typer

from belog.schemas.errors import BelogError, status_of
from belog.service import (
    cli_cancel,
    cli_changes,
    cli_config,
    cli_log,
    cli_migrate,
    cli_query,
    cli_run,
    cli_serve,
    cli_snapshot,
    cli_spool,
    cli_status,
)
from belog.service.placing import LogCommand
from belog.service.rendering import error_json, to_text
from belog.service.terminal import note

__all__ = ["app", "main"]

INTERRUPTED: Final = 130
"""What shells give for a command that SIGINT ended: 128 + 2."""

EVENTS: Final = "Events"
VIEWS: Final = "What is there and who makes what"
RUNNING: Final = "Services and processes that stay"
LOG: Final = "The log itself"
SETTINGS: Final = "Settings"
"""Headings of `belog --help`."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 conflict, 4 not found, 5 unavailable.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's calling convention
    if wanted:
        typer.echo(f"belog {version('belog')}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    *,
    config: cli_config.ConfigOption = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A build event log: one validated, totally ordered log of data builds."""
    cli_config.configure(ctx, config)


app.command(rich_help_panel=EVENTS)(cli_log.append)
app.command(rich_help_panel=EVENTS)(cli_log.events)
app.add_typer(cli_log.import_app, name="import", rich_help_panel=EVENTS)
app.add_typer(cli_query.partition_app, name="partition", rich_help_panel=VIEWS)
app.add_typer(cli_cancel.build_app, name="build", rich_help_panel=VIEWS)
app.add_typer(cli_cancel.job_app, name="job", rich_help_panel=VIEWS)
app.add_typer(cli_cancel.task_app, name="task", rich_help_panel=VIEWS)
app.command(rich_help_panel=VIEWS)(cli_query.activity)
app.command(rich_help_panel=VIEWS)(cli_query.audit)
app.command(rich_help_panel=VIEWS)(cli_query.stats)
app.command(rich_help_panel=VIEWS)(cli_status.status)
app.command(rich_help_panel=RUNNING)(cli_run.demo)
app.command(rich_help_panel=RUNNING)(cli_serve.serve)
app.command(cls=LogCommand, rich_help_panel=RUNNING)(cli_run.worker)
app.command(cls=LogCommand, rich_help_panel=RUNNING)(cli_run.sink)
app.command(cls=LogCommand, rich_help_panel=RUNNING)(cli_changes.changes)
app.add_typer(cli_spool.spool_app, name="spool", rich_help_panel=RUNNING)
app.add_typer(cli_log.topic_app, name="topic", rich_help_panel=LOG)
app.command(cls=LogCommand, rich_help_panel=LOG)(cli_snapshot.snapshot)
app.command(cls=LogCommand, rich_help_panel=LOG)(cli_snapshot.vacuum)
app.command(cls=LogCommand, rich_help_panel=LOG)(cli_run.replay)
app.command(cls=LogCommand, rich_help_panel=LOG)(cli_run.verify)
app.command(cls=LogCommand, rich_help_panel=LOG)(cli_migrate.migrate)
app.add_typer(cli_config.config_app, name="config", rich_help_panel=SETTINGS)
app.add_typer(cli_config.token_app, name="token", rich_help_panel=SETTINGS)


def main() -> None:
    """Run a command line; the entry point of the installed program."""
    # A ref may hold any character; what the terminal cannot show is shown by its number.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BelogError as error:
        as_json = "--json" in sys.argv[1:]
        note(to_text({"error": error_json(error)}) if as_json else f"error: {error}")
        sys.exit(status_of(error).exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output is gone, as `head` is when it has enough; nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        note(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
