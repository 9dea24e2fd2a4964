"""Payload bytes: canonical CBOR and its BLAKE3 digest.

The encoding is RFC 8949 §4.2.1 (core deterministic encoding): definite lengths, shortest heads,
map keys in bytewise order of their encodings, floats in their shortest exact form. Equal payloads
have equal bytes, so they can be digested, compared and signed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Final, TypedDict, cast

import cbor2
from blake3 import blake3

from belog.schemas.errors import Corrupt, InvalidEvent

__all__ = [
    "JsonValue",
    "canonical_payload",
    "decode_payload",
    "digest",
    "encode_known_payload",
    "encode_payload",
    "first_map",
    "known_payload",
    "ordered_keys",
    "remember",
]

JsonValue = None | bool | int | float | str | bytes | list["JsonValue"] | dict[str, "JsonValue"]
"""What a payload may hold: text keys, and values with one CBOR form each."""

DEPTH_MAX: Final = 16
"""Nesting of a payload, levels: OpenLineage facets reach 9; decoding must stay off the stack."""

KNOWN_PAYLOADS_MAX: Final = 8_192
"""Payloads made here whose maps are remembered, and as many again before these: all that a service
has in hand at its highest rate. About 10 MB."""

KNOWN_PAYLOAD_BYTES_MAX: Final = 1_024
"""Largest payload whose map is remembered, bytes: nearly all are smaller."""

KEY_ORDERS_MAX: Final = 1_024
"""Sets of keys whose canonical order is remembered; all are forgotten where there are more. Writers
use a few hundred; some MB at the very most."""

KEY_ORDER_CHARS_MAX: Final = 128
"""Keys that are remembered together, characters in all; typed payloads have up to 100."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


def encode_payload(payload: Mapping[str, JsonValue]) -> bytes:
    """Return the canonical CBOR of a map with text keys.

    Raises:
        InvalidEvent: A key that is not text, a value of a type without a canonical form, an
            integer outside 64 bits, text that UTF-8 cannot hold, or more than `DEPTH_MAX` maps
            and lists within each other.

    Source: RFC 8949 §4.2.1.

    >>> encode_payload({"b": 1, "a": "x"}).hex()
    'a261616178616201'
    """
    return _encode(payload)[0]


def _encode(payload: Mapping[str, JsonValue]) -> tuple[bytes, dict[str, JsonValue] | None]:
    """Return the bytes, and the map in its canonical order where it is plain."""
    try:
        if _is_plain(payload):
            # Without floats and nested maps the plain encoder is canonical.
            ordered = {key: payload[key] for key in ordered_keys(tuple(payload))}
            return cbor2.dumps(ordered), ordered
        return cbor2.dumps(_checked(payload, 0), canonical=True), None
    except UnicodeEncodeError as error:
        msg = "payload has text that UTF-8 cannot hold"
        raise InvalidEvent(msg) from error


class _Known:
    """Maps of payloads that were made here, by their bytes; the newest and those before."""

    __slots__ = ("before", "newest")

    def __init__(self) -> None:
        self.newest: dict[bytes, dict[str, JsonValue]] = {}
        self.before: dict[bytes, dict[str, JsonValue]] = {}

    def add(self, data: bytes, payload: dict[str, JsonValue]) -> None:
        if len(self.newest) >= KNOWN_PAYLOADS_MAX:
            self.before, self.newest = self.newest, {}
        self.newest[data] = payload


_KNOWN: Final = _Known()


def encode_known_payload(payload: Mapping[str, JsonValue]) -> bytes:
    """As `encode_payload`, for bytes that this process reads again: see `known_payload`."""
    data, plain = _encode(payload)
    if plain is not None and len(data) <= KNOWN_PAYLOAD_BYTES_MAX:
        for key, value in plain.items():
            if type(value) is list:
                # The caller's list may change after this.
                plain[key] = value[:]
        _KNOWN.add(data, plain)
    return data


def canonical_payload(data: bytes) -> dict[str, JsonValue] | None:
    """Return the map of bytes that are what `encode_payload` makes of a plain map.

    Returns:
        The map, to be looked at only; None for anything else, be it canonical or not.
    """
    payload = first_map(data)
    # Compared as bytes, so nothing can stand behind it.
    if payload is None or not _is_plain(payload) or cbor2.dumps(payload) != data:
        return None
    keys = tuple(payload)
    if ordered_keys(keys) != keys:
        return None
    remember(data, payload)
    return payload


def first_map(data: bytes) -> dict[str, JsonValue] | None:
    """Return the map that bytes begin with, as strictly as `decode_payload`; None for other bytes.

    Its keys and values are of any type, and anything may stand behind it.
    """
    try:
        value: dict[str, JsonValue] = _loads_first(data)
    except (cbor2.CBORDecodeError, RecursionError, ValueError, OverflowError):
        return None
    return value if type(value) is dict else None


def remember(data: bytes, payload: dict[str, JsonValue]) -> None:
    """Let `known_payload` give this map for its bytes, where they are not many.

    Args:
        data: Canonical CBOR.
        payload: What it holds, in canonical order; not to be changed afterwards.
    """
    if len(data) <= KNOWN_PAYLOAD_BYTES_MAX:
        _KNOWN.add(data, payload)


def known_payload(data: bytes) -> Mapping[str, JsonValue]:
    """Return the map that payload bytes hold, to be looked at only.

    An event is read several times on its way: to be judged, to find whom it concerns, for its rows.
    Where this process made it, the bytes are not decoded again.

    Raises:
        Corrupt: As `decode_payload`.
    """
    return _KNOWN.newest.get(data) or _KNOWN.before.get(data) or decode_payload(data)


_KEY_ORDERS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}


def ordered_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of a map in the order of canonical CBOR.

    Text keys of the same length class sort by length first, then bytewise: the order of their
    encodings.

    Raises:
        UnicodeEncodeError: One that UTF-8 cannot hold.
    """
    known = _KEY_ORDERS.get(keys)
    if known is not None:
        return known
    order = tuple(sorted(keys, key=_key_order))
    if sum(map(len, keys)) <= KEY_ORDER_CHARS_MAX:
        if len(_KEY_ORDERS) >= KEY_ORDERS_MAX:
            _KEY_ORDERS.clear()
        _KEY_ORDERS[keys] = order
    return order


def _key_order(key: str) -> tuple[int, bytes]:
    data = key.encode()
    return len(data), data


def _is_plain(payload: Mapping[str, JsonValue]) -> bool:
    for key, value in payload.items():
        if type(key) is not str:
            return False
        kind = type(value)
        if kind is str:
            continue
        if kind is int:
            if not _INT_MIN <= cast("int", value) <= _INT_MAX:
                return False
        elif kind is list:
            if not all(type(item) is str for item in cast("list[JsonValue]", value)):
                return False
        else:
            return False
    return True


def _checked(value: object, depth: int) -> JsonValue:
    """Return a copy made of plain types only."""
    if depth >= DEPTH_MAX and isinstance(value, (Mapping, list)):
        msg = f"payload is nested deeper than {DEPTH_MAX} levels"
        raise InvalidEvent(msg)
    if isinstance(value, Mapping):
        plain: dict[str, JsonValue] = {}
        for key, item in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                msg = f"payload has a key that is not text: {key!r}"
                raise InvalidEvent(msg)
            plain[str(key)] = _checked(item, depth + 1)
        return plain
    if isinstance(value, list):
        return [_checked(item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, int) and not isinstance(value, bool):
        if not _INT_MIN <= value <= _INT_MAX:
            msg = f"payload has an integer outside 64 bits: {value}"
            raise InvalidEvent(msg)
        return int(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, float, bytes)):
        return value
    msg = f"payload has a value of type {type(value).__name__}, which has no canonical form"
    raise InvalidEvent(msg)


def _refuse_tag(*_: object) -> object:
    msg = "payload has a CBOR tag"
    raise ValueError(msg)


# Every tag that the decoder would turn into a Python object by itself.
_TAGS: Final[tuple[int, ...]] = (
    *(0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100),
    *(256, 258, 260, 261, 1004, 43000, 55799),
)
_NO_TAGS: Final[Mapping[int, Callable[..., object]]] = dict.fromkeys(_TAGS, _refuse_tag)


class _Strict(TypedDict):
    tag_hook: Callable[..., object]
    semantic_decoders: Mapping[int, Callable[..., object]]
    allow_indefinite: bool
    allow_duplicate_keys: bool
    strict_hashable_types: bool


_STRICT: Final[_Strict] = {
    "tag_hook": _refuse_tag,
    "semantic_decoders": _NO_TAGS,
    "allow_indefinite": False,
    "allow_duplicate_keys": False,
    "strict_hashable_types": True,
}

# A payload is decoded as the first of two items of an array, the second being this mark: where
# bytes follow the payload, something else stands in its place. That is much cheaper than a stream
# that is asked how far it got, which is what a payload that holds the mark itself takes.
_MARK: Final = b"\xbe\x10 end of item \xff"
_BEFORE: Final = b"\x82"
_AFTER: Final = cbor2.dumps(_MARK)
_TRAILING: Final = "there are bytes after its end"
# Bound once: spreading the options over every call takes a tenth of its time.
_loads_strictly: Final = partial(cbor2.loads, max_depth=DEPTH_MAX + 1, **_STRICT)
_loads_first: Final = partial(cbor2.loads, max_depth=DEPTH_MAX, **_STRICT)


def _decode_whole(data: bytes) -> object:
    """Decode bytes that are one item and nothing else; raises what the library does."""
    if _MARK in data:
        stream = BytesIO(data)
        value: object = cbor2.CBORDecoder(stream, max_depth=DEPTH_MAX, **_STRICT).decode()
        if stream.tell() != len(data):
            raise ValueError(_TRAILING)
        return value
    value, mark = _loads_strictly(_BEFORE + data + _AFTER)
    if mark != _MARK:
        raise ValueError(_TRAILING)
    return value


def decode_payload(data: bytes) -> dict[str, JsonValue]:
    """Return the map that payload bytes hold.

    Unlike a general CBOR reader it takes no tags, no indefinite lengths and no repeated keys: what
    a payload means must not depend on which extensions a library knows. It does not check that
    the bytes are canonical; the digest binds them as they are.

    Raises:
        Corrupt: Not CBOR of that kind, or not a map with text keys, or a value that no payload
            can be made with: `undefined`, an integer outside 64 bits.
    """
    try:
        value = _decode_whole(data)
    except (cbor2.CBORDecodeError, RecursionError, ValueError, OverflowError) as error:
        msg = f"payload is not CBOR: {error}"
        raise Corrupt(msg) from error
    if type(value) is not dict:
        msg = f"payload is not a CBOR map but {type(value).__name__}"
        raise Corrupt(msg)
    payload = cast("dict[object, object]", value)
    for key, item in payload.items():
        if type(key) is not str:
            msg = "payload has a key that is not text"
            raise Corrupt(msg)
        if type(item) is not str:
            _check_decoded(item)
    return cast("dict[str, JsonValue]", payload)


_SCALARS: Final = frozenset({str, bool, float, bytes, type(None)})


def _check_decoded(value: object) -> None:
    kind = type(value)
    if kind is dict:
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                msg = "payload has a key that is not text"
                raise Corrupt(msg)
            if type(item) is not str:
                _check_decoded(item)
    elif kind is list:
        for item in cast("list[object]", value):
            if type(item) is not str:
                _check_decoded(item)
    elif kind is int:
        if not _INT_MIN <= cast("int", value) <= _INT_MAX:
            msg = "payload has an integer outside 64 bits"
            raise Corrupt(msg)
    elif kind not in _SCALARS:
        msg = "payload has a simple value without a meaning"
        raise Corrupt(msg)


def digest(data: bytes) -> bytes:
    """Return the BLAKE3 digest of payload bytes, 32 bytes."""
    return blake3(data).digest()
