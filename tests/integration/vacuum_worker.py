"""A process that vacuums a log: `python -m … LOG_URI SNAPSHOTS`; says when it begins to remove."""

import sys
from collections.abc import Sequence

from belog.storage import open_log
from belog.storage.horizon import Removal
from belog.storage.opening import open_existing
from belog.storage.snapshots import SnapshotStore

EVER = 2**62


def main() -> None:
    """Vacuum, and end."""
    with open_log(sys.argv[1]) as log:
        open_existing(log)
        remove = log.remove

        def announced(removals: Sequence[Removal]) -> None:
            sys.stdout.write("removing\n")
            sys.stdout.flush()
            remove(removals)

        log.remove = announced  # type: ignore[method-assign]
        log.vacuum(EVER, dry_run=False, snapshots=SnapshotStore(sys.argv[2]))


if __name__ == "__main__":
    main()
