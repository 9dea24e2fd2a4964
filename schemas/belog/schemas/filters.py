"""Which events a reader wants, and which subjects an event concerns.

An event *concerns* its own subject and the subjects its payload names: a partition's event its
build and job run, a build request's arrival the partitions it asks for, a job run's event
everything that its first event named (outputs, build, task, label), also where the later payload
no longer says so.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from msgspec import Struct

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Corrupt, InvalidFilter, LimitExceeded
from belog.schemas.lifecycle import KINDS
from belog.schemas.limits import FILTER_TERMS_MAX, REF_BYTES_MAX
from belog.schemas.payload import JsonValue, known_payload

__all__ = [
    "ALL",
    "NO_TERMS",
    "EventFilter",
    "JobTerms",
    "Matcher",
    "Terms",
    "glob_regex",
    "terms_of",
]


class EventFilter(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Terms of one field are alternatives, fields are joined by *and*; the empty one matches all.

    Ranges are half open: from inclusive, to exclusive, microseconds since the epoch, UTC.
    """

    partition_refs: tuple[str, ...] = ()
    partition_patterns: tuple[str, ...] = ()
    """Globs over the whole ref: `*` within a segment, `**` over segments, `?`, `[abc]`, `[a-c]`
    and `[!abc]` one character but `/`."""
    job_labels: tuple[str, ...] = ()
    job_run_ids: tuple[str, ...] = ()
    build_request_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    subject_kinds: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    created_from: int | None = None
    created_to: int | None = None
    occurred_from: int | None = None
    occurred_to: int | None = None


ALL: Final = EventFilter()


class Terms(Struct, frozen=True, gc=False):
    """The subjects that one event concerns."""

    partition_refs: tuple[str, ...] = ()
    build_request_ids: tuple[str, ...] = ()
    job_run_ids: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    job_labels: tuple[str, ...] = ()


NO_TERMS: Final = Terms()

JobTerms = Callable[[str], Terms | None]
"""The terms of a job run's first event, by its id; None if there is none."""


def terms_of(
    event: Event, job_terms: JobTerms, body: Mapping[str, JsonValue] | None = None
) -> Terms:
    """Return what an event concerns.

    Args:
        event: An accepted event.
        job_terms: Terms of job runs whose first event came before.
        body: The decoded payload, where the caller has it already.
    """
    kind = event.subject_kind
    if kind == "system":
        return NO_TERMS
    if body is None:
        try:
            body = known_payload(event.payload)
        except Corrupt:
            # Accepted all the same (the verdict on this type does not read it): it names nobody.
            body = {}
    builds = _texts(body.get("build_request_id"))
    if kind == "partition":
        run_ids = _texts(body.get("job_run_id"))
        run = job_terms(run_ids[0]) if run_ids else None
        return Terms(
            (event.subject_id,),
            builds,
            run_ids,
            _texts(body.get("task_id")) or (run.task_ids if run else ()),
            _texts(body.get("job_label")) or (run.job_labels if run else ()),
        )
    if kind == "build":
        return Terms(_texts(body.get("requested_partitions")), (event.subject_id,))
    first = job_terms(event.subject_id)
    if first is not None and not builds:
        return first
    return Terms(
        _texts(body.get("outputs")),
        builds,
        (event.subject_id,),
        _texts(body.get("task_id")),
        _texts(body.get("job_label")),
    )


def _texts(value: JsonValue) -> tuple[str, ...]:
    if type(value) is str:
        return (value,)
    if type(value) is list:
        return tuple([item for item in value if type(item) is str])
    return ()


def glob_regex(pattern: str) -> str:
    """Return the regular expression of a partition pattern, for a full match.

    Matching takes at most about the square of the ref's length, whatever the pattern: what stands
    between two stars takes the leftmost place that fits, and is not tried at another. The places
    that come after it can be reached from the leftmost one if from any, because `*` stops at a
    `/` only and `**` nowhere. Only what stands after the last `**` has to meet the end.

    >>> glob_regex("data://*/who/**")
    'data://(?>[^/]*?/who/).*'

    Raises:
        InvalidFilter: A bracket that is not closed, is empty, or has a range upside down.
        LimitExceeded: The pattern is longer than a ref may be.
    """
    if len(pattern) > REF_BYTES_MAX:
        raise LimitExceeded(
            "partition pattern",
            limit="REF_BYTES_MAX",
            limit_value=REF_BYTES_MAX,
            value=len(pattern),
        )
    runs = _split(pattern)
    if len(runs) == 1:
        return _run(runs[0], ends=True)
    middle = (f"(?>.*?{_run(run, ends=False)})" for run in runs[1:-1])
    return _run(runs[0], ends=False) + "".join(middle) + ".*" + _run(runs[-1], ends=True)


def _run(pieces: list[str], *, ends: bool) -> str:
    """Return the expression of pieces with `*` between them; `ends`: they reach the end."""
    out = [pieces[0], *(f"(?>[^/]*?{piece})" for piece in pieces[1:])]
    if ends and len(pieces) > 1:
        out[-1] = f"[^/]*{pieces[-1]}"
    return "".join(out)


def _split(pattern: str) -> list[list[str]]:
    """Return the expressions of what stands between `*`, in a list of those between `**`."""
    runs = [[""]]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
            if stars == 1:
                runs[-1].append("")
            else:
                runs.append([""])
            at += stars
            continue
        if char == "[":
            # The first character is never the closing one, so that `[]]` can be said.
            first = at + 2 if pattern[at + 1 : at + 2] == "!" else at + 1
            close = pattern.find("]", first + 1)
            if close < 0:
                msg = f"partition pattern {pattern!r} has a bracket that is empty or not closed"
                raise InvalidFilter(msg)
            runs[-1][-1] += _bracket(pattern, first, close)
            at = close
        else:
            runs[-1][-1] += "[^/]" if char == "?" else _literal(char)
        at += 1
    return runs


def _literal(char: str) -> str:
    return char if char.isalnum() or char in "/:_" else re.escape(char)


def _bracket(pattern: str, first: int, close: int) -> str:
    items: list[str] = []
    at = first
    while at < close:
        low = high = pattern[at]
        if at + 2 < close and pattern[at + 1] == "-":
            high = pattern[at + 2]
            at += 2
        if low > high:
            msg = f"partition pattern {pattern!r} has the range {low}-{high} upside down"
            raise InvalidFilter(msg)
        items.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
        at += 1
    chars = "".join(items)
    return f"[^/{chars}]" if pattern[first - 1] == "!" else f"(?!/)[{chars}]"


class Matcher:
    """A filter made ready to be asked of many events. Immutable.

    Attributes:
        filter: What it was made from.
        needs_terms: Whether an answer depends on the subjects an event concerns.
        matches_all: Whether every event matches.
    """

    __slots__ = ("_patterns", "_sets", "filter", "matches_all", "needs_terms")

    def __init__(self, wanted: EventFilter) -> None:
        """Check and compile a filter.

        Raises:
            InvalidFilter: An unknown subject kind, a bad pattern, or a range that is upside down.
            LimitExceeded: More than `FILTER_TERMS_MAX` terms.
        """
        self.filter = wanted
        fields = [
            getattr(wanted, name)
            for name in wanted.__struct_fields__
            if isinstance(getattr(wanted, name), tuple)
        ]
        count = sum(len(terms) for terms in fields)
        if count > FILTER_TERMS_MAX:
            raise LimitExceeded(
                "filter terms",
                limit="FILTER_TERMS_MAX",
                limit_value=FILTER_TERMS_MAX,
                value=count,
            )
        for kind in wanted.subject_kinds:
            if kind not in KINDS:
                msg = f"subject kind {kind!r} is none of {', '.join(KINDS)}"
                raise InvalidFilter(msg)
        for name in ("created", "occurred"):
            start, end = getattr(wanted, f"{name}_from"), getattr(wanted, f"{name}_to")
            if start is not None and end is not None and start > end:
                msg = f"{name}_from is after {name}_to"
                raise InvalidFilter(msg)
        self._patterns = self._compile(wanted.partition_patterns)
        self._sets: tuple[tuple[str, frozenset[str]], ...] = tuple(
            (name, frozenset(getattr(wanted, name)))
            for name in Terms.__struct_fields__
            if getattr(wanted, name)
        )
        self.needs_terms = bool(self._sets) or self._patterns is not None
        self.matches_all = wanted == ALL

    @staticmethod
    def _compile(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
        if not patterns:
            return None
        return re.compile("|".join(f"(?:{glob_regex(p)})" for p in patterns), re.DOTALL)

    def matches(self, stored: StoredEvent, terms: Terms = NO_TERMS) -> bool:
        """Whether an event is wanted; `terms` may be left out where `needs_terms` is false."""
        if self.matches_all:
            return True
        wanted, event = self.filter, stored.event
        if wanted.event_types and event.event_type not in wanted.event_types:
            return False
        if wanted.subject_kinds and event.subject_kind not in wanted.subject_kinds:
            return False
        if wanted.actors and event.actor not in wanted.actors:
            return False
        if not _within(stored.created_at, wanted.created_from, wanted.created_to):
            return False
        if not _within(event.occurred_at, wanted.occurred_from, wanted.occurred_to):
            return False
        for name, values in self._sets:
            if values.isdisjoint(cast("tuple[str, ...]", getattr(terms, name))):
                return False
        patterns = self._patterns
        return patterns is None or any(map(patterns.fullmatch, terms.partition_refs))


def _within(value: int, start: int | None, end: int | None) -> bool:
    return (start is None or value >= start) and (end is None or value < end)
