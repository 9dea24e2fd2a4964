"""The demonstration: real graphs, two instances, nothing but the installed package."""

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final

from belog.processors.memory_tables import MemoryTables
from belog.processors.verify import verify_tables
from belog.producers import Producer
from belog.producers.coordination import Available, Building, Delegated
from belog.producers.graph import GraphReport
from belog.schemas.errors import Conflict, Diverged, InvalidInput
from belog.schemas.events import PartitionAvailable
from belog.service.dag_run import Answered, publish_graphs
from belog.service.opening import existing_log
from belog.sink.run import run_sink
from belog.sink.verify import verify_replica

__all__ = ["free_folder", "run_demo"]

WORK_S: Final = 0.05
"""How long each step is made to take, seconds: long enough for graphs to meet at the same step."""

FOLDERS_MAX: Final = 1_000
"""Folders that earlier demonstrations may have left."""

SHARED_STEP: Final = "data://garden/regions/2023-01-01/regions"
"""A step that most of the graphs depend on."""

EXAMPLES_MAX: Final = 2
"""Answers of one sort that are shown before the rest is only counted."""

Say = Callable[[str], None]


def free_folder(wanted: Path | None) -> Path:
    """Return a folder that is not there yet: the one wanted, or `belog-demo` with a number.

    Raises:
        InvalidInput: The one wanted is there already.
    """
    if wanted is not None:
        if wanted.exists():
            msg = f"{wanted} is there already"
            raise InvalidInput(msg, hint="name a new folder, or leave --dir out")
        return wanted
    for number in range(1, FOLDERS_MAX):
        folder = Path("belog-demo" if number == 1 else f"belog-demo-{number}")
        if not folder.exists():
            return folder
    msg = f"{FOLDERS_MAX} folders of earlier demonstrations are here"
    raise InvalidInput(msg, hint="remove some, or give --dir")


def run_demo(folder: Path, say: Say) -> None:
    """Run the demonstration in a new folder. Takes some ten seconds.

    Raises:
        BelogError: Something did not hold; the files are left to be looked at.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        msg = f"the folder {folder} cannot be made: {error.strerror}"
        raise InvalidInput(msg, hint="name another with --dir") from error
    log_uri = f"sqlite:///{folder / 'builds.db'}"
    replica_uri = f"sqlite:///{folder / 'replica.db'}"
    with resources.as_file(resources.files("belog.service") / "demo_dag") as dags:
        paths = sorted(dags.glob("*.yml"))
        _publish(log_uri, paths, say)
    _refuse(log_uri, say)
    _replicate(log_uri, replica_uri, say)
    _verify(log_uri, replica_uri, say)
    _next_steps(log_uri, replica_uri, folder, say)


def _publish(log_uri: str, paths: list[Path], say: Say) -> None:
    say(f"1. {len(paths)} graphs of a real data catalogue publish at once, a process each")
    shown: Counter[type] = Counter()
    counted: Counter[type] = Counter()

    def on_message(message: Answered | GraphReport) -> None:
        if isinstance(message, GraphReport):
            say(
                f"   {message.graph}: {message.built} steps built, {message.available} were there, "
                f"{message.delegated} left to others, {message.observed} sources found"
            )
            return
        answer = message.answer
        counted[type(answer)] += 1
        is_news = not isinstance(answer, Building) or not shown[Building]
        if is_news and shown[type(answer)] < EXAMPLES_MAX:
            shown[type(answer)] += 1
            say(f"   {message.graph} asks for {answer.ref}\n      → {_told(answer)}")

    publish_graphs(log_uri, paths, process_count=len(paths), work_s=WORK_S, on_message=on_message)
    say(
        f"   in all {counted[Building]} answered building, {counted[Available]} available, "
        f"{counted[Delegated]} delegated: no step was built twice\n"
    )


def _told(answer: Available | Delegated | Building) -> str:
    if isinstance(answer, Available):
        return f"available since index {answer.index}"
    if isinstance(answer, Delegated):
        return f"delegated: build {answer.build_request_id} is making it, wait for that"
    return f"building: yours, as build {answer.build_request_id}"


def _refuse(log_uri: str, say: Say) -> None:
    say(
        "2. An illegal event is refused: yesterday's build comes back and wants to have made a step"
    )
    with existing_log(log_uri) as log, Producer(log, actor="zombie") as producer:
        before = log.next_position()
        try:
            producer.append(PartitionAvailable(build_request_id="yesterday"), SHARED_STEP)
        except Conflict as refused:
            say(f"   {type(refused).__name__}: {refused}")
        else:
            msg = "the illegal event was accepted"
            raise Diverged(msg, log=log.name)
        if log.next_position() != before:
            msg = "the refused event left a trace"
            raise Diverged(msg, log=log.name)
        say(f"   nothing was written: the log still ends at {before}\n")


def _replicate(log_uri: str, replica_uri: str, say: Say) -> None:
    say("3. A second instance replicates the log")
    run_sink(log_uri, replica_uri, stop=threading.Event(), follow=False)
    with existing_log(log_uri) as origin, existing_log(replica_uri) as replica:
        here, there = origin.end(), replica.end()
    say(f"   origin   ends at {here.next_idx}, root {here.root.hex()[:16]}…")
    say(f"   replica  ends at {there.next_idx}, root {there.root.hex()[:16]}…\n")


def _verify(log_uri: str, replica_uri: str, say: Say) -> None:
    say("4. Verified: every verdict, every row of the tables, the replica against its origin")
    with existing_log(log_uri) as origin, existing_log(replica_uri) as replica:
        for log, name in ((origin, "origin"), (replica, "replica")):
            with MemoryTables() as tables:
                tables.catch_up(log)
                differences = verify_tables(log, tables)
                if differences:
                    msg = f"the tables of the {name} differ from its log: {differences[0]}"
                    raise Diverged(msg, log=log.name)
                counts = tables.counts().value
            statistics = log.statistics()
            say(
                f"   {name}: {statistics.events} events, {statistics.void} void; "
                f"{counts['partition'].get('available', 0)} partitions available"
            )
        verify_replica(origin, replica).require_equal(replica.name)
    say("   equal Merkle roots at equal index\n")


def _next_steps(log_uri: str, replica_uri: str, folder: Path, say: Say) -> None:
    say(f"The files are in {folder}/. Look around:")
    for command in next_commands(log_uri, replica_uri):
        say(f"   {command}")


def next_commands(log_uri: str, replica_uri: str) -> list[str]:
    """Return commands that show something in what the demonstration left."""
    # Where the program is not on the path, as after `make demo`, it is named as it was called.
    program = "belog" if shutil.which("belog") else sys.argv[0]
    return [
        f"{program} partition list --log {log_uri} --limit 10",
        f"{program} partition show {SHARED_STEP} --log {log_uri} --events",
        f"{program} build list --log {log_uri}",
        f"{program} events --log {log_uri} --pattern 'data://garden/**' --limit 10",
        f"{program} verify --log {log_uri} --replica {replica_uri}",
        f"{program} append v1.partition.stale {SHARED_STEP} --log {log_uri}",
    ]
