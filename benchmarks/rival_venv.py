"""The virtual environment that other projects are measured in; they never enter our own."""

import os
import subprocess
import venv
from pathlib import Path
from typing import Final

__all__ = ["DAGSTER", "EVENTSOURCING", "REQUIREMENTS", "RIVALS", "VENV", "rival_python"]

EVENTSOURCING: Final = "eventsourcing[postgres]==9.5.6"
DAGSTER: Final = "dagster==1.13.29"
REQUIREMENTS: Final = (EVENTSOURCING, "psycopg[binary]", DAGSTER)
"""All that the rivals need."""

RIVALS: Final = Path(__file__).parent / "rivals"
VENV: Final = Path(os.environ.get("BELOG_BENCH_RIVALS", ".cache/rivals"))
"""Made on the first run that needs it, and kept."""
INSTALLED: Final = "belog-installed.txt"
"""What was installed there by name, one requirement a line."""


def rival_python(*requirements: str, folder: Path = VENV) -> Path:
    """Return the interpreter of the rivals' environment, installing what is not there yet."""
    python = folder.resolve() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    listed = folder / INSTALLED
    known = listed.read_text(encoding="utf-8").split("\n") if listed.exists() else []
    if missing := [name for name in requirements if name not in known]:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *missing], check=True)
        listed.write_text("\n".join([*known, *missing]), encoding="utf-8")
    return python
