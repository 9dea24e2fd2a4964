"""Records events until it is killed; says before and after each one."""

import sys

from belog.client import Client
from belog.schemas.events import JobRunning


def say(word: str, event_id: bytes) -> None:
    """Tell the test, at once."""
    sys.stdout.write(f"{word} {event_id.hex()}\n")
    sys.stdout.flush()


def main() -> None:
    """Record heartbeats of one job run: nothing but the spool keeps one from being there twice."""
    url, folder, name = sys.argv[1:]
    with Client(url, spool=folder) as client:
        n = 0
        while True:
            event = client.make(JobRunning(worker=f"{name}/{n}"), "run")
            say("try", event.event_id)
            client.record_event(event, wait_s=0.5)
            say("kept", event.event_id)
            # Not much faster than the log, or it takes all the time to catch up.
            client.flush(0.02)
            n += 1


if __name__ == "__main__":
    main()
