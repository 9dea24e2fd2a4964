"""How routes are held and found, and what is said of each. Pure.

Nothing else lets a request in: one that the table does not hold is answered with 404 before
anything looks at it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import Struct
from starlette.types import ASGIApp

from belog.schemas.errors import InvalidInput
from belog.service.access import Role
from belog.service.http_api.parameters import Parameter

__all__ = ["Found", "Reach", "RouteEntry", "RouteTable"]


class Reach(Enum):
    """What a route looks at, and so what a grant that is for some partitions only may do there."""

    OPEN = "open"
    """Nothing of the log; no token is asked for."""
    LOG = "log"
    """The log as such, no partition: all may."""
    NARROWED = "narrowed"
    """Many things, of which only those are answered that the grant is for."""
    PARTITION = "partition"
    """The partition in the path, which the grant must be for."""
    SUBJECT = "subject"
    """The build, job run or task in the path: to read it, the grant must be for one of its
    partitions, to change it, for all."""
    WHOLE = "whole"
    """All of the log together: only for grants without patterns."""


class RouteEntry(Struct, frozen=True, kw_only=True):
    """One route."""

    method: str
    path: str
    """With names in braces; each stands for one percent-encoded segment, `{ref}` for the rest."""
    reach: Reach
    role: Role = Role.READ
    summary: str
    about: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: str = ""
    """Name of the message that is sent, empty for none."""
    body_is_optional: bool = False
    answer: str = ""
    """Name of the message that is answered, empty where it is none."""
    media_type: str = "application/json"
    is_stream: bool = False
    """Its answer has no end, and is not bounded in time."""
    tag: str = "log"


class Found(Struct, frozen=True):
    """Where a path leads."""

    methods: Mapping[str, RouteEntry]
    path: str
    """The one path that the application's router knows for it."""
    names: Mapping[str, str]
    """What stands in place of the names in braces, percent-encoded."""


class RouteTable:
    """Routes by their paths. Entries can be added until it is used.

    >>> path = "/partitions/{ref}/explain"
    >>> table = RouteTable([RouteEntry(method="GET", path=path, reach=Reach.LOG, summary="Why")])
    >>> table.find("/partitions/lake/day=1/explain").path
    '/partitions/lake%2Fday%3D1/explain'
    """

    def __init__(self, entries: Iterable[RouteEntry]) -> None:
        """Hold these routes."""
        self._endpoints: dict[tuple[str, str], ASGIApp] = {}
        self._exact: dict[str, dict[str, RouteEntry]] = {}
        self._shaped: dict[
            tuple[str, int], list[tuple[tuple[str, ...], dict[str, RouteEntry]]]
        ] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: RouteEntry, endpoint: ASGIApp | None = None) -> None:
        """Let one more route in.

        Args:
            entry: What is said of it.
            endpoint: What answers it; None leaves that to the application's router.

        Raises:
            InvalidInput: It is there already.
        """
        parts = tuple(entry.path.split("/"))
        methods = self._exact.setdefault(entry.path, {})
        if not methods:
            shape = (parts[1], len(parts))
            if "{" in entry.path:
                self._shaped.setdefault(shape, []).append((parts, methods))
        if entry.method in methods:
            msg = f"the route {entry.method} {entry.path} is there already"
            raise InvalidInput(msg)
        methods[entry.method] = entry
        if endpoint is not None:
            self._endpoints[entry.method, entry.path] = endpoint

    def endpoint(self, entry: RouteEntry) -> ASGIApp | None:
        """Return what answers a route, None where the application's router knows."""
        return self._endpoints.get((entry.method, entry.path))

    @property
    def entries(self) -> tuple[RouteEntry, ...]:
        """All of them."""
        return tuple(entry for methods in self._exact.values() for entry in methods.values())

    def find(self, path: str) -> Found | None:
        """Return where a path leads, None for nowhere.

        Args:
            path: As it was sent, percent-encoded.
        """
        if "{" not in path and (methods := self._exact.get(path)) is not None:
            return Found(methods, path, {})
        if path.startswith(_REFS):
            path = _with_one_segment(path)
        parts = path.split("/")
        if len(parts) < 2:
            return None
        for shape, methods in self._shaped.get((parts[1], len(parts)), ()):
            names = _names(shape, parts)
            if names is not None:
                return Found(methods, path, names)
        return None


_REFS: Final = "/partitions/"
_SUFFIXES: Final = frozenset({"events", "request", "explain", "graph"})
"""What a path of a partition ends in where it means more than the partition."""


def _with_one_segment(path: str) -> str:
    """Return the path of a partition with its ref in one segment, encoded one way.

    >>> _with_one_segment("/partitions/s3://a/b/events")
    '/partitions/s3%3A%2F%2Fa%2Fb/events'
    >>> _with_one_segment("/partitions/a%2Fevents")
    '/partitions/a%2Fevents'
    >>> _with_one_segment("/partitions/events")
    '/partitions/events'
    """
    rest = path[len(_REFS) :]
    ref, slash, last = rest.rpartition("/")
    if slash and last in _SUFFIXES and ref:
        return f"{_REFS}{_encoded(ref)}/{last}"
    return _REFS + _encoded(rest)


def _encoded(ref: str) -> str:
    return quote_from_bytes(unquote_to_bytes(ref), safe="")


def _names(shape: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for wanted, part in zip(shape, parts, strict=True):
        if wanted[:1] == "{":
            if not part:
                return None
            names[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return names
