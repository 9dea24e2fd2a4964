"""The errors of belog: one tree, each with its coordinates and a hint what to do.

::

    BelogError
    ├── InvalidInput            the caller's words are off; nothing was written
    │   ├── InvalidEvent        an event that cannot be in any log
    │   ├── InvalidFilter       a filter that cannot be evaluated
    │   ├── InvalidUri          a log or table URI that is malformed or not supported
    │   ├── InvalidConfiguration  a setting with an unknown name or an unusable value
    │   └── LimitExceeded       one of the named bounds
    ├── Conflict                a well-formed event that is not legal now
    │   ├── IllegalTransition   not a next state of the subject
    │   ├── NotOwner            the attempt belongs to another build
    │   ├── ExpectedMismatch    the subject moved since the caller looked
    │   └── EventIdReused       the id was accepted with another content
    ├── IndexConflict           compare-and-append lost: the log has moved on
    ├── OutcomeUnknown          sent, and the answer was lost; a retry resolves it
    ├── Overloaded              a bound on work in flight was reached and waiting did not help
    ├── Unavailable             a server or file cannot be reached now
    ├── Unauthenticated         no token, or one that is not known
    ├── Forbidden               the token is good, and not for this
    ├── NotFound                no such event, subject or log
    ├── Gone                    behind the vacuum horizon
    ├── Closed                  the object was closed
    ├── Unsupported             this backend cannot do that
    ├── WrongLog                not the log that was meant
    │   ├── LogReplaced         another log_id than the one remembered
    │   └── LogTruncated        shorter than what was already read or acknowledged
    ├── Misconfigured           a server's setting breaks a promise of the log
    ├── NewerFormat             written by newer software: stop rather than guess
    ├── Corrupt                 stored bytes that are not what was written
    ├── ReplicaRefused          a write that replica mode does not take
    └── Diverged                two views of one log differ

Two flags decide what code does. `retriable`: the same call may succeed later, so retry with a
bounded back-off. `deterministic`: the same input will fail again, so record it and go on.
Neither: stop.
`status_of` maps each class to its HTTP status, gRPC code and exit code.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

__all__ = [
    "BelogError",
    "Closed",
    "Conflict",
    "Corrupt",
    "Diverged",
    "EventIdReused",
    "ExpectedMismatch",
    "Forbidden",
    "Gone",
    "IllegalTransition",
    "IndexConflict",
    "InvalidConfiguration",
    "InvalidEvent",
    "InvalidFilter",
    "InvalidInput",
    "InvalidUri",
    "LimitExceeded",
    "LogReplaced",
    "LogTruncated",
    "Misconfigured",
    "NewerFormat",
    "NotFound",
    "NotOwner",
    "OutcomeUnknown",
    "Overloaded",
    "ReplicaRefused",
    "Status",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "WrongLog",
    "status_of",
]


class BelogError(Exception):
    """Base of every error that belog raises on purpose.

    Attributes:
        message: What happened, one sentence, without secrets.
        hint: What a person can do about it; may be empty.
        log: The log's redacted URI or id, where one is known.
        index: The index the decision was made at, where one is known.
        subject: The subject, as `kind:id`, where one is known.
    """

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False
    deterministic: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        log: str | None = None,
        index: int | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log
        self.index = index
        self.subject = subject

    def __copy__(self) -> Self:
        """Return an equal error without a traceback, to be raised in place of one that is kept."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        made.__cause__ = self.__cause__
        return made

    def __str__(self) -> str:
        """Return the message with its coordinates and hint, on one line."""
        places = [
            f"{name} {value}"
            for name, value in (("log", self.log), ("index", self.index), ("subject", self.subject))
            if value is not None
        ]
        where = f" ({', '.join(places)})" if places else ""
        return f"{self.message}{where}{' — ' + self.hint if self.hint else ''}"


class InvalidInput(BelogError):
    """The caller's words are off; nothing was written."""

    code = "invalid"
    deterministic = True


class InvalidEvent(InvalidInput):
    """An event that cannot be in any log: a wrong field, a wrong type, a naive time."""

    code = "invalid_event"


class InvalidFilter(InvalidInput):
    """A filter that cannot be evaluated."""

    code = "invalid_filter"


class InvalidUri(InvalidInput):
    """A log or table URI that is malformed, or of a scheme that is not supported."""

    code = "invalid_uri"


class InvalidConfiguration(InvalidInput):
    """A setting with an unknown name, or with a value that cannot be used."""

    code = "invalid_configuration"


class LimitExceeded(InvalidInput):
    """One of the named bounds was exceeded.

    Attributes:
        limit: Name of the bound.
        limit_value: Its value, in the unit that its name ends in.
        value: What was asked for.
    """

    code = "limit_exceeded"

    def __init__(self, what: str, *, limit: str, limit_value: int, value: int) -> None:
        super().__init__(f"{what}: {value} is over {limit} = {limit_value}")
        self.limit = limit
        self.limit_value = limit_value
        self.value = value


class Conflict(BelogError):
    """A well-formed event that is not legal now. Nothing changed.

    Attributes:
        state: The subject's state when it was judged; "" for never seen.
        last_index: Index of the subject's last accepted event, -1 for none.
        allowed: Event types that would be legal.
        owner: The build that owns the attempt, where there is one.
    """

    code = "conflict"
    deterministic = True

    def __init__(
        self,
        message: str,
        *,
        state: str,
        last_index: int,
        allowed: tuple[str, ...],
        owner: str | None = None,
        hint: str = "",
        log: str | None = None,
        index: int | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, log=log, index=index, subject=subject)
        self.state = state
        self.last_index = last_index
        self.allowed = allowed
        self.owner = owner


class IllegalTransition(Conflict):
    """The event is not a next state of its subject."""

    code = "illegal_transition"


class NotOwner(Conflict):
    """The attempt belongs to another build; `owner` names it."""

    code = "not_owner"


class ExpectedMismatch(Conflict):
    """The subject's last accepted event is not the one the caller named in `expected`."""

    code = "expected_mismatch"


class EventIdReused(Conflict):
    """The event id was accepted before with another content."""

    code = "event_id_reused"


class IndexConflict(BelogError):
    """Compare-and-append lost: the log's next index is not the one that was named.

    Attributes:
        next_idx: The log's next index when it was compared.
    """

    code = "index_conflict"
    retriable = True

    def __init__(self, message: str, *, next_idx: int, log: str | None = None) -> None:
        super().__init__(message, index=next_idx, log=log, hint="read on from there and try again")
        self.next_idx = next_idx


class OutcomeUnknown(BelogError):
    """The event was sent and no answer came. Send it again with the same `event_id` to learn which.

    Attributes:
        event_id: The id to retry with, 16 bytes.
    """

    code = "outcome_unknown"
    retriable = True

    def __init__(self, message: str, *, event_id: bytes, log: str | None = None) -> None:
        super().__init__(
            message,
            log=log,
            hint=f"append it again with event_id {event_id.hex()}: the answer will be exact",
        )
        self.event_id = event_id


class Overloaded(BelogError):
    """A bound on work in flight was reached, and waiting up to the limit did not help."""

    code = "overloaded"
    retriable = True


class Unavailable(BelogError):
    """A server or a file cannot be reached now. Nothing was written."""

    code = "unavailable"
    retriable = True


class Unauthenticated(BelogError):
    """There is no token, or it is not known: what was asked for was not looked at.

    Neither flag: the same call fails for every event, so recording it and going on would lose them.
    """

    code = "unauthenticated"


class Forbidden(BelogError):
    """The client is known, and may not do that: its role is less, or a partition is outside."""

    code = "forbidden"


class NotFound(BelogError):
    """There is no such event, subject or log."""

    code = "not_found"
    deterministic = True


class Gone(BelogError):
    """The cursor lies before the vacuum horizon.

    Attributes:
        horizon: First index that can still be read without a hole.
        snapshot: Where to start instead; may be empty when none is known.
    """

    code = "gone"
    deterministic = True

    def __init__(
        self, message: str, *, horizon: int, snapshot: str = "", log: str | None = None
    ) -> None:
        hint = f"start from snapshot {snapshot}" if snapshot else f"start from index {horizon}"
        super().__init__(message, index=horizon, log=log, hint=hint)
        self.horizon = horizon
        self.snapshot = snapshot


class Closed(BelogError):
    """The object was closed before or during the call."""

    code = "closed"


class Unsupported(BelogError):
    """This backend cannot do that; the message says which can."""

    code = "unsupported"
    deterministic = True


class WrongLog(BelogError):
    """The log is not the one that was meant."""

    code = "wrong_log"


class LogReplaced(WrongLog):
    """The log has another `log_id` than the one that was remembered."""

    code = "log_replaced"


class LogTruncated(WrongLog):
    """The log is shorter than what was already read from it or acknowledged by it."""

    code = "log_truncated"


class Misconfigured(BelogError):
    """A server's setting breaks a promise of the log.

    Attributes:
        setting: Name of the setting.
    """

    code = "misconfigured"

    def __init__(self, message: str, *, setting: str, hint: str, log: str | None = None) -> None:
        super().__init__(message, hint=hint, log=log)
        self.setting = setting


class NewerFormat(BelogError):
    """The log holds a lifecycle, an envelope or a store newer than this software."""

    code = "newer_format"


class Corrupt(BelogError):
    """Stored bytes are not what was written."""

    code = "corrupt"


class ReplicaRefused(BelogError):
    """A replica takes records from its origin's sink only."""

    code = "replica_refused"
    deterministic = True


class Diverged(BelogError):
    """Two views of one log differ; the message says where first."""

    code = "diverged"


@dataclass(frozen=True, slots=True)
class Status:
    """How an error looks at each boundary."""

    http: int
    grpc: str
    exit_code: int


_FAILED: Final = Status(500, "INTERNAL", 1)
_STATUS: Final[dict[type[BelogError], Status]] = {
    BelogError: _FAILED,
    InvalidInput: Status(400, "INVALID_ARGUMENT", 2),
    LimitExceeded: Status(413, "RESOURCE_EXHAUSTED", 2),
    Conflict: Status(409, "FAILED_PRECONDITION", 3),
    IndexConflict: Status(409, "ABORTED", 3),
    ReplicaRefused: Status(409, "FAILED_PRECONDITION", 3),
    OutcomeUnknown: Status(504, "DEADLINE_EXCEEDED", 5),
    Overloaded: Status(503, "RESOURCE_EXHAUSTED", 5),
    Unavailable: Status(503, "UNAVAILABLE", 5),
    Closed: Status(503, "UNAVAILABLE", 5),
    WrongLog: Status(409, "FAILED_PRECONDITION", 1),
    Unauthenticated: Status(401, "UNAUTHENTICATED", 1),
    Forbidden: Status(403, "PERMISSION_DENIED", 1),
    NotFound: Status(404, "NOT_FOUND", 4),
    Gone: Status(410, "OUT_OF_RANGE", 4),
    Unsupported: Status(501, "UNIMPLEMENTED", 2),
}


def status_of(error: BelogError) -> Status:
    """Return the HTTP status, gRPC code name and exit code of an error, by its nearest class."""
    for cls in type(error).__mro__:
        if issubclass(cls, BelogError) and cls in _STATUS:
            return _STATUS[cls]
    return _FAILED
