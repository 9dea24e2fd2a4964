"""Generators of events and payloads for property tests."""

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from belog.schemas.envelope import Event
from belog.schemas.events import PAYLOADS, Payload, new_event
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import JsonValue

INT64 = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**63 - 1)
# Surrogates have no UTF-8; control characters have no place in ids.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
UUIDS = st.binary(min_size=16, max_size=16)
TIMES = st.one_of(st.integers(1_600_000_000_000_000, 1_900_000_000_000_000), INT64)

MANIFESTS = st.fixed_dictionaries(
    {},
    optional={
        "outputs": st.lists(IDS, max_size=3),
        "inputs": st.lists(
            st.fixed_dictionaries({"ref": IDS}, optional={"index": INT64}), max_size=3
        ),
        "start_time": INT64,
        "end_time": INT64,
        "task_id": TEXT,
        "uri": TEXT,
        "size_bytes": COUNTS,
        "row_count": COUNTS,
        "content_digest": TEXT,
        "metadata": st.dictionaries(TEXT, TEXT, max_size=3),
    },
)
_LISTS = {"requested_partitions", "outputs", "inputs", "upstream_deps", "requesting_clients"}
_IDS = {
    *("build_request_id", "delegated_to_build", "available_from_build", "job_run_id"),
    "cause_partition",
}
_COUNTS = {"task_count", "partition_count", "index", "horizon", "removed_count"}


def _field(name: str) -> st.SearchStrategy[Any]:
    if name in _LISTS:
        return st.lists(IDS, max_size=4)
    if name in _IDS:
        return IDS
    if name in _COUNTS:
        return COUNTS
    if name in {"attempt", "lifecycle_version"}:
        return st.integers(1, 2**63 - 1)
    if name == "exit_code":
        return INT64
    return MANIFESTS if name == "manifest" else TEXT


def bodies(cls: type[Payload]) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Bodies of one event type, each optional field there or not."""
    required = {f.name: _field(f.name) for f in msgspec.structs.fields(cls) if f.required}
    optional = {f.name: _field(f.name) for f in msgspec.structs.fields(cls) if not f.required}
    return st.fixed_dictionaries(required, optional=optional)


JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.one_of(st.none(), st.booleans(), INT64, st.floats(), TEXT, st.binary(max_size=40)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
ANY_BODIES = st.dictionaries(TEXT, JSON_VALUES, max_size=6)
KINDS: tuple[SubjectKind, ...] = get_args(SubjectKind)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Events of known and of unknown types, with every field of the envelope in use."""
    known = draw(st.booleans())
    event_type = draw(st.sampled_from(sorted(PAYLOADS))) if known else "v7.thing.happened"
    body = draw(bodies(PAYLOADS[event_type]) if known else ANY_BODIES)
    return new_event(
        event_type,
        draw(IDS),
        body,
        event_id=draw(UUIDS),
        actor=draw(IDS),
        occurred_at=draw(TIMES),
        subject_kind=None if known else draw(st.sampled_from(KINDS)),
        caused_by=draw(st.none() | UUIDS),
        expected=draw(st.none() | st.integers(-1, 2**63 - 1)),
    )
