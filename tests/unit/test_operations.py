"""The files of docs/operations hold to the metrics that exist: names, labels, values of labels."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from belog.processors.memory_tables import MemoryTables
from belog.processors.table_fold import TableFold
from belog.schemas import errors
from belog.schemas.errors import BelogError, Unavailable
from belog.service.metrics import Metrics
from belog.service.metrics_processes import SinkMetrics, WorkerMetrics
from belog.service.metrics_service import ServiceMetrics

FOLDER = Path(__file__).parents[2] / "docs" / "operations"
COMMON = {"job", "instance", "le"}
"""Labels that Prometheus and histograms add."""

CODES = {
    kind.code
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BelogError)
}
FUNCTIONS = {
    *("sum", "max", "by", "or", "and", "rate", "increase", "time"),
    *("histogram_quantile", "min_over_time", "label_values"),
}


def registries() -> dict[str, Metrics]:
    """Every command's metrics, with a sample for each combination of labels that is looked at."""
    service = ServiceMetrics()
    service.http_answered("/events", "GET", 200, 0.1)
    service.grpc_answered("belog.v1.EventLogService/Append", "OK", 0.1)
    tables = MemoryTables(TableFold(), name="memory:")
    worker = WorkerMetrics(tables)
    sink = SinkMetrics("kafka://a/t", "kafka://b/t")
    found = {"belog": service, "belog-worker": worker.metrics, "belog-sink": sink.metrics}
    for metrics in found.values():
        metrics.failed(Unavailable("away"), "log")
    return found


REGISTRIES = registries()


def labels_of() -> dict[str, set[str]]:
    """The labels of each metric, by the names of samples and of metrics; None known: no labels."""
    labels: dict[str, set[str]] = {"up": set()}
    for metrics in REGISTRIES.values():
        for family in metrics.shown.collect():
            suffixes = {
                "counter": ("_total",),
                "histogram": ("_bucket", "_sum", "_count", ""),
                "info": ("_info",),
            }.get(family.type, ("",))
            found = {label for sample in family.samples for label in sample.labels}
            if family.name.startswith("belog_sink"):
                found |= {"origin", "target"}
            for suffix in suffixes:
                labels.setdefault(family.name + suffix, set()).update(found - {"le"})
    return labels


LABELS = labels_of()


def dashboard() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((FOLDER / "dashboard.json").read_text()))


def rules() -> list[dict[str, Any]]:
    loaded = cast("dict[str, Any]", yaml.safe_load((FOLDER / "alerts.yaml").read_text()))
    assert set(loaded) == {"groups"}
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


def faults(expression: str) -> list[str]:
    """What is wrong with a query."""
    found: list[str] = []
    for opening, closing in ("()", "{}", "[]"):
        if expression.count(opening) != expression.count(closing):
            found.append(f"{opening}{closing} do not match")
    selected: set[str] = set()
    for name, matchers in re.findall(r"\b([a-z_][a-z0-9_]*)\s*\{([^}]*)\}", expression):
        for label, value in re.findall(r"(\w+)\s*[=!]~?\s*\"([^\"]*)\"", matchers):
            if label not in COMMON | LABELS.get(name, set()):
                found.append(f"{name} has no label {label}")
            if label == "result":
                known = CODES | {"accepted", "duplicate"}
                found += [f"no result {code}" for code in value.split("|") if code not in known]
            if label == "job":
                jobs = [job for job in REGISTRIES if re.fullmatch(value, job)]
                found += [] if jobs else [f"no job {value}"]
                if name != "up" and not any(name in samples(job) for job in jobs):
                    found.append(f"{value} has no {name}")
    bare = re.sub(r"\{[^}]*\}|\"[^\"]*\"|\[[^\]]*\]", " ", expression)
    for grouped in re.findall(r"\bby\s*\(([^)]*)\)", bare):
        selected |= {label.strip() for label in grouped.split(",")}
    bare = re.sub(r"\bby\s*\([^)]*\)", " ", bare)
    names = set(re.findall(r"\b[a-z_][a-z0-9_]*\b", bare)) - FUNCTIONS - {"instance"}
    found += [f"there is no {name}" for name in sorted(names - LABELS.keys())]
    known_labels = COMMON.union(*(LABELS.get(name, set()) for name in names))
    found += [f"no label {label} to group by" for label in sorted(selected - known_labels)]
    return found if names else [*found, "it asks for nothing"]


def samples(job: str) -> set[str]:
    names = REGISTRIES[job].names()
    return names | {f"{name}{suffix}" for name in names for suffix in ("_bucket", "_sum", "_count")}


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_a_query_asks_for_what_exists(where: str, expression: str) -> None:
    assert faults(expression) == [], where


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("belog_redy == 0", "there is no belog_redy"),
        ("rate(belog_errors[5m])", "there is no belog_errors"),
        ('belog_ready{route="x"}', "belog_ready has no label route"),
        ('belog_append_events_total{result="acepted"}', "no result acepted"),
        ('belog_worker_assigned{job="belog"}', "belog has no belog_worker_assigned"),
        ("sum by (rout) (belog_http_requests_total)", "no label rout to group by"),
        ("sum(belog_ready", "() do not match"),
    ],
)
def test_a_wrong_query_is_found(expression: str, fault: str) -> None:
    assert fault in faults(expression)


def test_alerts_are_whole() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert re.fullmatch(r"Belog[A-Z][A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        known = COMMON.union(*LABELS.values())
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert used <= known, rule["alert"]


def test_alerts_cover_what_may_go_wrong() -> None:
    asked = " ".join(rule["expr"] for rule in rules())
    for name in (
        "up",
        "belog_ready",
        "belog_tables_lag_seconds",
        "belog_tables_lag_records",
        "belog_append_events_total",
        "belog_errors_total",
        "belog_sink_dead_letters",
        "belog_sink_lag_seconds",
        "belog_snapshot_timestamp_seconds",
        "belog_worker_assigned",
    ):
        assert re.search(rf"\b{name}\b", asked), name


def test_panels_are_whole() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in {"row", "timeseries"}
        if panel["type"] == "timeseries":
            assert panel["targets"], panel["title"]
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    places = sorted((p["gridPos"]["y"], p["gridPos"]["x"], p["gridPos"]["h"]) for p in panels)
    for (y, x, height), (next_y, next_x, _) in pairwise(places):
        assert (next_y == y and next_x > x) or next_y >= y + height


def documented() -> dict[str, set[str]]:
    """The metrics that metrics.md lists, with the labels of each."""
    found: dict[str, set[str]] = {}
    for line in (FOLDER / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`((?:belog|process|python)_[a-z_]+)`", cells[0])
        if line.startswith("|") and names:
            labels = re.findall(r"`(\w+)`", cells[1]) if len(cells) > 2 else ["origin", "target"]
            found |= {name: set(labels) for name in names}
    return found


def test_the_page_of_metrics_lists_what_there_is_with_its_labels() -> None:
    listed = documented()
    existing = set().union(*(metrics.names() for metrics in REGISTRIES.values()))
    assert set(listed) == existing
    for name, labels in listed.items():
        if not name.startswith("python_"):
            assert labels == LABELS[name], name
