"""The packaging rules that no tool checks by itself."""

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.servers.containers import IMAGES

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL = CONFIG["tool"]
FOLDERS: list[str] = TOOL["hatch"]["build"]["dev-mode-dirs"]

CLIENTS = {
    "confluent_kafka": "belog.storage.kafka*",
    "redis": "belog.processors.redis*",
    "faust": "belog.processors.app*",
    "mode": "belog.processors.app*",
    "aiokafka": "belog.processors.app*",
    "psycopg": "belog.storage.postgres*",
    "psycopg_pool": "belog.storage.postgres*",
    "httpx": "belog.client.http*",
    "deltalake": "belog.storage.delta*",
    "arro3": "belog.storage.delta*",
    # Generated code too.
    "grpc": "belog.*grpc*",
    "grpc_health": "belog.service.grpc_api*",
    "grpc_reflection": "belog.service.grpc_api*",
    "prometheus_client": "belog.service.metrics*",
    "opentelemetry": "belog.service.tracing",
}
"""Which modules may import a third-party client: its adapter and no other."""


def test_every_import_root_is_listed_everywhere() -> None:
    found = sorted(path.parent.name for path in ROOT.glob("*/belog") if path.is_dir())
    assert sorted(FOLDERS) == found
    packages = [f"{folder}/belog" for folder in FOLDERS]
    assert TOOL["hatch"]["build"]["targets"]["wheel"]["packages"] == packages
    assert TOOL["ruff"]["namespace-packages"] == packages
    assert TOOL["ruff"]["src"] == [".", *FOLDERS]
    assert TOOL["pyright"]["extraPaths"] == FOLDERS
    roots = ":".join(f"$MYPY_CONFIG_FILE_DIR/{folder}" for folder in FOLDERS)
    assert TOOL["mypy"]["mypy_path"] == roots
    assert TOOL["importlinter"]["root_packages"] == [f"belog.{folder}" for folder in FOLDERS]
    for files in (
        TOOL["mypy"]["files"],
        TOOL["pyright"]["include"],
        TOOL["pytest"]["ini_options"]["testpaths"],
    ):
        assert files[: len(FOLDERS)] == FOLDERS


def test_every_import_root_stands_in_the_direction_of_imports() -> None:
    (layers,) = (
        contract["layers"]
        for contract in TOOL["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    named = [part.strip() for layer in layers for part in layer.split("|")]
    assert sorted(named) == sorted(TOOL["importlinter"]["root_packages"])


def test_namespace_has_no_init() -> None:
    assert list(ROOT.glob("*/belog/__init__.py")) == []
    assert [f for f in FOLDERS if not (ROOT / f / "belog" / f / "py.typed").exists()] == []
    assert [f for f in FOLDERS if not (ROOT / f / "belog" / f / "__init__.py").exists()] == []


def test_each_third_party_client_is_imported_by_its_adapter_only() -> None:
    strays = [
        f"{module} imports {client}"
        for module, path in modules()
        for client in sorted(imports(path) & CLIENTS.keys())
        if not fnmatchcase(module, CLIENTS[client])
    ]
    assert strays == []


def modules() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT / folder).with_suffix("").parts), path


def imports(path: Path) -> set[str]:
    """The top-level names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_script_and_fixtures_name_the_same_images(name: str) -> None:
    script = (ROOT / "scripts" / "servers").read_text()
    assert f"docker_has {' '.join(IMAGES[name])} " in script


def test_broker_has_one_version() -> None:
    pom = (ROOT / "tests" / "servers" / "pom.xml").read_text()
    version = re.search(r"<kafka.version>(.*)</kafka.version>", pom)
    assert version
    published = f"apache/kafka:{version[1]}"
    assert IMAGES["kafka"][-1] == published
    assert published in (ROOT / "docker-compose.yml").read_text()
