"""`belog replay --dry-run`: what a changed lifecycle would have made of a log."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, cast

import msgspec
import typer

from belog.processors.dry_run import LifecycleReport, compare_lifecycles
from belog.processors.replay import Progress, Until
from belog.schemas.errors import InvalidConfiguration, InvalidInput
from belog.schemas.lifecycle import Lifecycle
from belog.schemas.lifecycle_change import changed_lifecycle, read_change
from belog.service.rendering import Json
from belog.service.terminal import put, put_json, put_table
from belog.storage import EventLog

__all__ = ["dry_run", "lifecycle_of"]

FILE_BYTES_MAX: Final = 1_048_576
"""Largest description of a lifecycle, bytes: hundreds of times the shipped one."""


def lifecycle_of(path: Path | None) -> Lifecycle:
    """Read the lifecycle that a file describes; its name says in which form.

    Raises:
        InvalidInput: There is no file to read, or one of another form.
        InvalidConfiguration: It describes no lifecycle; the message says why.
    """
    if path is None:
        msg = "a dry run needs the changed lifecycle"
        raise InvalidInput(msg, hint="--lifecycle FILE.toml; the format is in docs/replay.md")
    form = path.suffix.lower().removeprefix(".")
    if form not in {"toml", "json"}:
        msg = f"{path} is neither a .toml nor a .json file"
        raise InvalidInput(msg)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise InvalidInput(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{path} is no text in UTF-8"
        raise InvalidConfiguration(msg) from error
    if len(data) > FILE_BYTES_MAX:
        msg = f"{path} is larger than {FILE_BYTES_MAX} bytes"
        raise InvalidInput(msg)
    return changed_lifecycle(read_change(text, cast("Literal['toml', 'json']", form)))


def dry_run(
    log: EventLog,
    lifecycle: Lifecycle,
    until: Until,
    on_progress: Callable[[Progress], None],
    *,
    as_json: bool,
) -> None:
    """Print what would have been judged differently.

    Raises:
        typer.Exit: With 1, where something would.
    """
    report = compare_lifecycles(log, lifecycle, until=until, on_progress=on_progress)
    if as_json:
        put_json(cast("Json", msgspec.to_builtins(report)))
    else:
        _put(report)
    if report.differences:
        raise typer.Exit(1)


def _put(report: LifecycleReport) -> None:
    if report.listed:
        put_table(
            ("INDEX", "SUBJECT", "EVENT", "BEFORE", "AFTER"),
            [(str(d.index), d.subject, d.event_type, d.before, d.after) for d in report.listed],
        )
    if report.differences > len(report.listed):
        put(f"… and {report.differences - len(report.listed)} more")
    put(f"{report.differences} of {report.records} records would be judged differently")
