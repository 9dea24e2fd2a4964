"""Connections that are cut, refused, delayed, throttled or lead nowhere."""

import random
from collections.abc import Callable
from typing import ClassVar, Literal, get_args

from tests.chaos.deployment import Deployment
from tests.chaos.faults.basis import BaseFault
from tests.chaos.faults.proxy import Direction, How, Proxy

__all__ = ["Network", "Trouble"]

Trouble = Literal["cut", "refused", "delayed", "throttled", "half-open"]

DELAYS_S = (0.02, 0.1, 0.4)
"""A neighbouring country, another continent, a line that is full; each way, seconds."""

RATES_BYTES_PER_S = (5_000, 50_000)
"""A handful of records a second, and some hundred."""

HOLDS_S: dict[Trouble, tuple[float, float]] = {
    "cut": (0.0, 0.0),
    "refused": (0.2, 3.0),
    "delayed": (0.5, 3.0),
    "throttled": (0.5, 3.0),
    # Past the five seconds in which Redis and PostgreSQL clients give up a call.
    "half-open": (1.0, 7.0),
}


class Network(BaseFault):
    """Trouble at one gate of a deployment."""

    does: ClassVar[str] = "trouble between the clients and one server"

    def __init__(self, trouble: Trouble) -> None:
        self.name = f"connections-{trouble}"
        self.hold_s = HOLDS_S[trouble]
        self._trouble: Trouble = trouble
        self._proxy: Proxy | None = None

    def applies_to(self, deployment: Deployment) -> bool:
        return bool(_proxies(deployment))

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        self._proxy = proxy = rng.choice(_proxies(deployment))
        how: How = rng.choice(get_args(How))
        ways: list[Direction] = rng.choice([["up"], ["down"], ["up", "down"]])
        cause: dict[Trouble, Callable[[], object]] = {
            "cut": lambda: proxy.cut(how),
            "refused": lambda: proxy.refuse(how),
            "delayed": lambda: proxy.delay(rng.choice(DELAYS_S)),
            "throttled": lambda: proxy.throttle(rng.choice(RATES_BYTES_PER_S)),
            "half-open": lambda: proxy.hold(*ways),
        }
        cause[self._trouble]()

    def heal(self, deployment: Deployment) -> None:
        del deployment
        if self._proxy is not None:
            self._proxy.heal()
            self._proxy = None


def _proxies(deployment: Deployment) -> list[Proxy]:
    """Return the gates that can do this, in an order that a seed can rely on."""
    gates = (deployment.gates[name] for name in sorted(deployment.gates))
    return [gate for gate in gates if isinstance(gate, Proxy)]
