"""Metrics of the long-running commands, by Prometheus's conventions.

The one adapter of prometheus_client. Each command has a registry of its own; nothing is global, and
nothing outlives the process: counters begin at zero with each start, which `rate()` allows for.
docs/operations/metrics.md lists all of them, and a test compares the two.

What is counted on the way of every request is kept in plain numbers (`CounterTally`,
`HistogramTally`) and made into samples when somebody asks. They belong to one thread, the event
loop's, and take no lock; prometheus_client's own metrics take several and three times as long.
"""

import platform
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Info,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from belog.processors.snapshots import TakenSnapshot
from belog.schemas.errors import BelogError
from belog.service.observer import Component

__all__ = [
    "COUNT_BOUNDS",
    "OTHER",
    "SECONDS_BOUNDS",
    "CounterTally",
    "HistogramTally",
    "Metrics",
    "counter",
    "gauge",
]

SECONDS_BOUNDS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of durations, seconds: from an append without company to the longest long-poll."""

COUNT_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Upper bounds of numbers of events: from one to the largest batch."""

LABELS_MAX: Final = 2_000
"""Combinations of labels that one metric may have: some forty routes with five methods and ten
statuses. Past it everything is counted as `other`, so that no client can make a process grow."""

OTHER: Final = "other"
"""The value of labels that are not of the known ones."""


class CounterTally(Collector):
    """A counter with labels. Belongs to one thread; `collect` may be called from any."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        """Start without any sample.

        Args:
            name: Without `_total`.
            text: What is counted.
            labels: Their names.
        """
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._other = (OTHER,) * len(self._labels)
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, labels: tuple[str, ...], count: int = 1) -> None:
        """Count; `labels` are of a set that is bounded by the program."""
        counts = self._counts
        before = counts.get(labels)
        if before is None:
            if len(counts) >= LABELS_MAX:
                labels = self._other
            before = counts.get(labels, 0)
        counts[labels] = before + count

    def collect(self) -> Iterable[Metric]:
        """Give the samples."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        # A copy, which is made in one step: the other thread may add a label meanwhile.
        for labels, count in self._counts.copy().items():
            family.add_metric(labels, count)
        yield family


class _Buckets:
    """The observations of one combination of labels."""

    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class HistogramTally(Collector):
    """A histogram with labels. Belongs to one thread; `collect` may be called from any."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = SECONDS_BOUNDS,
    ) -> None:
        """Start empty.

        Args:
            name: With its unit at the end.
            text: What is observed.
            labels: Their names.
            bounds: Upper bounds of the buckets, ascending.
        """
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._other = (OTHER,) * len(self._labels)
        self._bounds = tuple(bounds)
        self._series: dict[tuple[str, ...], _Buckets] = {}
        if not labels:
            self._series[()] = _Buckets(len(self._bounds))

    def observe(self, value: float, labels: tuple[str, ...] = ()) -> None:
        """Take note of a value; `labels` are of a set that is bounded by the program."""
        buckets = self._series.get(labels)
        if buckets is None:
            buckets = self._new(labels)
        buckets.counts[bisect_left(self._bounds, value)] += 1
        buckets.total += value

    def _new(self, labels: tuple[str, ...]) -> _Buckets:
        if len(self._series) >= LABELS_MAX:
            labels = self._other
        return self._series.setdefault(labels, _Buckets(len(self._bounds)))

    def collect(self) -> Iterable[Metric]:
        """Give the samples."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        bounds = [f"{bound:g}" for bound in self._bounds] + ["+Inf"]
        for labels, buckets in self._series.copy().items():
            total = buckets.total
            below = 0
            samples: list[tuple[str, float]] = []
            for bound, count in zip(bounds, buckets.counts.copy(), strict=True):
                below += count
                samples.append((bound, below))
            family.add_metric(labels, samples, sum_value=total)
        yield family


def gauge(
    name: str,
    text: str,
    value: float | None,
    labels: Sequence[tuple[str, str]] = (),
) -> GaugeMetricFamily:
    """Return a gauge with one sample, without any where the value is not known now."""
    family = GaugeMetricFamily(name, text, labels=[label for label, _ in labels])
    if value is not None:
        family.add_metric([given for _, given in labels], value)
    return family


def counter(
    name: str, text: str, value: float, labels: Sequence[tuple[str, str]] = ()
) -> CounterMetricFamily:
    """Return a counter with one sample, of something that is counted elsewhere."""
    family = CounterMetricFamily(name, text, labels=[label for label, _ in labels])
    family.add_metric([given for _, given in labels], value)
    return family


class _Shown(Collector):
    """A registry without the times at which series began: no query of ours asks for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            created = f"{family.name}_created"
            family.samples = [sample for sample in family.samples if sample.name != created]
            yield family


class Metrics:
    """What every command counts: what it is, its process, its errors, its snapshots.

    The methods may be called from any thread.
    """

    def __init__(self) -> None:
        """Make a registry; nothing is served yet."""
        self.registry = CollectorRegistry()
        self.shown: Collector = _Shown(self.registry)
        build = Info("belog_build", "The program that runs", registry=self.registry)
        build.info({"version": version("belog"), "python": platform.python_version()})
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._errors = Counter(
            "belog_errors",
            "Errors that were waited out or that ended something, by where they came from",
            ["component", "code"],
            registry=self.registry,
        )
        self._snapshots = Counter(
            "belog_snapshots",
            "Snapshots that this process tried to take",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in ("taken", "failed"):
            self._snapshots.labels(outcome)

    def failed(self, error: BelogError, component: Component) -> None:
        """Count an error that is waited out, or that ended something."""
        self._errors.labels(component, error.code).inc()

    def snapshot_ended(self, outcome: TakenSnapshot | BelogError) -> None:
        """Count a snapshot that is on disk, or that could not be taken."""
        if isinstance(outcome, BelogError):
            self._snapshots.labels("failed").inc()
            self.failed(outcome, "snapshots")
        else:
            self._snapshots.labels("taken").inc()

    def names(self) -> set[str]:
        """Return the names of all metrics, as docs and queries write them; asks for values."""
        suffixes = {"counter": "_total", "info": "_info"}
        return {f.name + suffixes.get(f.type, "") for f in self.shown.collect()}

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its content type. May block as long as what it asks does.

        Args:
            accept: The Accept header of who asks; decides between the text format and OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.shown), content_type
