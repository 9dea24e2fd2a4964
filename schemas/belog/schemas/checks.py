"""What fields of an event may hold. Each check raises where a value is off."""

import re
from collections.abc import Mapping
from typing import Final, cast
from uuid import UUID

from belog.schemas.errors import InvalidEvent, LimitExceeded
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import (
    BUILD_ID_BYTES_MAX,
    JOB_RUN_ID_BYTES_MAX,
    LIST_ITEMS_MAX,
    METADATA_ITEMS_MAX,
    REF_BYTES_MAX,
    TEXT_BYTES_MAX,
)

__all__ = [
    "check_id",
    "check_int",
    "check_subject_id",
    "check_value",
    "text_bound",
    "uuid_bytes",
]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REF_FIELDS: Final = frozenset(
    {
        "requested_partitions",
        "outputs",
        "inputs",
        "upstream_deps",
        "cause_partition",
        "ref",
    }
)
_BYTES_MAX: Final[Mapping[str, tuple[str, int]]] = {
    **dict.fromkeys(_REF_FIELDS, ("REF_BYTES_MAX", REF_BYTES_MAX)),
    **dict.fromkeys(
        ("build_request_id", "delegated_to_build", "available_from_build"),
        ("BUILD_ID_BYTES_MAX", BUILD_ID_BYTES_MAX),
    ),
    "job_run_id": ("JOB_RUN_ID_BYTES_MAX", JOB_RUN_ID_BYTES_MAX),
}
_TEXT_BOUND: Final = "TEXT_BYTES_MAX", TEXT_BYTES_MAX
_SUBJECT_BYTES_MAX: Final[Mapping[SubjectKind, tuple[str, int]]] = {
    "build": ("BUILD_ID_BYTES_MAX", BUILD_ID_BYTES_MAX),
    "partition": ("REF_BYTES_MAX", REF_BYTES_MAX),
    "job_run": ("JOB_RUN_ID_BYTES_MAX", JOB_RUN_ID_BYTES_MAX),
    "system": ("BUILD_ID_BYTES_MAX", BUILD_ID_BYTES_MAX),
}


def uuid_bytes(name: str, value: bytes | UUID) -> bytes:
    """Return the 16 bytes of a UUID.

    Raises:
        InvalidEvent: Neither a UUID nor 16 bytes.
    """
    if type(value) is bytes and len(value) == 16:
        return value
    if isinstance(value, UUID):
        return value.bytes
    # The types say so, callers in JSON and CLI clothes may not.
    msg = f"{name} is not a UUID: {value!r:.80}"
    raise InvalidEvent(msg)


def check_int(name: str, value: int, lowest: int) -> None:
    """Refuse what is not an integer from `lowest` to the largest of 64 bits.

    Raises:
        InvalidEvent: Another type, or out of range.
    """
    if type(value) is not int or not lowest <= value <= 2**63 - 1:
        msg = f"{name} is not an integer from {lowest} to 2^63 - 1: {value!r:.80}"
        raise InvalidEvent(msg)


def check_subject_id(kind: SubjectKind, value: str) -> None:
    """Refuse a subject id that its kind cannot have.

    Raises:
        InvalidEvent: Empty, no text, or with a control character.
        LimitExceeded: Longer than ids of the kind may be.
    """
    limit, bytes_max = _SUBJECT_BYTES_MAX[kind]
    check_id("subject id", value, limit, bytes_max)


def check_id(what: str, value: object, limit: str, bytes_max: int) -> None:
    """Refuse a text that is no id.

    Raises:
        InvalidEvent: Empty, no text, or with a control character.
        LimitExceeded: More than `bytes_max` bytes of UTF-8; `limit` names the bound.
    """
    if (
        type(value) is str
        and 0 < len(value) <= bytes_max
        and value.isascii()
        and value.isprintable()
    ):
        return  # as nearly all are
    if not isinstance(value, str):
        msg = f"{what} is not text but {type(value).__name__}"
        raise InvalidEvent(msg)
    if not value:
        msg = f"{what} is empty"
        raise InvalidEvent(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        msg = f"{what} is not text that UTF-8 can hold"
        raise InvalidEvent(msg) from error
    if size > bytes_max:
        raise LimitExceeded(what, limit=limit, limit_value=bytes_max, value=size)
    if _CONTROL.search(value):
        msg = f"{what} holds a control character: {value!r}"
        raise InvalidEvent(msg)


def text_bound(name: str) -> tuple[int, bool]:
    """Return the bound of texts in a field of a typed payload, and whether they are ids.

    Returns:
        Bytes of UTF-8; an id is neither empty nor has control characters.
    """
    return _BYTES_MAX.get(name, _TEXT_BOUND)[1], name in _BYTES_MAX


def check_value(name: str, value: object) -> None:
    """Refuse a value of a typed payload that is over a bound, at any depth.

    Raises:
        InvalidEvent: An id that is none, or text that UTF-8 cannot hold.
        LimitExceeded: A text, list or map over its bound.
    """
    if isinstance(value, str):
        bound = _BYTES_MAX.get(name, _TEXT_BOUND)[1]
        if 0 < len(value) <= bound and value.isascii() and value.isprintable():
            return  # as nearly all are
        if name in _BYTES_MAX:
            check_id(name, value, *_BYTES_MAX[name])
            return
        try:
            size = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError as error:
            msg = f"{name} is not text that UTF-8 can hold"
            raise InvalidEvent(msg) from error
        if size > TEXT_BYTES_MAX:
            raise LimitExceeded(
                name, limit="TEXT_BYTES_MAX", limit_value=TEXT_BYTES_MAX, value=size
            )
    elif isinstance(value, list):
        items = cast("list[object]", value)
        if len(items) > LIST_ITEMS_MAX:
            raise LimitExceeded(
                name, limit="LIST_ITEMS_MAX", limit_value=LIST_ITEMS_MAX, value=len(items)
            )
        for item in items:
            check_value(name, item)
    elif isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if len(fields) > METADATA_ITEMS_MAX:
            raise LimitExceeded(
                name,
                limit="METADATA_ITEMS_MAX",
                limit_value=METADATA_ITEMS_MAX,
                value=len(fields),
            )
        for key, item in fields.items():
            check_value("metadata key", key)
            check_value(key if name != "metadata" else "metadata", item)
