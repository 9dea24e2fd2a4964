"""Who may do what: tokens, roles, and the partitions that a token is for. Pure.

A token is `belog_` and 256 random bits, shown once when it is made. What is kept of it is its
SHA-256. A slow hash such as Argon2 is there to make guessing dear where secrets are chosen by
people; nobody can try a noticeable part of 2**256 tokens at any speed, and a slow hash would be
paid on every request.

A grant that names patterns is for these partitions alone. What it may write is checked by
`Grant.check_event`, what it may read by `Grant.narrow`, `Grant.check_refs` and `Grant.sees`.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from belog.schemas.checks import check_id
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    Forbidden,
    InvalidConfiguration,
    InvalidEvent,
    InvalidFilter,
    InvalidInput,
    LimitExceeded,
    Unauthenticated,
)
from belog.schemas.filters import EventFilter, Terms, glob_regex, terms_of
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import ACTOR_BYTES_MAX

__all__ = [
    "ANONYMOUS",
    "GRANT_PATTERNS_MAX",
    "TOKENS_MAX",
    "TOKEN_CHARS_MAX",
    "TOKEN_RANDOM_BYTES",
    "Access",
    "Grant",
    "RefsOf",
    "Role",
    "RoleName",
    "TokenEntry",
    "hash_token",
    "token_text",
]

ANONYMOUS: Final = "anonymous"
"""The actor of open access, where the client names none."""

TOKEN_PREFIX: Final = "belog_"  # noqa: S105 - what a token starts with, so that scanners know one
TOKEN_RANDOM_BYTES: Final = 32
"""Randomness of a new token, bytes: as much as its digest holds."""

TOKEN_CHARS_MIN: Final = 22
"""Shortest token that is hashed, characters: 128 bits in base64."""

TOKEN_CHARS_MAX: Final = 1_024
"""Longest token that is looked at, characters: hashing what a client sends stays cheap."""

TOKENS_MAX: Final = 1_000
"""Tokens of one service: all are compared at every request, which takes about 0.3 ms then."""

GRANT_PATTERNS_MAX: Final = 100
"""Patterns of one grant: they are put into each of its filters, which may hold 1,000 terms."""

HASH_PREFIX: Final = "sha256:"
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_META: Final = re.compile(r"[*?\[]")

RoleName = Literal["read", "append", "admin"]
"""Roles as configuration names them."""

RefsOf = Callable[[SubjectKind, str], Sequence[str] | None]
"""The partitions that a `build` asked for or that a `job_run` makes, by its id, as the tables know
them; None where it was never seen."""


class Role(IntEnum):
    """What a grant is for; each role may do what the ones before it may."""

    READ = 1
    APPEND = 2
    ADMIN = 3

    @property
    def label(self) -> RoleName:
        """The role as configuration names it."""
        return _LABELS[self]


_LABELS: Final[dict[Role, RoleName]] = {
    Role.READ: "read",
    Role.APPEND: "append",
    Role.ADMIN: "admin",
}
_ROLES: Final = {label: role for role, label in _LABELS.items()}


class TokenEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a token, in a tokens file or in the configuration."""

    actor: Annotated[str, Meta(min_length=1)]
    """Who writes with it: the actor of its events."""
    role: RoleName
    hash: Annotated[str, Meta(pattern=f"^{_HASH.pattern}$")]
    """`sha256:` and 64 hexadecimal digits, as `belog token create` prints it."""
    patterns: tuple[str, ...] = ()
    """Globs of the partitions it is for, as in event filters; none given: all."""


def token_text(random_bytes: bytes) -> str:
    """Return a token made of random bytes.

    Args:
        random_bytes: `TOKEN_RANDOM_BYTES` bytes from the system's generator.
    """
    if len(random_bytes) != TOKEN_RANDOM_BYTES:
        msg = f"a token is made of {TOKEN_RANDOM_BYTES} random bytes"
        raise InvalidInput(msg)
    return TOKEN_PREFIX + urlsafe_b64encode(random_bytes).decode().rstrip("=")


def hash_token(token: str) -> str:
    """Return what is kept of a token: `sha256:` and its digest in hexadecimal.

    Raises:
        InvalidInput: It is shorter than 128 random bits can be, or has spaces or control characters
            in it.
        LimitExceeded: It is longer than `TOKEN_CHARS_MAX`.
    """
    if len(token) > TOKEN_CHARS_MAX:
        raise LimitExceeded(
            "token", limit="TOKEN_CHARS_MAX", limit_value=TOKEN_CHARS_MAX, value=len(token)
        )
    if len(token) < TOKEN_CHARS_MIN or not (token.isascii() and token.isprintable()):
        msg = f"that is no token: one has {TOKEN_CHARS_MIN} or more printable ASCII characters"
        raise InvalidInput(msg, hint="make one: belog token create")
    if " " in token:
        msg = "that is no token: it has spaces in it"
        raise InvalidInput(msg, hint="make one: belog token create")
    return HASH_PREFIX + sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Grant:
    """What a client may do. Immutable."""

    actor: str
    """Who it is; the actor of what it writes."""
    role: Role
    patterns: tuple[str, ...] = ()
    """Globs of the partitions it is for; empty for all."""
    lets_client_name_actor: bool = False
    """Without tokens nobody is known, and a client's own word is kept."""

    @property
    def is_restricted(self) -> bool:
        """Whether it is for some partitions only."""
        return bool(self.patterns)

    def require(self, role: Role) -> None:
        """Refuse a client of a lesser role.

        Raises:
            Forbidden: Its role is less.
        """
        if self.role < role:
            msg = f"{self.actor!r} has the role {self.role.label}, this needs {role.label}"
            raise Forbidden(msg, hint="use a token of that role")

    def covers(self, ref: str) -> bool:
        """Whether a partition is one of those it is for."""
        return not self.patterns or _expression(self.patterns).fullmatch(ref) is not None

    def sees(self, refs: Iterable[str]) -> bool:
        """Whether something may be read that concerns these partitions: any one of them will do.

        What concerns no partition is for grants without patterns only, as `narrow` has it.
        """
        return not self.patterns or any(map(self.covers, refs))

    def check_refs(self, refs: Iterable[str]) -> None:
        """Refuse partitions that it is not for.

        Raises:
            Forbidden: At least one is outside its patterns.
        """
        for ref in refs:
            if not self.covers(ref):
                msg = f"{self.actor!r} may not use this partition"
                raise Forbidden(msg, subject=f"partition:{ref}", hint=self._hint())

    def check_event(self, event: Event, refs_of: RefsOf | None = None) -> None:
        """Refuse an event that it may not append.

        The partition that is the subject, the outputs of a job run, and the partitions that a build
        asks for must match its patterns; what is read need not. Log-wide events (`v1.system.*`)
        are for admins.

        Args:
            event: The event.
            refs_of: What the tables know of a build or job run. Later events of a job run name no
                partitions, so without it a restricted grant may move those of others, as far as
                the lifecycle lets it. Where it answers None (never seen) the event's own words
                count: it is a first event then, which names its partitions, or not legal.

        Raises:
            Forbidden: Its role is less than append, or a partition is outside its patterns.
        """
        if self.role is Role.ADMIN and not self.patterns:
            return
        is_system = event.subject_kind == "system" or event.event_type.startswith("v1.system.")
        self.require(Role.ADMIN if is_system else Role.APPEND)
        if not self.patterns:
            return
        self.check_refs(terms_of(event, _nothing_known).partition_refs)
        if refs_of is not None and event.subject_kind in {"build", "job_run"}:
            self.check_refs(refs_of(event.subject_kind, event.subject_id) or ())

    def narrow(self, wanted: EventFilter) -> EventFilter:
        """Return a filter for what it may read: its own patterns are put in where none are given.

        Events that concern no partition (of the log itself, or of a build's planning) match no
        pattern, so they are for grants without patterns.

        Raises:
            Forbidden: The filter names a partition outside its patterns, or a pattern that is not
                evidently within one of them: the same one, a plain ref that matches, or one that
                starts with all that stands before a final `*` or `**`.
        """
        if not self.patterns:
            return wanted
        self.check_refs(wanted.partition_refs)
        for pattern in wanted.partition_patterns:
            if not any(_is_within(pattern, own) for own in self.patterns):
                msg = f"{self.actor!r} may not read all that matches {pattern!r}"
                raise Forbidden(msg, hint=self._hint())
        if wanted.partition_patterns:
            return wanted
        return replace(wanted, partition_patterns=self.patterns)

    def actor_for(self, named: str | None) -> str:
        """Return the actor of what it writes.

        Args:
            named: Whom the client names; None or empty for nobody.

        Raises:
            Forbidden: The client names another one.
        """
        if not named or named == self.actor:
            return self.actor
        if self.lets_client_name_actor:
            return named
        msg = f"the event names the actor {named!r}, its writer is {self.actor!r}"
        raise Forbidden(msg, hint="leave the actor empty")

    def sign(self, event: Event) -> Event:
        """Return an event with the authenticated actor.

        Raises:
            Forbidden: It names another one.
        """
        actor = self.actor_for(event.actor)
        return event if actor == event.actor else replace(event, actor=actor)

    def _hint(self) -> str:
        return f"its patterns: {', '.join(self.patterns)}"


def _nothing_known(_job_run_id: str) -> Terms | None:
    return None


@lru_cache(maxsize=TOKENS_MAX)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{glob_regex(p)})" for p in patterns), re.DOTALL)


def _is_within(pattern: str, own: str) -> bool:
    """Whether all that a pattern matches is matched by another; false where that is not plain."""
    if pattern == own:
        return True
    if not _META.search(pattern):
        return _expression((own,)).fullmatch(pattern) is not None
    stars = len(own) - len(own.rstrip("*"))
    start = own[: len(own) - stars]
    if not stars or _META.search(start) or not pattern.startswith(start):
        return False
    rest = pattern[len(start) :]
    return stars > 1 or ("/" not in rest and "**" not in rest)


class Access:
    """All grants of a service. Immutable, thread-safe."""

    __slots__ = ("_everyone", "_grants")

    def __init__(self, entries: Iterable[TokenEntry]) -> None:
        """Make ready what tokens are good for; without any entry nobody is let in.

        Raises:
            InvalidConfiguration: An entry with an actor, a pattern or a hash that cannot be used,
                with patterns and the role admin, or with a hash that is there already; or more than
                `TOKENS_MAX` entries.
        """
        self._everyone: Grant | None = None
        self._grants: tuple[tuple[bytes, Grant], ...] = tuple(map(_checked, entries))
        if len(self._grants) > TOKENS_MAX:
            msg = f"{len(self._grants)} tokens are more than TOKENS_MAX = {TOKENS_MAX}"
            raise InvalidConfiguration(msg)
        if len({digest for digest, _ in self._grants}) < len(self._grants):
            msg = "two entries have the same token"
            raise InvalidConfiguration(msg, hint="make one for each: belog token create")

    @staticmethod
    def open(actor: str = ANONYMOUS) -> "Access":
        """Return access for everyone, to everything.

        Args:
            actor: Who it is where a client names no actor.
        """
        access = Access(())
        access._everyone = Grant(actor, Role.ADMIN, lets_client_name_actor=True)
        return access

    @property
    def is_open(self) -> bool:
        """Whether everyone is let in."""
        return self._everyone is not None

    def authenticate(self, token: str | None) -> Grant:
        """Return what a client may do.

        Takes the same time for all tokens of the same length, known or not.

        Args:
            token: What the client sent, without a scheme such as `Bearer`; None for nothing.

        Raises:
            Unauthenticated: There is no token, or it is not known.
        """
        if self._everyone is not None:
            return self._everyone
        if not token:
            msg = "this needs a token"
            hint = "send Authorization: Bearer belog_…; commands: --token, or client.token_file"
            raise Unauthenticated(msg, hint=hint)
        digest = sha256(token[:TOKEN_CHARS_MAX].encode(errors="surrogatepass")).digest()
        found: Grant | None = None
        # To the end, also when it is found: the time must not tell where.
        for known, grant in self._grants:
            if compare_digest(known, digest):
                found = grant
        if found is None or len(token) > TOKEN_CHARS_MAX:
            msg = "the token is not known"
            raise Unauthenticated(msg, hint="was it removed? make one: belog token create")
        return found


def _checked(entry: TokenEntry) -> tuple[bytes, Grant]:
    try:
        check_id("actor", entry.actor, "ACTOR_BYTES_MAX", ACTOR_BYTES_MAX)
        for pattern in entry.patterns:
            glob_regex(pattern)
    except (InvalidEvent, InvalidFilter, LimitExceeded) as error:
        msg = f"token of {entry.actor!r}: {error.message}"
        raise InvalidConfiguration(msg) from error
    role = _ROLES.get(entry.role)
    if role is None or not _HASH.fullmatch(entry.hash):
        msg = f"token of {entry.actor!r}: the role or the hash is not of the form"
        raise InvalidConfiguration(msg, hint="make one: belog token create")
    if len(entry.patterns) > GRANT_PATTERNS_MAX:
        msg = f"token of {entry.actor!r}: more patterns than GRANT_PATTERNS_MAX"
        raise InvalidConfiguration(msg, hint=f"at most {GRANT_PATTERNS_MAX}")
    if entry.patterns and role is Role.ADMIN:
        msg = f"token of {entry.actor!r}: an admin is not restricted to patterns"
        raise InvalidConfiguration(msg, hint="give the role append, or no patterns")
    digest = bytes.fromhex(entry.hash.removeprefix(HASH_PREFIX))
    return digest, Grant(entry.actor, role, entry.patterns)
