"""The one place where tests wait."""

import itertools
import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually", "free_port", "port_is_open"]

T = TypeVar("T")

WAIT_S = 30.0
"""How long `eventually` waits when nothing else is said."""

POLL_S_MIN = 0.005
POLL_S_MAX = 0.2
"""The pause between two looks doubles from the first to the second."""

# Below the kernel's range for outgoing connections (32768 and up by default). A port
# inside it can be taken by any client while its server is down for a restart, even by
# a client that meets itself: a socket can connect to its own address.
PORTS = range(20_000, 32_000)

# Sessions that run side by side start their search far apart, also where their process ids follow
# each other: steps of the golden ratio leave the widest gaps.
_START = os.getpid() * 7_417 % len(PORTS)
_next_port: "itertools.cycle[int]" = itertools.cycle([*PORTS[_START:], *PORTS[:_START]])


def eventually(
    condition: Callable[[], T],
    what: str = "the condition holds",
    *,
    timeout_s: float = WAIT_S,
    unless: Callable[[], str | None] | None = None,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """Call *condition* until its answer is true, and return that answer.

    Args:
        condition: Looked at again and again; should return quickly.
        what: What is waited for, for the error message.
        timeout_s: The bound on the whole wait, in seconds.
        unless: Looked at too; a text ends the wait at once, as the reason why the
            condition can never hold (a process that died, say).
        ignoring: Errors of *condition* that mean "not yet".

    Raises:
        TimeoutError: The time is over, or *unless* gave a reason. Names the last
            answer or error.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_S_MIN
    while True:
        last: object
        cause: Exception | None = None
        try:
            answer = condition()
        except ignoring as error:
            last, cause = error, error
        else:
            if answer:
                return answer
            last = answer
        reason = unless() if unless else None
        if reason:
            raise TimeoutError(f"waited in vain until {what}: {reason}") from cause
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"waited {timeout_s:g} s in vain until {what}; last: {last!r}"
            ) from cause
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, POLL_S_MAX)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on, a new one at each call."""
    for port in itertools.islice(_next_port, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port in {PORTS}")


def port_is_open(port: int) -> bool:
    """Tell whether something listens on *port* of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
