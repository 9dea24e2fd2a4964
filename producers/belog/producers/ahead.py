"""A fold with the events that are on their way into the log over it. No I/O."""

from collections import deque
from collections.abc import Sequence

from belog.producers.flight import Flight
from belog.producers.ids import AttemptKeys
from belog.producers.judging import verdict_on
from belog.producers.pending import Pending
from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import InvalidEvent
from belog.schemas.fold import Accepted, Confirmed, Fold, OnConfirmed, Overlay, Record, Verdict
from belog.storage.interface import Receipt, SendReport

__all__ = ["Ahead"]


class Ahead:
    """What was read and confirmed, and the events in flight that are expected to follow it.

    Not thread-safe.

    Attributes:
        fold: A prefix of the log.
        flights: What was sent and is not decided, in order.
    """

    __slots__ = ("_by_id", "_on_confirmed", "_overlay", "flights", "fold")

    def __init__(self, fold: Fold, on_confirmed: OnConfirmed | None) -> None:
        """Start with nothing in flight.

        Args:
            fold: Where to start.
            on_confirmed: See `Producer`.
        """
        self.fold = fold
        self.flights: deque[Flight] = deque()
        self._on_confirmed = on_confirmed
        self._overlay = Overlay(fold)
        self._by_id: dict[bytes, Flight] = {}

    @property
    def next_position(self) -> int:
        """Where the next event is expected to land."""
        return self.fold.next_position + len(self.flights)

    def verdict(self, event: Event, position: int) -> Verdict:
        """Judge an event over all that is in flight; see `verdict_on`."""
        return verdict_on(self._overlay, event, position)

    def twin(self, event: Event) -> Flight | None:
        """Return the event in flight with the same id."""
        return self._by_id.get(event.event_id)

    def add(self, flight: Flight) -> None:
        """Let an event be in flight that is expected to be accepted."""
        event = flight.event
        self._overlay.add(event, flight.after)
        self.flights.append(flight)
        self._by_id[event.event_id] = flight

    def add_run(self, events: Sequence[Event], keys: AttemptKeys) -> list[Flight]:
        """Let events be in flight, each judged over those before it, up to one that cannot be.

        What stops it is met again by who judges that event alone: one that is not accepted, one
        about the log itself, one that can be in no log.
        """
        position = self.next_position
        flights: list[Flight] = []
        try:
            for event in events:
                verdict = self.verdict(event, position)
                if not isinstance(verdict, Accepted) or event.subject_kind == "system":
                    break
                flight = Flight(event, encode_event(event), keys.next(), verdict.after)
                self.add(flight)
                flights.append(flight)
                position += 1
        except InvalidEvent:
            pass
        return flights

    def confirm(self, flight: Flight, report: SendReport) -> Receipt:
        """Take in the first in flight, which landed where it was expected to."""
        event = flight.event
        if event.subject_kind == "system":
            record = Record(report.position, report.created_at, flight.value)
            self.fold.apply(record)
            receipt = Receipt(report.position, self.fold.created_at, event.event_id)
        else:
            (receipt,) = self._take_in([flight], [report.created_at])
        self._overlay.discard(event, flight.after.index)
        self.remove(flight)
        return receipt

    def is_next(self, flights: Sequence[Flight]) -> bool:
        """Whether these are the first in flight; they were added one after the other."""
        return bool(self.flights) and self.flights[0] is flights[0]

    def confirm_all(self, flights: Sequence[Flight], times: Sequence[int]) -> None:
        """Take in and decide the first in flight, which all landed where they were expected to.

        Args:
            flights: None of them about the log itself.
            times: Their ingest times.
        """
        receipts = self._take_in(flights, times)
        if len(flights) == len(self.flights):
            self.flights.clear()
            self._by_id.clear()
            self._overlay.clear()
        else:
            for flight in flights:
                self._overlay.discard(flight.event, flight.after.index)
                self.remove(flight)
        Pending.decide_all(flights, receipts)

    def _take_in(self, flights: Sequence[Flight], times: Sequence[int]) -> list[Receipt]:
        confirmed = [
            Confirmed(flight.after.index, created_at, flight.value, flight.event, flight.after)
            for flight, created_at in zip(flights, times, strict=True)
        ]
        readable_at = self.fold.confirm(confirmed)
        if self._on_confirmed is not None:
            self._on_confirmed(confirmed)
        return [
            Receipt(each.position, created_at, each.event.event_id)
            for each, created_at in zip(confirmed, readable_at, strict=True)
        ]

    def remove(self, flight: Flight) -> None:
        """Let an event be no longer in flight; what was judged over it stays as it is."""
        if self.flights[0] is flight:
            self.flights.popleft()
        else:
            self.flights.remove(flight)
        self._by_id.pop(flight.event.event_id, None)

    def withdraw(self, flights: Sequence[Flight]) -> None:
        """Let the last ones added be no longer in flight: they were not sent."""
        for flight in reversed(flights):
            self.flights.pop()
            del self._by_id[flight.event.event_id]
        self._overlay.clear()
        for flight in self.flights:
            self._overlay.add(flight.event, flight.after)

    def forget(self) -> list[Flight]:
        """Let nothing be in flight; return what was."""
        flights, self.flights = list(self.flights), deque()
        self._by_id.clear()
        return flights

    def predict_anew(self) -> None:
        """Expect nothing of what was sent; when all of it is decided."""
        self._overlay.clear()
