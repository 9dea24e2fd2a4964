"""What a call does, step by step, without doing it. Pure.

A call is a generator: it yields what it needs (a request to be sent, a pause to be made) and is
given what came of it, until it returns its result or raises. A driver runs it, with blocking I/O
(`belog.client.client`) or with asyncio (`belog.client.async_client`). So each call, each retry and
each decision is written once.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from belog.client.problems import error_from, problem_in
from belog.schemas.errors import OutcomeUnknown, Unavailable

__all__ = [
    "ANSWER_TIMEOUT_S",
    "PAUSE_FIRST_S",
    "PAUSE_S_MAX",
    "RETRY_AFTER_S_MAX",
    "RETRY_S",
    "Exchange",
    "Lost",
    "Pause",
    "Request",
    "Response",
    "Retrying",
    "Session",
    "Step",
    "Steps",
    "exchange",
    "raise_refusal",
]

ANSWER_TIMEOUT_S: Final = 30.0
"""How long an answer may take beyond what was asked to be waited for, seconds: as long as a
producer waits for room among the events in flight."""

RETRY_S: Final = 30.0
"""How long a call is tried again, seconds: a restart of a service, or of a broker behind it, takes
less."""

PAUSE_FIRST_S: Final = 0.05
"""Longest pause before the second try, seconds; doubled with each further one."""

PAUSE_S_MAX: Final = 2.0
"""Longest pause between tries, seconds: how late the return of a service is noticed at worst."""

RETRY_AFTER_S_MAX: Final = 60.0
"""Longest `Retry-After` that is waited for, seconds; whatever is above counts as this."""

_BUSY: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed later."""


class Request(Struct, frozen=True, kw_only=True):
    """A request to be sent."""

    method: str
    path: str
    """Percent-encoded, from the service's root on, with the query."""
    body: bytes | None = None
    """JSON."""
    timeout_s: float = ANSWER_TIMEOUT_S
    """Longest silence, seconds."""
    headers: Mapping[str, str] = {}
    """Beside those of every request."""


class Response(Struct, frozen=True):
    """What the service answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Lost(Struct, frozen=True):
    """There is no answer."""

    was_sent: bool
    """The request may have reached the service."""
    reason: str
    hint: str = "is the service running?"
    """What a person can look at."""


class Pause(Struct, frozen=True):
    """Some time to be let pass: between the half and the whole of it, drawn by the driver."""

    pause_s: float


Step = Request | Pause
Came = Response | Lost | None
"""What a driver gives back: None after a pause."""

T = TypeVar("T")
Steps = Generator[Step, Came, T]


class Session(Struct, frozen=True, kw_only=True):
    """What all calls of a client share."""

    url: str
    """The service, without secrets; for errors."""
    retry_s: float = RETRY_S
    timeout_s: float = ANSWER_TIMEOUT_S
    clock: Callable[[], float]
    """Monotonic, seconds."""


class Exchange(Struct, frozen=True):
    """An answer that was come by, which may be a refusal."""

    response: Response
    is_repeated: bool
    """An earlier try may have reached the log, too."""


class Retrying:
    """How long something is tried again, and with what pauses."""

    def __init__(self, session: Session, patience_s: float | None) -> None:
        """Begin now.

        Args:
            session: Gives the time.
            patience_s: Tried for so long, seconds; None for ever.
        """
        self._clock = session.clock
        self._patience_s = patience_s
        self._begun_s = self._clock()
        self._pause_s = PAUSE_FIRST_S

    def pause(self, at_least_s: float = 0) -> Pause | None:
        """Return the pause before the next try; None: no more tries."""
        pause_s = max(self._pause_s, 2 * at_least_s)
        spent_s = self._clock() - self._begun_s
        if self._patience_s is not None and spent_s + pause_s > self._patience_s:
            return None
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return Pause(pause_s)

    def succeeded(self) -> None:
        """Begin anew: what is tried next is another thing."""
        self._begun_s = self._clock()
        self._pause_s = PAUSE_FIRST_S


def exchange(
    session: Session,
    request: Request,
    *,
    patience_s: float | None = None,
    event_id: bytes | None = None,
) -> Steps[Exchange]:
    """Send a request until there is an answer that is not "try again later".

    Only for what may be sent twice: reads, and appends, which an event's id makes so.

    Args:
        session: The client's.
        request: The request.
        patience_s: How long to try, seconds; the session's where None.
        event_id: Of the (first) event that it appends.

    Raises:
        Unavailable: There was none in time; nothing was written. Or `Overloaded`: what the service
            said last.
        OutcomeUnknown: There was none in time, and one try may have reached the log.
    """
    retrying = Retrying(session, session.retry_s if patience_s is None else patience_s)
    is_doubtful = False
    while True:
        came = yield request
        at_least_s = 0.0
        if isinstance(came, Response):
            if came.status not in _BUSY:
                return Exchange(came, is_doubtful)
            problem = problem_in(came.body)
            failure = error_from(
                problem, status=came.status, url=session.url, event_id=event_id or bytes(16)
            )
            # A proxy does not know whether its request went through.
            is_doubtful |= problem is None or isinstance(failure, OutcomeUnknown)
            at_least_s = _retry_after_s(came.headers)
        elif isinstance(came, Lost):
            is_doubtful |= came.was_sent
            failure = Unavailable(f"no answer from {session.url}: {came.reason}", hint=came.hint)
        else:
            msg = "a request was answered by a pause"
            raise TypeError(msg)
        pause = retrying.pause(at_least_s)
        if pause is None:
            if is_doubtful and event_id is not None and not isinstance(failure, OutcomeUnknown):
                raise OutcomeUnknown(failure.message, event_id=event_id) from failure
            raise failure
        yield pause


def raise_refusal(session: Session, response: Response) -> None:
    """Raise what a refusal says.

    Raises:
        BelogError: The answer is one.
    """
    if not 200 <= response.status < 300:
        raise error_from(problem_in(response.body), status=response.status, url=session.url)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return min(float(text), RETRY_AFTER_S_MAX) if text.isdigit() else 0.0
