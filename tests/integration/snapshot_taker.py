"""A process that takes snapshots of one log for ever: `python -m … FOLDER SEED`."""

import random
import sys

from belog.processors.snapshots import image_of_tables, save_tables
from belog.processors.table_fold import TableFold
from belog.storage.snapshots import SnapshotStore
from tests.examples import T0
from tests.table_logs import random_records


def main() -> None:
    """Take one snapshot after the other, each a few records further, and say so."""
    folder, seed = sys.argv[1], int(sys.argv[2])
    store = SnapshotStore(folder)
    records = random_records(random.Random(seed), 1_200)
    tables = TableFold()
    for at in range(0, len(records), 4):
        tables.apply(records[at : at + 4])
        taken = save_tables(store, image_of_tables(tables), taken_at=T0)
        sys.stdout.write(f"{taken.header.next_idx}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
