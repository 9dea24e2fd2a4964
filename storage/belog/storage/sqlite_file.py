"""What a SQLite file of a log holds: its tables, its identity, and what an error of it means."""

import sqlite3
from pathlib import Path
from typing import Final
from uuid import UUID

from belog.schemas.envelope import encode_event
from belog.schemas.errors import BelogError, Corrupt, InvalidUri, NewerFormat, Unavailable
from belog.storage.creation import log_created
from belog.storage.interface import LogIdentity

__all__ = [
    "FORMAT_VERSION",
    "INSERT",
    "META",
    "create",
    "identity_in",
    "meaning_of",
    "tables_of",
]

FORMAT_VERSION: Final = 1
META: Final = "belog_meta"
"""The table that says that a file is a log."""

_SCHEMA: Final = """
CREATE TABLE belog_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE belog_records (
    idx INTEGER PRIMARY KEY,
    created_at INTEGER NOT NULL,
    value BLOB NOT NULL
);
"""
INSERT: Final = "INSERT INTO belog_records (idx, created_at, value) VALUES (?, ?, ?)"


def tables_of(connection: sqlite3.Connection) -> set[str]:
    """Return the names of all tables and indexes of a file."""
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def create(connection: sqlite3.Connection, identity: LogIdentity, created_at: int | None) -> None:
    """Make the tables of a log, in a transaction of the caller's.

    Args:
        connection: To an empty file.
        identity: Of the log.
        created_at: Ingest time of the log's first event, microseconds since the epoch; None for a
            log without one.
    """
    for statement in _SCHEMA.strip().split(";\n"):
        connection.execute(statement.rstrip(";"))
    connection.executemany(
        "INSERT INTO belog_meta (name, value) VALUES (?, ?)",
        [
            ("format_version", str(FORMAT_VERSION)),
            ("log_id", str(identity.log_id)),
            ("instance", identity.instance),
            ("replica", "1" if identity.is_replica else "0"),
        ],
    )
    if created_at is not None:
        event = log_created(identity.log_id, identity.instance, created_at)
        connection.execute(INSERT, (0, created_at, encode_event(event)))


def identity_in(connection: sqlite3.Connection, name: str) -> LogIdentity:
    """Return which log a file holds.

    Args:
        connection: To a file that has the table `META`.
        name: The log's name for errors.

    Raises:
        Corrupt: The file does not say.
        NewerFormat: Newer software made it.
    """
    meta = dict(connection.execute("SELECT name, value FROM belog_meta").fetchall())
    if "format_version" not in meta:
        raise Corrupt("the file does not say its format", log=name)
    if int(meta["format_version"]) > FORMAT_VERSION:
        msg = f"the file has format version {meta['format_version']}, known is {FORMAT_VERSION}"
        raise NewerFormat(msg, log=name, hint="open it with a newer belog")
    return LogIdentity(UUID(meta["log_id"]), meta["instance"], meta["replica"] == "1")


def meaning_of(error: sqlite3.Error, path: Path, name: str) -> BelogError:
    """Return what an error of SQLite means to who uses the log."""
    text = str(error)
    if "not a database" in text:
        return InvalidUri(f"{path} is a file of another kind", log=name)
    if "malformed" in text or "no such" in text:
        return Corrupt(f"the database is damaged: {text}", log=name)
    if "full" in text or "disk I/O" in text:
        return Unavailable(f"nothing was written: {text}", log=name, hint="make room")
    if "readonly" in text or "unable to open" in text:
        hint = f"may {path} and its folder be written? is the file system mounted read-only?"
        return Unavailable(f"SQLite: {text}", log=name, hint=hint)
    return Unavailable(f"SQLite: {text}", log=name)
