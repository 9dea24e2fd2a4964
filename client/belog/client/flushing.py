"""Sending what a spool holds: in order, each event once, whatever dies on the way."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from belog.client.cursors import Cursor, Page
from belog.client.spool import Spool
from belog.client.spool_codec import Entry
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Gone,
    InvalidInput,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from belog.schemas.receipts import Receipt
from belog.v1.event_log_pb2 import LogStatus

__all__ = ["SEND_BYTES_MAX", "SEND_EVENTS", "Flushed", "OnOutcome", "SentTo", "flush"]

SEND_EVENTS: Final = 500
"""Events that are sent at once: some 50 ms of a service's work, and what has to be looked up where
a sender dies."""

SEND_BYTES_MAX: Final = 1024 * 1024
"""Bytes of their payloads, unless one alone is larger: far below what a service takes."""


class SentTo(Protocol):
    """The part of a `Client` that sending needs."""

    def append_batch(self, events: Sequence[Event]) -> list[Receipt | BelogError]:
        """See `Client.append_batch`."""
        ...

    def event(self, which: int | bytes | UUID) -> StoredEvent | None:
        """See `Client.event`."""
        ...

    def events(self, since: Cursor | int = ..., *, limit: int = ...) -> Page:
        """See `Client.events`."""
        ...

    def status(self) -> LogStatus:
        """See `Client.status`."""
        ...


class Flushed(Struct, frozen=True, kw_only=True):
    """What a flush did."""

    sent: int
    """Events that the log has now."""
    refused: int
    """Events that it will never have; they are in `events.conflicts`."""
    left: int
    """Events that are still in the spool."""
    is_ours: bool = True
    """Whether it was this process that sent; another one may be at it."""
    error: BelogError | None = None
    """Why some are left."""


OnOutcome = Callable[[Entry, Receipt | BelogError], None]


def flush(
    spool: Spool, log: SentTo, *, on_outcome: OnOutcome | None = None, is_met: bool = False
) -> Flushed:
    """Send everything that a spool holds, in order. Blocks.

    An event of which it is not known whether it was sent is looked up first. So none is sent twice,
    and none is passed over, if a sender dies at any point.

    Args:
        spool: The spool.
        log: Where to; its own retries apply.
        on_outcome: Told of each event that leaves, with its receipt or what refused it.
        is_met: The log was seen a moment ago to be the right one, and nothing failed since.

    Returns:
        What was done; nothing, with what is left, while another process sends.

    Raises:
        LogReplaced: It is not the log that the events were kept for.
        LogTruncated: It is shorter than it was.
        Corrupt: The spool is damaged.
    """
    with spool.sending() as is_ours:
        if not is_ours:
            return Flushed(sent=0, refused=0, left=spool.pending, is_ours=False)
        sending = _Sending(spool, log, on_outcome)
        error = None
        if spool.pending:
            try:
                sending.all(is_met=is_met)
            except BelogError as stopped:
                if not (stopped.retriable or stopped.code in _STAYS):
                    raise
                error = stopped
        return Flushed(sent=sending.sent, refused=sending.refused, left=spool.pending, error=error)


_STAYS: Final = frozenset({"error", "unauthenticated", "forbidden"})
"""Not for another try by itself, and not the events' fault: they stay."""


class _Sending:
    """One flush."""

    def __init__(self, spool: Spool, log: SentTo, on_outcome: OnOutcome | None) -> None:
        self.sent = 0
        self.refused = 0
        self._spool = spool
        self._log = log
        self._on_outcome = on_outcome
        self._found: dict[int, StoredEvent | None] = {}
        """What was looked up, by number."""
        self._events_max = SEND_EVENTS

    def all(self, *, is_met: bool) -> None:
        if not is_met:
            there = self._log.status()
            self._spool.meet(UUID(there.log_id), there.next_idx)
        while entries := self._spool.entries(self._events_max, SEND_BYTES_MAX):
            for entry in entries:
                if entry.number not in self._found and self._spool.is_doubtful(entry):
                    self._found[entry.number] = self._look_up(entry)
            known = list(takewhile(lambda e: self._found.get(e.number) is not None, entries))
            if known:
                self._leave_found(known)
                continue
            unknown = list(takewhile(lambda e: self._found.get(e.number) is None, entries))
            self._check_horizon(unknown)
            self._send(unknown)

    def _look_up(self, entry: Entry) -> StoredEvent | None:
        return self._log.event(entry.event.event_id)

    def _leave_found(self, entries: Sequence[Entry]) -> None:
        outcomes: list[tuple[int, int]] = []
        receipts: list[Receipt] = []
        for entry in entries:
            stored = self._found.pop(entry.number)
            if stored is not None:
                outcomes.append((entry.number, stored.index))
                receipts.append(
                    Receipt(stored.index, stored.created_at, entry.event.event_id, duplicate=True)
                )
        self._spool.took(outcomes)
        self.sent += len(outcomes)
        for entry, receipt in zip(entries, receipts, strict=True):
            self._tell(entry, receipt)

    def _check_horizon(self, entries: Sequence[Entry]) -> None:
        """Refuse what may have been in the log and removed again: it cannot be told any more."""
        doubtful = [entry for entry in entries if self._spool.is_doubtful(entry)]
        if not doubtful:
            return
        try:
            self._log.events(self._spool.status().next_idx, limit=1)
        except Gone as gone:
            for entry in doubtful:
                msg = f"it may have been in the log, which was vacuumed below {gone.horizon} since"
                self._refuse(entry, OutcomeUnknown(msg, event_id=entry.event.event_id))

    def _send(self, entries: Sequence[Entry]) -> None:
        entries = [entry for entry in entries if entry.number >= self._spool.first_number]
        if not entries:
            return
        self._spool.trying(entries)
        for entry in entries:
            self._found.pop(entry.number, None)
        try:
            results = self._log.append_batch([entry.event for entry in entries])
        except InvalidInput as error:
            # Of the whole batch; which event it is shows when they go one by one.
            self._spool.not_sent()
            if len(entries) == 1:
                self._refuse(entries[0], error)
            self._events_max = 1
            return
        except (Overloaded, Unavailable):
            self._spool.not_sent()
            raise
        self._events_max = SEND_EVENTS
        self._settle(entries, results)

    def _settle(self, entries: Sequence[Entry], results: Sequence[Receipt | BelogError]) -> None:
        receipts = [result for result in results if isinstance(result, Receipt)]
        landed = [receipt.index for receipt in receipts if not receipt.duplicate]
        if landed:
            self._spool.check_grows(min(landed))
        accepted: list[tuple[int, int]] = []
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, Receipt):
                accepted.append((entry.number, result.index))
                continue
            self._spool.took(accepted)
            self.sent += len(accepted)
            accepted = []
            if not result.deterministic:
                self._tell_all(entries, results, before=entry.number)
                raise result
            self._spool.refused(entry, result)
            self.refused += 1
        self._spool.took(accepted)
        self.sent += len(accepted)
        self._tell_all(entries, results, before=None)

    def _refuse(self, entry: Entry, error: BelogError) -> None:
        self._spool.refused(entry, error)
        self.refused += 1
        self._tell(entry, error)

    def _tell_all(
        self,
        entries: Sequence[Entry],
        results: Sequence[Receipt | BelogError],
        *,
        before: int | None,
    ) -> None:
        for entry, result in zip(entries, results, strict=True):
            if before is None or entry.number < before:
                self._tell(entry, result)

    def _tell(self, entry: Entry, result: Receipt | BelogError) -> None:
        if self._on_outcome is not None:
            self._on_outcome(entry, result)
