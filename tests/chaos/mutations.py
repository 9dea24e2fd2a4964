"""Deliberate faults in a copy of the code, each with the run that must catch it.

A fault is an exact replacement of source text in one file; where that text is not there once, the
fault says so, rather than pass for caught. The copy is one of links, so that it costs nothing.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.deployment import Backend
from tests.chaos.parts import ROOT
from tests.chaos.running import Plan
from tests.chaos.systems import Shape

__all__ = ["MUTATIONS", "Mutation", "mutated", "plan_for"]

FOLDERS = ("schemas", "storage", "producers", "processors", "sink", "query", "service")
WORK_S = 1.2
RACE_S = 3.0
"""How long a run works, seconds: a fault of the code shows among the first hundred events, one that
needs a race over Kafka among the first few hundred."""
WORK_BYTES_MIN = 100_000
"""What a run writes down at least on a busy machine, bytes: about a hundred events."""


@dataclass(frozen=True)
class Mutation:
    """One deliberate fault."""

    name: str
    does: str
    file: str
    old: str
    new: str
    caught_by: frozenset[str]
    """Rules of the checker, one of which must be broken."""
    backend: Backend = "sqlite"
    writers: int = 1
    threads: int = 2
    readers: tuple[str, ...] = ()
    worker: bool = False
    sink: bool = False
    service: bool = False
    faults: tuple[str, ...] = ()


def _by(*rules: str) -> frozenset[str]:
    return frozenset(rules)


MUTATIONS = (
    # The seven that no checker may overlook.
    Mutation(
        "verdict-skipped",
        "an event that is no next state of its subject is accepted all the same",
        "schemas/belog/schemas/verdict.py",
        '        if kind is not None:\n            return _void(lifecycle, event, before, "ill',
        '        if kind is None:\n            return _void(lifecycle, event, before, "ill',
        _by("record-without-effect", "refused-untruly"),
    ),
    Mutation(
        "event-doubled",
        "a repetition is accepted as a new event",
        "schemas/belog/schemas/verdict.py",
        "    if first is not None:\n        return Duplicate(first)",
        "    if first is not None and first < 0:\n        return Duplicate(first)",
        _by("doubled", "acknowledged-elsewhere", "record-without-effect"),
    ),
    Mutation(
        "applied-without-guard",
        "Redis takes a batch wherever its tables are",
        "processors/belog/processors/redis_scripts.py",
        "  if (meta[n] or '') ~= ARGV[n] then\n    return 0",
        "  if (meta[n] or '') ~= ARGV[n] and n < 4 then\n    return 0",
        _by("counts", "row-redis", "index", "unhealed"),
        worker=True,
        faults=("two-workers",),
    ),
    Mutation(
        "last-of-batch-dropped",
        "the last record of a batch is acknowledged and not written",
        "storage/belog/storage/sqlite.py",
        "executemany(INSERT, zip(count(next_idx), repeat(created_at), values))",
        "executemany(INSERT, zip(count(next_idx), repeat(created_at), values[:-1]))",
        _by("acknowledged-lost", "acknowledged-elsewhere"),
    ),
    Mutation(
        "resumed-one-too-far",
        "a follower goes on one index after where its page ended",
        "storage/belog/storage/interface.py",
        "                cursor = page.next_idx\n",
        "                cursor = page.next_idx + (page.next_idx > 9)\n",
        _by("page"),
        readers=("follow",),
    ),
    Mutation(
        "two-out-of-order",
        "the first two events of a batch are written in the wrong order",
        "producers/belog/producers/conditional.py",
        "        events = [item.event for item in chosen]\n        if alone",
        "        events = [item.event for item in [*chosen[1::-1], *chosen[2:]]]\n        if alone",
        _by("acknowledged-elsewhere", "record-without-effect"),
    ),
    Mutation(
        "acknowledgement-lost",
        "an event that was written is refused as if there had been no room",
        "producers/belog/producers/conditional.py",
        "            found[item.place] = receipt\n",
        "            found[item.place] = (\n"
        "                receipt if receipt.index % 7 else Overloaded('full', log=self.log)\n"
        "            )\n",
        _by("written-untold"),
    ),
    # And more.
    Mutation(
        "owner-not-asked",
        "an attempt is moved by a build that does not own it",
        "schemas/belog/schemas/verdict.py",
        "        elif claim != owner and event_type not in lifecycle.open_to_others:",
        "        elif claim == owner and event_type == '':",
        _by("record-without-effect"),
    ),
    Mutation(
        "touch-not-looked-for",
        "what came in between is not looked at before an event is written",
        "storage/belog/storage/touch.py",
        "            return True\n    return False",
        "            return False\n    return False",
        _by("record-without-effect", "doubled"),
        writers=2,
    ),
    Mutation(
        "refused-by-old-view",
        "an event is refused without reading on to the end of the log",
        "producers/belog/producers/ordered.py",
        "        current = False\n        while True:",
        "        current = True\n        while True:",
        _by("refused-by-the-past"),
        backend="kafka",
        writers=2,
    ),
    Mutation(
        "prediction-not-compared",
        "a record that landed behind another's is taken for accepted where it was predicted",
        "producers/belog/producers/ordered.py",
        "            elif self._adrift or report.position > expected or"
        " not self._ahead.is_next([flight]):",
        "            elif not self._ahead.is_next([flight]):",
        _by("acknowledged-lost", "refused-untruly", "acknowledged-elsewhere", "false-state"),
        backend="kafka",
        writers=2,
    ),
    Mutation(
        "series-not-compared",
        "a batch that landed among another's records is taken for accepted where it was predicted",
        "storage/belog/storage/kafka_sender.py",
        "            if position == self._first + number and"
        " position >= self._sender.acknowledged:",
        "            if position >= self._sender.acknowledged:",
        _by("acknowledged-lost", "refused-untruly", "acknowledged-elsewhere", "false-state"),
        backend="kafka",
        writers=2,
    ),
    Mutation(
        "joined-forgotten",
        "a step that is given back forgets who waits for it",
        "processors/belog/processors/evolve_partitions.py",
        "            old.joined_builds,\n        )",
        "            (),\n        )",
        _by("row-memory"),
        readers=("tables",),
    ),
    Mutation(
        "duplicate-called-new",
        "the receipt of a repetition says that it is new",
        "producers/belog/producers/judging.py",
        "event.event_id, duplicate=True)",
        "event.event_id, duplicate=False)",
        _by("doubled", "acknowledged-altered"),
    ),
    Mutation(
        "replica-time-off",
        "a replica keeps another ingest time than its origin's",
        "schemas/belog/schemas/replica.py",
        "            self._time_part = write_varint(origin_created_at)\n",
        "            self._time_part = write_varint(origin_created_at + 1)\n",
        _by("replica"),
        sink=True,
    ),
    Mutation(
        "service-page-too-far",
        "a page of the service says to go on one index after its end",
        "service/belog/service/http_api/events.py",
        "            return page_answer(written, page.next_idx, has_more",
        "            return page_answer(written, page.next_idx + bool(written), has_more",
        _by("page"),
        service=True,
    ),
)


def plan_for(mutation: Mutation, seed: str) -> Plan:
    """The run that must catch a fault of the code, without the copy of it."""
    shape = Shape(
        mutation.backend,
        seed,
        mutation.writers,
        mutation.threads,
        0.0,
        mutation.worker,
        mutation.sink,
        readers=mutation.readers,
        service=mutation.service,
        refs=2 if mutation.backend == "kafka" else 6,
        pause_s=0.001,
    )
    work_s = RACE_S if mutation.backend == "kafka" else WORK_S
    return Plan(seed, shape, mutation.faults, work_s, WORK_BYTES_MIN)


@contextmanager
def mutated(mutation: Mutation, plan: Plan, folder: Path) -> Iterator[Plan]:
    """The plan over a copy of the code that has the fault.

    Raises:
        LookupError: The text that it replaces is not there, or more than once.
    """
    source = (ROOT / mutation.file).read_text()
    if source.count(mutation.old) != 1:
        msg = f"{mutation.name}: its text is {source.count(mutation.old)} times in {mutation.file}"
        raise LookupError(msg)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, copy_function=_link)
    changed = folder / mutation.file
    changed.unlink()
    changed.write_text(source.replace(mutation.old, mutation.new))
    yield replace(plan, env=_environment(folder))
    shutil.rmtree(folder)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _environment(folder: Path) -> Mapping[str, str]:
    return {"PYTHONPATH": os.pathsep.join(str(folder / name) for name in FOLDERS)}
