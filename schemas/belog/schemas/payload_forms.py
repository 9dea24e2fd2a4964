"""Typed payloads of the usual form, checked in one pass. Pure.

Nearly every typed payload is a flat map: texts in ASCII, and lists of them, in fields of its class.
Which fields there are is looked up by the keys, so that what is left is one look at each value.
What is taken here is taken by the long way too, with the same bytes; anything else, right or wrong,
is left to that way, which knows what to say of it. Property tests hold both.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import cbor2
import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.inspect import Field, ListType, Metadata, NoneType, StrType, UnionType, type_info

from belog.schemas.checks import text_bound
from belog.schemas.limits import LIST_ITEMS_MAX
from belog.schemas.payload import JsonValue, first_map, ordered_keys, remember

__all__ = ["PayloadForms"]

FORMS_MAX: Final = 256
"""Forms that are remembered of each event type; all are forgotten where there are more. A client
writes a type with one or two sets of fields, in one order; about 1 kB each."""

SHORT_HEAD_MAX: Final = 23
BYTE_HEAD_MAX: Final = 0xFF
"""Lengths that CBOR writes in its first byte, and in the byte behind that (RFC 8949, 3)."""

WORD_HEAD_MAX: Final = 0xFFFF
"""Longest text or list of the usual form: a length in two bytes."""


_FieldForm = tuple[int, bool, bool]
"""How a field is as usual: characters of a text at most; whether these are ids, which have no
control characters; whether it is a list of texts."""


class _Form(Struct, frozen=True, gc=False):
    """What a map with certain keys, in a certain order, has to be."""

    fields: tuple[_FieldForm, ...]
    """In the order of the keys."""
    order: tuple[str, ...]
    """The keys, in canonical order."""
    is_ordered: bool
    """Whether it is the order they have."""
    keys_bytes: int
    """Of the CBOR, without the values."""


class PayloadForms:
    """The usual forms of event types, by their keys. For any number of threads."""

    def __init__(self, payloads: Mapping[str, type[Struct]]) -> None:
        """Take the class of each event type."""
        self._classes = {
            name: _fields(cls)
            for name, cls in payloads.items()
            if not hasattr(cls, "__post_init__")  # which may refuse what its fields take
        }
        self._forms: dict[str, dict[tuple[str, ...], _Form]] = {name: {} for name in self._classes}

    def is_usual(self, event_type: str, data: bytes) -> bool:
        """Whether bytes are the canonical CBOR of a valid payload of a type, in the usual form.

        Their map is then one that `known_payload` knows.
        """
        forms = self._forms.get(event_type)
        if forms is None:
            return False
        payload = first_map(data)
        if payload is None:
            return False
        keys = tuple(payload)
        form = forms.get(keys) or self._new_form(event_type, keys)
        if form is None or not form.is_ordered:
            return False
        # The decoder took no tags, no indefinite lengths and no key twice, so each item is written
        # with a head of its own. They are no longer in all than with the shortest heads and a byte
        # for each character: so that is how they are written, and nothing stands behind the map.
        size = _values_bytes(form, payload)
        if size < 0 or size + form.keys_bytes != len(data):
            return False
        remember(data, payload)
        return True

    def encoded(self, event_type: str, body: dict[str, JsonValue]) -> bytes | None:
        """Return the canonical CBOR of a map, as of JSON; None where it is not of the usual form.

        Args:
            event_type: Any.
            body: Plain types only. Not to be changed afterwards: `known_payload` knows it.
        """
        forms = self._forms.get(event_type)
        if forms is None:
            return None
        keys = tuple(body)
        form = forms.get(keys) or self._new_form(event_type, keys)
        size = -1 if form is None else _values_bytes(form, body)
        if form is None or size < 0:
            return None
        payload = body if form.is_ordered else {key: body[key] for key in form.order}
        try:
            data = cbor2.dumps(payload)
        except UnicodeEncodeError:
            return None
        if len(data) != size + form.keys_bytes:
            return None  # of more bytes than characters, which the bounds do not count
        remember(data, payload)
        return data

    def _new_form(self, event_type: str, keys: tuple[str, ...]) -> _Form | None:
        known, required = self._classes[event_type]
        if not known.keys() >= set(keys) or not required <= set(keys):
            return None
        order = ordered_keys(keys)
        heads = cbor2.dumps(dict.fromkeys(order, 0))
        form = _Form(
            fields=tuple(known[key] for key in keys),
            order=order,
            is_ordered=order == keys,
            keys_bytes=len(heads) - len(keys),
        )
        forms = self._forms[event_type]
        if len(forms) >= FORMS_MAX:
            forms.clear()
        forms[keys] = form
        return form


def _values_bytes(form: _Form, payload: Mapping[str, JsonValue]) -> int:
    """Return the bytes that values take in CBOR where they are ASCII; -1 if one is not as usual."""
    size = 0
    for (chars_max, is_id, is_list), value in zip(form.fields, payload.values(), strict=True):
        items: Sequence[object]
        if is_list:
            # An empty one is a default, which is not written.
            if type(value) is not list or not 0 < len(value) <= LIST_ITEMS_MAX:
                return -1
            items = value
            count = len(items)
            size += 1 if count <= SHORT_HEAD_MAX else 2 if count <= BYTE_HEAD_MAX else 3
        else:
            items = (value,)
        for item in items:
            if type(item) is not str:
                return -1
            chars = len(item)
            if not 0 < chars <= chars_max or (is_id and not item.isprintable()):
                return -1
            size += chars + (1 if chars <= SHORT_HEAD_MAX else 2 if chars <= BYTE_HEAD_MAX else 3)
    return size


# --- classes


def _fields(cls: type[Struct]) -> tuple[dict[str, _FieldForm], frozenset[str]]:
    """Return the fields that can be as usual, and the names of those that must be there."""
    info = cast("msgspec.inspect.StructType", type_info(cls))
    known: dict[str, _FieldForm] = {}
    for field in info.fields:
        form = _field_form(field)
        if form is not None:
            known[field.encode_name] = form
    required = frozenset(field.encode_name for field in info.fields if field.required)
    return known, required


def _field_form(field: Field) -> _FieldForm | None:
    """Return the form of a field that takes any text, or list of texts, that is not empty."""
    kind = field.type
    if isinstance(kind, UnionType):
        others = [item for item in kind.types if not isinstance(item, NoneType)]
        if len(others) != 1:
            return None
        kind = others[0]
    is_list = isinstance(kind, ListType)
    if isinstance(kind, ListType):
        if kind.min_length is not None or kind.max_length is not None:
            return None
        kind = kind.item_type
    if isinstance(kind, Metadata):
        kind = kind.type
    if (
        not isinstance(kind, StrType)
        or kind.min_length not in {None, 0, 1}
        or kind.max_length is not None
        or kind.pattern is not None
    ):
        return None
    # One at its default is not written; of these none is.
    if field.default not in {NODEFAULT, None} or field.default_factory not in {NODEFAULT, list}:
        return None
    bound, is_id = text_bound(field.encode_name)
    return min(bound, WORD_HEAD_MAX), is_id, is_list
