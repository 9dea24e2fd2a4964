"""The history of a run: what every process did, saw and was told, on one clock.

Each incarnation of a process appends JSON lines to a file of its own, each line by one `write` to a
file opened for appending. What was written survives SIGKILL; only the last line can be torn, and a
torn or missing answer means that the outcome is unknown. Times are CLOCK_MONOTONIC in nanoseconds,
which all processes of a machine share. No code of belog is imported here: the checker reads this.

=========  =========================================================================================
line       fields besides `k` (its kind) and `t` (when)
=========  =========================================================================================
`start`    `pid`, `log` (identity of the log that was met)
`call`     `n` (number of the call), `op`, `thread`, `items`: the events, or what is asked for
`end`      `n`, `answers`: one for each item (see `graph_process.answer_of`)
`page`     readers: `n`, `since`, `next`, `more`, `began`, `rows`: [index, created_at, event id]
`stop`     `code`: the process gave up because of an error that no retry helps
`done`     the process ended by itself
`fault`    the runner: `name`, `phase` (`inject`, `heal`), `ended`
=========  =========================================================================================
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Call", "History", "Journal", "load"]


class Journal:
    """One process's file. `write` may be called from any thread."""

    def __init__(self, folder: Path, name: str) -> None:
        """Begin the file of a new incarnation of a process."""
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob(f"{name}.*.jsonl")))
        self.path = folder / f"{name}.{number:03d}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        self._file = os.open(self.path, flags, 0o644)

    def write(self, kind: str, **fields: object) -> None:
        """Append one line."""
        line = json.dumps({"k": kind, "t": time.monotonic_ns(), **fields}, separators=(",", ":"))
        data = f"{line}\n".encode()
        if os.write(self._file, data) != len(data):
            msg = f"{self.path}: a line was written in part"
            raise OSError(msg)


@dataclass
class Call:
    """One call of one process."""

    where: str
    """File and line, for people."""
    process: str
    incarnation: int
    n: int
    op: str
    thread: int
    items: list[Any]
    start: int
    end: int | None = None
    """None: the process died before it knew."""
    answers: list[dict[str, Any]] | None = None


@dataclass
class History:
    """Everything that the processes of a run wrote down."""

    calls: list[Call] = field(default_factory=list)
    pages: list[dict[str, Any]] = field(default_factory=list)
    stops: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)


def lines_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a journal with their numbers, without a torn last one."""
    whole, newline, _ = path.read_bytes().rpartition(b"\n")
    if newline:
        for number, line in enumerate(whole.split(b"\n"), 1):
            yield number, json.loads(line)


def load(folder: Path) -> History:
    """Read all journals of a run."""
    history = History()
    for path in sorted(folder.glob("*.jsonl")):
        process, number = path.stem.rsplit(".", 1)
        open_calls: dict[int, Call] = {}
        for line_number, line in lines_of(path):
            where = f"{path.stem}:{line_number}"
            kind = line["k"]
            if kind == "call":
                call = Call(
                    where,
                    process,
                    int(number),
                    line["n"],
                    line["op"],
                    line["thread"],
                    line["items"],
                    line["t"],
                )
                open_calls[line["n"]] = call
                history.calls.append(call)
            elif kind == "end":
                call = open_calls.pop(line["n"])
                call.end, call.answers = line["t"], line["answers"]
            elif kind == "done":
                history.done.add(process)
            elif kind in {"page", "stop", "fault"}:
                here = {**line, "where": where, "process": process, "incarnation": int(number)}
                getattr(history, f"{kind}s").append(here)
    history.calls.sort(key=lambda call: call.start)
    history.faults.sort(key=lambda line: line["t"])
    return history
