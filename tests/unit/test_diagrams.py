"""The page of state diagrams says what the tables say."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from belog.schemas.diagrams import markdown_table, mermaid_diagram, page
from belog.schemas.lifecycle import KINDS, LIFECYCLE_1, Row, SubjectKind

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def test_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "python -m belog.schemas.diagrams > docs/lifecycle.md"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_diagram_and_table_hold_every_transition_and_no_other(kind: SubjectKind) -> None:
    wanted = {
        (source, row.event_type, source if row.target is None else row.target)
        for row in LIFECYCLE_1.machines[kind]
        for source in row.sources
    }
    slug = "job" if kind == "job_run" else kind
    drawn = {
        (source.replace("[*]", ""), f"v1.{slug}.{name}", to)
        for source, to, names in re.findall(
            r"^    (\S+) --> (\S+): (.*)$", mermaid_diagram(LIFECYCLE_1, kind), re.MULTILINE
        )
        for name in names.split(", ")
    }
    assert drawn == wanted
    listed = {
        (source.replace("∅", ""), event_type, to)
        for source, cell in re.findall(
            r"^\| (\w+|∅)†? \| (.*) \|$", markdown_table(LIFECYCLE_1, kind), re.MULTILINE
        )
        for event_type, to in re.findall(r"`(\S+)`‡? → (\w+)", cell)
    }
    assert listed == wanted


def test_end_states_are_drawn_as_such() -> None:
    ends = re.findall(r"(\w+) --> \[\*\]", mermaid_diagram(LIFECYCLE_1, "build"))
    assert ends == ["completed", "failed", "cancelled"]
    assert "--> [*]" not in mermaid_diagram(LIFECYCLE_1, "partition")


def test_a_changed_table_changes_the_page() -> None:
    machines = {**LIFECYCLE_1.machines, "system": (Row("v1.system.x", ("",), "y"),)}
    newer = replace(LIFECYCLE_1, version=2, machines=machines)
    both = page({1: LIFECYCLE_1, 2: newer})
    assert both.index("version 2") < both.index("version 1")
    assert "`v1.system.x` → y" in both
