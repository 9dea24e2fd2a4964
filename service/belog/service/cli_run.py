"""Commands that run for a while: demo, worker, sink, replay, verify, import dag."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from belog.processors.factory import open_tables as reader_of
from belog.processors.log_lines import Seldom
from belog.processors.periodic import SNAPSHOT_EVERY_EVENTS, LoadTables, SnapshotBeginning
from belog.processors.replay import WHOLE_LOG, Progress, replay_into
from belog.processors.tables import TableReader
from belog.processors.verify import verify_tables
from belog.processors.verify_snapshot import verify_snapshot
from belog.processors.worker import (
    SESSION_TIMEOUT_S,
    WorkerSettings,
    WorkerSnapshots,
    run_worker,
)
from belog.producers.graph import GraphReport
from belog.schemas.errors import Diverged, InvalidInput
from belog.service import options
from belog.service.cli_dry_run import dry_run, lifecycle_of
from belog.service.cli_log import import_app
from belog.service.dag_run import PROCESSES_MAX, Answered, publish_graphs
from belog.service.demo import free_folder, run_demo
from belog.service.opening import check_same_log, existing_log
from belog.service.placing import LogCommand
from belog.service.rendering import Json, rfc3339
from belog.service.snapshots import (
    announce_snapshot,
    base_of,
    identity_of,
    snapshot_named,
    tables_from,
)
from belog.service.terminal import note, progress_bar, put, put_fields, put_json
from belog.service.watched_commands import (
    METRICS_HOST,
    MetricsHostOption,
    MetricsPortOption,
    log_as_configured,
    watched_sink,
    watched_worker,
)
from belog.sink.replicate import Progress as SinkProgress
from belog.sink.run import run_sink
from belog.sink.verify import verify_replica
from belog.storage import EventLog
from belog.storage.snapshots import SNAPSHOTS_KEPT, SnapshotStore
from belog.storage.verify import verify_log

__all__ = ["demo", "replay", "sink", "verify", "worker"]

KeptOption = Annotated[
    int,
    typer.Option(
        "--keep",
        envvar="BELOG__SNAPSHOTS__KEPT",
        min=1,
        help="Remove older snapshots than so many.",
    ),
]
VerifiedTables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="URI",
        callback=options.connected,
        help="Compare these tables with the log.",
    ),
]
VerifiedReplica = Annotated[
    str | None,
    typer.Option(
        "--replica", metavar="URI", callback=options.connected, help="Compare this replica too."
    ),
]


@contextmanager
def stop_on_signal() -> Generator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        note("stopping")
        stop.set()

    before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="A new folder for its files.")
    ] = None,
) -> None:
    """Show it all in half a minute: real graphs, a refused event, a second instance, a proof.

    Example: belog demo
    """
    run_demo(free_folder(folder), put)


def sink(
    context: typer.Context,
    origin: options.FromOption,
    target: options.ToOption,
    *,
    once: Annotated[bool, typer.Option("--once", help="Replicate what is there, and end.")] = False,
    dead_letter: Annotated[
        Path | None,
        typer.Option("--dead-letter", metavar="FILE", help="Where refused events are kept."),
    ] = None,
    snapshots: options.SnapshotsOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = METRICS_HOST,
) -> None:
    """Replicate a log to another instance, following it until stopped.

    It resumes from what the replica holds, however it ended before.

    Example: belog sink --from kafka://a:9092/builds --to kafka://b:9092/builds-of-a
    """
    log_as_configured(context)
    with (
        stop_on_signal() as stop,
        progress_bar("replicating", None) as show,
        watched_sink(origin, target, metrics_port, metrics_host) as watch,
    ):

        def on_progress(progress: SinkProgress) -> None:
            watch.on_progress(progress)
            show(progress.position, progress.origin_next_position)

        progress = run_sink(
            origin,
            target,
            dead_letter=dead_letter,
            snapshots=snapshots,
            stop=stop,
            follow=not once,
            on_progress=on_progress,
            on_start=watch.on_start,
            on_error=watch.on_error,
        )
    note(f"{progress.written} events written; the replica's last index is {progress.target_index}")


def worker(
    context: typer.Context,
    log: options.LogOption,
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            envvar="BELOG__TABLES__URI",
            metavar="URI",
            callback=options.connected,
            help="redis://host:port/db",
        ),
    ],
    *,
    session_timeout_s: Annotated[
        float,
        typer.Option(
            "--session-timeout-s",
            min=1,
            max=60,
            help="After so long without a sign of life another worker takes over.",
        ),
    ] = SESSION_TIMEOUT_S,
    snapshots: options.SnapshotsOption = None,
    snapshot_every: Annotated[
        int,
        typer.Option(
            "--snapshot-every",
            envvar="BELOG__SNAPSHOTS__EVERY_EVENTS",
            metavar="EVENTS",
            min=0,
            help="Take a snapshot after so many events; 0: take none.",
        ),
    ] = SNAPSHOT_EVERY_EVENTS,
    keep: KeptOption = SNAPSHOTS_KEPT,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = METRICS_HOST,
) -> None:
    """Keep the tables in Redis up with a log, until stopped.

    Start several: one works, the others stand by. With --snapshots it starts from the newest one,
    and takes further ones.

    Example: belog worker --log kafka://localhost:9092/builds --tables redis://localhost:6379/0
    """
    log_as_configured(context, (Seldom(),))
    with (
        progress_bar("catching up", None) as show,
        watched_worker(tables, snapshots, metrics_port, metrics_host) as observer,
    ):
        run_worker(
            log,
            tables,
            WorkerSettings(session_timeout_s=session_timeout_s),
            snapshots=None
            if snapshots is None
            else WorkerSnapshots(
                store=SnapshotStore(snapshots, keep=keep),
                every_events=snapshot_every or None,
                announce=announce_snapshot,
            ),
            on_progress=lambda p: show(p.position, p.end_position),
            observer=observer,
        )


def replay(
    log: options.LogOption,
    tables: options.TablesOption = "memory:",
    *,
    snapshots: options.SnapshotsOption = None,
    until: options.UntilOption = None,
    until_occurred: options.UntilOccurredOption = None,
    no_writing: Annotated[
        bool,
        typer.Option("--dry-run", help="Only list what --lifecycle would judge differently."),
    ] = False,
    lifecycle: Annotated[
        Path | None,
        typer.Option("--lifecycle", metavar="FILE", help="A changed lifecycle, .toml or .json."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make the tables anew from the log; with memory: only count what would be in them.

    With --dry-run and a changed lifecycle: exits with 1 if a record would be judged differently.

    `belog partition list` and the other lists take the same bounds and show the rows.

    Example: belog replay --log sqlite:///demo.db --until 2026-01-31T00:00:00Z
    """
    bound = options.bound_of(until, until_occurred)
    if lifecycle is not None and not no_writing:
        msg = "a log is judged by its own lifecycle; another one can only be tried"
        raise InvalidInput(msg, hint="add --dry-run")
    changed = lifecycle_of(lifecycle) if no_writing else None
    with existing_log(log) as opened, progress_bar("replaying", None) as show:

        def on_progress(progress: Progress) -> None:
            show(progress.position, progress.end_position)

        if changed is not None:
            dry_run(opened, changed, bound, on_progress, as_json=as_json)
            return
        if tables == "memory:":
            with tables_from(opened, snapshots, until=bound) as here:
                replay_into(opened, here, until=bound, on_progress=on_progress)
                _put_counts(here, as_json=as_json)
            return
        if bound != WHOLE_LOG:
            msg = "tables that a worker keeps cannot stay behind the log"
            raise InvalidInput(msg, hint="use --tables memory: with a bound")
        rebuild_tables(opened, tables, on_progress, snapshots=snapshots)
        with reader_of(tables) as reader:
            _put_counts(reader, as_json=as_json)


def rebuild_tables(
    log: EventLog,
    tables: str,
    on_progress: Callable[[Progress], None],
    *,
    snapshots: str | None = None,
) -> None:
    """Throw tables in Redis away and make them anew; readers see the old ones until then."""
    from belog.processors.redis_follower import follower_from_uri  # noqa: PLC0415 - an extra

    identity = identity_of(log)

    def beginning(load: LoadTables) -> SnapshotBeginning:
        store = SnapshotStore(snapshots or "")
        return SnapshotBeginning(log, identity, store, load, every_events=None)

    follower = follower_from_uri(
        log, tables, identity, beginning=None if snapshots is None else beginning
    )
    try:
        follower.rebuild()
        follower.catch_up(on_progress=on_progress)
    finally:
        follower.close()


def _put_counts(tables: TableReader, *, as_json: bool) -> None:
    answer = tables.counts()
    if as_json:
        put_json({"applied": answer.applied, "counts": msgspec.to_builtins(answer.value)})
        return
    put(f"as of index {answer.applied}")
    for kind, states in answer.value.items():
        for state, count in sorted(states.items()):
            put(f"{kind:<10} {state:<20} {count}")


def verify(
    log: options.LogOption,
    tables: VerifiedTables = None,
    replica: VerifiedReplica = None,
    *,
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="FILE", help="Compare this too, or the `newest`."),
    ] = None,
    snapshots: options.SnapshotsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Fold the log and compare: verdicts, tables, replica, snapshot; exit with 1 if not equal.

    Example: belog verify --log sqlite:///demo.db --replica sqlite:///replica.db
    --snapshots snapshots --snapshot newest
    """
    with existing_log(log, snapshots) as opened:
        fold = base_of(opened, snapshots).fold
        check = verify_log(opened, fold)
        shown: Json = {
            "log": opened.name,
            "events": check.events,
            "void": check.void,
            "duplicates": check.duplicates,
            "tombstones": check.tombstones,
            "gaps": check.gaps,
            "next_idx": fold.next_idx,
            "root": fold.merkle.root().hex(),
        }
        if check.first_gap is not None and opened.capabilities.conditional_append:
            note(
                f"there is no record at index {check.first_gap}: right in a replica, and in a log "
                "that was migrated from Kafka; damage otherwise"
            )
        differences = [f"log: {flaw}" for flaw in check.flaws]
        if tables is not None:
            with reader_of(tables) as reader:
                check_same_log(reader, opened)
                found = verify_tables(opened, reader, start=partial(base_of, opened, snapshots))
            differences += [f"tables: {difference}" for difference in found]
            shown["tables"] = reader.name
        if replica is not None:
            shown["replica"] = _verify_replica(opened, replica, snapshots, differences)
        if snapshot is not None:
            shown["snapshot"] = _verify_snapshot(opened, snapshot, snapshots, differences)
    shown["differences"] = differences
    if as_json:
        put_json(shown)
    else:
        put_fields({name: value for name, value in shown.items() if name != "differences"})
        for difference in differences:
            put(f"DIFFERENT {difference}")
        put("all equal" if not differences else f"{len(differences)} differences")
    if differences:
        raise typer.Exit(1)


def _verify_replica(
    origin: EventLog, uri: str, snapshots: str | None, differences: list[str]
) -> Json:
    with existing_log(uri) as replica:
        store = None if snapshots is None else SnapshotStore(snapshots)
        check = verify_replica(origin, replica, store)
        try:
            check.require_equal(replica.name)
        except Diverged as error:
            differences.append(f"replica: {error}")
        return {
            "log": replica.name,
            "next_idx": check.next_idx,
            "root": check.replica_root.hex(),
            "origin_root": check.origin_root.hex(),
        }


def _verify_snapshot(
    log: EventLog, wanted: str, snapshots: str | None, differences: list[str]
) -> Json:
    identity = identity_of(log)
    store, file = snapshot_named(identity, wanted, snapshots)
    check = verify_snapshot(log, identity, store, file, start=base_of(log, snapshots))
    for found in check.differences:
        name = f"{found.what} {found.name}".rstrip()
        differences.append(f"snapshot: {name} is {found.found!r}, not {found.expected!r}")
    return {
        "file": str(file.path),
        "next_idx": check.header.next_idx,
        "events": check.header.merkle_size,
        "root": check.header.root.hex(),
        "rows": check.header.row_count,
        "taken_at": rfc3339(check.header.taken_at),
    }


@import_app.command("dag", cls=LogCommand)
def import_dag(
    paths: options.DagFiles,
    log: options.LogOption,
    *,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=PROCESSES_MAX, help="Publish with so many.")
    ] = 1,
    work_ms: Annotated[
        int, typer.Option("--work-ms", min=0, help="How long each step is made to take.")
    ] = 0,
    instance: options.InstanceOption = "local",
    as_json: options.JsonOption = False,
) -> None:
    """Publish one build of every graph in DAG files, with what it asks of the others.

    Steps that are available already are not made again.

    Example: belog import dag dag/*.yml --processes 4 --log sqlite:///demo.db
    """
    answers = 0

    with progress_bar("steps asked for", None) as show:

        def on_message(message: Answered | GraphReport) -> None:
            nonlocal answers
            if isinstance(message, Answered):
                answers += 1
                show(answers, None)
            elif as_json:
                put_json(cast("Json", msgspec.to_builtins(message)))
            else:
                put(
                    f"{message.graph}: {message.built} built, {message.available} were there, "
                    f"{message.delegated} left to others, {message.observed} sources found"
                )

        publish_graphs(
            log,
            paths,
            process_count=processes,
            work_s=work_ms / 1000,
            instance=instance,
            on_message=on_message,
        )
