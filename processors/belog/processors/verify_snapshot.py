"""Compares a snapshot with a fresh fold of its log, up to its index."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from belog.processors.replay import BATCH_RECORDS
from belog.processors.rows import ROW_TYPES
from belog.processors.snapshots import read_tables
from belog.processors.table_fold import TableFold
from belog.processors.verify import DIFFERENCES_MAX
from belog.schemas.errors import Gone, LogReplaced, LogTruncated
from belog.schemas.fold import Fold
from belog.schemas.snapshot import SnapshotHeader
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.snapshots import SnapshotFile, SnapshotStore

__all__ = ["SnapshotCheck", "SnapshotDifference", "verify_snapshot"]


class SnapshotDifference(Struct, frozen=True):
    """One place where a snapshot is not what the log folds to."""

    what: str
    """A field of the header, a subject kind, the kind of a row, or `window`."""
    name: str
    """The subject's or row's id; empty for a header field."""
    expected: str
    found: str


class SnapshotCheck(Struct, frozen=True):
    """What a check compared and found."""

    header: SnapshotHeader
    differences: tuple[SnapshotDifference, ...]
    """At most `DIFFERENCES_MAX`."""


def verify_snapshot(
    log: EventLog,
    identity: LogIdentity,
    store: SnapshotStore,
    file: SnapshotFile,
    *,
    start: TableFold | None = None,
) -> SnapshotCheck:
    """Compare a snapshot with its log: root, what verdicts need, and rows.

    Folds the log from its beginning, or from where a vacuum left it. Blocks for that long, and
    holds both in memory.

    Args:
        log: Initialized.
        identity: What opening it said.
        store: Where the snapshot is.
        file: Which one.
        start: Where to begin, with the root kept; used up. None for the log's beginning.

    Raises:
        LogReplaced: The snapshot is of another log.
        LogTruncated: The log is shorter than the snapshot.
        Gone: The log was vacuumed past the snapshot.
        Corrupt: The snapshot is damaged.
        NewerFormat, Unsupported: Its rows cannot be compared.
    """
    if (file.log_id, file.is_replica) != (identity.log_id, identity.is_replica):
        kind = "a replica of " if file.is_replica else ""
        msg = f"the snapshot is of {kind}log {file.log_id}, not of {identity.log_id}"
        raise LogReplaced(msg, log=log.name)
    with store.open(file) as reader:
        header = reader.header
        found = read_tables(reader)
    position = header.next_position
    if (end := log.next_position()) < position:
        msg = f"the log ends at {end}, the snapshot at {position}"
        raise LogTruncated(msg, log=log.name)
    expected = start or TableFold()
    if expected.fold.next_position > position:
        msg = f"events before {expected.fold.next_position} were vacuumed"
        raise Gone(msg, horizon=expected.fold.next_idx, log=log.name)
    while (at := expected.fold.next_position) < position:
        records = [r for r in log.scan(at, BATCH_RECORDS) if r.position < position]
        if not records:
            break
        expected.apply(records)
    differences: list[SnapshotDifference] = []
    for difference in _differences(expected, found):
        differences.append(difference)
        if len(differences) == DIFFERENCES_MAX:
            break
    return SnapshotCheck(header, tuple(differences))


def _differences(expected: TableFold, found: TableFold) -> Iterator[SnapshotDifference]:
    yield from _fold_differences(expected.fold, found.fold)
    for kind, table in expected.fold.subjects.items():
        yield from _entries(kind, table, found.fold.subjects[kind])
    for row_kind in ROW_TYPES:
        rows = expected.rows_of(row_kind), found.rows_of(row_kind)
        yield from _entries(f"{row_kind} row", *rows)


def _fold_differences(expected: Fold, found: Fold) -> Iterator[SnapshotDifference]:
    fields: tuple[tuple[str, object, object], ...] = (
        ("root", expected.merkle.root().hex(), found.merkle.root().hex()),
        ("merkle_size", expected.merkle.size, found.merkle.size),
        ("last_accepted", expected.last_accepted, found.last_accepted),
        ("created_at", expected.created_at, found.created_at),
        ("lifecycle_version", expected.lifecycle.version, found.lifecycle.version),
        ("window", expected.window(), found.window()),
    )
    for name, want, have in fields:
        if want != have:
            yield SnapshotDifference(name, "", f"{want!r:.200}", f"{have!r:.200}")


def _entries(
    what: str, expected: Mapping[str, object], found: Mapping[str, object]
) -> Iterator[SnapshotDifference]:
    for name, want in expected.items():
        have = found.get(name)
        if have != want:
            yield SnapshotDifference(what, name, repr(want), "" if have is None else repr(have))
    for name, have in found.items():
        if name not in expected:
            yield SnapshotDifference(what, name, "", repr(have))
