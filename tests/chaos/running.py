"""One chaos run, from its seed to its verdict.

The seed names everything that can be named: the shape of the system, the workload of each process,
which faults come when and what they do. The operating system's scheduling is not among it, so a
replay is the same storm, not the same wave.
"""

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from redis import RedisError

from tests.chaos.checking import Case, Contradiction, check, shortest
from tests.chaos.deployment import Backend, Fault
from tests.chaos.faults import FAULTS
from tests.chaos.history import Journal, load
from tests.chaos.parts import ProcessPart
from tests.chaos.raw_logs import read_raw
from tests.chaos.rules import Judged, judge_all
from tests.chaos.systems import Servers, Shape, System, build, shape_of
from tests.chaos.views import (
    check_memory_tables,
    check_readers,
    check_redis_tables,
    check_replica,
    redis_applied,
    replica_end,
    unfinished,
)
from tests.servers import eventually

__all__ = ["Plan", "Report", "plan_of", "run"]

WORK_S = 4.0
"""How long a run works beside its faults, seconds."""
EXTRA_WORK_S_MAX = 8.0
WORK_BYTES_MIN = 200_000
DELTA_BYTES_MIN = 100_000
"""What the writers should have written down before a run ends, bytes; and how much longer it may
take for that, seconds."""
FAULTS_MAX = 4
TOGETHER_SHARE = 0.3
"""How often the next fault comes while one lasts."""
GAP_S_MAX = 0.7
"""Longest time between two faults, seconds."""
HOLD_S_MAX = 5.0
"""Longest time that a fault lasts, seconds: past the sessions of `tests.chaos.systems`."""
START_S = 60.0
END_S = 90.0
"""How long everything may take to heal and to end, seconds; bounded by the longest time-outs of the
clients, and by a broker's start."""
POLL_S = 0.1
SHOWN_MAX = 4
"""Contradictions that a report shows."""

GRAVE = ("broker-older", "topic-recreated", "newer-record")
"""Faults after which most cannot be decided any more: a run meets one of them or none."""
GRAVE_SHARE = 0.1

SILENT_KINDS = ("worker", "sink", "service")
"""Parts that give up when a server is away for long, and are started again."""


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    seed: str
    shape: Shape
    faults: tuple[str, ...] | None = None
    """Only these; None for any that applies."""
    work_s: float = WORK_S
    work_bytes_min: int = WORK_BYTES_MIN
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class Report:
    """What a run came to."""

    plan: Plan
    folder: Path
    contradictions: list[Contradiction] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    events: int = 0
    attempts: int = 0
    refused: int = 0
    unknown: int = 0
    restarts: int = 0
    phases: dict[str, float] = field(default_factory=dict[str, float])
    """How long start, storm, the ends of writers, readers and followers, and the check took,
    seconds."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """What the run took, and how much of a processor for its processes and the check, seconds."""

    @property
    def is_good(self) -> bool:
        return not self.contradictions

    def line(self) -> str:
        """One line for people."""
        shape = self.plan.shape
        parts = f"{shape.writers}x{shape.threads}"
        parts += "+worker" if shape.worker else ""
        parts += "+sink" if shape.sink else ""
        parts += "+service" if shape.service else ""
        verdict = "ok" if self.is_good else f"CONTRADICTION ({self.contradictions[0].rule})"
        return (
            f"{shape.backend:8} seed {self.plan.seed:12} {parts:24} {self.events:5} events,"
            f" {self.attempts:5} attempts, {self.refused:4} refused, {self.unknown:3} unknown,"
            f" {self.restarts:2} restarts, {'+'.join(f'{s:.0f}' for s in self.phases.values())} s,"
            f" {' '.join(self.faults) or 'no fault'}: {verdict}"
        )

    def text(self) -> str:
        """The line, and the shortest contradictions."""
        shown = shortest(self.contradictions, SHOWN_MAX)
        rest = len(self.contradictions) - len(shown)
        more = [f"… and {rest} more in {self.folder}"] if rest > 0 else []
        return "\n".join([self.line(), *(str(c) for c in shown), *more])


def plan_of(
    seed: str, backend: Backend, faults: Sequence[str] | None = None, work_s: float = WORK_S
) -> Plan:
    """The plan that a seed names."""
    chosen = None if faults is None else tuple(faults)
    least = DELTA_BYTES_MIN if backend == "delta" else WORK_BYTES_MIN
    return Plan(seed, shape_of(backend, seed), chosen, work_s, least)


def run(plan: Plan, folder: Path, servers: Servers, *, keep: bool = False) -> Report:
    """Do one run, and check it.

    Args:
        plan: What to do.
        folder: Where to keep everything; removed after a good run.
        servers: Where servers come from.
        keep: Whether to keep the folder of a good run, too.
    """
    report = Report(plan, folder)
    began, used = time.monotonic(), _cpu_s()
    with build(plan.shape, folder, servers, plan.env) as system:
        storm = _Storm(system, plan, report)
        try:
            storm.work()
            storm.end()
            with storm.phase("check"):
                judged, case = _judged(system, storm)
                report.contradictions += _checked(system, judged, case)
        except TimeoutError as error:
            report.contradictions.insert(0, Contradiction("unhealed", str(error), _errors(system)))
        report.restarts = system.deployment.restarts
    report.wall_s, report.cpu_s = time.monotonic() - began, _cpu_s() - used
    (folder / "report.txt").write_text("\n".join(map(str, [report.text(), *report.contradictions])))
    if report.is_good and not keep:
        shutil.rmtree(folder)
    return report


def _cpu_s() -> float:
    """What this process and its ended children have used of a processor, seconds."""
    times = os.times()
    return sum(times[:4])


def _pause(seconds: float) -> None:
    """Let the system work: the moment of a fault is the input of a run."""
    threading.Event().wait(seconds)


class _Storm:
    """The system at work, and the faults that befall it."""

    def __init__(self, system: System, plan: Plan, report: Report) -> None:
        self.system = system
        self.deployment = system.deployment
        self.plan = plan
        self.report = report
        self.rng = random.Random(f"{plan.seed}/{plan.shape.backend}/storm")
        self.journal = Journal(system.journals, "runner")
        self.allows: set[str] = set()
        self.undecided_until = -1
        self.until: int | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note how long something takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.report.phases[name] = time.monotonic() - began

    # --- the work

    def work(self) -> None:
        with self.phase("start"):
            for part in self.system.processes:
                part.start()
            eventually(self.writing, "all writers write", timeout_s=START_S, unless=self.failed)
        with self.phase("storm"):
            self.storm()

    def storm(self) -> None:
        """Work, and let faults befall the system."""
        until = time.monotonic() + self.plan.work_s
        faults = list(self.chosen())
        while faults:
            self.rest(self.rng.uniform(0, GAP_S_MAX))
            fault = faults.pop(0)
            inner = faults.pop(0) if faults and self.rng.random() < TOGETHER_SHARE else None
            self.befall(fault, inner)
        self.rest(max(0.5, until - time.monotonic()))
        # A busy machine gets some more time, so that a run is never about nothing.
        until = time.monotonic() + EXTRA_WORK_S_MAX
        while self.journal_bytes() < self.plan.work_bytes_min and time.monotonic() < until:
            self.rest(POLL_S)

    def writing(self) -> bool:
        """Whether all doors are open: every writer was told something, and the service answers."""
        self.deployment.revive()
        heard = {part.name: '"k":"end"' for part in self.system.of("writer")}
        if self.plan.shape.service:
            heard["reader-http"] = '"k":"page"'
        return all(
            any(
                sign.encode() in path.read_bytes()
                for path in self.system.journals.glob(f"{name}.*.jsonl")
            )
            for name, sign in heard.items()
        )

    def journal_bytes(self) -> int:
        """How much the writers have written down, about a kilobyte for each event."""
        return sum(path.stat().st_size for path in self.system.journals.glob("writer-*.jsonl"))

    def failed(self) -> str | None:
        """Why waiting makes no sense: a process ended by a fault of the software."""
        for part in self.system.processes:
            if part.kind not in SILENT_KINDS and part.crashes():
                return f"{part.name} ended with {part.crashes()[-1]}: {part.errors()}"
        return None

    def chosen(self) -> Iterator[Fault]:
        """The faults of this run, each made when its turn comes."""
        names = self.plan.faults
        if names is None:
            fits = [name for name in FAULTS if FAULTS[name]().applies_to(self.deployment)]
            grave = [name for name in fits if name in GRAVE]
            usual = [name for name in fits if name not in GRAVE]
            if grave and self.rng.random() < GRAVE_SHARE:
                names = (self.rng.choice(grave),)
            else:
                # With repetitions: what is killed on its way up meets what one kill does not.
                count = self.rng.randint(1, FAULTS_MAX)
                names = tuple(self.rng.choice(usual) for _ in range(count))
        for name in names:
            fault: Fault = FAULTS[name]()
            if fault.applies_to(self.deployment):
                yield fault

    def befall(self, fault: Fault, inner: Fault | None = None, *, is_inner: bool = False) -> None:
        """Let a fault befall the system, and perhaps another one while it lasts."""
        began = injected = time.monotonic_ns()
        shortest_s, longest_s = fault.hold_s
        name = fault.name
        try:
            try:
                fault.inject(self.deployment, self.rng)
            except (OSError, RuntimeError, KafkaException, RedisError) as error:
                # Of two faults one may leave no room for the other, and a topic that was made
                # anew is not empty for long.
                name += "(in-vain)"
                if not is_inner and "replaced" not in fault.allows:
                    says = f"{fault.name} could not be done: {error}"
                    self.report.contradictions.append(Contradiction("fault-failed", says))
            injected = time.monotonic_ns()
            self.report.faults.append(name)
            self.journal.write("fault", name=name, phase="inject", began=began)
            hold_s = self.rng.uniform(min(shortest_s, HOLD_S_MAX / 2), min(longest_s, HOLD_S_MAX))
            _pause(hold_s / 2)
            if inner is not None:
                self.befall(inner, is_inner=True)
            _pause(hold_s / 2)
        finally:
            fault.heal(self.deployment)
        self.journal.write("fault", name=name, phase="heal")
        self.allows |= fault.allows
        if fault.allows & {"lost_tail", "replaced"}:
            self.undecided_until = injected
        if not is_inner:
            self.deployment.revive()

    def rest(self, seconds: float) -> None:
        """Work on without a fault; whatever has died is started again."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            _pause(min(POLL_S, left))
            self.deployment.revive()

    # --- the end

    def end(self) -> None:
        """Let the writers end, then everybody else come to the end of the log."""
        self.deployment.revive()
        writers = self.system.of("writer")
        if "replaced" in self.allows:
            # What was on its way into the old topic may have begun the new one, and then it takes
            # a person to make it anew. Nobody may have been told anything that is not so.
            for part in writers:
                part.kill9()
            return
        with self.phase("writers"):
            self.until_done(writers, ProcessPart.end_input, "the writers ended")
        judged = judge_all(read_raw(self.system.raw_uri))
        self.until = max(judged.accepted, default=-1) + 1
        if self.allows & {"lost_tail", "replaced"}:
            return
        readers = self.system.of("reader")
        with self.phase("readers"):
            self.until_done(readers, lambda part: part.tell(f"until {self.until}"), "readers ended")
        with self.phase("followers"):
            eventually(self.followed, "tables and replica follow", timeout_s=END_S)

    def until_done(
        self, parts: Sequence[ProcessPart], ask: Callable[[ProcessPart], None], what: str
    ) -> None:
        asked: dict[str, int | None] = {}

        def done() -> bool:
            self.deployment.revive()
            for part in parts:
                if not part.is_done() and asked.get(part.name) != part.pid:
                    ask(part)
                    asked[part.name] = part.pid
            return all(part.is_done() for part in parts)

        eventually(done, what, timeout_s=END_S, unless=self.failed)

    def followed(self) -> bool:
        """Whether tables and replica hold everything."""
        self.deployment.revive()
        last = (self.until or 0) - 1
        if self.system.raw_tables is not None and redis_applied(*self.system.raw_tables) <= last:
            return False
        uri = self.deployment.replica_uri
        if uri is None:
            return True
        with suppress(Exception):  # there is none yet
            return replica_end(read_raw(_raw_replica(self.system, uri))) >= last
        return False


def _raw_replica(system: System, uri: str) -> str:
    """The replica's URI for the clients of the checker."""
    if system.deployment.backend != "kafka":
        return uri
    return f"{system.raw_uri.rpartition('/')[0]}/{uri.rpartition('/')[2]}"


def _judged(system: System, storm: _Storm) -> tuple[Judged, Case]:
    for part in system.of("worker", "sink"):
        part.kill9()
    judged = judge_all(read_raw(system.raw_uri))
    case = Case(
        load(system.journals),
        judged,
        is_conditional=system.shape.backend != "kafka",
        allows=frozenset(storm.allows),
        undecided_until=storm.undecided_until,
    )
    report = storm.report
    report.events = len(judged.accepted)
    report.attempts = len(case.attempts)
    report.refused = sum(a.refusal is not None for a in case.attempts)
    report.unknown = sum(a.is_unknown for a in case.attempts)
    return judged, case


def _checked(system: System, judged: Judged, case: Case) -> list[Contradiction]:
    found = [*check(case), *check_readers(case)]
    if not case.allows & {"lost_tail", "replaced"}:
        end = max(judged.accepted, default=-1) + 1
        names = [part.name for part in system.of("reader") if "tables" not in part.name]
        found += unfinished(case, names, end)
        if system.rows_file.exists():
            found += check_memory_tables(judged, json.loads(system.rows_file.read_text()))
        if system.raw_tables is not None:
            found += check_redis_tables(judged, *system.raw_tables)
        if uri := system.deployment.replica_uri:
            found += check_replica(judged, read_raw(_raw_replica(system, uri)))
    for part in system.of("writer", "reader"):
        if part.crashes() and not case.allows:
            says = f"{part.name} ended with {part.crashes()[-1]} by a fault of the software"
            found.append(Contradiction("crashed", says, (part.errors(),)))
    return sorted(found, key=lambda c: len(c.evidence))


def _errors(system: System) -> tuple[str, ...]:
    """What the processes said, those that said something."""
    return tuple(f"{p.name}: {p.errors()[-1500:]}" for p in system.processes if p.errors())
