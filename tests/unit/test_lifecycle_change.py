"""A changed lifecycle from its description, and what it would have made of a log."""

import json
import random

import pytest

from belog.schemas.errors import InvalidConfiguration
from belog.schemas.fold import Record
from belog.schemas.lifecycle import LIFECYCLE_1, NEVER_SEEN, Lifecycle, Row
from belog.schemas.lifecycle_change import LifecycleChange, changed_lifecycle, read_change
from belog.schemas.rejudge import Difference, Rejudging
from tests.examples import created, event, record, replica_value

REMOVE_REQUESTED = """
base = 1
[[row]]
event = "v1.partition.removed"
from = ["available", "stale", "failed", "requested"]
to = "removed"
"""


def changed(text: str) -> Lifecycle:
    return changed_lifecycle(read_change(text, "toml"))


def rejudged(lifecycle: Lifecycle, records: list[Record]) -> list[Difference]:
    judging = Rejudging(lifecycle)
    found = [d for each in records if (d := judging.apply(each)) is not None]
    assert judging.differences == len(found)
    return found


def log(*steps: tuple[str, str]) -> list[Record]:
    events = [created(), *(event(f"v1.{name}", ref, n=n) for n, (name, ref) in enumerate(steps, 1))]
    return [record(n, each) for n, each in enumerate(events)]


def test_no_change_is_the_shipped_lifecycle() -> None:
    assert changed("") == LIFECYCLE_1
    assert changed("base = 1") == LIFECYCLE_1


def test_a_row_replaces_all_rows_of_its_event_where_they_stood() -> None:
    made = changed(REMOVE_REQUESTED)
    rows = made.machines["partition"]
    types = [row.event_type for row in LIFECYCLE_1.machines["partition"]]
    assert [row.event_type for row in rows] == types
    assert rows[types.index("v1.partition.removed")] == Row(
        "v1.partition.removed", ("available", "stale", "failed", "requested"), "removed"
    )
    assert made.machines["job_run"] == LIFECYCLE_1.machines["job_run"]
    assert made.version == 1


def test_json_says_the_same() -> None:
    row = {"event": "v1.job.paused", "from": ["running", "never_seen"], "to": "paused"}
    again = {"event": "v1.job.paused", "from": ["paused"], "to": "same"}
    made = changed_lifecycle(read_change(json.dumps({"row": [row, again]}), "json"))
    assert made.machines["job_run"][-2:] == (
        Row("v1.job.paused", ("running", NEVER_SEEN), "paused"),
        Row("v1.job.paused", ("paused",), None),
    )
    assert made.kinds["v1.job.paused"] == "job_run"


def test_lists_are_replaced_and_follow_what_is_removed() -> None:
    made = changed(
        'remove = ["v1.partition.joined"]\nowned_states = ["building"]\n'
        'attempt_events = ["v1.partition.building"]'
    )
    assert made.owned_states == {"building"}
    assert made.attempt_events == {"v1.partition.building"}
    assert made.open_to_others == frozenset()
    assert "v1.partition.joined" not in made.kinds


def row(event_type: str, sources: str = '["available"]', target: str = "removed") -> str:
    return f'[[row]]\nevent = "{event_type}"\nfrom = {sources}\nto = "{target}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("base = 7", "no lifecycle version 7"),
        ('base = "1"', r"\$.base"),
        ("rows = []", "unknown field `rows`"),
        ("[[row]]\nevent = 'v1.job.paused'", "missing required field `from`"),
        ("not toml", "not described"),
        (row("v1.partition.removed", target="never_seen"), "never_seen"),
        (row("v1.partition.removed", '["never_seen"]', "same"), "cannot leave"),
        (row("v1.partition.removed", '["vanished"]'), "'vanished', to which no partition"),
        (row("v1.partition.removed", '["available", "available"]'), "twice"),
        (row("v1.partition.removed") + row("v1.partition.removed"), "twice"),
        (row("v1.partition.removed", target="Not a state"), "'Not a state'"),
        (row("v1.partition.removed", target="same") + "x = 1", "unknown field `x`"),
        (row("v1.system.vacuumed", '["open"]', "open"), "cannot be changed"),
        (row("v1.table.made"), "not an event type"),
        (row("partition"), "not an event type"),
        ('remove = ["v1.partition.melted"]', "is not in version 1"),
        ('remove = ["v1.partition.removed"]\n' + row("v1.partition.removed"), "and has a row"),
        ('remove = ["v1.partition.stale"]', "starts from 'stale'"),
        ('owned_states = ["melted"]', "owned_states holds 'melted'"),
        ('attempt_events = ["v1.job.failed"]', "attempt_events holds"),
        ('open_to_others = ["v1.partition.stale"]', "open_to_others holds"),
    ],
)
def test_what_makes_no_lifecycle_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        changed(text)


def test_the_same_lifecycle_judges_the_same(seed: int) -> None:
    rng = random.Random(f"{seed}-rejudge")
    names = [f"partition.{n}" for n in ("requested", "scheduled", "building", "observed", "stale")]
    steps = [(rng.choice(names), f"ref-{rng.randrange(4)}") for _ in range(300)]
    records = [*log(*steps), record(301, None), record(302, b"garbage")]
    assert rejudged(LIFECYCLE_1, records) == []


def test_lists_what_would_have_been_accepted_and_what_follows() -> None:
    records = log(
        ("partition.requested", "a"),
        ("partition.removed", "a"),
        ("partition.requested", "a"),
        ("partition.scheduled", "a"),
        ("partition.observed", "b"),
    )
    assert rejudged(changed(REMOVE_REQUESTED), records) == [
        Difference(
            index=2,
            subject="partition:a",
            event_type="v1.partition.removed",
            before="void: illegal_transition",
            after="accepted: removed",
        ),
        Difference(
            index=3,
            subject="partition:a",
            event_type="v1.partition.requested",
            before="void: illegal_transition",
            after="accepted: requested",
        ),
    ]


def test_lists_what_would_have_been_refused_and_repeats_of_it() -> None:
    never = changed('[[row]]\nevent = "v1.partition.observed"\nfrom = []\nto = "available"')
    records = log(("partition.observed", "a"), ("partition.requested", "b"))
    records += [Record(3, records[1].created_at, records[1].value)]
    found = rejudged(never, records)
    assert [(d.index, d.before, d.after) for d in found] == [
        (1, "accepted: available", "void: illegal_transition"),
        (3, "duplicate of 1", "void: illegal_transition"),
    ]


def test_a_type_that_is_not_known_any_more_moves_nothing() -> None:
    rows = (
        row("v1.partition.requested", '["never_seen", "available"]', "requested"),
        row("v1.partition.removed"),
        row("v1.partition.observed", '["never_seen"]', "available"),
    )
    less = changed('remove = ["v1.partition.stale"]\n' + "".join(rows))
    records = log(("partition.observed", "a"), ("partition.stale", "a"), ("partition.removed", "a"))
    found = rejudged(less, records)
    assert [(d.index, d.before, d.after) for d in found] == [
        (2, "accepted: stale", "accepted: available")
    ]


def test_a_replica_is_judged_as_its_origin_was() -> None:
    never = changed('[[row]]\nevent = "v1.partition.observed"\nfrom = []\nto = "available"')
    events = [created(), *(event("v1.partition.observed", f"r{n}", n=n) for n in (1, 2, 3))]
    wrapped = [
        record(n, replica_value(e, 2 * n, 2 * n - 2 if n else -1)) for n, e in enumerate(events)
    ]
    stray = record(4, replica_value(event("v1.partition.observed", "r9", n=9), 9, 7))
    assert [d.index for d in rejudged(never, [*wrapped, stray])] == [2, 4, 6]


def test_the_description_holds_what_it_was_read_from() -> None:
    assert read_change("remove = []", "toml") == LifecycleChange()
