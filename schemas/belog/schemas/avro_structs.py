"""Structs as Avro records, for readers that know nothing of this project. Pure.

The schema of a struct follows from its annotations, so there is no second list of fields to keep. A
field keeps its default, which lets a reader with an older schema read newer values. Values are
Avro single objects (Avro 1.12, "Single-object encoding"): whoever has the schema by its fingerprint
can read them without a registry.
"""

import io
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import fastavro
import msgspec
from msgspec import NODEFAULT, Struct

from belog.schemas.envelope import single_object_header
from belog.schemas.errors import Corrupt

__all__ = ["NAMESPACE", "StructCodec"]

NAMESPACE: Final = "belog"
_PLAIN: Final[Mapping[object, str]] = {
    str: "string",
    int: "long",
    bool: "boolean",
    float: "double",
    bytes: "bytes",
}


class StructCodec:
    """Encodes one kind of struct. Immutable.

    Attributes:
        schema: The Avro schema, as JSON would show it.
    """

    def __init__(self, kind: type[Struct]) -> None:
        """Derive the schema.

        Args:
            kind: A struct of texts, integers, booleans, literals, tuples of these, optional ones,
                and such structs.

        Raises:
            TypeError: It has a field of another type.
        """
        self._kind = kind
        self.schema = _record(kind, set())
        self._parsed = fastavro.parse_schema(self.schema)
        self._header = single_object_header(self.schema)

    def encode(self, value: Struct) -> bytes:
        """Return a value as an Avro single object."""
        stream = io.BytesIO()
        stream.write(self._header)
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        fastavro.schemaless_writer(stream, self._parsed, plain)  # pyright: ignore[reportUnknownMemberType] - untyped
        return stream.getvalue()

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the fields of a value that `encode` made.

        Raises:
            Corrupt: It is no single object of this schema.
        """
        if not data.startswith(self._header):
            msg = f"this is no {self._kind.__name__} as this software writes it"
            raise Corrupt(msg)
        stream = io.BytesIO(data[len(self._header) :])
        try:
            return cast(
                "dict[str, Any]",
                fastavro.schemaless_reader(stream, self._parsed, None),  # pyright: ignore[reportUnknownMemberType] - untyped
            )
        except Exception as error:  # fastavro raises whatever the bytes lead it into
            msg = f"a {self._kind.__name__} cannot be read: {error!r:.200}"
            raise Corrupt(msg) from error


def _record(kind: type[Struct], seen: set[str]) -> dict[str, Any]:
    seen.add(kind.__name__)
    hints = get_type_hints(kind)
    fields: list[dict[str, object]] = []
    for field in msgspec.structs.fields(kind):
        schema = _schema(hints[field.name], seen, f"{kind.__name__}{field.name.title()}")
        entry: dict[str, object] = {"name": field.encode_name, "type": schema}
        if field.default is not NODEFAULT:
            entry["default"] = _default(field.default)
        fields.append(entry)
    doc = (kind.__doc__ or "").strip().split("\n")[0]
    return {
        "type": "record",
        "name": kind.__name__,
        "namespace": NAMESPACE,
        "doc": doc,
        "fields": fields,
    }


def _schema(hint: object, seen: set[str], name: str) -> object:
    origin = get_origin(hint)
    if origin in {Union, UnionType}:
        inner = [arg for arg in get_args(hint) if arg is not NoneType]
        if len(inner) == 1:
            # The null first, as the default is null.
            return ["null", _schema(inner[0], seen, name)]
    elif origin is tuple and get_args(hint)[1:] == (...,):
        return {"type": "array", "items": _schema(get_args(hint)[0], seen, name)}
    elif origin is Literal:
        return {"type": "enum", "name": name, "symbols": list(get_args(hint))}
    elif isinstance(hint, type) and issubclass(hint, Struct):
        return f"{NAMESPACE}.{hint.__name__}" if hint.__name__ in seen else _record(hint, seen)
    elif hint in _PLAIN:
        return _PLAIN[hint]
    msg = f"{hint!r} has no Avro type here"
    raise TypeError(msg)


def _default(value: object) -> object:
    if isinstance(value, Struct):
        # Without the values that are left out, as an Avro default names every field.
        return {
            field.name: _default(getattr(value, field.name))
            for field in msgspec.structs.fields(type(value))
        }
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value
