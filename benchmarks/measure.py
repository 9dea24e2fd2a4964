"""Measuring two ways of doing one thing, in turn, in one run.

Machines are noisy, so a rate says little and a ratio of two rates taken minutes apart not much
more. Every comparison here alternates: ours, theirs, ours, theirs, after one warm-up each. The
figure is the median of the pairwise ratios; the spread is the smallest and the largest.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

__all__ = ["Constant", "Figure", "Paired", "Series", "absolute", "paired", "rate", "timed"]

ROUNDS: Final = 5
"""Counted rounds of each side."""
ROUNDS_MIN: Final = 3
"""Rounds without which there is no median to speak of."""
PAIR_S: Final = 20.0
"""After so long no round follows the least number, seconds: what one row may take of the suite's
20 minutes where a machine is slow."""


class Constant(Struct, frozen=True, kw_only=True):
    """A measured size or rate that arithmetic elsewhere starts from, such as bytes of an event."""

    key: str
    unit: str
    value: float
    how: str
    """How it was measured."""


class Series(Struct, frozen=True, kw_only=True):
    """What becomes of some figures as a thing grows: a table of its own."""

    name: str
    axis: str
    """What grows."""
    columns: tuple[str, ...]
    """What is measured, with units."""
    rows: tuple[tuple[float, ...], ...]
    """The axis's value, then one figure a column; NaN is not allowed, leave a row out."""
    checked: str = ""
    """What was counted beside the clock: missed, doubled, out of order."""


class Figure(Struct, frozen=True, kw_only=True):
    """One row of a speed table."""

    name: str
    unit: str
    ours: float
    theirs: float | None = None
    against: str = ""
    value: float
    """What is compared with `must` and `aim`: a ratio, or `ours` itself."""
    low: float
    high: float
    must: float
    aim: float
    better: Literal["higher", "lower"] = "higher"
    checked: str = ""
    """What was counted beside the clock: missed, doubled, out of order."""

    @property
    def verdict(self) -> str:
        """`aim`, `must` or `missed`."""
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if self.value >= bound if self.better == "higher" else self.value <= bound:
                return name
        return "missed"


class Paired(Struct, frozen=True):
    """Results of both sides, round by round."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def figure(
        self,
        name: str,
        unit: str,
        *,
        against: str,
        must: float,
        aim: float,
        better: Literal["higher", "lower"] = "higher",
        checked: str = "",
    ) -> Figure:
        """Return the row: the median of the pairwise ratios ours / theirs."""
        ratios = sorted(a / b for a, b in zip(self.ours, self.theirs, strict=True))
        return Figure(
            name=name,
            unit=unit,
            ours=statistics.median(self.ours),
            theirs=statistics.median(self.theirs),
            against=against,
            value=statistics.median(ratios),
            low=ratios[0],
            high=ratios[-1],
            must=must,
            aim=aim,
            better=better,
            checked=checked,
        )


def paired(
    ours: Callable[[], float],
    theirs: Callable[[], float],
    rounds: int = ROUNDS,
    *,
    within_s: float = PAIR_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Paired:
    """Run both in turn, after one warm-up each; each call returns its own figure.

    Args:
        ours: One round of ours.
        theirs: One round of what it is compared with.
        rounds: Counted rounds of each.
        within_s: After so long, the warm-up included, no round follows the first `ROUNDS_MIN`.
        clock: Gives the time, seconds.
    """
    started = clock()
    ours()
    theirs()
    results: list[tuple[float, float]] = []
    while len(results) < rounds:
        if len(results) >= ROUNDS_MIN and clock() - started > within_s:
            break
        results.append((ours(), theirs()))
    return Paired(tuple(a for a, _ in results), tuple(b for _, b in results))


def absolute(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    must: float,
    aim: float,
    better: Literal["higher", "lower"] = "higher",
    checked: str = "",
) -> Figure:
    """Return a row that compares with nothing but its bounds: the median of the values."""
    return Figure(
        name=name,
        unit=unit,
        ours=statistics.median(values),
        value=statistics.median(values),
        low=min(values),
        high=max(values),
        must=must,
        aim=aim,
        better=better,
        checked=checked,
    )


def timed(work: Callable[[], object]) -> float:
    """Return how long one call takes, seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rate(count: int, work: Callable[[], object]) -> float:
    """Return `count` things a second, for a call that does that many."""
    return count / timed(work)
