"""What the figures are taken on."""

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.report import Machine

__all__ = ["machine"]

PACKAGES: Final = (
    "belog",
    "confluent-kafka",
    "redis",
    "psycopg",
    "fastavro",
    "cbor2",
    "blake3",
    "msgspec",
    "starlette",
    "uvicorn",
    "grpcio",
)
BROKER: Final = Path(__file__).parents[1] / "tests/servers/pom.xml"


def machine() -> Machine:
    """Return this machine, with the versions of what is measured."""
    return Machine(
        date=datetime.now(UTC).date().isoformat(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        cpu=_found("/proc/cpuinfo", r"model name\s*: (.+)") or platform.machine(),
        kernel=f"{platform.system()} {platform.release()}",
        versions={"Python": platform.python_version(), **_servers(), **_packages()},
    )


def _found(path: str | Path, pattern: str) -> str:
    text = Path(path).read_text(encoding="utf-8")
    match = re.search(pattern, text)
    return match[1].strip() if match else ""


def _packages() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def _servers() -> dict[str, str]:
    found = {"Kafka": _found(BROKER, r"<kafka.version>(.+)</kafka.version>")}
    if redis := shutil.which("redis-server"):
        said = subprocess.run([redis, "--version"], check=True, capture_output=True, text=True)
        if match := re.search(r"v=(\S+)", said.stdout):
            found["Redis"] = match[1]
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        said = subprocess.run([folder, "--version"], check=True, capture_output=True, text=True)
        found["PostgreSQL"] = said.stdout.split()[2]
    return found
