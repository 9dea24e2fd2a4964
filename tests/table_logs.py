"""Random logs for tests of the tables: legal and illegal events, and what is no event at all."""

import random
from collections.abc import Iterator, Mapping

from belog.schemas.envelope import Event, encode_event
from belog.schemas.fold import Fold, Record
from belog.schemas.lifecycle import LIFECYCLE_1, SubjectKind
from belog.schemas.payload import JsonValue
from tests.examples import T0, created, raw_event, record

REFS = (*(f"data://graph/{n}" for n in range(12)), "données/été", "a b%/*[x]", "z:1")
BUILDS = ("nightly/7", "b%2F", "b:1", "b2")
RUNS = tuple(f"run-{n}" for n in range(30))
TASKS = ("load", "trans/form", "t%")
LABELS = ("//jobs:load", "//jobs:é")
ODD_LIST: list[JsonValue] = [1, "y"]
ODD_MAP: dict[str, JsonValue] = {"a": None}
ODD_VALUES: tuple[JsonValue, ...] = (None, 7, -1, 2.5, "", "x", b"\x00", ODD_LIST, ODD_MAP)
KINDS: tuple[SubjectKind, ...] = ("partition", "build", "job_run")
SUBJECTS: Mapping[SubjectKind, tuple[str, ...]] = {
    "partition": REFS,
    "build": BUILDS,
    "job_run": RUNS,
}


def random_records(rng: random.Random, count: int) -> list[Record]:
    """A log of `count` records; some positions are missing, as after compaction."""
    fold = Fold()
    records = [record(0, created())]
    fold.apply(records[0])
    position = 0
    for n in range(1, count):
        position += rng.choice((1, 1, 1, 1, 1, 3))
        at = T0 + position * 1000 - rng.choice((0, 0, 0, 50_000))
        item = record(position, _value(rng, fold, records, n), at)
        fold.apply(item)
        records.append(item)
    return records


def _value(rng: random.Random, fold: Fold, so_far: list[Record], n: int) -> Event | bytes | None:
    kind = rng.random()
    if kind < 0.03:
        return rng.choice((None, b"", b"garbage", encode_event(created())[:-3]))
    if kind < 0.06:
        return rng.choice(so_far).value
    subject_kind = rng.choice(KINDS)
    subject = rng.choice(SUBJECTS[subject_kind])
    state = fold.subject(subject_kind, subject)
    name = "" if state is None else state.state
    allowed = LIFECYCLE_1.allowed(subject_kind, name)
    event_type = rng.choice(allowed) if allowed and kind < 0.9 else _any_type(rng, subject_kind)
    owner = state.owner if state is not None else None
    body = dict(_body(rng, event_type, owner))
    if kind < 0.12:
        for field in rng.sample(sorted(body), min(2, len(body))):
            body[field] = rng.choice(ODD_VALUES)
    return raw_event(event_type, subject, body, n=n, kind=subject_kind)


def _any_type(rng: random.Random, kind: SubjectKind) -> str:
    types = [row.event_type for row in LIFECYCLE_1.machines[kind]]
    return rng.choice([*types, "v9.thing.happened"])


def _body(rng: random.Random, event_type: str, owner: str | None) -> Mapping[str, JsonValue]:
    return {name: value for name, value in _fields(rng, event_type, owner) if rng.random() < 0.9}


def _fields(
    rng: random.Random, event_type: str, owner: str | None
) -> Iterator[tuple[str, JsonValue]]:
    name = event_type.rpartition(".")[2]
    refs: list[JsonValue] = list(rng.sample(REFS, rng.randrange(4)))
    if event_type.startswith("v1.partition."):
        if name not in {"stale", "removed", "observed"}:
            mine = owner if owner is not None and rng.random() < 0.8 else rng.choice(BUILDS)
            yield "build_request_id", mine
        if name in {"scheduled", "building", "available", "failed"}:
            yield "job_run_id", rng.choice(RUNS)
        if name in {"requested", "joined"}:
            yield "requesting_clients", list(rng.sample(("ann", "bob", "cy"), rng.randrange(3)))
        if name == "scheduled":
            yield "task_id", rng.choice(TASKS)
            yield "job_label", rng.choice(LABELS)
        if name in {"scheduled", "observed"}:
            yield "upstream_deps", refs
        if name in {"available", "observed"}:
            yield "manifest", {"outputs": refs, "size_bytes": rng.randrange(99), "metadata": {}}
        if name == "delegated":
            yield "delegated_to_log", "elsewhere"
    elif event_type.startswith("v1.job."):
        if name in {"scheduled", "skipped"}:
            yield "build_request_id", rng.choice(BUILDS)
            yield "task_id", rng.choice(TASKS)
            yield "job_label", rng.choice(LABELS)
            yield "outputs", refs
            yield "attempt", rng.randrange(1, 4)
        if name == "running":
            yield "worker", "w"
        if name == "failed":
            yield "exit_code", rng.randrange(-1, 3)
    elif name == "received":
        yield "requested_partitions", refs
        yield "client_id", rng.choice(("ann", "bob"))
        yield "comment", "why"
    elif name == "analysis_completed":
        yield "task_count", rng.randrange(9)
    if name in {"failed", "stale", "removed", "cancelled"}:
        yield "reason", "because"
    yield "message", "text"
