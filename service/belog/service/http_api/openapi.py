"""The OpenAPI document, from the table of routes and the messages of `belog/v1/*.proto`.

Messages are described by their descriptors, in words by the comments of the .proto files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from belog.service.http_api.parameters import Parameter
from belog.service.http_api.route_table import Reach, RouteEntry
from belog.v1 import catalog_pb2, event_log_pb2, events_pb2, graph_pb2, http_pb2

__all__ = ["EITHER", "comments", "document", "messages"]

Schema = dict[str, Any]

_FILES: Final = (catalog_pb2, event_log_pb2, events_pb2, graph_pb2, http_pb2)
_COMPONENTS: Final = "#/components/schemas/"
_INPUT: Final = "Input"
"""What the name of a message ends in where it is sent: nothing is required there, and integers of
64 bits may be numbers."""

EITHER: Final[Mapping[str, tuple[str, ...]]] = {
    "AppendBody": ("BuildEvent", "AppendBatchRequest"),
    "AppendAnswer": ("Receipt", "AppendBatchResponse"),
}
"""What has no message of its own, as it is one of several."""

_LEFT_OUT_WHEN_EMPTY: Final = frozenset({("HttpProblem", "allowed")})

_INT64: Final[Schema] = {"type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$"}
_TYPES: Final[Mapping[int, Schema]] = {
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
}


@cache
def messages() -> Mapping[str, Descriptor]:
    """Return all messages by name."""
    found: dict[str, Descriptor] = {}
    for module in _FILES:
        found.update(module.DESCRIPTOR.message_types_by_name)
    return found


def document(entries: Iterable[RouteEntry], title: str) -> Schema:
    """Return the document.

    Args:
        entries: The routes.
        title: Name of the service.
    """
    components = _Components()
    paths: dict[str, Schema] = {}
    for entry in entries:
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version("belog"),
            "description": "A validated, totally ordered log of data builds. Fields and their "
            "types are those of belog/v1/*.proto by the proto3 JSON mapping: integers of 64 bits "
            "are text. In what is sent, lowerCamelCase names and integers as numbers do as well. "
            "All times are microseconds since the epoch, UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": components.schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(entry: RouteEntry, components: "_Components") -> Schema:
    operation: Schema = {
        "operationId": _operation_id(entry),
        "summary": entry.summary,
        "tags": [entry.tag],
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"\{(\w+)\}", entry.path)),
            *map(_query_parameter, entry.parameters),
        ],
        "responses": _responses(entry, components),
        "security": [] if entry.reach is Reach.OPEN else [{"token": []}],
        "x-role": "none" if entry.reach is Reach.OPEN else entry.role.label,
        "x-reach": entry.reach.value,
    }
    if entry.about:
        operation["description"] = entry.about
    if entry.body:
        operation["requestBody"] = {
            "required": not entry.body_is_optional,
            "content": {
                "application/json": {"schema": components.reference(entry.body, sent=True)}
            },
        }
    return operation


def _operation_id(entry: RouteEntry) -> str:
    words = re.findall(r"\w+", f"{entry.method.lower()} {entry.path}")
    return "_".join(words)


def _responses(entry: RouteEntry, components: "_Components") -> Schema:
    good: Schema = {"description": "Done."}
    if entry.answer:
        good["content"] = {entry.media_type: {"schema": components.reference(entry.answer)}}
        good["headers"] = {
            "Belog-As-Of": {
                "description": "The answer holds the effects of all events below this index.",
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    else:
        good["content"] = {entry.media_type: {}}
    responses: Schema = {"200": good}
    if entry.path == "/readyz":
        responses["503"] = {**good, "description": "Not ready."}
    responses["default"] = {
        "description": "A problem (RFC 9457).",
        "content": {"application/problem+json": {"schema": components.reference("HttpProblem")}},
    }
    return responses


def _path_parameter(name: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "Percent-encoded.",
        "schema": {"type": "string", "minLength": 1},
    }


def _query_parameter(parameter: Parameter) -> Schema:
    schema: Schema
    match parameter.kind:
        case "int":
            schema = {"type": "integer", "format": "int64", "minimum": parameter.low}
        case "seconds":
            schema = {"type": "number", "minimum": 0, "maximum": 999_999_999}
        case "choice" | "choices":
            schema = {"type": "string", "enum": list(parameter.choices)}
        case "text" | "texts":
            schema = {"type": "string"}
    if parameter.kind in {"texts", "choices"}:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": schema,
    }


class _Components:
    """Schemas of messages, those that are spoken of and what they hold."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[str, bool]] = {}

    def reference(self, name: str, *, sent: bool = False) -> Schema:
        """Return a reference to a message."""
        if name in EITHER:
            return {"anyOf": [self.reference(one, sent=sent) for one in EITHER[name]]}
        component = f"{name}{_INPUT}" if sent else name
        self._wanted.setdefault(component, (name, sent))
        return {"$ref": _COMPONENTS + component}

    def schemas(self) -> Schema:
        """Return the schemas of all that were spoken of."""
        made: Schema = {}
        while missing := [name for name in self._wanted if name not in made]:
            for component in missing:
                name, sent = self._wanted[component]
                made[component] = self._message(messages()[name], sent=sent)
        return dict(sorted(made.items()))

    def _message(self, message: Descriptor, *, sent: bool) -> Schema:
        properties: Schema = {}
        for field in message.fields:
            properties[field.name] = self._field(field, sent=sent)
            if about := comments().get(f"{message.name}.{field.name}"):
                properties[field.name]["description"] = about
        schema: Schema = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        if about := comments().get(message.name):
            schema["description"] = about
        required = [] if sent else [field.name for field in message.fields if _is_written(field)]
        if required:
            schema["required"] = required
        return schema

    def _field(self, field: FieldDescriptor, *, sent: bool) -> Schema:
        if _is_map(field):
            values = self._single(_message_of(field).fields_by_name["value"], sent=sent)
            return {"type": "object", "additionalProperties": values}
        schema = self._single(field, sent=sent)
        return {"type": "array", "items": schema} if field.is_repeated else schema

    def _single(self, field: FieldDescriptor, *, sent: bool) -> Schema:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            message = _message_of(field)
            if message.full_name == "google.protobuf.Struct":
                return {"type": "object"}
            # Beside a reference stands the field's own description.
            return {"allOf": [self.reference(message.name, sent=sent)]}
        if field.enum_type is not None:
            return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
        if sent and field.type == FieldDescriptor.TYPE_INT64:
            return {"anyOf": [{"type": "integer", "format": "int64"}, dict(_INT64)]}
        return dict(_TYPES[field.type])


def _message_of(field: FieldDescriptor) -> Descriptor:
    if field.message_type is None:
        msg = f"{field.full_name} is no message"
        raise TypeError(msg)
    return field.message_type


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_written(field: FieldDescriptor) -> bool:
    """Whether a field is in every answer, also at its default."""
    owner = field.containing_type
    if owner is not None and (owner.name, field.name) in _LEFT_OUT_WHEN_EMPTY:
        return False
    return not field.has_presence


# --- words

_COMMENT: Final = re.compile(r"\s*// ?(.*)")
_OPENING: Final = re.compile(r"\s*(?:message|enum|service|oneof) (\w+) \{")
_FIELD: Final = re.compile(r"\s*(?:optional |repeated )?[\w.]+(?:<[\w., ]+>)? (\w+) = \d+;")


@cache
def comments() -> Mapping[str, str]:
    """Return what the .proto files say of messages and fields, `Message.field`."""
    folder = resources.files("belog.v1")
    found: dict[str, str] = {}
    for module in _FILES:
        name = module.DESCRIPTOR.name.rpartition("/")[2]
        found.update(_comments_of((folder / name).read_text(encoding="utf-8").splitlines()))
    return found


def _comments_of(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    within: list[str] = []
    said: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            said.append(comment[1])
            continue
        if opening := _OPENING.match(line):
            if not within:
                yield opening[1], " ".join(said)
            within.append(opening[1])
        elif field := _FIELD.match(line):
            yield f"{within[0]}.{field[1]}", " ".join(said)
        elif line.strip() == "}":
            within.pop()
        said = []
