"""A filter that was let through shows nothing that the grant does not cover."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Forbidden, InvalidFilter
from belog.schemas.events import new_event
from belog.schemas.filters import EventFilter, Matcher, Terms, glob_regex
from belog.service.access import Grant, Role

REFS = st.text("ab/[", min_size=1, max_size=6)


def is_pattern(text: str) -> bool:
    with suppress(InvalidFilter):
        glob_regex(text)
        return True
    return False


PATTERNS = st.text("ab/*?[]!-", min_size=1, max_size=6).filter(is_pattern)
EVENT = new_event("v1.job.running", "j", event_id=bytes(16), actor="a", occurred_at=0)


def ref_like(patterns: list[str]) -> st.SearchStrategy[str]:
    """Refs that one of the patterns may match."""
    if not patterns:
        return st.nothing()
    return st.tuples(st.sampled_from(patterns), REFS).map(
        lambda p: p[0].replace("*", p[1]).replace("?", p[1][0])
    )


@given(data=st.data(), refs=st.lists(REFS, max_size=2))
def test_narrowed_filters_show_only_what_is_covered(data: st.DataObject, refs: list[str]) -> None:
    own = data.draw(st.lists(PATTERNS, min_size=1, max_size=2))
    # Such as start like one of its own are the ones that are let through or nearly so.
    alike = st.tuples(st.sampled_from(own), PATTERNS).map(lambda p: p[0].rstrip("*") + p[1])
    patterns = data.draw(st.lists(PATTERNS | alike.filter(is_pattern), max_size=2))
    concerned = data.draw(st.lists(REFS | ref_like(own) | ref_like(patterns), max_size=3))
    grant = Grant("a", Role.READ, tuple(own))
    wanted = EventFilter(partition_refs=tuple(refs), partition_patterns=tuple(patterns))
    try:
        narrowed = grant.narrow(wanted)
    except Forbidden:
        return
    terms = Terms(partition_refs=tuple(concerned))
    if Matcher(narrowed).matches(StoredEvent(0, 0, EVENT), terms):
        assert grant.sees(concerned)
        assert Matcher(wanted).matches(StoredEvent(0, 0, EVENT), terms)
