"""The process entry point of a sink: two URIs in, replication until it is told to stop."""

import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from belog.schemas.errors import BelogError, InvalidUri
from belog.sink.dead_letters import DeadLetterFile
from belog.sink.replicate import Progress, Replication
from belog.storage.factory import open_log
from belog.storage.opening import await_log, open_existing
from belog.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from belog.sink import changes
    from belog.sink.changes import ChangeProgress

__all__ = ["run_changes", "run_sink"]


class _ChangesModule(Protocol):
    ChangeFeed: "type[changes.ChangeFeed]"
    ChangeProgress: "type[changes.ChangeProgress]"


def run_sink(
    origin_uri: str,
    target_uri: str,
    *,
    dead_letter: Path | str | None = None,
    snapshots: Path | str | None = None,
    stop: threading.Event,
    on_progress: Callable[[Progress], None] | None = None,
    on_start: Callable[[Replication], None] | None = None,
    on_error: Callable[[BelogError], None] | None = None,
    follow: bool = True,
) -> Progress:
    """Replicate one log to another until `stop` is set. Blocks.

    The target is made where it is not there yet, but for a Kafka topic, whose replication factor is
    somebody's decision: that is refused with the command that makes it.

    Args:
        origin_uri: The log to replicate, primary or a replica; waited for where it follows.
        target_uri: The replica.
        dead_letter: File for events that the target refuses; None to stop at the first.
        snapshots: Folder of the origin's snapshots, to begin from once it was vacuumed.
        stop: Set it from a signal handler or another thread.
        on_progress: Called after each read and each write.
        on_start: Called with the replication before it runs, whose `status` any thread may ask.
        on_error: Called with each error that is waited out.
        follow: False to return when everything that the origin holds now is replicated.

    Raises:
        InvalidUri: A URI is malformed or not supported.
        NotFound: The origin, or the Kafka topic of the target, is not there.
        BelogError: See `Replication.run_once`.
    """
    letters = DeadLetterFile(dead_letter) if dead_letter is not None else None
    with open_log(origin_uri) as origin, open_log(target_uri) as target:
        sink = Replication(
            origin,
            target,
            dead_letters=letters,
            snapshots=None if snapshots is None else SnapshotStore(snapshots),
            on_progress=on_progress,
            on_error=on_error,
        )
        if on_start is not None:
            on_start(sink)
        if follow:
            if await_log(origin, stop) is None:
                return Progress()
            sink.run(stop)
        return sink.run_once(stop)


def run_changes(
    origin_uri: str,
    target_uri: str,
    *,
    snapshots: Path | str | None = None,
    stop: threading.Event,
    follow: bool = True,
    on_error: Callable[[BelogError], None] | None = None,
) -> "ChangeProgress":
    """Publish the changes of a log's tables until `stop` is set. Blocks.

    Args:
        origin_uri: The log, primary or a replica; waited for where it is followed.
        target_uri: Names the topics; see `belog.sink.changes.topic_uris`.
        snapshots: Folder of the log's snapshots, to begin from once it was vacuumed.
        stop: Set it from a signal handler or another thread.
        follow: False to return when everything that the log holds now is published.
        on_error: Called with each error that is waited out.

    Raises:
        InvalidUri: A URI is malformed or not supported, or the package for Kafka is missing.
        NotFound: The log or a topic is not there.
        BelogError: See `ChangeFeed.run_once`.
    """
    try:
        module = cast("_ChangesModule", import_module("belog.sink.changes"))
    except ImportError as error:
        msg = f"changes need a package that is not installed ({error.name})"
        raise InvalidUri(msg, hint="pip install 'belog[kafka]'") from error
    store = None if snapshots is None else SnapshotStore(snapshots)
    with open_log(origin_uri) as log:
        if not follow:
            open_existing(log)
        elif await_log(log, stop) is None:
            return module.ChangeProgress(0, 0)
        feed = module.ChangeFeed(log, target_uri, snapshots=store, on_error=on_error)
        try:
            return feed.run(stop) if follow else feed.run_once(stop)
        finally:
            feed.close()
