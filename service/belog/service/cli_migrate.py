"""The `migrate` command: one log, from one store to another."""

from collections.abc import Callable
from typing import Annotated

import typer

from belog.schemas.errors import InvalidInput
from belog.service import options
from belog.service.rendering import micros
from belog.service.terminal import note, progress_bar, put, put_json
from belog.sink.migrate import MigrationProgress, run_migration
from belog.sink.migration import WHOLE, Bound

__all__ = ["migrate"]


def migrate(
    origin: options.FromOption,
    target: options.ToOption,
    *,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="INDEX|TIME", help="Only events below this index, or up to then."
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Move a log to another store: same identity, indices, bytes and Merkle root, verified.

    Run it again after an interruption, or to bring along what was written since: it goes on from
    what the target holds. Then write to one of the two only. A replica is copied as a replica.
    Ingest times are kept, but on Kafka, where the broker gives them anew. Only the end of a log can
    be left out: verdicts rest on everything before.

    Example: belog migrate --from sqlite:///builds.db --to kafka://localhost:9092/builds
    """
    with progress_bar("migrating", None) as show:
        report = run_migration(
            origin, target, bound=_bound(until), on_progress=_Steps(show).on_progress
        )
    if not report.keeps_times:
        note("ingest times are those of the copy: a Kafka broker gives its own")
    if as_json:
        put_json(
            {
                "log_id": str(report.log_id),
                "replica": report.is_replica,
                "events": report.events,
                "copied": report.copied,
                "last_index": report.last_index,
                "root": report.root.hex(),
                "keeps_times": report.keeps_times,
            }
        )
        return
    kind = "replica" if report.is_replica else "log"
    put(f"{kind} {report.log_id}: {report.copied} events copied, {report.events} verified")
    put(f"last index {report.last_index}, root {report.root.hex()}")


def _bound(until: str | None) -> Bound:
    if until is None:
        return WHOLE
    if not until.isdigit():
        return Bound(created_us=micros(until))
    if int(until) == 0:
        msg = "--until 0 leaves nothing to copy"
        raise InvalidInput(msg, hint="give the index after the last one wanted")
    return Bound(index=int(until))


class _Steps:
    """One bar over the steps of a migration: look, copy, read back."""

    def __init__(self, show: Callable[[int, int | None], None]) -> None:
        self._show = show
        self._held = 0
        self._end = 0

    def on_progress(self, progress: MigrationProgress) -> None:
        position = progress.position
        if progress.step == "looking":
            self._held = progress.end_position
            done = position
            self._end = max(self._end, self._held)
        elif progress.step == "verifying":
            done = self._held + self._end + position
        else:
            self._end = progress.end_position
            done = self._held + position
        self._show(done, self._held + 2 * self._end)
