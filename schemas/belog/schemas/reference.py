"""The reference of events as text for people: what each means, where it belongs, what it holds.

`python -m belog.schemas.reference > docs/events.md` writes the page; a test holds it equal.
"""

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec.inspect
from msgspec import NODEFAULT, Struct
from msgspec.inspect import (
    DictType,
    Field,
    IntType,
    ListType,
    Metadata,
    NoneType,
    StrType,
    Type,
    UnionType,
)
from msgspec.inspect import StructType as StructInfo

from belog.schemas.events import PAYLOADS, Manifest, ManifestInput, Payload
from belog.schemas.lifecycle import LIFECYCLE_1, Lifecycle, SubjectKind
from belog.schemas.limits import (
    ACTOR_BYTES_MAX,
    BATCH_EVENTS_MAX,
    BUILD_ID_BYTES_MAX,
    EVENT_BYTES_MAX,
    EVENT_TYPE_BYTES_MAX,
    JOB_RUN_ID_BYTES_MAX,
    LIST_ITEMS_MAX,
    METADATA_ITEMS_MAX,
    REF_BYTES_MAX,
    TEXT_BYTES_MAX,
)
from belog.schemas.payload import DEPTH_MAX

__all__ = ["EXAMPLE", "event_section", "field_table", "page"]

_KINDS: Final[Mapping[SubjectKind, tuple[str, str]]] = {
    "build": ("Build request", "build request id"),
    "partition": ("Partition", "partition ref"),
    "job_run": ("Job run", "job run id"),
    "system": ("The log itself", "log id"),
}
"""Title and what the subject id is, in the order of the page."""

_ID_BYTES_MAX: Final[Mapping[str, int]] = {
    "partition ref": REF_BYTES_MAX,
    "build request id": BUILD_ID_BYTES_MAX,
    "job run id": JOB_RUN_ID_BYTES_MAX,
}
_MEANINGS: Final[Mapping[str, str]] = {
    "message": "Text for people.",
    "reason": "Why, for people.",
    "build_request_id": "The build on whose behalf it happened.",
    "job_run_id": "The job run that makes the partition.",
    "task_id": "The planned unit of work, the same over all its retries.",
    "job_label": "The job's name in its graph.",
    "outputs": "What the run is to make.",
    "inputs": "What the run is to read.",
    "attempt": "Which try of the task this run is; the first is 1.",
    "requested_partitions": "What the build is asked for.",
    "client_id": "Who asks for the build.",
    "comment": "What the asker wants to say.",
    "task_count": "Tasks of the plan.",
    "partition_count": "Partitions of the plan.",
    "available_from_build": "The build that made the outputs already.",
    "worker": "Where the run runs.",
    "exit_code": "As the process of the run left it.",
    "requesting_clients": "Who waits for the partition.",
    "upstream_deps": "What the partition is made from.",
    "manifest": "What was made, from what, when and where.",
    "delegated_to_log": "The log of the instance that makes it.",
    "delegated_to_build": "The build there that makes it.",
    "cause_partition": "The partition whose change made this one stale.",
    "source": "Where the partition was found, or by what.",
    "log_id": "The log's id, a UUID in lower case, as in the subject.",
    "instance": "Name of the instance that made the log.",
    "lifecycle_version": "The lifecycle that governs.",
    "index": "The snapshot holds the events below this index.",
    "location": "URI of the snapshot.",
    "content_digest": "Digest of the content.",
    "horizon": "Events below this index were looked at.",
    "removed_count": "Events that were removed.",
    "snapshot": "URI of the snapshot that holds the effects of what was removed.",
    "Manifest.outputs": "What was made.",
    "Manifest.inputs": "What was read.",
    "Manifest.task_id": "The task that made it.",
    "Manifest.start_time": "When making it began.",
    "Manifest.end_time": "When it was there.",
    "Manifest.uri": "Where the data is.",
    "Manifest.size_bytes": "Size of the data, bytes.",
    "Manifest.row_count": "Rows of the data.",
    "Manifest.metadata": "Whatever else is to be known of it.",
    "ManifestInput.ref": "The partition that was read.",
    "ManifestInput.index": "Index of the log at which it was read.",
}
"""What fields mean, by name; where a name means another thing in one class, by both."""

_SUBJECT_ID: Final = "Which one; what it is stands at the head of each section below."
_EVENT_ID: Final = "Keep it over all retries: an event that is there already is not written again."
_ENVELOPE: Final = (
    ("event_id", "UUID", "producer", "–", _EVENT_ID),
    (
        "event_type",
        "text",
        "producer",
        f"≤ {EVENT_TYPE_BYTES_MAX} bytes",
        "Such as `v1.job.running`; the version is in the name.",
    ),
    (
        "subject_kind",
        "`build`, `partition`, `job_run` or `system`",
        "producer",
        "–",
        "What the event is about; the type's name tells it.",
    ),
    ("subject_id", "text", "producer", "as ids of the kind", _SUBJECT_ID),
    ("actor", "text", "producer", f"1–{ACTOR_BYTES_MAX} bytes", "Who writes."),
    (
        "occurred_at",
        "microseconds since the epoch, UTC",
        "producer",
        "64 bits",
        "When it happened, by the producer's clock.",
    ),
    (
        "payload",
        "canonical CBOR",
        "producer",
        f"a map with text keys, nested ≤ {DEPTH_MAX} levels",
        "The fields of the tables below.",
    ),
    ("payload_digest", "32 bytes", "producer", "–", "BLAKE3 of the payload."),
    ("caused_by", "UUID or nothing", "producer", "–", "`event_id` of what led to this event."),
    (
        "expected",
        "integer or nothing",
        "producer",
        "from -1",
        "Index of the subject's last event, -1 for none. Anything else is a conflict.",
    ),
    ("index", "integer", "log", "from 0", "Position in the log; never changes."),
    (
        "created_at",
        "microseconds since the epoch, UTC",
        "log",
        "64 bits",
        "When the log took it in; never less than that of a lower index.",
    ),
)
"""Name, type, who sets it, limits, meaning."""

_DRAFT: Final = (
    ("event_type", "text", "yes", "–", "One of the types below, or one of your own."),
    ("subject_id", "text", "yes", "–", _SUBJECT_ID),
    ("payload", "map", "no", "empty map", "The fields of the event's table below."),
    ("event_id", "UUID", "no", "a random one", _EVENT_ID),
    (
        "occurred_at",
        "ISO 8601 time with a zone",
        "no",
        "now",
        "When it happened, such as `2026-01-31T12:00:00Z`.",
    ),
    ("caused_by", "UUID", "no", "–", "`event_id` of what led to this event."),
    (
        "expected",
        "integer",
        "no",
        "–",
        "Index of the subject's last event, -1 for none. Anything else is a conflict.",
    ),
    (
        "subject_kind",
        "`build`, `partition`, `job_run` or `system`",
        "no",
        "as the type's name tells",
        "Needed for a type of your own.",
    ),
)
"""Name, type, required, default, meaning. The reader is the command line's; a test compares."""

EXAMPLE: Final = """\
{"event_type": "v1.build.received", "subject_id": "nightly-31", "payload": \
{"requested_partitions": ["sales/2026-01-31"], "client_id": "cron"}, \
"event_id": "6f0c1a52-6d0b-4a0e-9a4e-0d6a7f1c2b31", "occurred_at": "2026-01-31T23:00:00Z"}
{"event_type": "v1.build.planning", "subject_id": "nightly-31"}
{"event_type": "v1.partition.requested", "subject_id": "sales/2026-01-31", "payload": \
{"build_request_id": "nightly-31"}, "caused_by": "6f0c1a52-6d0b-4a0e-9a4e-0d6a7f1c2b31", \
"expected": -1}
{"event_type": "v1.build.analysis_completed", "subject_id": "nightly-31", "payload": \
{"task_count": 1, "partition_count": 1}}
{"event_type": "v1.job.scheduled", "subject_id": "nightly-31.sales.1", "payload": \
{"build_request_id": "nightly-31", "job_label": "sales", "outputs": ["sales/2026-01-31"]}}
{"event_type": "v1.partition.scheduled", "subject_id": "sales/2026-01-31", "payload": \
{"build_request_id": "nightly-31", "job_run_id": "nightly-31.sales.1"}}
{"event_type": "v1.build.executing", "subject_id": "nightly-31"}
{"event_type": "v1.job.running", "subject_id": "nightly-31.sales.1", "payload": \
{"worker": "host-7"}}
{"event_type": "v1.partition.building", "subject_id": "sales/2026-01-31", "payload": \
{"build_request_id": "nightly-31"}}
{"event_type": "v1.partition.available", "subject_id": "sales/2026-01-31", "payload": \
{"build_request_id": "nightly-31", "manifest": {"outputs": ["sales/2026-01-31"], \
"inputs": [{"ref": "orders/2026-01-31"}], "row_count": 1204, "metadata": {"format": "parquet"}}}}
{"event_type": "v1.job.completed", "subject_id": "nightly-31.sales.1"}
{"event_type": "v1.build.completed", "subject_id": "nightly-31"}
{"event_type": "v1.review.approved", "subject_id": "sales/2026-01-31", "subject_kind": \
"partition", "payload": {"by": "ann"}}
"""
"""JSON lines that a new log accepts, all of them: a build of one partition, and a type of one's
own."""

_INTRODUCTION: Final = f"""\
# Events

Made from the classes in `belog.schemas.events` by `python -m belog.schemas.reference`. Which event
is legal when is in [lifecycle.md](lifecycle.md), the record format byte by byte in
[ARCHITECTURE.md](../ARCHITECTURE.md).

An event is an envelope and a payload. The largest event is {EVENT_BYTES_MAX:,} bytes, all told.
Lengths of text are bytes of UTF-8, integers have 64 bits. Ids and refs are not empty and hold no
control character.
"""
_APPENDING: Final = f"""\
Each line is a JSON object. Empty lines are passed by. A line that is no event ends the command with
exit code 2, and nothing of its batch of {BATCH_EVENTS_MAX:,} lines is appended. An event that the
log refuses is named with its line, those after it are tried, and the exit code is that of the first
refusal.
"""
_RUNNING: Final = f"""\
Save this as `events.jsonl`:

```json
{EXAMPLE}```

```console
$ belog append --from events.jsonl --log sqlite:///builds.db
{len(EXAMPLE.splitlines())} accepted, 0 refused
```
"""
_PAYLOADS: Final = """\
A payload holds these fields and no others; one at its default is not written. Programs keep what a
newer version wrote into fields that they do not know. A type of your own has another second segment
than `build`, `partition`, `job` and `system`, and a payload of any form; it changes no state.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _described(kind: Type) -> tuple[Type, str]:
    """Take a type out of its wrappers: `| None`, and the description, which is returned."""
    if isinstance(kind, UnionType):
        (kind,) = (member for member in kind.types if not isinstance(member, NoneType))
    if isinstance(kind, Metadata):
        schema = cast("Mapping[str, str]", kind.extra_json_schema or {})  # pyright: ignore[reportUnknownMemberType] - an untyped dict
        return kind.type, schema.get("description", "")
    return kind, ""


def _type_and_limits(kind: Type) -> tuple[str, str]:
    """Return a type in words for people, and the bounds of its values.

    Raises:
        TypeError: A type that no payload has so far.
    """
    kind, description = _described(kind)
    match kind:
        case StrType() if description:
            return description, f"1–{_ID_BYTES_MAX[description]:,} bytes"
        case StrType():
            return "text", f"≤ {TEXT_BYTES_MAX:,} bytes"
        case IntType():
            return description or "integer", "–" if kind.ge is None else f"from {kind.ge}"
        case ListType():
            item, limits = _type_and_limits(kind.item_type)
            each = "" if limits == "–" else f", each {limits}"
            return f"list of {item}s", f"≤ {LIST_ITEMS_MAX:,} items{each}"
        case DictType():
            item, limits = _type_and_limits(kind.value_type)
            return f"map of text to {item}", f"≤ {METADATA_ITEMS_MAX:,} entries, each {limits}"
        case StructInfo():
            title = "input" if kind.cls is ManifestInput else "manifest"
            return f"[{title}](#{title})", "–"
        case _:
            msg = f"no words for {kind}"
            raise TypeError(msg)


def _default(field: Field) -> str:
    if field.default_factory is not NODEFAULT:
        return "empty list" if field.default_factory is list else "empty map"
    return "–" if field.default in {NODEFAULT, None} else str(field.default)


def field_table(cls: type[Struct], inherited: frozenset[str] = frozenset()) -> str:
    """Return the table of the fields of a class: name, type, required, default, limits, meaning.

    Args:
        cls: A payload, the manifest, or its input.
        inherited: Names of fields that are left out.

    Returns:
        Lines of Markdown, each ended by a line feed; empty where no field is left.

    Raises:
        KeyError: A field has no meaning in this module.
        TypeError: A field has a type that this module has no words for.
    """
    info = msgspec.inspect.type_info(cls)
    if not isinstance(info, StructInfo):
        msg = f"{cls.__name__} has no fields"
        raise TypeError(msg)
    rows: list[tuple[str, ...]] = []
    for field in info.fields:
        if field.name in inherited:
            continue
        words, limits = _type_and_limits(field.type)
        meaning = _MEANINGS.get(f"{cls.__name__}.{field.name}") or _MEANINGS[field.name]
        required = "yes" if field.required else "no"
        rows.append((f"`{field.name}`", words, required, _default(field), limits, meaning))
    head = ("field", "type", "required", "default", "limits", "meaning")
    return _table(head, rows) if rows else ""


_COMMON: Final = frozenset(Payload.__struct_fields__)


def event_section(event_type: str) -> str:
    """Return the section of one event type: its meaning and the table of its own fields.

    Raises:
        KeyError: A type that is not of this version.
    """
    cls = PAYLOADS[event_type]
    table = field_table(cls, _COMMON) or "No fields of its own.\n"
    return f"#### `{event_type}`\n\n{inspect.getdoc(cls)}\n\n{table}"


def page(lifecycle: Lifecycle = LIFECYCLE_1) -> str:
    """Return the page `docs/events.md`: envelope, JSON lines, and every event type of a version."""
    named = ((f"`{name}`", *rest) for name, *rest in _ENVELOPE)
    drafts = ((f"`{name}`", *rest) for name, *rest in _DRAFT)
    parts = [
        _INTRODUCTION,
        "## Envelope\n",
        _table(("field", "type", "set by", "limits", "meaning"), named),
        "## JSON lines for `belog append --from`\n",
        _APPENDING,
        _table(("key", "type", "required", "default", "meaning"), drafts),
        _RUNNING,
        f"## Payloads of lifecycle version {lifecycle.version}\n",
        _PAYLOADS,
        "### Every payload\n",
        field_table(Payload),
    ]
    for kind, (title, subject) in _KINDS.items():
        bytes_max = _ID_BYTES_MAX.get(subject, BUILD_ID_BYTES_MAX)
        parts.append(f"### {title} (`{kind}`)\n")
        parts.append(f"The subject is the {subject}, 1–{bytes_max:,} bytes.\n")
        parts += [event_section(row.event_type) for row in lifecycle.machines[kind]]
    for heading, cls in (("Manifest", Manifest), ("Input", ManifestInput)):
        parts.append(f"### {heading}\n\n{inspect.getdoc(cls)}\n")
        parts.append(field_table(cls))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
