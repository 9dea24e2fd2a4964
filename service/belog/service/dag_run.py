"""Publishing the graphs of DAG files, several processes at once."""

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Protocol, cast

from msgspec import Struct

from belog.producers import Producer
from belog.producers.coordination import Requested
from belog.producers.dag import Graph, build_order, read_dag_files
from belog.producers.graph import GraphReport, run_graph
from belog.producers.ids import random_uuid
from belog.schemas.errors import BelogError, LimitExceeded, Unavailable
from belog.service.opening import writable_log

__all__ = ["PROCESSES_MAX", "Answered", "publish_graphs"]

PROCESSES_MAX: Final = 64
"""Processes of one import: each holds a fold of the log in memory."""


class Answered(Struct, frozen=True):
    """A graph asked for a step, and what it was told."""

    graph: str
    build_request_id: str
    answer: Requested


class _Ended(Struct, frozen=True):
    process: int
    error: str | None


class _Share(Struct, frozen=True):
    """What one process publishes."""

    number: int
    log_uri: str
    paths: tuple[str, ...]
    names: tuple[str, ...]
    work_s: float


_Message = Answered | GraphReport | _Ended


class _Outbox(Protocol):
    def send(self, message: _Message) -> None: ...


def publish_graphs(
    log_uri: str,
    paths: Sequence[Path],
    *,
    process_count: int = 1,
    work_s: float = 0.0,
    instance: str = "local",
    on_message: Callable[[Answered | GraphReport], None],
) -> list[GraphReport]:
    """Publish one build of each graph; blocks until all have ended.

    The graphs are dealt out to processes, each with a producer of its own. Steps of one graph that
    another depends on are made once, by whoever asks first.

    Args:
        log_uri: Where to publish; made where its backend makes logs.
        paths: The DAG files; the graphs are named after them.
        process_count: How many processes publish at once, 1 to `PROCESSES_MAX`.
        work_s: How long the work on each step is made to take, seconds.
        instance: Name for a log that is made.
        on_message: Called with each answer and each report as they come in.

    Raises:
        InvalidInput: A file that cannot be read, or steps that depend on each other in a circle.
        Unavailable: A process ended before its graphs did, or could not go on; the others finish.
    """
    if not 1 <= process_count <= PROCESSES_MAX:
        raise LimitExceeded(
            "processes", limit="PROCESSES_MAX", limit_value=PROCESSES_MAX, value=process_count
        )
    graphs = read_dag_files(paths)
    names = [graph.name for graph in graphs]
    # Refuses circles before anything is made or started.
    steps = {step: below for graph in graphs for step, below in graph.steps.items()}
    build_order(steps, steps)
    with writable_log(log_uri, instance):
        pass  # so that not all of them try to create it
    shares = [
        _Share(number, log_uri, tuple(map(str, paths)), tuple(names[number::process_count]), work_s)
        for number in range(min(process_count, max(len(names), 1)))
    ]
    reports: list[GraphReport] = []
    errors: list[str] = []
    for message in _messages(shares):
        if isinstance(message, _Ended):
            if message.error is not None:
                errors.append(f"process {message.process}: {message.error}")
            continue
        if isinstance(message, GraphReport):
            reports.append(message)
        on_message(message)
    if errors:
        msg = f"{len(reports)} of {len(names)} graphs were published: {'; '.join(sorted(errors))}"
        raise Unavailable(msg, hint="publish again: what is available is not made again")
    return reports


def _messages(shares: Sequence[_Share]) -> Iterator[_Message]:
    """Run a process for each share; yield what they say, and of each that it ended."""
    spawn = multiprocessing.get_context("spawn")
    running: dict[Connection, tuple[BaseProcess, int]] = {}
    for share in shares:
        # A pipe each: a process that is killed while it writes holds up nobody else.
        inbox, outbox = spawn.Pipe(duplex=False)
        name = f"belog graphs {share.number}"
        process: BaseProcess = spawn.Process(target=_publish, args=(share, outbox), name=name)
        process.start()
        outbox.close()
        running[inbox] = (process, share.number)
    while running:
        for ready in wait(list(running)):
            inbox = cast("Connection", ready)
            process, number = running[inbox]
            try:
                message: _Message = inbox.recv()
            except EOFError:
                process.join()
                message = _Ended(number, f"it ended with code {process.exitcode}")
            if isinstance(message, _Ended):
                process.join()
                inbox.close()
                del running[inbox]
            yield message


def _publish(share: _Share, outbox: _Outbox) -> None:
    """Publish some of the graphs, as a process of its own."""
    error_text: str | None = None
    try:
        _publish_share(share, outbox)
    except BelogError as error:
        error_text = str(error)
    except KeyboardInterrupt:
        error_text = "interrupted"
    except BrokenPipeError:
        return  # the parent is gone, and with it whoever would hear of the end
    with contextlib.suppress(BrokenPipeError):
        outbox.send(_Ended(share.number, error_text))


def _publish_share(share: _Share, outbox: _Outbox) -> None:
    graphs = read_dag_files(map(Path, share.paths))
    makers: dict[str, tuple[str, tuple[str, ...]]] = {}
    for graph in graphs:
        for step, below in graph.steps.items():
            makers.setdefault(step, (graph.name, below))
    pause = threading.Event()

    def work(_step: str, _inputs: Sequence[str]) -> None:
        if share.work_s:
            pause.wait(share.work_s)

    with writable_log(share.log_uri, "local") as log:
        for graph in graphs:
            if graph.name not in share.names:
                continue
            build_id = f"{graph.name}-{random_uuid().hex()[:12]}"

            def answered(answer: Requested, graph: Graph = graph, build_id: str = build_id) -> None:
                outbox.send(Answered(graph.name, build_id, answer))

            with Producer(log, actor=graph.name) as producer:
                report = run_graph(
                    producer,
                    graph,
                    makers,
                    build_request_id=build_id,
                    work=work,
                    on_answer=answered,
                )
            outbox.send(report)
