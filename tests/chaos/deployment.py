"""What a chaos run is made of: a system of parts on one backend, and faults that befall it.

A `Deployment` is one running system. Its `Part`s are real processes: graph processes that write
(kind `writer`), followers (`reader`), `belog worker`, `belog sink`, a server (`redis`, `broker`,
`postgres`), later the HTTP service. Each can be killed, frozen and started again on the same data.

Between clients and a server may stand a `Gate`, a TCP relay that listens on a port of its own. All
URIs of a deployment lead through its gates, and so does the address that the broker advertises. A
`GateOpener` (`tests.chaos.faults` has one) is given to whoever builds the deployment; without one
clients connect directly, and `gates` is empty.

A `Fault` says to which deployments it applies, does its damage in `inject`, and makes the world
whole again in `heal`. The runner calls `inject`, waits for a time out of `hold_s`, calls `heal`,
and then starts every part that is down (`Deployment.revive`): a system heals by restarts alone.
Everything random comes out of the `random.Random` that `inject` is given, so that a seed names it.

What a fault needs of whoever builds a deployment: gates by `Proxy.open`; writers that take their
time from `SkewedClock(clock_file(folder, part.name))` (`tests.chaos.faults.clocks`); and, for full
disks, a log that lies on a `small_disk` (`tests.chaos.faults.disks`).

`Fault.allows` states what the fault may do to the promises. Whatever it is, the history of calls
stays true in everything else. A fault that is not in the way of a promise says nothing here: most.

==================  ==============================================================================
allowance           what the checker lets pass
==================  ==============================================================================
`lost_tail`         the log may have lost its end (an older data directory): acknowledged events may
                    be missing from it, and clients that knew them must stop with `LogTruncated` or
                    `LogReplaced` rather than go on
`replaced`          the log may be another one (deleted and made anew): the same, and nothing that
                    was acknowledged before can be decided
`foreign_records`   the log may hold records that no writer of the workload sent; those that are
                    accepted events must be named `chaos-…` in their actor
`stops`             clients may stop with an error that is neither retriable nor a `Conflict`
                    (`NewerFormat`, `Corrupt`, `Misconfigured`), and stay stopped until `heal`
==================  ==============================================================================
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol
from uuid import UUID

from tests.servers import Server

__all__ = ["Allowance", "Backend", "Deployment", "Fault", "Gate", "GateOpener", "Kind", "Part"]

Backend = Literal["sqlite", "file", "postgres", "delta", "kafka"]
Kind = Literal["writer", "reader", "worker", "sink", "service", "redis", "broker", "postgres"]
Allowance = Literal["lost_tail", "replaced", "foreign_records", "stops"]


class Part(Protocol):
    """One process of a system. Its name is unique within the deployment.

    All methods may be called from any thread, but only one of them at a time for one part.
    """

    @property
    def name(self) -> str:
        """Such as `writer-3`."""
        ...

    @property
    def kind(self) -> Kind:
        """What it is."""
        ...

    @property
    def pid(self) -> int | None:
        """Id of the process, None while none runs or where it is not one of this machine."""
        ...

    @property
    def server(self) -> Server | None:
        """The server it wraps (data directory: `server.runner.dir` of a local one), or None."""
        ...

    def start(self) -> None:
        """Start it on the data that is there, unless it runs. A server is ready on return."""
        ...

    def kill9(self) -> None:
        """End it by SIGKILL and wait until it has ended; also where it is frozen or down."""
        ...

    def stop_signal(self) -> None:
        """Freeze it by SIGSTOP; it keeps its connections and answers nothing."""
        ...

    def cont(self) -> None:
        """Let it go on by SIGCONT; without effect where it is not frozen."""
        ...

    def is_alive(self) -> bool:
        """Whether its process runs or is frozen."""
        ...

    def is_done(self) -> bool:
        """Whether it ended because its work was done, so that it need not be started again."""
        ...


class Gate(Protocol):
    """A relay between clients and a server part, on the loopback."""

    @property
    def port(self) -> int:
        """Where clients connect to, on 127.0.0.1."""
        ...

    def close(self) -> None:
        """Cut all connections and stop listening. Idempotent."""
        ...


GateOpener = Callable[[int, int], Gate]
"""`(listen_port, upstream_port)` → a gate that relays from now on; its server may be down."""


@dataclass
class Deployment:
    """One running system.

    `restarts` and the parts themselves change while it runs; the rest does not.
    """

    backend: Backend
    folder: Path
    """Everything of this run: logs in files, histories, standard errors of the parts."""
    log_uri: str
    """Of the log under test, through the gates."""
    log_id: UUID
    parts: Sequence[Part] = ()
    tables_uri: str | None = None
    """Of the tables in Redis, where there is a worker; through the gates."""
    replica_uri: str | None = None
    """Of the replica, where there is a sink; through the gates."""
    topic: str | None = None
    """Name of the log's topic on Kafka."""
    gates: Mapping[str, Gate] = field(default_factory=dict[str, Gate])
    """By the name of the part behind it."""
    restarts: int = 0
    """How often `revive` started a part again."""

    def of_kind(self, *kinds: Kind) -> list[Part]:
        """Return the parts of some kinds, in the order of `parts`."""
        return [part for part in self.parts if part.kind in kinds]

    def one(self, kind: Kind, rng: random.Random) -> Part:
        """Return a part of a kind, chosen by `rng`.

        Raises:
            IndexError: There is none; a fault's `applies_to` should have said so.
        """
        return rng.choice(self.of_kind(kind))

    def down(self) -> Iterator[Part]:
        """Yield the parts that should run and do not, servers first."""
        servers = self.of_kind("broker", "redis", "postgres")
        rest = [part for part in self.parts if part not in servers]
        yield from (p for p in (*servers, *rest) if not p.is_alive() and not p.is_done())

    def revive(self) -> None:
        """Start every part that is down, as a supervisor would. Blocks until servers answer."""
        for part in list(self.down()):
            part.start()
            self.restarts += 1


class Fault(Protocol):
    """Something that befalls a deployment. One instance serves one run; it may keep state between
    `inject` and `heal`, and `inject` is called again only after `heal`."""

    @property
    def name(self) -> str:
        """A slug such as `redis-flushed`: what `--faults` takes, and what a run prints."""
        ...

    @property
    def allows(self) -> frozenset[Allowance]:
        """What it may do to the promises; empty for most."""
        ...

    @property
    def hold_s(self) -> tuple[float, float]:
        """Shortest and longest time between `inject` and `heal`, seconds; (0, 0) for an instant."""
        ...

    def applies_to(self, deployment: Deployment) -> bool:
        """Whether this deployment has what the fault needs: parts, gates, a local server."""
        ...

    def inject(self, deployment: Deployment, rng: random.Random) -> None:
        """Do the damage. May block for a few seconds; leaves nothing to background threads."""
        ...

    def heal(self, deployment: Deployment) -> None:
        """Undo what lasts (frozen parts, cut gates, full disks), but restart nothing that a
        supervisor restarts: the runner does. Idempotent; called also when `inject` failed."""
        ...
