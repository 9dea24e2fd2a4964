"""Legal events for the contract suite, and another way to say which of them a filter wants.

`Story` interleaves builds as several writers would: every event is legal after those before it.
`wanted_by` answers a filter by brute force and shares no code with `belog.schemas.filters`.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.events import new_event
from belog.schemas.filters import EventFilter
from belog.schemas.payload import JsonValue

__all__ = ["Story", "observed", "random_filter", "wanted_by"]

T0: Final = 1_700_000_000_000_000
ACTORS: Final = ("alice", "bob", "зоя")
LABELS: Final = ("//g:extract", "//g:load")


def observed(number: int, ref: str | None = None) -> Event:
    """Return an event that is legal for any partition without an attempt under way."""
    return new_event(
        "v1.partition.observed",
        ref or f"data://observed/{number}",
        {"source": "test"},
        event_id=UUID(int=(7 << 96) + number),
        actor="tester",
        occurred_at=T0 + number,
    )


class Story:
    """Events of several builds at once, each legal where it stands. Deterministic by its seed.

    Attributes:
        random: The generator that everything was drawn from.
    """

    def __init__(self, seed: int) -> None:
        """Begin a story."""
        self.random = random.Random(seed)
        self._seed = seed
        self._count = 0

    def events(self, count: int) -> list[Event]:
        """Return `count` events of builds that go on at the same time."""
        told: list[Event] = []
        under_way = [self._build(n) for n in range(4)]
        begun = len(under_way)
        while len(told) < count:
            at = self.random.randrange(len(under_way))
            event = next(under_way[at], None)
            if event is None:
                under_way[at] = self._build(begun)
                begun += 1
            else:
                told.append(event)
        return told

    def _event(self, event_type: str, subject: str, body: Mapping[str, JsonValue]) -> Event:
        self._count += 1
        return new_event(
            event_type,
            subject,
            body,
            event_id=UUID(int=(self._seed << 64) + self._count),
            actor=self.random.choice(ACTORS),
            occurred_at=T0 + self.random.randrange(1_000_000),
        )

    def _build(self, number: int) -> Iterator[Event]:
        build = f"build-{number}"
        refs = [
            f"data://g{number % 3}/ünï/{number}/{n}" for n in range(self.random.randrange(1, 4))
        ]
        yield self._event(
            "v1.build.received", build, {"requested_partitions": cast("JsonValue", refs)}
        )
        yield self._event("v1.build.planning", build, {})
        yield self._event("v1.build.analysis_completed", build, {"task_count": len(refs)})
        yield self._event("v1.build.executing", build, {})
        for ref in refs:
            yield from self._task(build, ref)
        yield self._event("v1.build.completed", build, {})
        yield self._event("v2.build.celebrated", build, {"cake": True})

    def _task(self, build: str, ref: str) -> Iterator[Event]:
        run = f"run-{ref}"
        mine: dict[str, JsonValue] = {"build_request_id": build}
        label = self.random.choice(LABELS)
        yield self._event("v1.partition.requested", ref, mine)
        yield self._event(
            "v1.job.scheduled",
            run,
            {**mine, "task_id": f"task-{ref}", "job_label": label, "outputs": [ref, f"{ref}.log"]},
        )
        yield self._event(
            "v1.partition.scheduled", ref, {**mine, "job_run_id": run, "job_label": label}
        )
        yield self._event("v1.job.running", run, {"worker": "w"})
        yield self._event("v1.partition.building", ref, {**mine, "job_run_id": run})
        yield self._event("v1.job.running", run, {})
        yield self._event("v1.partition.joined", ref, {"build_request_id": "another"})
        yield self._event("v1.partition.available", ref, {**mine, "job_run_id": run})
        yield self._event("v1.job.completed", run, {})
        yield self._event("v1.partition.stale", ref, {})


_PATTERNS: Final = (
    *("**", "*", "data://*/ünï/**", "data://g1/**", "**/0", "data://g?/ünï/*/[01]"),
    *("data://g[!0]/**", "nothing*", "**.log", "data://observed/*"),
)


def random_filter(rng: random.Random, events: Sequence[StoredEvent]) -> EventFilter:
    """Return a filter over values that the events have, now and then over ones they have not."""
    some = [rng.choice(events) for _ in range(3)]
    bodies = [_body(stored.event) for stored in some]
    fields: dict[str, Any] = {
        "partition_refs": _drawn(bodies, "outputs") or ["data://g0/ünï/0/0", "absent"],
        "partition_patterns": [rng.choice(_PATTERNS) for _ in range(rng.randrange(1, 3))],
        "job_labels": [rng.choice((*LABELS, "//no:label"))],
        "job_run_ids": [*_drawn(bodies, "job_run_id"), "run-data://g0/ünï/0/0"],
        "build_request_ids": [*_drawn(bodies, "build_request_id"), "build-1"],
        "task_ids": ["task-data://g0/ünï/0/0", *_drawn(bodies, "task_id")],
        "event_types": [stored.event.event_type for stored in some],
        "subject_kinds": [stored.event.subject_kind for stored in some],
        "actors": [rng.choice((*ACTORS, "belog"))],
        "created_from": some[0].created_at,
        "created_to": some[1].created_at + 1,
        "occurred_from": T0 + rng.randrange(500_000),
        "occurred_to": T0 + 500_000 + rng.randrange(500_000),
    }
    if fields["created_from"] > fields["created_to"]:
        del fields["created_from"]
    chosen = rng.sample(sorted(fields), rng.randrange(1, 4))
    return msgspec.convert({name: fields[name] for name in chosen}, EventFilter)


def _drawn(bodies: Sequence[Mapping[str, JsonValue]], name: str) -> list[str]:
    out: list[str] = []
    for body in bodies:
        out += _listed(body.get(name))
    return out


def _listed(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _body(event: Event) -> Mapping[str, JsonValue]:
    return event.body()


# --- what a filter wants, by brute force


def wanted_by(wanted: EventFilter, events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return the events that a filter wants, of all events of a log in order."""
    runs: dict[str, dict[str, list[str]]] = {}
    found: list[StoredEvent] = []
    for stored in events:
        concerned = _concerned(stored.event, runs)
        if _wants(wanted, stored, concerned):
            found.append(stored)
    return found


def _concerned(event: Event, runs: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    body = _body(event)
    said = {
        "partition_refs": [],
        "job_labels": _listed(body.get("job_label")),
        "job_run_ids": _listed(body.get("job_run_id")),
        "build_request_ids": _listed(body.get("build_request_id")),
        "task_ids": _listed(body.get("task_id")),
    }
    if event.subject_kind == "system":
        return {name: [] for name in said}
    if event.subject_kind == "build":
        refs = _listed(body.get("requested_partitions"))
        nothing: list[str] = []
        return {
            "partition_refs": refs,
            "build_request_ids": [event.subject_id],
            "job_labels": nothing,
            "job_run_ids": nothing,
            "task_ids": nothing,
        }
    if event.subject_kind == "job_run":
        said["partition_refs"] = _listed(body.get("outputs"))
        said["job_run_ids"] = [event.subject_id]
        # What a run is about was said once, by its first event.
        return runs.setdefault(event.subject_id, said)
    said["partition_refs"] = [event.subject_id]
    for run in said["job_run_ids"]:
        for name in ("job_labels", "task_ids"):
            said[name] = said[name] or runs.get(run, {}).get(name, [])
    return said


def _wants(
    wanted: EventFilter, stored: StoredEvent, concerned: Mapping[str, Sequence[str]]
) -> bool:
    event = stored.event
    has: dict[str, Sequence[str]] = {
        "event_types": [event.event_type],
        "subject_kinds": [event.subject_kind],
        "actors": [event.actor],
        **concerned,
    }
    for name, names in has.items():
        terms: tuple[str, ...] = getattr(wanted, name)
        if terms and not set(terms) & set(names):
            return False
    for time, start, end in (
        (stored.created_at, wanted.created_from, wanted.created_to),
        (event.occurred_at, wanted.occurred_from, wanted.occurred_to),
    ):
        if (start is not None and time < start) or (end is not None and time >= end):
            return False
    patterns = wanted.partition_patterns
    refs = concerned["partition_refs"]
    return not patterns or any(_fits(pattern, ref) for pattern in patterns for ref in refs)


def _fits(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern.startswith("**"):
        return any(_fits(pattern[2:], text[n:]) for n in range(len(text) + 1))
    if pattern[0] == "*":
        segment = text.partition("/")[0]
        return any(_fits(pattern[1:], text[n:]) for n in range(len(segment) + 1))
    if not text:
        return False
    if pattern[0] == "[":
        chars, _, rest = pattern[1:].partition("]")
        negated = chars.startswith("!")
        return text[0] != "/" and (text[0] in chars) != negated and _fits(rest, text[1:])
    fits = text[0] != "/" if pattern[0] == "?" else pattern[0] == text[0]
    return fits and _fits(pattern[1:], text[1:])
