"""The lifecycle tables as text for people: Markdown tables and Mermaid state diagrams.

`python -m belog.schemas.diagrams > docs/lifecycle.md` writes the page; a test holds it equal.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from belog.schemas.lifecycle import (
    KINDS,
    LIFECYCLES,
    NEVER_SEEN,
    Lifecycle,
    SubjectKind,
)

__all__ = ["markdown_table", "mermaid_diagram", "page"]

_TITLES: Final[Mapping[SubjectKind, str]] = {
    "build": "Build request",
    "job_run": "Job run",
    "partition": "Partition",
    "system": "The log itself",
}
_NOTES: Final[Mapping[SubjectKind, str]] = {
    "build": "An analysis that finds everything delegated or available completes the build.",
    "job_run": "A retry is a new job run. Each `running` after the first is a heartbeat.",
    "partition": (
        "In a state marked † the attempt belongs to the build that requested it: an event that"
        " names another build is illegal, but for those marked ‡."
    ),
    "system": "`log_created` is the first event of every log and stands there once.",
}
_INTRODUCTION: Final = """\
# State diagrams

Made from the tables in `belog.schemas.lifecycle` by `python -m belog.schemas.diagrams`.

∅ is "never seen". What is in no row is illegal: nothing changes, and the error names the current
state and the events that would be allowed. An event of a type that is not named here is kept and
changes no state. A shipped version never changes; a new one gets the next number, and an event in
the log says from where on it governs.
"""


def _shown(state: str) -> str:
    return state if state != NEVER_SEEN else "∅"


def _edges(lifecycle: Lifecycle, kind: SubjectKind) -> Iterator[tuple[str, str, str]]:
    """Yield `(state, event type, state after it)` in table order."""
    for row in lifecycle.machines[kind]:
        for source in row.sources:
            yield source, row.event_type, source if row.target is None else row.target


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def markdown_table(lifecycle: Lifecycle, kind: SubjectKind) -> str:
    """Return the table of one machine: a line for each state, with its events and where they lead.

    Args:
        lifecycle: The version.
        kind: Which of its machines.

    Returns:
        Lines of Markdown, each ended by a line feed.
    """
    lines = ["| from | event → to |", "|---|---|"]
    for state in (NEVER_SEEN, *lifecycle.states(kind)):
        steps = (
            f"`{event_type}`{'‡' if event_type in lifecycle.open_to_others else ''} → {_shown(to)}"
            for source, event_type, to in _edges(lifecycle, kind)
            if source == state
        )
        owned = "†" if kind == "partition" and state in lifecycle.owned_states else ""
        lines.append(f"| {_shown(state)}{owned} | {_joined(steps)} |")
    return "\n".join(lines) + "\n"


def mermaid_diagram(lifecycle: Lifecycle, kind: SubjectKind) -> str:
    """Return the Mermaid `stateDiagram-v2` of one machine.

    States that nothing leaves end in the final state; events between the same two states share
    an arrow.

    Args:
        lifecycle: The version.
        kind: Which of its machines.

    Returns:
        Lines of Mermaid, each ended by a line feed.
    """
    arrows: dict[tuple[str, str], list[str]] = {}
    for source, event_type, to in _edges(lifecycle, kind):
        arrows.setdefault((source, to), []).append(event_type.rpartition(".")[2])
    lines = ["stateDiagram-v2"]
    lines += [
        f"    {source or '[*]'} --> {to}: {', '.join(names)}"
        for (source, to), names in arrows.items()
    ]
    left = {source for source, _ in arrows}
    lines += [f"    {state} --> [*]" for state in lifecycle.states(kind) if state not in left]
    return "\n".join(lines) + "\n"


def page(lifecycles: Mapping[int, Lifecycle] = LIFECYCLES) -> str:
    """Return the page `docs/lifecycle.md`: all machines of all versions, the newest first."""
    parts = [_INTRODUCTION]
    for version in sorted(lifecycles, reverse=True):
        lifecycle = lifecycles[version]
        parts.append(f"## Lifecycle version {version}\n")
        for kind in KINDS:
            parts.append(f"### {_TITLES[kind]} (`{kind}`)\n\n{_NOTES[kind]}\n")
            parts.append(markdown_table(lifecycle, kind))
            parts.append(f"```mermaid\n{mermaid_diagram(lifecycle, kind)}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
