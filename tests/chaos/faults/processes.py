"""Processes that are killed, or stand still for longer than others wait."""

import random
from typing import ClassVar

from tests.chaos.deployment import Deployment, Kind, Part
from tests.chaos.faults.basis import BaseFault, alive

__all__ = ["Frozen", "Killed"]

AWAY_S = (0.0, 3.0)
"""How long a killed part stays away: shorter and longer than clients try again at once, seconds."""

FROZEN_S = (1.0, 4.0)
"""How long a server, a writer or a sink stands still, seconds: past most time-outs."""

OUTLIVED_S = (13.0, 16.0)
"""How long a worker stands still, seconds: its session lasts 10 (`SESSION_TIMEOUT_S`), and another
one takes over within 2 more, so that it wakes as a zombie."""


class Killed(BaseFault):
    """One part of a kind is ended by SIGKILL; it is started again after `heal`."""

    does: ClassVar[str] = "SIGKILL, and a start on the same data later"

    def __init__(self, kind: Kind) -> None:
        self.name = f"{kind}-killed"
        self.hold_s = AWAY_S
        self._kind: Kind = kind

    def applies_to(self, deployment: Deployment) -> bool:
        return bool(deployment.of_kind(self._kind))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        if victims := alive(deployment, self._kind):
            rng.choice(victims).kill9()


class Frozen(BaseFault):
    """One part of a kind gets SIGSTOP, and SIGCONT at `heal`."""

    does: ClassVar[str] = "SIGSTOP for longer than others wait, then SIGCONT"

    def __init__(self, kind: Kind) -> None:
        self.name = f"{kind}-frozen"
        self.hold_s = OUTLIVED_S if kind == "worker" else FROZEN_S
        self._kind: Kind = kind
        self._frozen: Part | None = None

    def applies_to(self, deployment: Deployment) -> bool:
        return bool(deployment.of_kind(self._kind))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        if victims := alive(deployment, self._kind):
            self._frozen = rng.choice(victims)
            self._frozen.stop_signal()

    def heal(self, deployment: Deployment) -> None:
        del deployment
        if self._frozen is not None:
            self._frozen.cont()
            self._frozen = None
