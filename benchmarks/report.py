"""What a run of the suite says, as data and as the tables of a page. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from benchmarks.measure import Constant, Figure, Series
from benchmarks.plan import BENCHES, SUITE_S_MAX

__all__ = [
    "Machine",
    "Profile",
    "Report",
    "Result",
    "blocks",
    "constants_table",
    "durations_table",
    "figures_table",
    "filled",
    "line",
    "merged",
    "number",
    "profile_table",
    "series_table",
    "to_json",
]


class Machine(Struct, frozen=True, kw_only=True):
    """What figures were taken on."""

    date: str
    cores: int
    memory_gb: float
    cpu: str
    kernel: str
    versions: Mapping[str, str]


class Result(Struct, frozen=True, kw_only=True):
    """What one module found."""

    seconds: float
    budget_s: int
    load_before: float
    """Load average of the minute before: above the number of cores, others worked beside it."""
    quick: bool
    date: str
    figures: tuple[Figure, ...] = ()
    series: tuple[Series, ...] = ()
    constants: tuple[Constant, ...] = ()


class Profile(Struct, frozen=True, kw_only=True):
    """Where the time of one path goes."""

    name: str
    events: int
    us_per_event: float
    shares: tuple[tuple[str, float], ...]
    """Functions with their own share of the time, 0 to 1, largest first."""


class Report(Struct, frozen=True, kw_only=True):
    """The newest result of every module."""

    machine: Machine
    results: Mapping[str, Result]
    profiles: tuple[Profile, ...] = ()


def merged(before: Report | None, now: Report) -> Report:
    """Return a report in which modules that were not run keep what they found before."""
    if before is None:
        return now
    return Report(
        machine=now.machine,
        results={**before.results, **now.results},
        profiles=now.profiles or before.profiles,
    )


def number(value: float) -> str:
    """Return a figure with the digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line(found: Figure | Series | Constant) -> str:
    """Return what was found as a line of progress."""
    match found:
        case Figure():
            return f"{found.name}: {number(found.value)} ({found.verdict}) {found.checked}".rstrip()
        case Constant():
            return f"{found.key}: {number(found.value)} {found.unit}"
        case Series():
            return f"{found.name}: {len(found.rows)} rows {found.checked}".rstrip()


def figures_table(figures: Iterable[Figure]) -> str:
    """Return figures as a Markdown table."""
    rows = [
        "| work | ours | against | theirs | value (low–high) | must | aim | reached | checked |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for f in figures:
        sign = "≥" if f.better == "higher" else "≤"
        theirs = "–" if f.theirs is None else f"{number(f.theirs)} {f.unit}"
        rows.append(
            f"| {f.name} | {number(f.ours)} {f.unit} | {f.against or '–'} | {theirs} "
            f"| {number(f.value)} ({number(f.low)}–{number(f.high)}) "
            f"| {sign} {number(f.must)} | {sign} {number(f.aim)} | {f.verdict} "
            f"| {f.checked or '–'} |"
        )
    return "\n".join(rows)


def series_table(series: Series) -> str:
    """Return a series as a Markdown table under its name."""
    rows = [
        f"**{series.name}**" + (f" ({series.checked})" if series.checked else ""),
        "",
        "| " + " | ".join((series.axis, *series.columns)) + " |",
        "|" + "---|" * (1 + len(series.columns)),
    ]
    rows += [
        "| " + " | ".join((f"{row[0]:,.0f}", *map(number, row[1:]))) + " |" for row in series.rows
    ]
    return "\n".join(rows)


def constants_table(constants: Iterable[Constant]) -> str:
    """Return constants as a Markdown table."""
    rows = ["| constant | value | how it was measured |", "|---|---|---|"]
    rows += [f"| `{c.key}` | {number(c.value)} {c.unit} | {c.how} |" for c in constants]
    return "\n".join(rows)


def durations_table(report: Report) -> str:
    """Return what each module took, beside what it may take."""
    rows = ["| module | took | may take | load before | date |", "|---|---|---|---|---|"]
    for name, r in report.results.items():
        quick = " (quick: a twentieth of the work)" if r.quick else ""
        rows.append(
            f"| {name}{quick} | {r.seconds:.0f} s | {r.budget_s} s | {r.load_before:.1f} "
            f"| {r.date} |"
        )
    took = sum(r.seconds for name, r in report.results.items() if name in BENCHES)
    return "\n".join([*rows, f"| the suite | {took:.0f} s | {SUITE_S_MAX} s | | |"])


def profile_table(profile: Profile) -> str:
    """Return a profile as a Markdown table under its name."""
    rows = [
        (
            f"**{profile.name}** ({number(profile.us_per_event)} µs an event under the profiler, "
            f"{profile.events:,} events)"
        ),
        "",
        "| function | own share |",
        "|---|---|",
    ]
    rows += [f"| `{name}` | {share:.0%} |" for name, share in profile.shares]
    return "\n".join(rows)


def _machine_text(machine: Machine) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return (
        f"{machine.date}: {machine.cores} cores of {machine.cpu}, {machine.memory_gb:.0f} GB, "
        f"{machine.kernel}. {versions}."
    )


def blocks(report: Report) -> dict[str, str]:
    """Return the text of each marked block of the page of benchmarks."""
    results = report.results.values()
    return {
        "machine": _machine_text(report.machine),
        "figures": figures_table(figure for r in results for figure in r.figures),
        "scaling": "\n\n".join(series_table(s) for r in results for s in r.series),
        "constants": constants_table(c for r in results for c in r.constants),
        "durations": durations_table(report),
        "profiles": "\n\n".join(map(profile_table, report.profiles)),
    }


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with new text between the markers `<!-- name: begin -->` and `… end -->`.

    Raises:
        ValueError: A block is not there exactly once.
    """
    for name, text in texts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            msg = f"the page does not have the block {name!r} once"
            raise ValueError(msg)
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def to_json(report: Report) -> bytes:
    """Return a report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report)) + b"\n"
