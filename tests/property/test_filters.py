"""Filters: globs against another way to match them, ranges, and what an event concerns."""

import time
from functools import cache

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import InvalidFilter, LimitExceeded
from belog.schemas.filters import ALL, NO_TERMS, EventFilter, Matcher, Terms, terms_of
from belog.schemas.limits import FILTER_TERMS_MAX, REF_BYTES_MAX
from belog.schemas.payload import JsonValue, digest
from tests.examples import T0, event, id_bytes, raw_event


def tokens_of(pattern: str) -> tuple[str, ...]:
    """Stars, and everything else one by one; a bracket is one token."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        end = at + 1
        if pattern[at] == "*":
            while pattern[end : end + 1] == "*":
                end += 1
            out.append("**" if end - at > 1 else "*")
        elif pattern[at] == "[":
            end = pattern.index("]", at + (3 if pattern[at + 1] == "!" else 2)) + 1
            out.append(pattern[at:end])
        else:
            out.append(pattern[at])
        at = end
    return tuple(out)


def in_bracket(token: str, char: str) -> bool:
    negated = token[1] == "!"
    chars = token[2 if negated else 1 : -1]
    found = False
    while chars:
        if len(chars) > 2 and chars[1] == "-":
            found = found or chars[0] <= char <= chars[2]
            chars = chars[3:]
        else:
            found = found or char == chars[0]
            chars = chars[1:]
    return char != "/" and found != negated


def oracle(pattern: str, text: str) -> bool:
    """Try everything: exponential without the cache, and plain to see."""
    tokens = tokens_of(pattern)

    @cache
    def rest(token: int, at: int) -> bool:
        if token == len(tokens):
            return at == len(text)
        this = tokens[token]
        if this in {"*", "**"}:
            if rest(token + 1, at):
                return True
            may_take = at < len(text) and (this == "**" or text[at] != "/")
            return may_take and rest(token, at + 1)
        if at == len(text):
            return False
        if this == "?":
            fits = text[at] != "/"
        elif this.startswith("["):
            fits = in_bracket(this, text[at])
        else:
            fits = this == text[at]
        return fits and rest(token + 1, at + 1)

    return rest(0, 0)


def matches(pattern: str, ref: str) -> bool:
    stored = StoredEvent(1, T0, event("v1.partition.stale", ref, n=1))
    return Matcher(EventFilter(partition_patterns=(pattern,))).matches(stored, Terms((ref,)))


BRACKETS = (
    *("[ab]", "[!a]", "[a-c]", "[]a]", "[!]]", "[--/]", "[^a]", "[a&&b]", "[a||b]"),
    *("[~~]", "[\\]", "[-a]"),
)
PIECES = st.sampled_from((*"ab/.\\(+^$-é?*", "**", "***", *BRACKETS))
PATTERNS = st.lists(PIECES, max_size=9).map("".join)
REFS = st.text(st.sampled_from("ab/c.]^-&|~\\(é"), min_size=1, max_size=12)


@given(PATTERNS, REFS)
@example("**x*y", "x/xy")
@example("**a*b**c", "a/ab/c")
@example("*a*a", "aaa")
@example("**/a", "a")
@example("**", "a/b\\c")
def test_globs_equal_the_oracle(pattern: str, ref: str) -> None:
    assert matches(pattern, ref) is oracle(pattern, ref)


@given(st.text(st.sampled_from("*?[]!-/ab"), max_size=12), REFS)
def test_any_text_is_a_pattern_or_refused(pattern: str, ref: str) -> None:
    try:
        found = matches(pattern, ref)
    except InvalidFilter:
        return
    assert found is oracle(pattern, ref)


@pytest.mark.parametrize("pattern", ["[", "a[b", "[]", "[!]", "[!", "[z-a]", "[a-z"])
def test_pattern_refused(pattern: str) -> None:
    with pytest.raises(InvalidFilter):
        Matcher(EventFilter(partition_patterns=(pattern,)))


@pytest.mark.parametrize("star", ["*", "**", "*?", "**?", "**b*"])
def test_no_pattern_takes_for_ever(star: str) -> None:
    pattern = (f"{star}a" * REF_BYTES_MAX)[: REF_BYTES_MAX - 1] + "x"
    start = time.perf_counter()
    assert not matches(pattern, "ab" * (REF_BYTES_MAX // 2))
    # Backtracking over so many stars would take longer than the universe has.
    assert time.perf_counter() - start < 5


def test_limits_of_a_filter() -> None:
    Matcher(EventFilter(partition_refs=("r",) * FILTER_TERMS_MAX))
    with pytest.raises(LimitExceeded):
        Matcher(EventFilter(partition_refs=("r",) * FILTER_TERMS_MAX, actors=("a",)))
    Matcher(EventFilter(partition_patterns=("x" * REF_BYTES_MAX,)))
    with pytest.raises(LimitExceeded):
        Matcher(EventFilter(partition_patterns=("x" * (REF_BYTES_MAX + 1),)))
    with pytest.raises(InvalidFilter):
        Matcher(EventFilter(subject_kinds=("planet",)))
    with pytest.raises(InvalidFilter):
        Matcher(EventFilter(created_from=2, created_to=1))
    with pytest.raises(InvalidFilter):
        Matcher(EventFilter(occurred_from=2, occurred_to=1))


def test_ranges_are_half_open() -> None:
    stored = StoredEvent(1, 100, event("v1.build.planning", "b", n=7))
    at = stored.event.occurred_at
    for start, end, wanted in ((100, 101, True), (99, 100, False), (101, None, False)):
        matcher = Matcher(EventFilter(created_from=start, created_to=end))
        assert matcher.matches(stored) is wanted
    for start, end, wanted in ((at, at + 1, True), (at - 1, at, False), (at, at, False)):
        matcher = Matcher(EventFilter(occurred_from=start, occurred_to=end))
        assert matcher.matches(stored) is wanted


def test_what_a_matcher_needs() -> None:
    assert Matcher(ALL).matches_all
    assert not Matcher(EventFilter(actors=("a",))).needs_terms
    assert not Matcher(EventFilter(created_from=0)).matches_all
    for field in ("partition_refs", "job_labels", "job_run_ids", "build_request_ids", "task_ids"):
        assert Matcher(msgspec.convert({field: ["x"]}, EventFilter)).needs_terms
    assert Matcher(EventFilter(partition_patterns=("x",))).needs_terms


# --- what an event concerns


def no_job(_: str) -> Terms | None:
    return None


RUN = Terms(("out/1", "out/2"), ("b1",), ("run-1",), ("task-1",), ("//job:label",))


def known_job(run_id: str) -> Terms | None:
    return RUN if run_id == "run-1" else None


SCHEDULED: dict[str, JsonValue] = {
    "build_request_id": "b1",
    "task_id": "task-1",
    "job_label": "//job:label",
    "outputs": ["out/1", "out/2"],
    "inputs": ["in/1"],
}


def test_terms_of_a_job_run() -> None:
    first = event("v1.job.scheduled", "run-1", {**SCHEDULED}, n=1)
    assert terms_of(first, no_job) == RUN
    later = event("v1.job.running", "run-1", n=2)
    assert terms_of(later, known_job) == RUN
    assert terms_of(later, no_job) == Terms(job_run_ids=("run-1",))
    assert terms_of(later, known_job, {}) == RUN


def test_terms_of_a_partition() -> None:
    scheduled = event(
        "v1.partition.scheduled",
        "out/1",
        {"build_request_id": "b1", "job_run_id": "run-1", "task_id": "t", "job_label": "l"},
        n=1,
    )
    assert terms_of(scheduled, known_job) == Terms(("out/1",), ("b1",), ("run-1",), ("t",), ("l",))
    building = event(
        "v1.partition.building", "out/1", {"build_request_id": "b1", "job_run_id": "run-1"}, n=2
    )
    assert terms_of(building, known_job) == Terms(
        ("out/1",), ("b1",), ("run-1",), ("task-1",), ("//job:label",)
    )
    assert terms_of(building, no_job) == Terms(("out/1",), ("b1",), ("run-1",))
    assert terms_of(event("v1.partition.stale", "out/1", n=3), no_job) == Terms(("out/1",))


def test_terms_of_a_build_and_of_the_log() -> None:
    received = event("v1.build.received", "b1", {"requested_partitions": ["p", "q"]}, n=1)
    assert terms_of(received, no_job) == Terms(("p", "q"), ("b1",))
    assert terms_of(event("v1.build.planning", "b1", n=2), no_job) == Terms((), ("b1",))
    vacuumed = event("v1.system.vacuumed", "log", n=3)
    assert terms_of(vacuumed, no_job) == NO_TERMS


def test_terms_of_payloads_that_say_odd_things() -> None:
    odd = raw_event(
        "v1.job.scheduled",
        "run-2",
        {"build_request_id": 5, "outputs": ["a", 1, None], "task_id": {"x": 1}, "job_label": ["l"]},
        n=1,
        kind="job_run",
    )
    assert terms_of(odd, no_job) == Terms(("a",), (), ("run-2",), (), ("l",))
    for data in (b"\xff", b"", b"\x80"):
        unreadable = Event(id_bytes(1), "v2.x.y", "partition", "p", "x", T0, data, digest(data))
        assert terms_of(unreadable, no_job) == Terms(("p",))
