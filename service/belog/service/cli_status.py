"""The command that says how a log and its tables are."""

from typing import Annotated

import typer

from belog.service import options
from belog.service.placing import placed
from belog.service.rendering import Json, rfc3339
from belog.service.sources import Source
from belog.service.terminal import put_fields, put_json

__all__ = ["status"]


@placed
def status(
    source: Source,
    *,
    root: Annotated[
        bool, typer.Option("--root", help="With the Merkle root; reads the log.")
    ] = False,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready",
            help="For health checks: exit with 5 where the tables do not follow the log; a log "
            "that nobody has written to yet is fine.",
        ),
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Say which log is there, where it ends, and how far its tables are.

    Example: belog status --log sqlite:///demo.db --root

    Example: belog status --url http://localhost:8000 --ready
    """
    found = source.standing(root=root, ready=ready)
    shown: Json = {"log": found.log, "log_id": found.log_id}
    if found.log_id is not None:
        shown |= {
            "instance": found.instance,
            "replica": found.replica,
            "next_position": found.next_position,
        }
    if found.root is not None:
        shown |= {"next_idx": found.next_idx, "root": found.root}
    if found.tables is not None:
        shown |= {
            "tables": found.tables,
            "applied": found.applied,
            "lag_records": found.lag_records,
            "applied_created_at": rfc3339(found.applied_created_at),
        }
    (put_json if as_json else put_fields)(shown)
