"""Taking snapshots and starting from them, as commands and workers want it."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from belog.processors.memory_tables import MemoryTables
from belog.processors.replay import WHOLE_LOG, OnProgress, Until, replay_into
from belog.processors.snapshots import (
    TakenSnapshot,
    image_of_tables,
    restore_tables,
    save_tables,
)
from belog.processors.table_fold import TableFold
from belog.producers import Producer
from belog.schemas.errors import Gone, InvalidInput, NotFound
from belog.schemas.events import SnapshotTaken
from belog.schemas.fold import Fold
from belog.storage import EventLog, LogIdentity
from belog.storage.creation import CREATOR, now_us
from belog.storage.snapshots import SnapshotFile, SnapshotStore, restore_fold

__all__ = [
    "announce_snapshot",
    "base_of",
    "fold_from",
    "folder_of",
    "identity_of",
    "snapshot_named",
    "snapshot_taken",
    "tables_from",
    "take_snapshot",
]


def fold_from(log: EventLog, snapshots: str | None) -> Fold | None:
    """Return the fold to start a producer from, None to read the log from its beginning.

    Args:
        log: Initialized.
        snapshots: Where snapshots are kept, None for nowhere.
    """
    if snapshots is None:
        return None
    found = restore_fold(log, identity_of(log), SnapshotStore(snapshots), keeps_root=False)
    return None if found is None else found[1]


def tables_from(
    log: EventLog, snapshots: str | None, *, name: str = "memory:", until: Until = WHOLE_LOG
) -> MemoryTables:
    """Return tables of this process that are as far as the newest snapshot, or empty ones.

    Args:
        log: Initialized.
        snapshots: Where snapshots are kept, None for nowhere.
        name: What errors show.
        until: Pass by snapshots that hold more. None says when its events occurred, so with a
            bound on that all are passed by.
    """
    start = None
    if snapshots is not None and until.occurred_us is None:
        found = restore_tables(
            log,
            identity_of(log),
            SnapshotStore(snapshots),
            keeps_root=False,
            next_idx_max=until.index,
            created_us_max=until.created_us,
        )
        start = None if found is None else found[1]
    return MemoryTables(start, name=name)


def identity_of(log: EventLog) -> LogIdentity:
    """Return which log is there.

    Raises:
        NotFound: There is none.
    """
    identity = log.identify()
    if identity is None:
        msg = "there is no log"
        raise NotFound(msg, log=log.name)
    return identity


def base_of(log: EventLog, snapshots: str | None) -> TableFold:
    """Return where a check of a log begins: with nothing, or behind the vacuum horizon.

    Raises:
        Gone: The log was vacuumed, and no snapshot can be used that holds what was removed.
    """
    horizon = log.horizon()
    if horizon is None:
        return TableFold()
    found = None
    if snapshots is not None:
        store = SnapshotStore(snapshots)
        found = restore_tables(log, identity_of(log), store, oldest_from=horizon.index)
    if found is None:
        msg = f"events before index {horizon.index} were vacuumed"
        raise Gone(msg, horizon=horizon.index, snapshot=horizon.snapshot, log=log.name)
    return found[1]


def snapshot_named(
    identity: LogIdentity, wanted: str, snapshots: str | None
) -> tuple[SnapshotStore, SnapshotFile]:
    """Return the snapshot that a command line means: a file, or the `newest` of the log.

    Raises:
        InvalidInput: No folder is named to find the newest in.
        NotFound: There is no such snapshot.
    """
    if wanted != "newest":
        path = Path(wanted)
        store = SnapshotStore(path.parent)
        found = [file for file in store.files() if file.path.name == path.name]
        if not found:
            msg = f"there is no snapshot {wanted}"
            raise NotFound(msg, hint="files are named LOG_ID-p-INDEX.avro")
        return store, found[0]
    if snapshots is None:
        msg = "the newest snapshot is wanted, and no folder of snapshots is named"
        raise InvalidInput(msg, hint="give --snapshots DIR")
    store = SnapshotStore(snapshots)
    files = store.files(identity.log_id, is_replica=identity.is_replica)
    if not files:
        msg = f"there is no snapshot of log {identity.log_id} in {store.name}"
        raise NotFound(msg, hint="take one: belog snapshot")
    return store, files[0]


def take_snapshot(
    log: EventLog,
    store: SnapshotStore,
    *,
    actor: str = CREATOR,
    on_progress: OnProgress | None = None,
) -> TakenSnapshot:
    """Take a snapshot of all that a log holds now, starting from the newest one that is there.

    Durable on return. Then the log is told (`v1.system.snapshot_taken`), unless it is a replica:
    its events are its origin's.

    Args:
        log: Initialized.
        store: Where to keep it.
        actor: Who takes it.
        on_progress: Called after each batch of records.

    Raises:
        NotFound: The log holds nothing yet.
        Unavailable: It cannot be written; or it was, and the log cannot be reached to be told.
    """
    found = restore_tables(log, identity_of(log), store)
    tables = TableFold() if found is None else found[1]
    replay_into(log, MemoryTables(tables), until=WHOLE_LOG, on_progress=on_progress)
    if tables.fold.log_id is None:
        msg = "the log holds no event yet"
        raise NotFound(msg, log=log.name, hint="start its sink")
    taken = save_tables(store, image_of_tables(tables), taken_at=now_us())
    if not taken.header.is_replica:
        announce_snapshot(log, taken, actor=actor, fold=tables.fold)
    return taken


def announce_snapshot(
    log: EventLog, taken: TakenSnapshot, *, actor: str = CREATOR, fold: Fold | None = None
) -> int:
    """Tell a primary log of a snapshot that is on disk; return the event's index.

    Args:
        log: Initialized.
        taken: The snapshot.
        actor: Who took it.
        fold: A fold of the log, the producer's own from then on; read from the snapshot when None.
    """
    if fold is None:
        store = SnapshotStore(taken.file.path.parent)
        with store.open(taken.file) as reader:
            fold = reader.fold(keeps_root=False)
    with Producer(log, actor=actor, fold=fold) as producer:
        return producer.append(snapshot_taken(taken), str(taken.file.log_id)).index


def folder_of(location: str) -> str | None:
    """Return the folder of a snapshot that a log names, None where it is not on this machine."""
    parts = urlsplit(location)
    path = Path(unquote(parts.path))
    return str(path.parent) if parts.scheme == "file" and path.is_file() else None


def snapshot_taken(taken: TakenSnapshot) -> SnapshotTaken:
    """Return the event that tells a log of a snapshot."""
    return SnapshotTaken(
        index=taken.header.next_idx,
        location=taken.file.path.resolve().as_uri(),
        content_digest=taken.digest.hex(),
    )
