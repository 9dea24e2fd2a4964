"""A graph process of the chaos workload: builds, races, repeats, dies, comes back with old state.

`python -m tests.chaos.graph_process CONFIG` with the fields of `Config` as JSON. It works until its
standard input ends, then repeats what was left unknown, and ends with 0. Before it starts it reads
the journals of its earlier lives: what these left unanswered is repeated with the same event ids.
Ends with `STOPPED` where an error says that no retry helps.
"""

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import structs

from belog.producers import Pending, Producer
from belog.producers.coordination import Building, request_partition
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict, OutcomeUnknown, Unsupported
from belog.schemas.events import (
    BuildAnalysisCompleted,
    BuildCancelled,
    BuildCompleted,
    BuildExecuting,
    BuildFailed,
    BuildPlanning,
    BuildReceived,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRunning,
    JobScheduled,
    JobSkipped,
    Manifest,
    ManifestInput,
    PartitionAvailable,
    PartitionBuilding,
    PartitionDelegated,
    PartitionFailed,
    PartitionObserved,
    PartitionRequested,
    PartitionScheduled,
    Payload,
    new_event,
)
from belog.schemas.fold import SubjectState
from belog.schemas.lifecycle import SubjectKind
from belog.storage import EventLog, Receipt, open_log
from tests.chaos.history import Journal, load
from tests.chaos.http_door import ACTOR, append_over_http

__all__ = ["STOPPED", "Config"]

STOPPED = 3
"""Exit code of a process that met an error which no retry helps."""
WAIT_S = 4.0
"""Longest wait of a producer for room or for the log, seconds: many waits fit into a run."""
PAUSE_S = 0.25
"""Pause after an error that a retry may help, seconds."""
RESOLVE_S = 45.0
"""How long what is unknown is repeated at the end, seconds; servers are back by then."""
PAST_EVENTS = 60
ZOMBIES_MAX = 8
TWIN_EPOCH_S = 2
KINDS: tuple[SubjectKind, ...] = ("partition", "partition", "partition", "build", "job_run")


@dataclass(frozen=True)
class Config:
    """What one graph process does."""

    uri: str
    name: str
    seed: str
    journals: str
    threads: int = 1
    refs: int = 6
    """Partitions that all processes race for."""
    calls_max: int = 1_500
    """Calls after which a life only waits for its end."""
    pause_s: float = 0.004
    """Pause between two actions, seconds: leaves the machine to others."""
    clock_file: str = ""
    """What it says is added to this process's clock, seconds (`tests.chaos.faults.clocks`)."""
    death: float = 0.0
    """Chance to die by SIGKILL at each of the places that are made for it."""
    atomic: bool = False
    """Whether the backend takes atomic batches."""
    service: str = ""
    """URL of a service over the same log, another door to it; empty for none."""


class StoppedError(Exception):
    """An error that no retry helps."""


def item_of(event: Event) -> dict[str, object]:
    """An event as a journal holds it."""
    return {
        "event_id": event.event_id.hex(),
        "event_type": event.event_type,
        "subject_kind": event.subject_kind,
        "subject_id": event.subject_id,
        "actor": event.actor,
        "occurred_at": event.occurred_at,
        "payload": event.payload.hex(),
        "payload_digest": event.payload_digest.hex(),
        "caused_by": None if event.caused_by is None else event.caused_by.hex(),
        "expected": event.expected,
    }


def event_of(item: dict[str, Any]) -> Event:
    """The event of a journal."""
    raw = {k: bytes.fromhex(item[k]) for k in ("event_id", "payload", "payload_digest")}
    caused_by = None if item["caused_by"] is None else bytes.fromhex(item["caused_by"])
    return Event(**{**item, **raw, "caused_by": caused_by})


def answer_of(answer: object) -> dict[str, object]:
    """What a process was told, as a journal holds it: a receipt `r`, a refusal `e`, or, where
    nothing is decided, the code `u`."""
    if isinstance(answer, Receipt):
        told: dict[str, object] = {"r": answer.index, "at": answer.created_at}
        return told | {"dup": answer.duplicate, "id": answer.event_id.hex()}
    if isinstance(answer, Conflict):
        return {
            "e": answer.code,
            "at": answer.index,
            "state": answer.state,
            "last": answer.last_index,
            "allowed": list(answer.allowed),
            "owner": answer.owner,
            "message": answer.message,
        }
    if isinstance(answer, BelogError):
        return {"u": answer.code, "retriable": answer.retriable, "message": str(answer)}
    if isinstance(answer, SubjectState):
        return {"state": answer.state, "last": answer.index, "owner": answer.owner}
    return {"none": True}


class Recorder(Producer):
    """A producer that writes down what it is asked and what it answers."""

    def __init__(
        self,
        journal: Journal,
        numbers: "count[int]",
        log: EventLog,
        **settings: Any,  # noqa: ANN401 - those of Producer
    ) -> None:
        self._journal = journal
        self._numbers = numbers
        super().__init__(log, **settings)

    @contextmanager
    def _recorded(self, op: str, items: Sequence[object]) -> Iterator[list[object]]:
        """Write the call, and on leaving its answers; an error is the answer to every item."""
        number = next(self._numbers)
        thread = threading.get_ident()
        self._journal.write("call", n=number, op=op, thread=thread, items=items)
        answers: list[object] = []
        try:
            yield answers
        except BelogError as error:
            answers[:] = [error] * len(items)
            raise
        finally:
            if answers:
                told = [answer_of(answer) for answer in answers]
                if op == "atomic" and "e" in told[0]:
                    # The refusal is of one of them, by what those before it would have done.
                    told = [{"u": "atomic_refused", "message": told[0]["message"]}] * len(items)
                self._journal.write("end", n=number, answers=told)

    def append_event(self, event: Event) -> Receipt:
        with self._recorded("append", [item_of(event)]) as answers:
            receipt = super().append_event(event)
            answers.append(receipt)
            return receipt

    def append_batch(
        self,
        events: Sequence[Event],
        *,
        atomic: bool = False,
        at: int | None = None,
        made_here: bool = False,
    ) -> list[Receipt | BelogError]:
        op = "atomic" if atomic else "batch"
        with self._recorded(op, [item_of(event) for event in events]) as answers:
            results = super().append_batch(events, atomic=atomic, at=at, made_here=made_here)
            answers.extend(results)
            return results

    def append_pipelined(self, events: Sequence[Event]) -> list[Receipt | BelogError]:
        """Submit all, then wait for all."""
        with self._recorded("submit", [item_of(event) for event in events]) as answers:
            sent: list[Pending | BelogError] = []
            for event in events:
                try:
                    sent.append(self.submit_event(event))
                except BelogError as error:
                    sent.append(error)
            results = [_settled(pending) for pending in sent]
            answers.extend(results)
            return results

    def append_elsewhere(self, url: str, events: Sequence[Event]) -> list[Receipt | BelogError]:
        """Append by a service, which says who wrote."""
        named = [structs.replace(event, actor=ACTOR) for event in events]
        with self._recorded("http", [item_of(event) for event in named]) as answers:
            results = append_over_http(url, named)
            answers.extend(results)
            return results

    def state(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        with self._recorded("state", [[kind, subject_id]]) as answers:
            state = super().state(kind, subject_id)
            answers.append(state)
            return state


def _settled(pending: Pending | BelogError) -> Receipt | BelogError:
    if isinstance(pending, BelogError):
        return pending
    try:
        return pending.result()
    except BelogError as error:
        return error


class Life:
    """One thread of one life of a graph process."""

    def __init__(  # noqa: PLR0917 - one caller
        self,
        config: Config,
        thread: int,
        journal: Journal,
        log: EventLog,
        producers: Sequence[Recorder],
        stop: threading.Event,
    ) -> None:
        self.config = config
        self.journal = journal
        self.log = log
        self.producer, self.old = producers
        self.stop = stop
        self.name = f"{journal.path.stem}/{thread}"
        self.rng = random.Random(f"{config.seed}/{self.name}")
        self.past: deque[Event] = deque(maxlen=PAST_EVENTS)
        self.zombies: deque[tuple[str, str, str]] = deque(maxlen=ZOMBIES_MAX)
        self.unknown: list[Event] = []
        self.numbers = count()
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (6, self.build),
            (10, self.race),
            (3, self.repeat),
            (3, self.twin),
            (3, self.haunt),
            (1, self.reuse),
            (1, self.burst),
            (2, self.look),
            (2, self.read),
        ]

    def work(self) -> None:
        weights, actions = zip(*self.actions, strict=True)
        for _ in range(self.config.calls_max):
            if self.stop.wait(self.config.pause_s):
                return
            (action,) = self.rng.choices(actions, weights)
            try:
                action()
            except Conflict:
                continue
            except Unsupported:
                raise
            except BelogError as error:
                self.bear(error)
            if self.unknown and self.rng.random() < 0.3:
                self.repeat_unknown()
        self.stop.wait()

    def resolve(self) -> None:
        """Repeat what is unknown until it is known."""
        deadline = time.monotonic() + RESOLVE_S
        while self.unknown and time.monotonic() < deadline:
            self.repeat_unknown()

    def finish(self) -> None:
        """Append one more event: whatever befell the system, it has to work again by now."""
        last = self.event(PartitionObserved(source="end"), f"end/{self.name}")
        deadline = time.monotonic() + RESOLVE_S
        while True:
            (result,) = self.put(last)
            if isinstance(result, Receipt):
                return
            if time.monotonic() > deadline:
                msg = f"no event can be appended {RESOLVE_S} s after all was healed: {result}"
                raise TimeoutError(msg)

    def bear(self, error: BelogError) -> None:
        """Take an error that is no answer: wait a little where a retry may help."""
        if not error.retriable:
            self.journal.write("stop", code=error.code, message=str(error))
            raise StoppedError from error
        # Not `stop`: the moment of an error is not the moment to end.
        threading.Event().wait(PAUSE_S)

    def die(self) -> None:
        """Perhaps end here and now, as a machine that loses its power."""
        if self.rng.random() < self.config.death:
            os.kill(os.getpid(), signal.SIGKILL)

    # --- appending

    def put(self, *events: Event, producer: Recorder | None = None) -> list[Receipt | BelogError]:
        """Append events through a door chosen at random."""
        producer = producer or self.producer
        self.past.extend(events)
        doors = ["submit", "batch", *(["atomic"] if self.config.atomic else [])]
        doors += ["http"] if self.config.service else []
        door = self.rng.choice(["append", *doors] if len(events) == 1 else doors)
        results: list[Receipt | BelogError]
        try:
            if door == "append":
                results = [producer.append_event(events[0])]
            elif door == "http":
                results = producer.append_elsewhere(self.config.service, events)
            elif door == "submit":
                results = producer.append_pipelined(events)
            else:
                results = producer.append_batch(events, atomic=door == "atomic")
        except BelogError as error:
            results = [error] * len(events)
        for event, result in zip(events, results, strict=True):
            if isinstance(result, OutcomeUnknown):
                self.unknown.append(event)
        worst = [r for r in results if isinstance(r, BelogError) and not isinstance(r, Conflict)]
        if worst and door != "http":
            self.bear(next((e for e in worst if not e.retriable), worst[0]))
        return results

    def must(self, *events: Event) -> None:
        """Append events of which each must be accepted."""
        for result in self.put(*events):
            if isinstance(result, BelogError):
                raise result

    def event(
        self,
        payload: Payload,
        subject: str,
        *,
        caused_by: bytes | None = None,
        event_id: bytes | None = None,
        expected: int | None = None,
    ) -> Event:
        return self.producer.event(
            payload, subject, caused_by=caused_by, event_id=event_id, expected=expected
        )

    def ref(self) -> str:
        return f"shared/{self.rng.randrange(self.config.refs)}"

    # --- actions

    def build(self) -> None:
        """One build from its arrival to its end, or to wherever it is left."""
        rng = self.rng
        build = f"{self.name}/{next(self.numbers)}"
        refs = list(dict.fromkeys([self.ref(), f"own/{self.config.name}/{rng.randrange(4)}"]))
        self.must(
            self.event(
                BuildReceived(requested_partitions=refs, client_id=self.config.name, comment="é"),
                build,
            )
        )
        self.die()
        self.must(
            self.event(BuildPlanning(), build),
            self.event(BuildAnalysisCompleted(task_count=len(refs), partition_count=3), build),
        )
        if rng.random() < 0.1:
            self.must(self.event(BuildCancelled(reason="called off"), build))
            return
        self.must(self.event(BuildExecuting(message="go"), build))
        try:
            for ref in refs:
                answer = request_partition(
                    self.producer, ref, build_request_id=build, clients=[self.config.name]
                )
                if isinstance(answer, Building):
                    self.die()
                    if rng.random() < 0.15:
                        self.zombies.append((build, ref, "run-left"))
                        return
                    self.make(build, ref, 1)
        except Conflict:
            self.must(self.event(BuildFailed(reason="lost a race"), build))
            return
        self.must(self.event(BuildCompleted(), build))

    def make(self, build: str, ref: str, attempt: int) -> None:
        """Make one partition that the build owns; sometimes at the second attempt."""
        rng, event = self.rng, self.event
        run = f"{build}/run-{attempt}-{rng.randrange(1000)}"
        task, label = f"task/{ref}", f"//jobs:{ref[:3]}"
        deps = [f"shared/{n}" for n in range(rng.randrange(3))]
        planned: dict[str, Any] = {"build_request_id": build, "task_id": task, "job_label": label}
        if rng.random() < 0.1:
            skipped = JobSkipped(**planned, outputs=[ref], reason="there already")
            self.must(event(skipped, run))
            run += "-2"
        if rng.random() < 0.1:
            self.must(
                event(PartitionDelegated(build_request_id=build, delegated_to_log="other"), ref)
            )
        else:
            scheduled = event(
                JobScheduled(**planned, outputs=[ref], inputs=deps, attempt=attempt), run
            )
            self.must(
                scheduled,
                event(
                    PartitionScheduled(**planned, job_run_id=run, upstream_deps=deps),
                    ref,
                    caused_by=scheduled.event_id,
                ),
                event(JobRunning(worker=self.name), run),
                event(PartitionBuilding(build_request_id=build, job_run_id=run), ref),
            )
            self.die()
            if rng.random() < 0.3:
                self.must(event(JobRunning(), run), event(JobRunning(worker="w2"), run))
            if rng.random() < 0.2 and attempt < 3:
                ended = JobFailed(reason="boom", exit_code=2) if attempt == 1 else JobCancelled()
                back = PartitionRequested(build_request_id=build, requesting_clients=["again"])
                self.must(event(ended, run), event(back, ref))
                self.make(build, ref, attempt + 1)
                return
            self.must(event(JobCompleted(), run))
        self.zombies.append((build, ref, run))
        manifest = Manifest(
            outputs=[ref], inputs=[ManifestInput(d, 1) for d in deps], metadata={"k": "v"}
        )
        last: Payload = PartitionAvailable(
            build_request_id=build, job_run_id=run, manifest=manifest
        )
        if rng.random() < 0.1:
            last = PartitionFailed(build_request_id=build, job_run_id=run, reason="bad")
        self.must(event(last, ref))

    def race(self) -> None:
        """Events that are legal over what this process has read, most of the time."""
        producer = self.old if self.rng.random() < 0.1 else self.producer
        events = [self.legal_looking(producer) for _ in range(self.rng.choice((1, 1, 1, 2, 5)))]
        self.put(*events, producer=producer)

    def legal_looking(self, producer: Producer) -> Event:
        rng = self.rng
        kind = rng.choice(KINDS)
        subject = self.ref() if kind == "partition" else f"{kind}-{rng.randrange(200)}"
        state = producer.known_state(kind, subject)
        allowed = producer.lifecycle.allowed(kind, state.state if state else "")
        every = [row.event_type for row in producer.lifecycle.machines[kind]]
        event_type = rng.choice(allowed if allowed and rng.random() < 0.9 else every)
        owner = state.owner if state and rng.random() < 0.7 else None
        build = owner or f"{self.name}/r{rng.randrange(3)}"
        body: dict[str, Any] = {}
        if event_type in producer.lifecycle.attempt_events or event_type in {
            "v1.job.scheduled",
            "v1.job.skipped",
        }:
            body["build_request_id"] = build
        if event_type == "v1.partition.delegated":
            body["delegated_to_log"] = "elsewhere"
        if event_type in {"v1.partition.stale", "v1.partition.removed", "v1.partition.failed"}:
            body["reason"] = "because"
        if event_type in {"v1.partition.requested", "v1.partition.joined"}:
            body["requesting_clients"] = rng.sample(["ann", "bob", "cy"], rng.randrange(4))
        expected = (state.index if state else -1) if rng.random() < 0.2 else None
        return producer.event(event_type, subject, body, expected=expected)

    def repeat(self) -> None:
        """The same event again, answered or not."""
        if self.past:
            self.put(self.rng.choice(self.past))

    def repeat_unknown(self) -> None:
        event = self.unknown.pop(self.rng.randrange(len(self.unknown)))
        (result,) = self.put(event)
        if isinstance(result, BelogError) and not isinstance(result, (Conflict, OutcomeUnknown)):
            self.unknown.append(event)

    def twin(self) -> None:
        """One event that several processes send at about the same time, all with one id."""
        number = int(time.monotonic() / TWIN_EPOCH_S)
        event_id = hashlib.blake2b(f"{self.config.seed}/{number}".encode(), digest_size=16).digest()
        twin = new_event(
            PartitionObserved(source="twin"),
            f"twin/{number % 3}",
            event_id=event_id,
            actor="twin",
            occurred_at=number,
        )
        self.put(twin)

    def haunt(self) -> None:
        """A build that was left, or whose partition others have made since, wants to go on."""
        if not self.zombies:
            return
        build, ref, run = self.rng.choice(self.zombies)
        step = self.rng.choice((PartitionScheduled, PartitionBuilding, PartitionAvailable))
        expected = self.rng.choice((None, None, self.rng.randrange(200)))
        self.put(self.event(step(build_request_id=build, job_run_id=run), ref, expected=expected))

    def reuse(self) -> None:
        """An id that was used before, for another event."""
        if self.past:
            used = self.rng.choice(self.past).event_id
            self.put(self.event(PartitionObserved(source="reused"), self.ref(), event_id=used))

    def burst(self) -> None:
        """Many events at once, so that some are on their way whatever happens."""
        observed = PartitionObserved(source="burst")
        count = self.rng.choice((10, 30, 60))
        self.put(*(self.event(observed, f"burst/{self.name}/{n}") for n in range(count)))

    def look(self) -> None:
        """Ask for the state of a subject as it is now."""
        self.producer.state("partition", self.ref())

    def read(self) -> None:
        """A page of the log, all of it or by type; or one event by its id."""
        rng = self.rng
        if rng.random() < 0.5 and self.past:
            event_id = rng.choice(self.past).event_id
            began = time.monotonic_ns()
            found = self.log.get_by_id(event_id)
            index = None if found is None else found.index
            self.journal.write("page", get=event_id.hex(), index=index, began=began)
            return
        end = self.producer.refresh()
        since, limit = rng.randrange(max(end, 1)), rng.choice((1, 10, 100))
        began = time.monotonic_ns()
        page = self.log.read(since, limit=limit)
        rows = [[s.index, s.created_at, s.event.event_id.hex()] for s in page.events]
        self.journal.write(
            "page",
            since=since,
            next=page.next_idx,
            more=page.has_more,
            full=len(rows) == limit,
            began=began,
            rows=rows,
        )


def left_unanswered(config: Config) -> list[Event]:
    """What earlier lives of this process do not know the outcome of."""
    seen: dict[str, tuple[Event, bool]] = {}
    for call in load(Path(config.journals)).calls:
        if call.process != config.name or call.op == "state":
            continue
        answers = call.answers or [{"u": "outcome_unknown"}] * len(call.items)
        for item, answer in zip(call.items, answers, strict=True):
            seen[item["event_id"]] = event_of(item), answer.get("u") == "outcome_unknown"
    return [event for event, is_open in seen.values() if is_open]


def opened(config: Config, journal: Journal) -> EventLog:
    """The log, as soon as it can be reached."""
    while True:
        log = open_log(config.uri)
        try:
            identity = log.initialize()
        except BelogError as error:
            log.close()
            if not error.retriable:
                journal.write("stop", code=error.code, message=str(error))
                raise StoppedError from error
            threading.Event().wait(PAUSE_S)
            continue
        journal.write("start", pid=os.getpid(), log=str(identity.log_id))
        return log


def recorders(config: Config, journal: Journal, log: EventLog) -> list[Recorder]:
    """A producer for the work, and one that is used now and then and so has an old view."""

    def clock() -> int:
        try:
            offset_s = int(Path(config.clock_file).read_text())
        except (FileNotFoundError, IsADirectoryError):
            offset_s = 0
        return time.time_ns() // 1000 + offset_s * 1_000_000

    numbers = count()
    made: list[Recorder] = []
    while len(made) < 2:
        try:
            made.append(
                Recorder(journal, numbers, log, actor=config.name, clock=clock, wait_s=WAIT_S)
            )
        except BelogError as error:
            if not error.retriable:
                # Such as a record of newer software, which came between the look and this.
                journal.write("stop", code=error.code, message=str(error))
                raise StoppedError from error
            threading.Event().wait(PAUSE_S)
    return made


def main(argument: str) -> int:
    """Live one life."""
    config = Config(**json.loads(argument))
    open_before = left_unanswered(config)
    journal = Journal(Path(config.journals), config.name)
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    failed: list[BaseException] = []
    try:
        log = opened(config, journal)
        producers = recorders(config, journal, log)
    except StoppedError:
        return STOPPED
    lives = [Life(config, n, journal, log, producers, stop) for n in range(config.threads)]
    # Some stay unknown for ever: then they are in the log once or not at all.
    lives[0].unknown += [event for event in open_before if lives[0].rng.random() < 0.8]

    def live(life: Life) -> None:
        try:
            life.work()
            life.resolve()
            life.finish()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread
            failed.append(error)

    threads = [threading.Thread(target=live, args=(life,), daemon=True) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not failed:
            thread.join(0.1)
    if failed:
        if isinstance(failed[0], StoppedError):
            return STOPPED
        raise failed[0]
    for producer in producers:
        producer.close()
    log.close()
    journal.write("done")
    return 0


def argument_of(config: Config) -> str:
    """The command line argument of a config."""
    return json.dumps(asdict(config))


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    # Threads of a producer that waits for a broker must not hold up the end.
    os._exit(code)
