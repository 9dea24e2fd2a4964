"""Commands that keep what was read and remove what is not needed any more: snapshot, vacuum."""

from typing import Annotated

import typer

from belog.processors.replay import Progress
from belog.service import options
from belog.service.opening import existing_log
from belog.service.rendering import micros, rfc3339
from belog.service.snapshots import take_snapshot
from belog.service.terminal import note, progress_bar, put, put_json
from belog.storage.creation import CREATOR
from belog.storage.snapshots import SNAPSHOTS_KEPT, SnapshotStore
from belog.storage.vacuum import vacuum_log

__all__ = ["snapshot", "vacuum"]


SnapshotsFolder = Annotated[
    str,
    typer.Option(
        "--snapshots",
        envvar="BELOG__SNAPSHOTS__URI",
        metavar="DIR",
        help="The folder of snapshots.",
    ),
]


def snapshot(
    log: options.LogOption,
    snapshots: SnapshotsFolder,
    *,
    keep: Annotated[
        int,
        typer.Option(
            "--keep",
            envvar="BELOG__SNAPSHOTS__KEPT",
            min=1,
            help="Remove older ones than so many of this log.",
        ),
    ] = SNAPSHOTS_KEPT,
    actor: Annotated[
        str, typer.Option("--actor", envvar="BELOG__PRODUCER__ACTOR", help="Who takes it.")
    ] = CREATOR,
    as_json: options.JsonOption = False,
) -> None:
    """Take a snapshot of the log's fold and tables, so that programs start from it.

    The log is told of it, unless it is a replica.

    Example: belog snapshot --log sqlite:///demo.db --snapshots snapshots
    """
    store = SnapshotStore(snapshots, keep=keep)
    with existing_log(log) as opened, progress_bar("reading", None) as show:

        def on_progress(progress: Progress) -> None:
            show(progress.position, progress.end_position)

        taken = take_snapshot(opened, store, actor=actor, on_progress=on_progress)
    header = taken.header
    if as_json:
        put_json(
            {
                "file": str(taken.file.path),
                "next_idx": header.next_idx,
                "events": header.merkle_size,
                "root": header.root.hex(),
                "subjects": header.subject_count,
                "rows": header.row_count,
                "taken_at": rfc3339(header.taken_at),
                "content_digest": taken.digest.hex(),
            }
        )
        return
    put(f"{taken.file.path}: all events below index {header.next_idx}, {header.row_count} rows")


def vacuum(
    log: options.LogOption,
    before: Annotated[
        str, typer.Option("--before", metavar="TIME", help="Superseded before then.")
    ],
    snapshots: SnapshotsFolder,
    *,
    yes: Annotated[
        bool, typer.Option("--yes/--dry-run", help="Remove them; otherwise only count.")
    ] = False,
    actor: Annotated[
        str, typer.Option("--actor", envvar="BELOG__PRODUCER__ACTOR", help="Who does it.")
    ] = CREATOR,
    as_json: options.JsonOption = False,
) -> None:
    """Remove events that others of the same subject followed, and whose effects a snapshot holds.

    Counts only, unless --yes is given. Never removes a subject's newest event. Whoever reads the
    log from before the horizon is told to start from the snapshot.

    Example: belog vacuum --log sqlite:///demo.db --before 2026-01-31T00:00:00Z
    --snapshots snapshots
    """
    with existing_log(log) as opened:
        report = vacuum_log(
            opened, SnapshotStore(snapshots), micros(before), dry_run=not yes, actor=actor
        )
    if as_json:
        put_json({"removed": report.removed, "horizon": report.horizon, "dry_run": report.dry_run})
        return
    would = "would be" if report.dry_run else "were"
    put(f"{report.removed} events {would} removed; readable without a hole from {report.horizon}")
    if report.dry_run and report.removed:
        note("nothing was removed: --yes")
