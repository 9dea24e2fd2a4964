"""Kafka logs by URI, with a local index where the URI names one: `kafka://…/topic?index=/path`."""

from belog.storage.indexed import IndexedLog
from belog.storage.interface import OrderedLog
from belog.storage.kafka import KafkaLog
from belog.storage.kafka_target import parse_uri

__all__ = ["from_uri"]


def from_uri(uri: str) -> OrderedLog:
    """See `belog.storage.factory`."""
    target = parse_uri(uri)
    log = KafkaLog(target)
    return IndexedLog(log, target.index_path) if target.index_path else log
