"""What is said here of a partition that is another instance's, over all states of both."""

from itertools import product
from uuid import UUID

import pytest

from belog.schemas.errors import Misconfigured
from belog.schemas.events import Manifest, Payload
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.service.circles import HOPS_MAX, asked_by, passed_on
from belog.service.federating import Here, There, mirrored

STATES = LIFECYCLE_1.states("partition")


def there(state: str) -> There:
    return There(
        ref="a",
        log_id=UUID(int=1),
        name="lake",
        state=state,
        index=9,
        build_id="theirs",
        manifest=Manifest(row_count=3),
        reason="why",
    )


def state_after(state: str, payloads: tuple[Payload, ...]) -> str:
    targets = LIFECYCLE_1.targets["partition"]
    for payload in payloads:
        state = targets[state, payload.event_type]
    return state


@pytest.mark.parametrize(("here", "upstream"), list(product(STATES, STATES)))
def test_what_is_said_is_legal_and_said_once(here: str, upstream: str) -> None:
    payloads = mirrored(Here(here, 5, "mine"), there(upstream))
    after = state_after(here, payloads)
    if payloads:
        assert mirrored(Here(after, 6, "mine"), there(upstream)) == ()
    for payload in payloads:
        assert getattr(payload, "build_request_id", "mine") == "mine"


@pytest.mark.parametrize(
    ("here", "upstream", "after"),
    [
        ("delegated", "available", "available"),
        ("delegated", "stale", "stale"),
        ("delegated", "failed", "failed"),
        ("delegated", "removed", "failed"),
        ("delegated", "building", "delegated"),
        ("requested", "scheduled", "delegated"),
        ("available", "stale", "stale"),
        ("available", "removed", "removed"),
        ("available", "failed", "available"),
        ("failed", "available", "available"),
        ("removed", "available", "available"),
        # A build here makes it, whoever is said to own it: that is not called off from afar.
        ("building", "available", "building"),
    ],
)
def test_where_a_partition_goes(here: str, upstream: str, after: str) -> None:
    assert state_after(here, mirrored(Here(here, 5, "mine"), there(upstream))) == after


def test_a_request_goes_no_further_than_its_bound_and_never_round() -> None:
    chain: tuple[str, ...] = ()
    for n in range(HOPS_MAX):
        chain = passed_on("a", chain, str(UUID(int=n)), "up")
        assert asked_by(", ".join(chain).encode()) == chain
    with pytest.raises(Misconfigured, match="through more than"):
        passed_on("a", chain, str(UUID(int=99)), "up")
    around = f"{UUID(int=3)} → {UUID(int=4)} → .* → {UUID(int=3)}"
    with pytest.raises(Misconfigured, match=around) as circle:
        passed_on("a", chain, str(UUID(int=3)), "up")
    assert circle.value.setting == "federation.upstreams.up.patterns"
    # However many are named, it is too many.
    many = asked_by(", ".join(str(UUID(int=n)) for n in range(10 * HOPS_MAX)).encode())
    with pytest.raises(Misconfigured):
        passed_on("a", many, str(UUID(int=99)), "up")
