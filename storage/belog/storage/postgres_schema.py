"""The tables of a log in PostgreSQL: made and brought up to date by numbered SQL files.

`sql/postgres/NNNN_name.sql` holds the step from version N-1 to N. Steps run in one transaction, one
process at a time (an advisory lock), and table `belog_versions` says which have run: either all of
them take effect or none.
"""

import re
from collections.abc import Sequence
from importlib import resources
from typing import Final, cast
from uuid import UUID

from msgspec import Struct
from psycopg import errors

from belog.schemas.errors import InvalidUri, LogReplaced, NewerFormat, NotFound
from belog.storage.interface import LogIdentity
from belog.storage.postgres_client import Connection
from belog.storage.postgres_uri import Target

__all__ = ["VERSION_NEWEST", "FoundLog", "check_same", "create_log", "find_log", "steps", "upgrade"]

_FILE: Final = re.compile(r"([0-9]{4})_\w+\.sql")
_LOCK_SPACE: Final = 0x62656C6F
"""First key of our advisory locks: "belo"; the second is a hash of the schema's name."""

_VERSIONS: Final = """
CREATE TABLE {schema}.belog_versions (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class FoundLog(Struct, frozen=True):
    """A log that is there."""

    number: int
    """Its key in all tables."""
    identity: LogIdentity


def steps() -> list[tuple[int, str]]:
    """Return the numbered SQL files in order: the version each leads to, and its text."""
    folder = resources.files("belog.storage") / "sql" / "postgres"
    named = [(match, file) for file in folder.iterdir() if (match := _FILE.fullmatch(file.name))]
    found = sorted((int(match[1]), file.read_text(encoding="utf-8")) for match, file in named)
    assert [version for version, _ in found] == list(range(1, len(found) + 1))  # noqa: S101
    return found


_STEPS: Final = steps()
VERSION_NEWEST: Final = len(_STEPS)


def _version(connection: Connection, target: Target) -> int:
    """Return the version of the schema, 0 where it holds nothing of ours."""
    row = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'belog_versions'",
        [target.schema],
    ).fetchone()
    if row is None:
        return 0
    try:
        found = connection.execute(
            target.script("SELECT max(version)::integer FROM {schema}.belog_versions")
        ).fetchone()
    except (errors.UndefinedColumn, errors.CannotCoerce, errors.UndefinedFunction) as error:
        raise _foreign(target, "belog_versions") from error
    version = cast("int | None", found[0] if found else None) or 0
    if version > VERSION_NEWEST:
        msg = f"schema {target.schema} has version {version}, known is {VERSION_NEWEST}"
        raise NewerFormat(msg, log=target.name, hint="open it with a newer belog")
    return version


def _foreign(target: Target, what: str) -> InvalidUri:
    msg = f"schema {target.schema} holds a {what} of another program"
    return InvalidUri(msg, log=target.name, hint="name another one with ?schema=")


def find_log(connection: Connection, target: Target) -> FoundLog | None:
    """Return the log if it is there, in tables of the newest version; change nothing.

    Raises:
        InvalidUri: Tables of the same name are something else.
        NewerFormat: Newer software made them.
    """
    version = _version(connection, target)
    if version == 0:
        return None
    row = connection.execute(
        target.sql(
            "SELECT log, log_id, instance, is_replica FROM {schema}.belog_logs WHERE name = %s"
        ),
        [target.log],
    ).fetchone()
    if row is None:
        return None
    number, log_id, instance, is_replica = cast("tuple[int, UUID, str, bool]", row)
    return FoundLog(number, LogIdentity(log_id, instance, is_replica))


def check_same(opened: FoundLog, there: FoundLog | None, name: str) -> None:
    """Refuse a log that is not the one that was opened.

    Args:
        opened: What was found then.
        there: What `find_log` finds now.
        name: The log's name for errors.

    Raises:
        LogReplaced: It is another log.
        NotFound: It is not there any more.
    """
    hint = "restart what has it open, also a service"
    if there is None:
        msg = "the log is not there any more"
        raise NotFound(msg, log=name, hint=hint)
    wanted, found = opened.identity.log_id, there.identity.log_id
    if (opened.number, wanted) != (there.number, found):
        msg = f"the log is {found} now, not {wanted}"
        raise LogReplaced(msg, log=name, hint=hint)


def upgrade(
    connection: Connection, target: Target, files: Sequence[tuple[int, str]] = _STEPS
) -> int:
    """Bring the schema up to date, making it where it is not there; return its version.

    Does nothing, and needs no right to, where all steps have run. Otherwise atomic.

    Args:
        connection: In autocommit mode.
        target: Whose schema.
        files: The steps to end up with.

    Raises:
        InvalidUri: Something else of the same name is there.
        NewerFormat: Newer software made it.
    """
    if _version(connection, target) >= len(files):
        return len(files)
    with connection.transaction():
        _lock(connection, target)
        version = _version(connection, target)
        if version == 0:
            _create_schema(connection, target)
        try:
            if version == 0:
                connection.execute(target.script(_VERSIONS))
            for number, text in files[version:]:
                connection.execute(target.script(text))
                connection.execute(
                    target.sql("INSERT INTO {schema}.belog_versions (version) VALUES (%s)"),
                    [number],
                )
        except (errors.DuplicateTable, errors.DuplicateFunction, errors.DuplicateObject) as error:
            text = error.diag.message_primary or ""
            named = re.search(r'"(\w+)"', text)
            raise _foreign(target, named[1] if named else text) from error
    return len(files)


def _lock(connection: Connection, target: Target) -> None:
    connection.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK_SPACE, target.schema]
    )


def _create_schema(connection: Connection, target: Target) -> None:
    # Not "IF NOT EXISTS": that asks for the right to create schemas even where there is one.
    row = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", [target.schema]
    ).fetchone()
    if row is None:
        connection.execute(target.script("CREATE SCHEMA {schema}"))


def create_log(connection: Connection, target: Target, identity: LogIdentity) -> FoundLog | None:
    """Enter a log that is not there yet, without records; None where another process has.

    Call it in a transaction that also writes the first record.
    """
    _lock(connection, target)
    row = connection.execute(
        target.sql(
            "INSERT INTO {schema}.belog_logs (name, log_id, instance, is_replica)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (name) DO NOTHING RETURNING log"
        ),
        [target.log, identity.log_id, identity.instance, identity.is_replica],
    ).fetchone()
    if row is None:
        return None
    number = cast("int", row[0])
    connection.execute(target.sql("INSERT INTO {schema}.belog_ends VALUES (%s, 0, 0)"), [number])
    connection.execute(
        target.sql("INSERT INTO {schema}.belog_index VALUES (%s, 0, 0, 0, 0)"), [number]
    )
    return FoundLog(number, identity)
