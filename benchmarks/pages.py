"""Fills the pages from docs/benchmarks.json: `python -m benchmarks.pages`."""

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.capacity import capacity_blocks
from benchmarks.report import Report, blocks, filled, merged, to_json

__all__ = ["REPORT", "keep", "write_pages"]

DOCS: Final = Path(__file__).parents[1] / "docs"
REPORT: Final = DOCS / "benchmarks.json"


def kept() -> Report | None:
    """Return the report that is kept, None where there is none yet."""
    return msgspec.json.decode(REPORT.read_bytes(), type=Report) if REPORT.exists() else None


def keep(report: Report) -> None:
    """Merge a report into the one that is kept, and fill the pages."""
    whole = merged(kept(), report)
    REPORT.write_bytes(to_json(whole))
    write_pages(whole)


def write_pages(report: Report) -> None:
    """Fill the marked blocks of both pages."""
    for name, texts in (
        ("benchmarks.md", blocks(report)),
        ("capacity.md", capacity_blocks(report)),
    ):
        page = DOCS / name
        page.write_text(filled(page.read_text(encoding="utf-8"), texts), encoding="utf-8")


if __name__ == "__main__":
    found = kept()
    assert found is not None, f"{REPORT} is not there: run the benchmarks with --page"
    write_pages(found)
