"""A lifecycle that somebody thinks of: changes to a shipped one, written down in a file. Pure.

The description is TOML or JSON::

    base = 1                          # the version that is changed; the newest when left out
    remove = ["v1.partition.stale"]   # the types that the changed one shall not know

    [[row]]                           # all rows of an event type, in place of the base's
    event = "v1.partition.removed"
    from = ["available", "failed", "requested"]   # "never_seen" for a new subject, [] for never
    to = "removed"                    # "same": the state stays

    # each replaces the base's list; see `belog.schemas.lifecycle.Lifecycle`
    owned_states = ["requested", "scheduled", "building", "delegated"]
    attempt_events = ["v1.partition.requested"]
    open_to_others = ["v1.partition.joined"]

The second segment of an event type says whose machine a row belongs to. An event of a type that no
row names is of an unknown type: it is accepted and moves nothing. To forbid it, give it a row with
`from = []`. What the log says of itself (`v1.system.*`) cannot be changed.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from belog.schemas.errors import InvalidConfiguration
from belog.schemas.lifecycle import (
    KINDS,
    LIFECYCLE_VERSION_NEWEST,
    LIFECYCLES,
    NEVER_SEEN,
    Lifecycle,
    Row,
    SubjectKind,
    kind_of_type,
)

__all__ = ["NEVER_SEEN_NAME", "SAME_STATE", "LifecycleChange", "changed_lifecycle", "read_change"]

NEVER_SEEN_NAME: Final = "never_seen"
"""How a description writes the state of a subject that no event has named."""

SAME_STATE: Final = "same"
"""How a description says that an event leaves the state as it is."""

_TYPE: Final = re.compile(r"v[0-9]+(\.[a-z][a-z0-9_]*){2,}")
_STATE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


class RowChange(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[row]]`."""

    event: str
    sources: tuple[str, ...] = field(name="from")
    target: str = field(name="to")


class LifecycleChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A description as it was read; see the module's docstring."""

    base: int = LIFECYCLE_VERSION_NEWEST
    remove: tuple[str, ...] = ()
    rows: tuple[RowChange, ...] = field(name="row", default=())
    owned_states: tuple[str, ...] | None = None
    attempt_events: tuple[str, ...] | None = None
    open_to_others: tuple[str, ...] | None = None


def read_change(text: str, form: Literal["toml", "json"]) -> LifecycleChange:
    """Read a description.

    Raises:
        InvalidConfiguration: It is malformed, or holds a field that is unknown or of another type.
    """
    try:
        parsed: object = tomllib.loads(text) if form == "toml" else json.loads(text)
        return msgspec.convert(parsed, LifecycleChange)
    except (ValueError, RecursionError) as error:
        msg = f"the lifecycle is not described as it must be: {error}"
        raise InvalidConfiguration(msg) from error


def changed_lifecycle(change: LifecycleChange) -> Lifecycle:
    """Return the lifecycle that a description makes; its version is that of its base.

    Raises:
        InvalidConfiguration: The rows contradict each other or name what is not there.
    """
    base = LIFECYCLES.get(change.base)
    if base is None:
        known = ", ".join(map(str, LIFECYCLES))
        raise _flaw(f"there is no lifecycle version {change.base} to start from; known: {known}")
    machines: dict[SubjectKind, tuple[Row, ...]] = dict(base.machines)
    for event_type in change.remove:
        kind = _kind(event_type)
        if event_type not in base.kinds:
            raise _flaw(f"{event_type} is to be removed and is not in version {change.base}")
        machines[kind] = tuple(r for r in machines[kind] if r.event_type != event_type)
    for event_type, rows in _by_event(change.rows).items():
        if event_type in change.remove:
            raise _flaw(f"{event_type} is to be removed, and has a row")
        kind = _kind(event_type)
        machines[kind] = _replaced(machines[kind], event_type, rows)
    for kind in KINDS:
        _check_machine(kind, machines[kind])
    return _with_ownership(change, base, machines)


def _flaw(message: str) -> InvalidConfiguration:
    return InvalidConfiguration(message, hint="see the description of the format in docs/replay.md")


def _kind(event_type: str) -> SubjectKind:
    kind = kind_of_type(event_type)
    if kind is None or not _TYPE.fullmatch(event_type):
        raise _flaw(f"{event_type!r} is not an event type: v1.build.…, v1.job.… or v1.partition.…")
    if kind == "system":
        raise _flaw(f"{event_type} is what the log says of itself, and cannot be changed")
    return kind


def _by_event(changes: Sequence[RowChange]) -> Mapping[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for change in changes:
        sources = tuple(NEVER_SEEN if s == NEVER_SEEN_NAME else _state(s) for s in change.sources)
        if change.target == NEVER_SEEN_NAME:
            raise _flaw(f"{change.event} cannot make a subject {NEVER_SEEN_NAME}")
        target = None if change.target == SAME_STATE else _state(change.target)
        if target is None and NEVER_SEEN in sources:
            raise _flaw(f"{change.event} cannot leave a subject {NEVER_SEEN_NAME}")
        rows.setdefault(change.event, []).append(Row(change.event, sources, target))
    return rows


def _state(name: str) -> str:
    if not _STATE.fullmatch(name) or name in {SAME_STATE, NEVER_SEEN_NAME}:
        raise _flaw(f"{name!r} cannot be the name of a state")
    return name


def _replaced(machine: Sequence[Row], event_type: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return a machine with an event's rows replaced, where the first of them stood."""
    types = [row.event_type for row in machine]
    at = types.index(event_type) if event_type in types else len(machine)
    others = [row for row in machine[at:] if row.event_type != event_type]
    return (*machine[:at], *rows, *others)


def _check_machine(kind: SubjectKind, machine: Sequence[Row]) -> None:
    reached = {NEVER_SEEN, *(row.target for row in machine if row.target is not None)}
    seen: set[tuple[str, str]] = set()
    for row in machine:
        for source in row.sources:
            if source not in reached:
                raise _flaw(
                    f"{row.event_type} starts from {source!r}, to which no {kind} event leads"
                )
            if (source, row.event_type) in seen:
                raise _flaw(f"{row.event_type} is said twice for {source or NEVER_SEEN_NAME!r}")
            seen.add((source, row.event_type))


def _with_ownership(
    change: LifecycleChange, base: Lifecycle, machines: Mapping[SubjectKind, tuple[Row, ...]]
) -> Lifecycle:
    partition = machines["partition"]
    states = {row.target for row in partition if row.target is not None}
    types = {row.event_type for row in partition}
    attempts = _chosen(change.attempt_events, base.attempt_events, types, "attempt_events")
    return Lifecycle(
        version=base.version,
        machines=machines,
        owned_states=_chosen(change.owned_states, base.owned_states, states, "owned_states"),
        attempt_events=attempts,
        open_to_others=_chosen(
            change.open_to_others, base.open_to_others, attempts, "open_to_others"
        ),
    )


def _chosen(
    given: Iterable[str] | None, default: frozenset[str], known: Iterable[str], name: str
) -> frozenset[str]:
    """Return what a list of the description says, or what is left of the base's."""
    if given is None:
        return default & frozenset(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise _flaw(f"{name} holds {unknown[0]!r}, which no partition row has")
    return frozenset(given)
