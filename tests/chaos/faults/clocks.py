"""Clocks of writers that are hours off.

A clock is a file: `SkewedClock` adds to the true time what its file says, in seconds, and a file
that is not there says nothing. So the clock of a process that runs can be set from outside.
"""

import random
import time
from pathlib import Path
from typing import ClassVar, Final

from tests.chaos.deployment import Deployment
from tests.chaos.faults.basis import BaseFault

__all__ = ["ClocksOff", "SkewedClock", "clock_file"]

OFFSETS_S: Final = (-90_000, -7_200, -3_600, 3_600, 7_200, 90_000)
"""A zone that was mistaken, summer time counted twice, a day and an hour."""


def clock_file(folder: Path, writer: str) -> Path:
    """Return the file of a writer's clock in the folder of a deployment."""
    return folder / "clocks" / writer


class SkewedClock:
    """A writer's clock, for the `clock` of a `Producer`: microseconds since the epoch."""

    def __init__(self, file: Path) -> None:
        """Read *file* at each look; it need not be there."""
        self._file = file

    def __call__(self) -> int:
        """Return what this clock shows."""
        return time.time_ns() // 1_000 + self._offset_s() * 1_000_000

    def _offset_s(self) -> int:
        try:
            return int(self._file.read_text())
        except FileNotFoundError:
            return 0


class ClocksOff(BaseFault):
    """Every writer's clock is set, each differently; the log keeps its own time."""

    name = "clocks-off"
    does: ClassVar[str] = "the writers' clocks are hours off, each by its own"
    hold_s = (0.5, 4.0)

    def applies_to(self, deployment: Deployment) -> bool:
        return bool(deployment.of_kind("writer"))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        for part in deployment.of_kind("writer"):
            file = clock_file(deployment.folder, part.name)
            file.parent.mkdir(exist_ok=True)
            # Whole or not at all: a writer may read it at any moment.
            new = file.with_suffix(".new")
            new.write_text(str(rng.choice(OFFSETS_S)))
            new.replace(file)

    def heal(self, deployment: Deployment) -> None:
        for part in deployment.of_kind("writer"):
            clock_file(deployment.folder, part.name).unlink(missing_ok=True)
