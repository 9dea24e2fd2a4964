"""The validating producer, and importers that make legal event sequences of other sources."""

from belog.producers.pending import Pending
from belog.producers.producer import Producer

__all__ = ["Pending", "Producer"]
