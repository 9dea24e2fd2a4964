"""Every bound of the log's format, with its unit and the reason for the number.

A bound of one component (a queue, a wait, a retry) stands in that component; here stand
those that two sides of the log have to agree on.
"""

from typing import Final

__all__ = [
    "ACTOR_BYTES_MAX",
    "BATCH_EVENTS_MAX",
    "BUILD_ID_BYTES_MAX",
    "DUPLICATE_SUBJECT_EVENTS",
    "DUPLICATE_WINDOW_EVENTS",
    "EVENT_BYTES_MAX",
    "EVENT_TYPE_BYTES_MAX",
    "FILTER_TERMS_MAX",
    "JOB_RUN_ID_BYTES_MAX",
    "LIST_ITEMS_MAX",
    "METADATA_ITEMS_MAX",
    "PAGE_EVENTS_MAX",
    "REF_BYTES_MAX",
    "REPLICA_OVERHEAD_BYTES_MAX",
    "TEXT_BYTES_MAX",
]

REF_BYTES_MAX: Final = 1024
"""Partition ref, bytes of UTF-8: longer than any URI in the real graphs looked at (≤ 180)."""

BUILD_ID_BYTES_MAX: Final = 256
"""Build request id, bytes of UTF-8: room for a UUID with a readable prefix."""

JOB_RUN_ID_BYTES_MAX: Final = 256
"""Job run id, bytes of UTF-8, as for build requests."""

ACTOR_BYTES_MAX: Final = 256
"""Authenticated writer, bytes of UTF-8: fits an X.509 subject or a service account."""

EVENT_TYPE_BYTES_MAX: Final = 128
"""Event type slug, bytes of ASCII."""

TEXT_BYTES_MAX: Final = 16_384
"""Free text of one payload field (message, reason, comment), bytes of UTF-8: a stack trace fits."""

LIST_ITEMS_MAX: Final = 10_000
"""Items of one list field: above the largest burst of one build in the real input (4,342 refs)."""

METADATA_ITEMS_MAX: Final = 1_000
"""Entries of a manifest's metadata."""

EVENT_BYTES_MAX: Final = 900_000
"""Encoded envelope, bytes. Kafka's default `message.max.bytes` is 1,048,588 with record and batch
overhead; the rest leaves room for a replica's wrapper and for headers."""

REPLICA_OVERHEAD_BYTES_MAX: Final = 256
"""What the replica's wrapper adds to an envelope, bytes: ids and three integers, rounded up."""

BATCH_EVENTS_MAX: Final = 10_000
"""Events of one `append_batch`: a call stays under about one second on every backend."""

PAGE_EVENTS_MAX: Final = 10_000
"""Events of one page: at 300 bytes each about 3 MB, which a client holds in memory without care."""

FILTER_TERMS_MAX: Final = 1_000
"""Terms of one filter, over all its fields: keeps SQL statements and matching cost bounded."""

DUPLICATE_WINDOW_EVENTS: Final = 65_536
"""Accepted events of the log whose ids are remembered for the duplicate rule. Part of the format:
two programs with different windows would judge a late retry differently."""

DUPLICATE_SUBJECT_EVENTS: Final = 4
"""Accepted events of each subject whose ids are remembered beyond the window. Part of the format,
as the window is."""
