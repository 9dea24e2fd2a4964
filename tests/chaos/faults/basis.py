"""What all faults here have in common."""

import abc
import random
from typing import ClassVar, Final

from tests.chaos.deployment import Allowance, Deployment, Kind, Part
from tests.servers import Server
from tests.servers.runner import LocalRunner

__all__ = ["NOTHING", "BaseFault", "alive", "local_server"]

NOTHING: Final[frozenset[Allowance]] = frozenset()
"""A fault that is in the way of no promise."""


class BaseFault(abc.ABC):
    """A fault that keeps every promise and is over at once, unless it says otherwise."""

    does: ClassVar[str]
    """What it does, one line for `--help` and tables."""
    allows: frozenset[Allowance] = NOTHING
    hold_s: tuple[float, float] = (0.0, 0.0)
    name: str

    @abc.abstractmethod
    def applies_to(self, deployment: Deployment) -> bool:
        """See `Fault.applies_to`."""

    @abc.abstractmethod
    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        """See `Fault.inject`."""

    def heal(self, deployment: Deployment) -> None:  # noqa: B027 - most need not
        """See `Fault.heal`; a fault that is over at once leaves nothing to undo."""


def alive(deployment: Deployment, kind: Kind) -> list[Part]:
    """Return the parts of a kind whose process is there."""
    return [part for part in deployment.of_kind(kind) if part.is_alive()]


def local_server(deployment: Deployment, kind: Kind) -> tuple[Part, Server, LocalRunner] | None:
    """Return the part of a kind whose server's data directory lies on this machine, if one does."""
    for part in deployment.of_kind(kind):
        if part.server is not None and isinstance(part.server.runner, LocalRunner):
            return part, part.server, part.server.runner
    return None
