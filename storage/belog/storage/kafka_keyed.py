"""A compacted topic that keeps the newest record of each key; what is read of it is its end."""

from collections.abc import Sequence
from contextlib import closing
from typing import Self

from belog.schemas.errors import Diverged, NotFound
from belog.schemas.fold import Record
from belog.storage.interface import SCAN_RECORDS_MAX
from belog.storage.kafka_cursor import Cursors, PositionLostError
from belog.storage.kafka_sender import Sender
from belog.storage.kafka_target import parse_uri
from belog.storage.kafka_topic import TopicAdmin

__all__ = ["KeyedTopic"]


class KeyedTopic:
    """One topic, written by one process at a time. Not thread-safe.

    Attributes:
        name: Its URI without secrets.
    """

    def __init__(self, uri: str) -> None:
        """Check the topic. Blocks for round trips.

        Raises:
            InvalidUri: The URI is malformed.
            Misconfigured: It has more than one partition, or is not compacted.
            NotFound: There is none; the hint is the command that makes it.
            Unavailable: No broker answers.
        """
        target = parse_uri(uri)
        self.name = target.name
        with closing(TopicAdmin(target)) as admin:
            admin.report()
        self._sender = Sender(target)
        self._cursors = Cursors(target)
        self._end: int | None = None

    def tail(self, count: int) -> list[Record]:
        """Return the records at the topic's last positions, in order; what is not there, is not.

        Args:
            count: How many positions to look at, at most `SCAN_RECORDS_MAX`.

        Raises:
            NotFound: The topic is gone.
            Unavailable: No broker answers.
        """
        try:
            low, end = self._cursors.bounds()
            self._end = end
            # Compaction leaves the last record, however far back it stands.
            start = max(low, end - min(count, SCAN_RECORDS_MAX))
            return self._cursors.read(start, SCAN_RECORDS_MAX) if end > start else []
        except PositionLostError as error:
            msg = "the topic is gone, or was made anew"
            raise NotFound(msg, log=self.name, hint="start again") from error

    def put(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write records in order; durable on return. Call `tail` before the first time.

        Raises:
            Diverged: Somebody else wrote in between.
            BelogError: Not all were written.
        """
        if not keys:
            return
        report = self._sender.send_run(keys, values)
        if report.error is not None:
            self._end = None
            raise report.error
        expected = None if self._end is None else self._end + len(keys) - 1
        self._end = report.position + 1
        if report.position != expected:
            self._end = None
            msg = f"the last record landed at {report.position}, not at {expected}"
            raise Diverged(msg, log=self.name, hint="does another process write to this topic?")

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._sender.close()
        self._cursors.close()

    def __enter__(self) -> Self:
        """Return the topic itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
