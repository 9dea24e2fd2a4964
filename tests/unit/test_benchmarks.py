"""The suite of benchmarks itself: figures, rounds, counting, tables, budgets, and capacity."""

from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from belog.producers import Producer
from belog.schemas.envelope import decode_event, encode_event
from belog.storage.memory import MemoryLog
from benchmarks import capacity, report
from benchmarks.capacity import EXAMPLES, HEADROOM, Measured, Platform, capacity_of
from benchmarks.counting import ID_END, ID_START, Tally, ids_in, tally, tally_log, total
from benchmarks.events import builds, records
from benchmarks.measure import ROUNDS_MIN, Constant, Paired, Series, absolute, paired
from benchmarks.million import AFTER, make_million
from benchmarks.plan import BENCHES, LARGE, SUITE_S_MAX
from benchmarks.report import Machine, Report, Result, blocks, filled, merged

DOCS = Path(__file__).parents[2] / "docs"


# --- figures


@pytest.mark.parametrize(
    ("value", "better", "verdict"),
    [
        (0.5, "higher", "aim"),
        (0.49, "higher", "must"),
        (0.19, "higher", "missed"),
        (0.2, "lower", "aim"),
        (0.3, "lower", "missed"),
    ],
)
def test_a_figure_says_what_it_reached(value: float, better: str, verdict: str) -> None:
    must, aim = (0.2, 0.5) if better == "higher" else (0.25, 0.2)
    figure = absolute("x", "s", [value], must=must, aim=aim, better=better)  # type: ignore[arg-type]
    assert figure.verdict == verdict


def test_a_pair_is_the_median_of_its_ratios_with_the_spread() -> None:
    # The ratio of the medians would be 1.
    pair = Paired(ours=(1.0, 2.0, 3.0), theirs=(2.0, 1.0, 2.0))
    figure = pair.figure("x", "events/s", against="y", must=1, aim=2)
    assert (figure.low, figure.value, figure.high) == (0.5, 1.5, 2.0)
    assert (figure.ours, figure.theirs) == (2.0, 2.0)


def test_rounds_alternate_after_a_warm_up_and_end_when_the_time_is_over() -> None:
    calls: list[str] = []
    now = iter(range(1_000))

    def side(name: str) -> float:
        calls.append(name)
        return 1.0

    def run(rounds: int, within_s: float) -> int:
        calls.clear()
        pair = paired(
            lambda: side("ours"),
            lambda: side("theirs"),
            rounds,
            within_s=within_s,
            clock=lambda: next(now),
        )
        assert calls == ["ours", "theirs"] * (1 + len(pair.ours))
        return len(pair.ours)

    assert run(5, within_s=1_000) == 5
    assert run(5, within_s=0) == ROUNDS_MIN
    assert run(1, within_s=0) == 1


# --- counting


def test_what_is_missing_double_or_swapped_is_counted() -> None:
    a, b, c, d, other = (bytes([n]) for n in range(5))
    assert tally([[a, b], [c, d]], [a, c, b, d]) == Tally()
    assert tally([[a, b], [c, d]], [other, a, b, d]) == Tally(missed=1)
    assert tally([[a, b]], [a, b, a, a]) == Tally(doubled=2)
    assert tally([[a, b, c]], [b, a, c]) == Tally(out_of_order=1)
    # One that comes too early makes all that it passed late.
    assert tally([[a, b, c]], [c, a, b]) == Tally(out_of_order=2)
    assert str(total([Tally(1, 0, 2), Tally(1, 3, 0)])) == "2 missed, 3 doubled, 2 out of order"


def test_ids_are_read_where_the_format_has_them() -> None:
    for event in builds(3):
        value = encode_event(event)
        assert value[ID_START:ID_END] == decode_event(value).event_id


def test_a_log_is_counted_from_what_is_in_it() -> None:
    events = list(builds(4))
    with MemoryLog() as log:
        log.initialize()
        with Producer(log, actor="bench") as producer:
            for event in events[:-1]:
                producer.append_event(event)
        log.append(events[0])
        assert len(list(ids_in(log))) == len(events) + 1
        assert tally_log(log, [events]) == Tally(missed=1, doubled=1)


def test_the_shared_log_is_what_it_says(tmp_path: Path) -> None:
    million = make_million(tmp_path, partitions=200)
    assert million.checked == Tally()
    assert million.count == 1 + 2 + 200 * 10 + AFTER
    (file,) = million.store.files()
    assert file.next_idx == million.count - AFTER
    assert len(records(3)) == 1 + 3 * 5


def test_payloads_have_the_size_that_the_page_says() -> None:
    sizes = [len(event.payload) for event in builds(1_000)]
    assert sum(sizes) / len(sizes) == pytest.approx(250, abs=5)


# --- the plan


def test_the_budgets_fit_into_the_time_of_the_suite() -> None:
    assert sum(bench.budget_s for bench in BENCHES.values()) <= SUITE_S_MAX


def test_every_benchmark_of_the_folder_is_planned_and_runs() -> None:
    folder = Path(import_module("benchmarks").__path__[0])
    modules = {f"benchmarks.{path.stem}" for path in folder.glob("bench_*.py")}
    planned = {**BENCHES, **LARGE}
    assert {bench.module for bench in planned.values()} == modules
    assert all(callable(import_module(name).run) for name in modules)


# --- the pages


@pytest.fixture
def some() -> Report:
    figure = absolute("appending", "events/s", [1_234.5], must=1, aim=2, checked="0 missed")
    series = Series(name="Writers", axis="writers", columns=("events/s",), rows=((1, 2.5), (8, 9)))
    constant = Constant(key="event_bytes", unit="bytes", value=383.2, how="counted")
    machine = Machine(
        date="2026-01-01",
        cores=2,
        memory_gb=8,
        cpu="a CPU",
        kernel="Linux",
        versions={"Kafka": "4"},
    )
    result = Result(
        seconds=3.2,
        budget_s=10,
        load_before=0.1,
        quick=False,
        date="2026-01-01",
        figures=(figure,),
        series=(series,),
        constants=(constant,),
    )
    return Report(machine=machine, results={"one": result})


def test_a_report_survives_its_file_and_keeps_what_was_not_run(some: Report) -> None:
    read = msgspec.json.decode(report.to_json(some), type=Report)
    assert read == some
    other = replace(some, results={"two": replace(some.results["one"], seconds=7.0)})
    both = merged(some, other)
    assert list(both.results) == ["one", "two"]
    assert merged(both, replace(other, results={"one": other.results["two"]})).results[
        "one"
    ].seconds == pytest.approx(7.0)
    assert merged(None, some) is some


def test_tables_are_written_between_their_markers_and_nowhere_else(some: Report) -> None:
    texts = blocks(some)
    page = "".join(f"before {n}\n<!-- {n}: begin -->\nold\n<!-- {n}: end -->\n" for n in texts)
    once = filled(page + "after\n", texts)
    assert filled(once, texts) == once
    assert "old" not in once
    assert once.endswith("<!-- profiles: end -->\nafter\n")
    for wanted in (
        "| appending | 1,234 events/s | – | – | 1,234 (1,234–1,234) | ≥ 1 | ≥ 2 | aim | 0 missed |",
        "| 8 | 9 |",
        "| `event_bytes` | 383 bytes | counted |",
        "2 cores of a CPU, 8 GB, Linux. Kafka 4.",
        "| one | 3 s | 10 s | 0.1 | 2026-01-01 |",
    ):
        assert wanted in once
    with pytest.raises(ValueError, match="machine"):
        filled("nothing", texts)


def kept() -> Report:
    """What docs/benchmarks.json holds."""
    return msgspec.json.decode((DOCS / "benchmarks.json").read_bytes(), type=Report)


@pytest.mark.parametrize("name", ["benchmarks.md", "capacity.md"])
def test_the_pages_say_what_was_measured(name: str) -> None:
    found = kept()
    texts = blocks(found) if name == "benchmarks.md" else capacity.capacity_blocks(found)
    page = (DOCS / name).read_text(encoding="utf-8")
    assert filled(page, texts) == page, "run: python -m benchmarks.pages"


# --- capacity


@pytest.fixture
def measured() -> Measured:
    values = dict.fromkeys(Measured.__struct_fields__, 100.0)
    return Measured(**values)


def test_one_log_carries_what_its_slowest_part_does(measured: Measured) -> None:
    day = capacity.DAY_S
    platform = Platform(events_per_day=day, partitions=10, age_days=1)
    found = capacity_of(platform, measured)
    assert found.mean_events_s == pytest.approx(1)
    assert found.peak_events_s == pytest.approx(capacity.PEAK_FACTOR)
    assert (found.instances, found.because) == (1, "–")
    assert found.broker_gb == pytest.approx(day * 100 * capacity.REPLICAS / 1e9)
    # Ten times a busiest minute of ten, over half of a hundred.
    slow = replace(measured, rebuild_events_s=1e6, worker_events_s=100 * HEADROOM)
    ten = capacity_of(replace(platform, events_per_day=10 * day), slow)
    assert (ten.instances, ten.because) == (4, "the worker")


def test_more_asks_for_more(measured: Measured) -> None:
    small, middle, large = (capacity_of(platform, measured) for platform in EXAMPLES)
    # A vacuum makes the log shorter, and nothing else: rows and states stay.
    whole = capacity_of(replace(EXAMPLES[1], kept_days=EXAMPLES[1].age_days), measured)
    assert whole.log_events > middle.log_events
    assert (whole.redis_gb, whole.fold_mb) == (middle.redis_gb, middle.fold_mb)
    for field in ("peak_events_s", "log_events", "broker_gb", "redis_gb", "fold_mb", "instances"):
        assert getattr(small, field) < getattr(middle, field) < getattr(large, field), field
