"""Another process that writes to a log, for the contract suite.

`python -m belog.storage.testing_writer URI FIRST COUNT` appends `COUNT` observations numbered from
`FIRST` on, one at a time, and writes the index of each to standard output once it is acknowledged.
"""

import sys

from belog.storage.factory import open_log
from belog.storage.testing_events import observed

__all__ = ["main"]


def main(uri: str, first: int, count: int) -> None:
    """Append, one event at a time.

    Args:
        uri: The log; made where it is not there.
        first: Number of the first event.
        count: How many.
    """
    with open_log(uri) as log:
        log.initialize()
        for number in range(first, first + count):
            receipt = log.append(observed(number, f"data://other/{first}/{number % 5}"))
            sys.stdout.write(f"{receipt.index}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
