"""What an index of subjects holds: the names that events concern, and which of them a filter means.

Pure. An index finds a superset of what a filter wants; `Matcher` decides. So a name may be cut or
changed to what every store can hold, as long as it is done here, for events and filters alike.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

from belog.schemas.envelope import Event
from belog.schemas.filters import EventFilter, Terms
from belog.schemas.limits import REF_BYTES_MAX

__all__ = [
    "COUNTED_ONLY",
    "Field",
    "PatternRange",
    "exact_fields",
    "is_cut",
    "name_of",
    "names_of",
]


class Field(IntEnum):
    """What a name stands for. The numbers are part of the stored format."""

    PARTITION = 0
    BUILD = 1
    JOB_RUN = 2
    TASK = 3
    JOB_LABEL = 4
    EVENT_TYPE = 5
    ACTOR = 6
    SUBJECT_KIND = 7


COUNTED_ONLY: Final = frozenset({Field.SUBJECT_KIND})
"""Fields whose names are counted for statistics and not listed: a scan finds a quarter of all
events as fast as an index would."""

_NAME_BYTES_MAX: Final = REF_BYTES_MAX
"""Bytes of UTF-8 that a name keeps. No ref or id of a known event is longer; PostgreSQL's index
takes entries up to 2,704 bytes."""
_CUT_BYTES: Final = _NAME_BYTES_MAX - 3
"""A cut falls between characters, so what is left has at least this many bytes."""
_SURROGATES: Final = range(0xD800, 0xE000)
_CHAR_MAX: Final = 0x10FFFF


def name_of(text: str) -> str:
    """Return the form in which a name is stored and looked up: no NUL, at most 1,024 bytes."""
    if len(text) <= _NAME_BYTES_MAX // 4 and text.isascii() and "\0" not in text:
        return text
    if "\0" in text:
        # PostgreSQL's text holds any character but this one.
        text = text.replace("\0", "\ufffd")
    return text.encode(errors="replace")[:_NAME_BYTES_MAX].decode(errors="ignore")


def is_cut(name: str) -> bool:
    """Whether a stored name may be the beginning of a longer one."""
    return len(name) >= _CUT_BYTES // 4 and len(name.encode()) >= _CUT_BYTES


def names_of(event: Event, terms: Terms) -> Iterator[tuple[Field, str]]:
    """Yield the names under which an event is listed or counted, each once."""
    yield Field.EVENT_TYPE, name_of(event.event_type)
    yield Field.SUBJECT_KIND, event.subject_kind
    yield Field.ACTOR, name_of(event.actor)
    for field, texts in (
        (Field.PARTITION, terms.partition_refs),
        (Field.BUILD, terms.build_request_ids),
        (Field.JOB_RUN, terms.job_run_ids),
        (Field.TASK, terms.task_ids),
        (Field.JOB_LABEL, terms.job_labels),
    ):
        if len(texts) == 1:
            yield field, name_of(texts[0])
        elif texts:
            for name in dict.fromkeys(map(name_of, texts)):
                yield field, name


def exact_fields(wanted: EventFilter) -> list[tuple[Field, list[str]]]:
    """Return the fields of a filter that name what they want, with the names as they are stored."""
    fields: tuple[tuple[Field, Iterable[str]], ...] = (
        (Field.PARTITION, wanted.partition_refs),
        (Field.BUILD, wanted.build_request_ids),
        (Field.JOB_RUN, wanted.job_run_ids),
        (Field.TASK, wanted.task_ids),
        (Field.JOB_LABEL, wanted.job_labels),
        (Field.EVENT_TYPE, wanted.event_types),
        (Field.ACTOR, wanted.actors),
    )
    return [(field, list(dict.fromkeys(map(name_of, texts)))) for field, texts in fields if texts]


class PatternRange:
    """Where the names of a partition pattern lie: a range in byte order, and a SQL LIKE pattern.

    Both hold for every name that the pattern matches, and for others: `[ab]` is any character here.

    >>> found = PatternRange("data/2026-*/x_?")
    >>> found.low, found.high, found.like
    ('data/2026-', 'data/2026.', 'data/2026-%/x!__')

    Attributes:
        low: First name of the range.
        high: First name after the range, None where it has no end.
        like: For `LIKE … ESCAPE '!'`.
    """

    __slots__ = ("high", "like", "low")

    def __init__(self, pattern: str) -> None:
        """Read a pattern that `glob_regex` accepts."""
        prefix: list[str] = []
        like: list[str] = []
        at = 0
        while at < len(pattern):
            char = pattern[at]
            if char in "*?[":
                like.append("%" if char == "*" else "_")
                at = pattern.index("]", at + 2) if char == "[" else at
            else:
                if len(prefix) == len(like):
                    prefix.append(char)
                like.append(f"!{char}" if char in "!%_" else char)
            at += 1
        self.low = name_of("".join(prefix))
        self.high = _after(self.low)
        self.like = name_of("".join(like))
        if is_cut(self.like) or "\0" in pattern:
            self.like = "%"


def _after(prefix: str) -> str | None:
    """Return the first text, in byte order, after all that start with a prefix."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _CHAR_MAX:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None
