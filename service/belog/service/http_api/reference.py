"""The page `docs/api.md`, made from the table of routes and the .proto files. Pure.

`python -m belog.service.http_api.reference` prints it.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor

from belog.service.grpc_api.rules import RULES
from belog.service.http_api.openapi import EITHER, comments, messages
from belog.service.http_api.route_table import Reach, RouteEntry
from belog.service.http_api.routes import ROUTES
from belog.v1 import catalog_pb2, event_log_pb2, graph_pb2

__all__ = ["page"]

_HEAD: Final = """\
# API reference

Made from the table of routes and `schemas/belog/v1/*.proto`; a running service has the same as
OpenAPI at `/openapi.json`, for people at `/docs`, and by gRPC reflection. How they are used:
[guides](guides/subscriber.md), [grpc.md](grpc.md), [clients.md](clients.md).

JSON is the proto3 mapping with the names as written here: integers of 64 bits are text in answers
(numbers do as well in what is sent), bytes base64, fields at their default written out. All times
are microseconds since the epoch, UTC. Errors are problem documents ([HttpProblem](#httpproblem),
RFC 9457). Every answer says what it is as of, in its header `Belog-As-Of` or in `as_of_index`.
Refs in paths are percent-encoded.
"""

_TAGS: Final[Mapping[str, str]] = {
    "log": "The log",
    "partitions": "Partitions",
    "builds": "Builds",
    "jobs": "Job runs",
    "tasks": "Tasks",
    "service": "The service",
}
_TYPES: Final[Mapping[int, str]] = {
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


def page() -> str:
    """Return the page."""
    parts = [_HEAD, "## HTTP\n"]
    for tag, title in _TAGS.items():
        parts.append(f"### {title}\n")
        parts.extend(map(_route, (entry for entry in ROUTES if entry.tag == tag)))
    parts.append("## gRPC\n")
    parts.extend(_services())
    parts.append("## Messages\n")
    parts.extend(_message(descriptor) for _, descriptor in sorted(messages().items()))
    return "\n".join(parts).rstrip() + "\n"


def _route(entry: RouteEntry) -> str:
    role = "no token" if entry.reach is Reach.OPEN else f"role `{entry.role.label}`"
    lines = [f"#### `{entry.method} {entry.path}`\n", f"{entry.summary} ({role})."]
    if entry.about:
        lines.append(f"\n{entry.about}")
    if entry.body:
        optional = ", may be left out" if entry.body_is_optional else ""
        lines.append(f"\nBody: {_links(entry.body)}{optional}.")
    if entry.answer:
        lines.append(f"\nAnswer: {_links(entry.answer)}, `{entry.media_type}`.")
    if entry.parameters:
        rows = ((f"`{p.name}`", _cell(p.about)) for p in entry.parameters)
        lines.append("\n" + _table(("parameter", "meaning"), rows))
    return "\n".join(lines) + "\n"


def _links(name: str) -> str:
    return " or ".join(f"[{one}](#{one.lower()})" for one in EITHER.get(name, (name,)))


def _services() -> Iterator[str]:
    for module in (graph_pb2, event_log_pb2, catalog_pb2):
        found: Mapping[str, ServiceDescriptor] = module.DESCRIPTOR.services_by_name
        for service in found.values():
            rows: list[Sequence[str]] = []
            for method in service.methods:
                rule = RULES[f"/{service.full_name}/{method.name}"]
                role = "none" if rule.role is None else rule.role.label
                stream = "stream of " if method.server_streaming else ""
                rows.append(
                    (
                        f"`{method.name}`",
                        _links(method.input_type.name),
                        stream + _links(method.output_type.name),
                        role,
                    )
                )
            yield f"### {service.full_name}\n"
            yield _table(("rpc", "request", "answer", "role"), rows) + "\n"


def _message(message: Descriptor) -> str:
    lines = [f"### {message.name}\n"]
    if about := comments().get(message.name):
        lines.append(f"{about}\n")
    rows = [
        (f"`{f.name}`", _type(f), _cell(comments().get(f"{message.name}.{f.name}", "")))
        for f in message.fields
    ]
    if rows:
        lines.append(_table(("field", "type", "meaning"), rows) + "\n")
    return "\n".join(lines)


def _type(field: FieldDescriptor) -> str:
    inner: Any = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
        return f"map of {_type(key)} to {_type(value)}"
    if inner is not None:
        known = inner.name in messages()
        name = f"[{inner.name}](#{inner.name.lower()})" if known else inner.name
    elif field.enum_type is not None:
        name = ", ".join(f"`{value.name}`" for value in field.enum_type.values)
    else:
        name = _TYPES[field.type]
    if field.is_repeated:
        return f"list of {name}"
    return f"{name}, may be absent" if field.has_presence and inner is None else name


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
