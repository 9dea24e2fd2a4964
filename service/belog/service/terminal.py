"""Writing to the terminal: data on standard output, everything else on standard error."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from belog.service.rendering import Json, to_text

__all__ = ["note", "progress_bar", "put", "put_fields", "put_json", "put_table"]


def put(text: str) -> None:
    """Write one line of data, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def put_json(value: Json) -> None:
    """Write one JSON object on a line of its own."""
    put(to_text(value))


def put_fields(fields: Json, prefix: str = "") -> None:
    """Write a line of data for each field; those of an object within it get its name before theirs.

    Booleans, numbers and lists look as in JSON, an absent value as a dash.
    """
    for name, value in fields.items():
        if isinstance(value, dict):
            put_fields(cast("Json", value), f"{prefix}{name}.")
        elif value is None:
            put(f"{prefix}{name}: -")
        else:
            put(f"{prefix}{name}: {value if isinstance(value, str) else to_text(value)}")


def put_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a list for people: aligned, and on a terminal no wider than it is."""
    if sys.stdout.isatty():
        table = Table(*titles, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        Console(highlight=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        put("  ".join(cells).rstrip())


def note(text: str) -> None:
    """Tell a person something that is not data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def progress_bar(title: str, total: int | None) -> Generator[Callable[[int, int | None], None]]:
    """Show a bar on standard error where that is a terminal, nothing elsewhere.

    Yields:
        A function that takes how much is done, and the total where it changed.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total)

        def update(done: int, now_total: int | None) -> None:
            progress.update(task, completed=done, total=now_total or total)

        yield update
