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
from belog.service.rendering import error_json, to_text
from belog.service.terminal import note

__all__ = ["app", "main"]

INTERRUPTED: Final = 130
"""What shells give for a command that SIGINT ended: 128 + 2."""

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


app.command()(cli_run.demo)
app.command()(cli_serve.serve)
app.command()(cli_log.append)
app.command()(cli_log.events)
app.add_typer(cli_query.partition_app, name="partition")
app.add_typer(cli_cancel.build_app, name="build")
app.add_typer(cli_cancel.job_app, name="job")
app.add_typer(cli_cancel.task_app, name="task")
app.command()(cli_run.worker)
app.command()(cli_run.sink)
app.command()(cli_query.activity)
app.command()(cli_query.audit)
app.command()(cli_query.stats)
app.add_typer(cli_log.topic_app, name="topic")
app.command()(cli_snapshot.snapshot)
app.command()(cli_snapshot.vacuum)
app.command()(cli_run.replay)
app.command()(cli_run.verify)
app.command()(cli_migrate.migrate)
app.command()(cli_status.status)
app.add_typer(cli_spool.spool_app, name="spool")
app.add_typer(cli_config.config_app, name="config")
app.add_typer(cli_config.token_app, name="token")
app.add_typer(cli_log.import_app, name="import")


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
