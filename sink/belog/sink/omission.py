"""What stands in a replica for an event that the replica's store refused. Pure.

Each record of a replica names the accepted event before it, and the state machine judges what
follows, so an event cannot simply be left out: everything after it would be void. In its place the
sink writes an *omission*: the same event at the same index (id, type, subject, actor, times, cause)
whose payload keeps what is small and loses what is long: lists, maps and texts. States, owners and
indices of the replica are then those of the origin, and only the lost fields are missing.

An omission says what it is: its payload holds `omitted` with the size and the Merkle leaf of the
origin's envelope. So a replica with omissions never has its origin's Merkle root and never claims
it, and everybody can tell an omission from a divergence: the origin's envelope hashes to that leaf.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from belog.schemas.envelope import Event, decode_event, encode_event
from belog.schemas.errors import Corrupt
from belog.schemas.merkle import leaf_hash
from belog.schemas.payload import JsonValue, digest, encode_payload
from belog.schemas.replica import decode_replica, encode_replica
from belog.storage.interface import CopiedRecord

__all__ = ["OMISSION_FIELD", "OMITTED_TEXT_BYTES_MAX", "is_omission_of", "omit"]

OMISSION_FIELD: Final = "omitted"

OMITTED_TEXT_BYTES_MAX: Final = 1_024
"""Longest text of a payload that an omission keeps, bytes of UTF-8: ids, labels and refs fit."""

_JUDGED_FIELDS: Final = ("build_request_id", "lifecycle_version")
"""What the verdict reads, kept whatever its size: an omission is accepted where its event was."""

OMITTED_FIELDS_MAX: Final = 64
"""Most payload fields that an omission keeps: several times those of any known event."""


def omit(record: CopiedRecord, reason: str) -> CopiedRecord:
    """Return the record that stands for a refused one, at most some 70 kB and usually 500 bytes.

    Args:
        record: A replica's record, as the sink would have written it.
        reason: Why it was refused; its first `OMITTED_TEXT_BYTES_MAX` characters are kept.

    Raises:
        Corrupt: Not a replica's record.
    """
    wrapped = decode_replica(record.value)
    event = decode_event(wrapped.envelope)
    try:
        body = _small_fields(event.body())
    except Corrupt:  # a payload that no verdict reads is accepted as it is
        body = {}
    body[OMISSION_FIELD] = {
        "bytes": len(wrapped.envelope),
        "leaf": leaf_hash(wrapped.envelope),
        "reason": reason[:OMITTED_TEXT_BYTES_MAX],
    }
    payload = encode_payload(body)
    short: Event = msgspec.structs.replace(event, payload=payload, payload_digest=digest(payload))
    value = encode_replica(msgspec.structs.replace(wrapped, envelope=encode_event(short)))
    return CopiedRecord(record.index, record.created_at, value)


def _small_fields(body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    kept = {name: body[name] for name in _JUDGED_FIELDS if name in body}
    for name, value in body.items():
        if len(kept) == OMITTED_FIELDS_MAX or len(name.encode()) > OMITTED_TEXT_BYTES_MAX:
            continue
        if isinstance(value, str):
            if len(value.encode()) > OMITTED_TEXT_BYTES_MAX:
                continue
        elif not isinstance(value, (bool, int, float)):
            continue
        kept[name] = value
    return kept


def is_omission_of(envelope: bytes, original: bytes) -> bool:
    """Whether a replica's envelope openly stands for another one of the origin."""
    if OMISSION_FIELD.encode() not in envelope:
        return False
    try:
        mark = decode_event(envelope).body().get(OMISSION_FIELD)
    except Corrupt:
        return False
    return isinstance(mark, dict) and mark.get("leaf") == leaf_hash(original)
