"""The error tree: flags, texts, and how each class looks at the boundaries."""

import inspect
import re
from copy import copy

import pytest

from belog.schemas import errors
from belog.schemas.errors import BelogError, Conflict, Gone, LimitExceeded, Status, status_of

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, BelogError) and cls.__module__ == errors.__name__
]

EXPECTED = {
    "BelogError": (500, "INTERNAL", 1),
    "InvalidInput": (400, "INVALID_ARGUMENT", 2),
    "InvalidEvent": (400, "INVALID_ARGUMENT", 2),
    "InvalidFilter": (400, "INVALID_ARGUMENT", 2),
    "InvalidUri": (400, "INVALID_ARGUMENT", 2),
    "InvalidConfiguration": (400, "INVALID_ARGUMENT", 2),
    "LimitExceeded": (413, "RESOURCE_EXHAUSTED", 2),
    "Conflict": (409, "FAILED_PRECONDITION", 3),
    "IllegalTransition": (409, "FAILED_PRECONDITION", 3),
    "NotOwner": (409, "FAILED_PRECONDITION", 3),
    "ExpectedMismatch": (409, "FAILED_PRECONDITION", 3),
    "EventIdReused": (409, "FAILED_PRECONDITION", 3),
    "IndexConflict": (409, "ABORTED", 3),
    "OutcomeUnknown": (504, "DEADLINE_EXCEEDED", 5),
    "Overloaded": (503, "RESOURCE_EXHAUSTED", 5),
    "Unavailable": (503, "UNAVAILABLE", 5),
    "Unauthenticated": (401, "UNAUTHENTICATED", 1),
    "Forbidden": (403, "PERMISSION_DENIED", 1),
    "NotFound": (404, "NOT_FOUND", 4),
    "Gone": (410, "OUT_OF_RANGE", 4),
    "Closed": (503, "UNAVAILABLE", 5),
    "Unsupported": (501, "UNIMPLEMENTED", 2),
    "WrongLog": (409, "FAILED_PRECONDITION", 1),
    "LogReplaced": (409, "FAILED_PRECONDITION", 1),
    "LogTruncated": (409, "FAILED_PRECONDITION", 1),
    "Misconfigured": (500, "INTERNAL", 1),
    "NewerFormat": (500, "INTERNAL", 1),
    "Corrupt": (500, "INTERNAL", 1),
    "ReplicaRefused": (409, "FAILED_PRECONDITION", 3),
    "Diverged": (500, "INTERNAL", 1),
}


def bare(cls: type[BelogError]) -> BelogError:
    """An instance without its own arguments: the table goes by the class alone."""
    return cls.__new__(cls)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_status_of_every_class(cls: type[BelogError]) -> None:
    assert status_of(bare(cls)) == Status(*EXPECTED[cls.__name__])


def test_table_and_tree_name_the_same_classes() -> None:
    assert {cls.__name__ for cls in CLASSES} == set(EXPECTED)
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    assert sorted(["BelogError", *drawn]) == sorted(EXPECTED)


def test_codes_are_distinct_and_exported() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)
    assert {cls.__name__ for cls in CLASSES} | {"Status", "status_of"} == set(errors.__all__)


def test_no_error_is_both_retriable_and_deterministic() -> None:
    assert [cls for cls in CLASSES if cls.retriable and cls.deterministic] == []


def test_text_carries_coordinates_and_hint() -> None:
    conflict = Conflict(
        "no", state="", last_index=-1, allowed=(), log="l", index=0, subject="build:b", hint="h"
    )
    assert str(conflict) == "no (log l, index 0, subject build:b) — h"
    assert str(BelogError("only this")) == "only this"
    assert "snapshot s1" in str(Gone("gone", horizon=5, snapshot="s1"))
    assert "index 5" in str(Gone("gone", horizon=5))
    over = LimitExceeded("page", limit="PAGE_EVENTS_MAX", limit_value=10, value=11)
    assert str(over) == "page: 11 is over PAGE_EVENTS_MAX = 10"


def test_a_copy_is_equal_and_changing_it_leaves_the_original_alone() -> None:
    over = LimitExceeded("page", limit="PAGE_EVENTS_MAX", limit_value=10, value=11)
    conflict = Conflict("no", state="made", last_index=3, allowed=("a",), owner="b", hint="h")
    gone = Gone("gone", horizon=5, snapshot="s1", log="l")
    for error in (over, conflict, gone, *map(bare, CLASSES)):
        error.__cause__ = ValueError("why")
        made = copy(error)
        assert (type(made), made.args, made.__dict__) == (type(error), error.args, error.__dict__)
        assert made.__cause__ is error.__cause__
        made.hint = "another"
        assert error.__dict__.get("hint") != "another"
