"""Copying into a replica that is a topic: nothing is read back as long as nobody else writes.

Records are judged where they land. A copy that knows the position behind the replica's last
accepted event sends its records as one run: where none is refused and the last one landed where it
should, all did, with nobody in between, and the next copy knows its position too. Otherwise the
replica is read.
"""

import threading
from collections.abc import Callable, Sequence

from msgspec import Struct

from belog.schemas.errors import IndexConflict
from belog.schemas.fold import Record
from belog.storage.interface import SCAN_RECORDS_MAX, CopiedRecord
from belog.storage.judged import JudgedView
from belog.storage.kafka_sender import Sender, new_keys

__all__ = ["ReplicaCopy"]


class _Copied(Struct, frozen=True):
    """Where the last copy ended, with nobody in between."""

    index: int
    next_position: int


class ReplicaCopy:
    """Writes a replica's records. Thread-safe; copies of one object take turns."""

    def __init__(
        self,
        sender: Sender,
        view: JudgedView,
        scan: Callable[[int, int], list[Record]],
        tombstone: Callable[[Sequence[bytes]], None],
    ) -> None:
        """Take what the log writes and reads with."""
        self._sender = sender
        self._view = view
        self._scan = scan
        self._tombstone = tombstone
        self._lock = threading.Lock()
        self._copied: _Copied | None = None

    def copy(self, records: Sequence[CopiedRecord], after: int) -> None:
        """Write records behind the event at `after`; see `KafkaLog.copy_records`."""
        with self._lock:
            copied, self._copied = self._copied, None
            keys = new_keys(len(records))
            values = [record.value for record in records]
            if copied is not None and copied.index == after:
                start = copied.next_position
            else:
                self._check_last(after)
                start = self._view.fold.next_position
            last = self._sender.send_run(keys, values)
            end = start + len(records)
            if last.error is None and last.position == end - 1:
                self._copied = _Copied(records[-1].index, end)
                return
            self._remove_void(start, set(keys))
            if last.error is not None:
                raise last.error
            self._check_last(records[-1].index)

    def _check_last(self, index: int) -> None:
        fold = self._view.catch_up()
        if fold.last_accepted != index:
            msg = f"the log's last index is {fold.last_accepted}, not {index}"
            raise IndexConflict(msg, next_idx=fold.next_idx, log=self._sender.log)

    def _remove_void(self, start: int, keys: set[bytes]) -> None:
        """Write tombstones for those of our records that lost a race or follow a refused one."""
        end = self._view.catch_up().next_position
        void: list[bytes] = []
        position = start
        while position < end:
            records = self._scan(position, SCAN_RECORDS_MAX)
            if not records:
                break
            void += [
                r.key
                for r in records
                if r.key is not None
                and r.key in keys
                and r.value is not None
                and r.position < end
                and not self._view.was_accepted(r.position)
            ]
            position = records[-1].position + 1
        if void:
            self._tombstone(void)
