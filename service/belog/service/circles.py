"""Through whom a request for a partition came, so that a circle of instances is noticed. Pure.

Where one instance's upstream is another, whose upstream is the first, for the same partition, each
would ask the other for ever. So a request says which logs' instances passed it on, oldest first,
in the header `Belog-Asked-By`; who finds itself there answers at once.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from belog.schemas.errors import Misconfigured

__all__ = ["HOPS_MAX", "asked_by", "passed_on"]

HOPS_MAX: Final = 16
"""Instances that a request may come through: each adds a round trip to the answer, and no tree of
owners is that deep."""


def asked_by(header: bytes | None) -> tuple[str, ...]:
    """Return the logs that a header names, oldest first; what is no id of a log is left out.

    >>> asked_by(b"01234567-89ab-cdef-0123-456789abcdef, nonsense")
    ('01234567-89ab-cdef-0123-456789abcdef',)
    >>> asked_by(None)
    ()
    """
    if header is None:
        return ()
    # One more than is allowed is enough to know that it is too many.
    words = header.decode("latin-1").split(",", HOPS_MAX + 1)[: HOPS_MAX + 1]
    return tuple(log_id for word in words if (log_id := _log_id(word.strip())))


def _log_id(word: str) -> str | None:
    try:
        return str(UUID(word))
    except ValueError:
        return None


def passed_on(ref: str, chain: Sequence[str], log_id: str, upstream: str) -> tuple[str, ...]:
    """Return through whom a request came once this instance has passed it on.

    Args:
        ref: The partition.
        chain: Through whom it came here, oldest first.
        log_id: Of the log here.
        upstream: What the configuration here calls the instance that is to be asked.

    Raises:
        Misconfigured: It was here before, or came through more than `HOPS_MAX`; nobody is asked.
    """
    if log_id in chain:
        around = " → ".join((*chain[chain.index(log_id) :], log_id))
        msg = f"the owners of {ref!r} go in a circle, each names the next: logs {around}"
    elif len(chain) >= HOPS_MAX:
        msg = f"{ref!r} was asked for through more than {HOPS_MAX} instances"
    else:
        return (*chain, log_id)
    raise Misconfigured(
        msg,
        setting=f"federation.upstreams.{upstream}.patterns",
        hint=f"take it out of federation.upstreams.{upstream}.patterns of whichever owns it",
    )
