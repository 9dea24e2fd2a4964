"""What the tests of the PostgreSQL log run in processes of their own."""

import os
import sys

from belog.storage.postgres import PostgresLog
from tests.integration.log_workers import observed


def opened(uri: str) -> PostgresLog:
    log = PostgresLog(uri)
    log.initialize()
    return log


def write_until_killed(uri: str, writer: int) -> None:
    """Append for ever; print the number and index of each event once it is acknowledged."""
    with opened(uri) as log:
        n = 0
        while True:
            size = 1 + n % 3
            events = [observed(n + k, writer=writer) for k in range(size)]
            end = log.next_position()
            for receipt in log.append_unless_touched(events, seen_idx=end):
                os.write(1, f"{n} {receipt.index}\n".encode())
                n += 1


if __name__ == "__main__":
    write_until_killed(sys.argv[1], int(sys.argv[2]))
