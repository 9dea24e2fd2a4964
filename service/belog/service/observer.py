"""What a service tells those who watch it. Metrics, traces and logs are made from this.

The base class takes note of nothing, so a service that nobody watches pays for empty calls only.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal

from msgspec import Struct

from belog.processors.snapshots import TakenSnapshot
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError
from belog.storage.interface import Receipt

__all__ = ["AppendTiming", "Component", "Observer", "component_of"]

Component = Literal["log", "tables", "snapshots", "service"]
"""Where an error comes from: the log's store, the store of the tables, the folder of snapshots, or
the program itself."""

_NOTHING: Final = nullcontext()


class AppendTiming(Struct, frozen=True, gc=False):
    """Where the time of an append went."""

    queued_s: float
    """It waited for its turn, seconds."""
    written_s: float
    """It was judged and made durable together with those of its group, seconds."""


class Observer:
    """Told what happens; must neither block nor raise. Which thread calls is said at each call."""

    def appended(
        self,
        events: Sequence[Event],
        results: Sequence[Receipt | BelogError],
        seconds: float,
        timing: AppendTiming | None = None,
    ) -> None:
        """Take note of one request to append that was answered. In the loop, in the request's task.

        Args:
            events: What was asked for.
            results: A receipt or an error per event.
            seconds: How long the request took.
            timing: Its parts; None where nothing reached the log.
        """

    def group_written(self, events: int, seconds: float) -> None:
        """Take note of events that were judged and written together. In the loop.

        Args:
            events: How many, of one or several requests.
            seconds: From taking them up to their verdicts, durable.
        """

    def failed(self, error: BelogError, component: Component) -> None:
        """Take note of an error that is waited out, or that ended something. In any thread."""

    def snapshot_ended(self, outcome: TakenSnapshot | BelogError) -> None:
        """Take note of a snapshot that is on disk, or of why there is none. In any thread."""

    def span(self, name: str, **fields: str | int | None) -> AbstractContextManager[None]:
        """Return a context that a step of a request runs in. In the request's task or its thread.

        Args:
            name: What it is, one of a small set, such as `request_partition`.
            fields: What it is about.
        """
        del name, fields
        return _NOTHING


def component_of(error: BelogError, tables_name: str) -> Component:
    """Return where an error comes from, by the place that it names.

    Args:
        error: The error.
        tables_name: Name of the tables, as errors give it.
    """
    if error.log is None:
        return "service"
    return "tables" if error.log == tables_name else "log"
