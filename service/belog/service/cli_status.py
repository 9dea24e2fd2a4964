"""The command that says how a log and its tables are."""

import time
from typing import Annotated, Final

import typer

from belog.processors.factory import open_tables as reader_of
from belog.processors.tables import TableReader
from belog.schemas.errors import Unavailable
from belog.service import options
from belog.service.opening import check_same_log, existing_log
from belog.service.rendering import Json, rfc3339
from belog.service.terminal import put_fields, put_json
from belog.storage import EventLog, open_log
from belog.storage.factory import redacted

__all__ = ["status"]

READY_WAIT_S: Final = 5.0
"""How long `status --ready` gives the tables to reach the log's end, seconds: a worker takes some
milliseconds, and one that is taking over from another some seconds more."""

READY_PAUSE_S: Final = 0.1
"""Between two looks meanwhile, seconds."""


def status(
    log: options.LogOption,
    tables: options.WorkedTablesOption = None,
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
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say which log is there, where it ends, and how far its tables are.

    Example: belog status --log sqlite:///demo.db --root
    """
    if ready and _is_unwritten(log):
        unwritten: Json = {"log": redacted(log), "log_id": None}
        (put_json if as_json else put_fields)(unwritten)
        return
    with existing_log(log, snapshots) as opened:
        identity = opened.identify()
        shown: Json = {
            "log": opened.name,
            "log_id": str(identity.log_id) if identity else None,
            "instance": identity.instance if identity else None,
            "replica": identity.is_replica if identity else None,
            "next_position": opened.next_position(),
        }
        if root:
            end = opened.end()
            shown |= {"next_idx": end.next_idx, "root": end.root.hex()}
        if tables is not None and tables != "memory:":
            with reader_of(tables) as reader:
                check_same_log(reader, opened)
                if ready:
                    _require_following(opened, reader)
                state = reader.status()
            shown |= {
                "tables": reader.name,
                "applied": state.applied,
                "lag_records": max(opened.next_position() - state.position, 0),
                "applied_created_at": rfc3339(state.created_at),
            }
    if as_json:
        put_json(shown)
        return
    put_fields(shown)


def _is_unwritten(uri: str) -> bool:
    with open_log(uri) as log:
        return log.identify() is None


def _require_following(log: EventLog, tables: TableReader) -> None:
    """Refuse tables that do not reach the present end of the log within `READY_WAIT_S`."""
    end = log.next_position()
    deadline = time.monotonic() + READY_WAIT_S
    while (position := tables.status().position) < end:
        if time.monotonic() > deadline:
            msg = f"the tables stand at {position}, the log ends at {end}"
            raise Unavailable(msg, log=log.name, hint="is a worker running? see its log")
        time.sleep(READY_PAUSE_S)
