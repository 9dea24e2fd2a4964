"""Reading what a backend holds, by the plain client libraries and no code of belog.

The formats are restated from ARCHITECTURE.md and the docstrings of the backends.
"""

import sqlite3
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import polars as pl
import psycopg
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from psycopg.sql import SQL, Identifier

from tests.chaos.rules import Raw

__all__ = ["read_raw"]

ANSWER_S = 20.0
"""How long one answer of the broker may take, seconds."""

_SEGMENT_HEADER_BYTES = struct.Struct("<8sHHI")
_RECORD_HEAD = struct.Struct("<IIIQq")
_MORE, _FILLER = 1 << 31, 1 << 30
_END_MARK = struct.Struct("<16sQQQI")


def read_raw(uri: str) -> list[Raw]:
    """All records of a log, in order."""
    parts = urlsplit(uri)
    if parts.scheme == "sqlite":
        return _sqlite(Path("/" + parts.path.lstrip("/")))
    if parts.scheme == "file":
        return list(_segments(Path(parts.path)))
    if parts.scheme == "postgresql":
        return _postgres(uri)
    if parts.scheme == "delta":
        return _delta(parts.path)
    return _kafka(parts.netloc, parts.path.strip("/"))


def _sqlite(path: Path) -> list[Raw]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = database.execute("SELECT idx, created_at, value FROM belog_records ORDER BY idx")
        return [Raw(index, created_at, value) for index, created_at, value in rows]
    finally:
        database.close()


def _postgres(uri: str) -> list[Raw]:
    parts = urlsplit(uri)
    query = parse_qs(parts.query)
    schema = query.get("schema", ["belog"])[0]
    name = query.get("log", ["main"])[0]
    statement = SQL(
        "SELECT r.idx, r.created_at, r.value, coalesce(r.ends, ARRAY[length(r.value)])"
        " FROM {0}.belog_records r JOIN {0}.belog_logs l ON l.log = r.log"
        " WHERE l.name = %s ORDER BY r.idx"
    ).format(Identifier(schema))
    with psycopg.connect(parts._replace(query="").geturl(), connect_timeout=10) as connection:
        return [
            Raw(index + n, created_at, value[start:end])
            for index, created_at, value, ends in connection.execute(statement, (name,))
            for n, (start, end) in enumerate(pairwise([0, *ends]))
        ]


def _delta(path: str) -> list[Raw]:
    frame = pl.read_delta(path, columns=["index", "created_at", "value"]).sort("index")
    micros = frame["created_at"].dt.epoch("us")
    rows = zip(frame["index"], micros, frame["value"], strict=True)
    return [Raw(index, created_at, value) for index, created_at, value in rows]


def _segments(folder: Path) -> Iterator[Raw]:
    """Records of a file log up to its last whole batch."""
    paths = sorted(folder.glob("*.seg"))
    mark = (folder / "end").read_bytes()
    _, newest, durable, _, _ = _END_MARK.unpack(mark)
    for path in paths:
        data = path.read_bytes()
        if int(path.stem) > newest:
            continue
        if int(path.stem) == newest:
            data = data[:durable]
        _, _, _, at = _SEGMENT_HEADER_BYTES.unpack_from(data)
        batch: list[Raw] = []
        while at + _RECORD_HEAD.size <= len(data):
            crc, word, _, index, created_at = _RECORD_HEAD.unpack_from(data, at)
            end = at + _RECORD_HEAD.size + (word & (_FILLER - 1))
            if end > len(data) or zlib.crc32(data[at + 4 : end]) != crc:
                break
            if not word & _FILLER:
                batch.append(Raw(index, created_at, data[at + _RECORD_HEAD.size : end]))
            at = end
            if not word & _MORE:
                yield from batch
                batch = []


def _kafka(servers: str, topic: str) -> list[Raw]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "chaos-check",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=ANSWER_S)
        consumer.assign([place])
        records: list[Raw] = []
        while True:
            message = consumer.poll(ANSWER_S)
            error = None if message is None else message.error()
            if message is None:
                msg = f"{topic}: neither a record nor an end for {ANSWER_S} s; the end is {end}"
                raise TimeoutError(msg)
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                if (message.offset() or 0) >= end:
                    return records
            elif error.code() != KafkaError._TRANSPORT:  # noqa: SLF001 - of an earlier connection
                raise RuntimeError(str(error))
    finally:
        consumer.close()


def _record(message: Message) -> Raw:
    offset = message.offset()
    assert offset is not None
    return Raw(offset, message.timestamp()[1] * 1000, message.value(), message.key())
