"""Every row of the tables, and everything that is no row."""

from collections.abc import Mapping

import pytest

from belog.schemas.errors import NewerFormat
from belog.schemas.fold import Accepted, Fold, Void
from belog.schemas.lifecycle import LIFECYCLE_1, SubjectKind, kind_of_type
from tests.examples import ALL_TYPES, LOG_ID, REQUIRED, event, opened, put, raw_event, state_of

# Written out by hand from the design, row by row the other way round than the code: by state.
TABLES: Mapping[SubjectKind, Mapping[str, Mapping[str, str]]] = {
    "build": {
        "": {"received": "received"},
        "received": {"planning": "planning", "failed": "failed", "cancelled": "cancelled"},
        "planning": {
            "analysis_completed": "analysis_completed",
            "failed": "failed",
            "cancelled": "cancelled",
        },
        "analysis_completed": {
            "executing": "executing",
            "completed": "completed",
            "failed": "failed",
            "cancelled": "cancelled",
        },
        "executing": {"completed": "completed", "failed": "failed", "cancelled": "cancelled"},
        "completed": {},
        "failed": {},
        "cancelled": {},
    },
    "job_run": {
        "": {"scheduled": "scheduled", "skipped": "skipped"},
        "scheduled": {
            "running": "running",
            "skipped": "skipped",
            "failed": "failed",
            "cancelled": "cancelled",
        },
        "running": {
            "running": "running",
            "completed": "completed",
            "failed": "failed",
            "cancelled": "cancelled",
        },
        "completed": {},
        "skipped": {},
        "failed": {},
        "cancelled": {},
    },
    "partition": {
        "": {"requested": "requested", "observed": "available"},
        "requested": {
            "scheduled": "scheduled",
            "delegated": "delegated",
            "failed": "failed",
            "joined": "requested",
        },
        "scheduled": {
            "building": "building",
            "failed": "failed",
            "requested": "requested",
            "joined": "scheduled",
        },
        "building": {
            "available": "available",
            "failed": "failed",
            "requested": "requested",
            "joined": "building",
        },
        "delegated": {
            "available": "available",
            "failed": "failed",
            "requested": "requested",
            "joined": "delegated",
        },
        "available": {
            "requested": "requested",
            "stale": "stale",
            "removed": "removed",
            "observed": "available",
        },
        "failed": {"requested": "requested", "removed": "removed", "observed": "available"},
        "stale": {"requested": "requested", "removed": "removed", "observed": "available"},
        "removed": {"requested": "requested", "observed": "available"},
    },
    "system": {
        "": {},
        "open": {"snapshot_taken": "open", "vacuumed": "open"},
    },
}

PATHS: Mapping[SubjectKind, Mapping[str, tuple[str, ...]]] = {
    "build": {
        "received": ("received",),
        "planning": ("received", "planning"),
        "analysis_completed": ("received", "planning", "analysis_completed"),
        "executing": ("received", "planning", "analysis_completed", "executing"),
        "completed": ("received", "planning", "analysis_completed", "completed"),
        "failed": ("received", "failed"),
        "cancelled": ("received", "cancelled"),
    },
    "job_run": {
        "scheduled": ("scheduled",),
        "running": ("scheduled", "running"),
        "completed": ("scheduled", "running", "completed"),
        "skipped": ("skipped",),
        "failed": ("scheduled", "failed"),
        "cancelled": ("scheduled", "cancelled"),
    },
    "partition": {
        "requested": ("requested",),
        "scheduled": ("requested", "scheduled"),
        "building": ("requested", "scheduled", "building"),
        "delegated": ("requested", "delegated"),
        "available": ("requested", "scheduled", "building", "available"),
        "failed": ("requested", "failed"),
        "stale": ("observed", "stale"),
        "removed": ("observed", "removed"),
    },
    "system": {"open": ()},
}
SLUGS = {"build": "build", "job_run": "job", "partition": "partition", "system": "system"}


def full_type(kind: SubjectKind, name: str) -> str:
    return f"v1.{SLUGS[kind]}.{name}"


def in_state(kind: SubjectKind, state: str) -> tuple[Fold, str]:
    """A fold with a subject in a state, and the subject."""
    fold = opened()
    subject = (str(LOG_ID) if state else "nobody") if kind == "system" else "the subject"
    for n, name in enumerate(PATHS[kind].get(state, ())):
        assert type(put(fold, event(full_type(kind, name), subject, n=n)).verdict) is Accepted
    return fold, subject


CASES = [(kind, state) for kind, states in TABLES.items() for state in states]


@pytest.mark.parametrize(("kind", "state"), CASES)
@pytest.mark.parametrize("event_type", ALL_TYPES)
def test_every_state_with_every_type(kind: SubjectKind, state: str, event_type: str) -> None:
    fold, subject = in_state(kind, state)
    before = state_of(fold)
    known = fold.subject(kind, subject)
    assert (known.state if known else "") == state
    wanted = TABLES[kind][state]
    if (state, event_type) == ("open", "v1.system.lifecycle_adopted"):
        with pytest.raises(NewerFormat):  # legal, and to a version that is not known here
            put(fold, event(event_type, subject, n=99))
        return
    name = event_type.rpartition(".")[2]
    verdict = put(
        fold, raw_event(event_type, subject, REQUIRED.get(event_type, {}), n=99, kind=kind)
    ).verdict
    if kind_of_type(event_type) == kind and name in wanted:
        assert type(verdict) is Accepted
        after = fold.subject(kind, subject)
        assert after is not None
        assert (after.state, after.index) == (wanted[name], fold.next_idx - 1)
        return
    assert type(verdict) is Void
    after_void = {**state_of(fold), "position": before["position"], "index": before["index"]}
    assert after_void == before
    if kind_of_type(event_type) == kind or event_type == "v1.system.log_created":
        assert verdict.reason == "illegal_transition"
        if event_type != "v1.system.log_created":
            assert verdict.state == state
            allowed = {full_type(kind, n) for n in wanted} | (
                {"v1.system.log_created"} if (kind, state) == ("system", "") else set()
            )
            assert set(verdict.allowed) - {"v1.system.lifecycle_adopted"} == allowed
    else:
        assert verdict.reason == "bad_subject"


def test_tables_hold_no_state_beyond_the_design() -> None:
    for kind, states in TABLES.items():
        assert set(LIFECYCLE_1.states(kind)) == {s for s in states if s}


def test_events_of_one_kind_cannot_move_another_where_states_share_a_name() -> None:
    fold, subject = in_state("build", "failed")
    attempt = raw_event(
        "v1.partition.requested", subject, {"build_request_id": "b"}, n=50, kind="build"
    )
    verdict = put(fold, attempt).verdict
    assert isinstance(verdict, Void)
    assert verdict.reason == "bad_subject"
