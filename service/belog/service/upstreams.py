"""What asking for a partition is answered, and who else may be asked: the seam to federation."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

__all__ = ["Available", "Building", "Delegated", "Requested", "Upstream", "Upstreams"]


class Available(Struct, frozen=True):
    """The partition can be read."""

    ref: str
    index: int
    """Index, in the log that owns it, of the event that made it so."""
    log_id: str
    manifest: str | None = None
    """As JSON; None where its maker gave none."""


class Delegated(Struct, frozen=True):
    """Another build is making it."""

    ref: str
    build_request_id: str
    log_id: str
    """Of the log where that build is."""
    index: int
    """What the answer is as of, in that log."""
    estimated_completion: int | None = None
    """From past durations of the job, microseconds since the epoch; None without history."""


class Building(Struct, frozen=True):
    """The caller's build owns a new attempt and has to make it."""

    ref: str
    build_request_id: str
    started_at: int
    """Ingest time of the request, microseconds since the epoch."""
    index: int
    """Index of the event that began the attempt."""


Requested = Available | Delegated | Building


class Upstream(Protocol):
    """Another instance, which owns some partitions."""

    @property
    def name(self) -> str:
        """How the configuration calls it."""
        ...

    async def is_made_here(self, ref: str, build_request_id: str | None) -> bool:
        """Whether a build here makes it that did not ask by this service; so it is not asked.

        Args:
            ref: The partition.
            build_request_id: The build that asks: an attempt of its own that nobody works at yet
                may be moved to the upstream. None: a new one.
        """
        ...

    async def request(
        self,
        ref: str,
        client_id: str,
        *,
        build_request_id: str | None,
        allow_delegation: bool,
        timeout_s: float,
        asked_by: Sequence[str],
    ) -> Available | Delegated:
        """Ask it for a partition; indices and log id of the answer are those of its log.

        Args:
            ref: The partition.
            client_id: Who wants it.
            build_request_id: The build here that wants it: it owns the delegated attempt here, or
                joins the one that there is. None: a new id.
            allow_delegation: Whether it may be made there; without, it is there or refused.
            timeout_s: How long to wait until it was made, seconds.
            asked_by: Logs whose instances passed the request on, oldest first.

        Raises:
            NotOwner: It is being made, and delegation is not allowed.
            Conflict: It is not there, and delegation is not allowed.
            Misconfigured: The instances ask each other in a circle.
            Unavailable: The instance cannot be reached.
            LogReplaced: It has another log than the one that is remembered.
        """
        ...


class Upstreams(Protocol):
    """The other instances that are known here."""

    def owner_of(self, ref: str) -> Upstream | None:
        """Return the instance that owns a partition, None for this one. Must not block."""
        ...

    def flaws(self) -> Iterable[str]:
        """Return what makes this instance not ready. Must not block."""
        ...
