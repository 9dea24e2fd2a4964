"""A log of ten million events: minutes to make, so not part of the suite. `make bench-large`.

The table has the columns of the one over a log's length.
"""

from collections.abc import Iterator
from typing import Final

from benchmarks.bench_scale import COLUMNS, row_of
from benchmarks.counting import Tally, total
from benchmarks.measure import Series
from benchmarks.servers import Servers

EVENTS: Final = 10_000_000


def run(servers: Servers) -> Iterator[Series]:
    """Yield the one row."""
    tallies: list[Tally] = []
    folder = servers.folder / "large"
    folder.mkdir()
    row = row_of(folder, servers.sized(EVENTS, 2_000), tallies)
    yield Series(
        name="Length of a log in SQLite, large",
        axis="events",
        columns=COLUMNS,
        rows=(row,),
        checked=str(total(tallies)),
    )
