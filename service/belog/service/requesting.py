"""Asking a service for a partition: the log decides who makes it, and nobody is locked out.

Of any number of callers at once exactly one gets `Building`, because `v1.partition.requested` is
legal only once until the attempt ends, and names the event that it was decided on (`expected`). The
others join the attempt. All appends go with those of other requests, so a hundred callers share one
write.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Final
from uuid import uuid4

from belog.processors.memory_tables import MemoryTables
from belog.processors.rows import JobRunRow, PartitionRow
from belog.producers import Producer
from belog.schemas.checks import check_id, check_subject_id
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict, NotFound, NotOwner
from belog.schemas.events import (
    BuildReceived,
    PartitionJoined,
    PartitionRequested,
    Payload,
    new_event,
)
from belog.schemas.filters import EventFilter
from belog.schemas.fold import SubjectState
from belog.schemas.limits import ACTOR_BYTES_MAX
from belog.service.access import Grant, Role
from belog.service.instance import Instance
from belog.service.upstreams import Available, Building, Delegated, Requested, Upstream
from belog.storage.interface import Receipt

__all__ = ["ATTEMPTS_MAX", "request"]

ATTEMPTS_MAX: Final = 1_000
"""How often a request is decided anew because another writer was faster. Each time somebody's
attempt began or ended in between; a thousand of them in a row is a fault, not bad luck."""

REACH_S: Final = 10.0
"""How long the tables may take to hold what the log decided, seconds."""

LOOK_S: Final = 30.0
"""How long one who waits goes without looking himself, seconds: he is woken, so it only matters
where an event was missed, which would be a fault."""


async def request(
    instance: Instance,
    grant: Grant,
    ref: str,
    client_id: str,
    *,
    allow_delegation: bool = True,
    timeout_s: float = 0.0,
    build_request_id: str | None = None,
    asked_by: Sequence[str] = (),
) -> Requested:
    """Ask for a partition.

    The winner of a race gets a new build request: `v1.partition.requested`, then
    `v1.build.received`, both durable on return. Others join its attempt without a build of their
    own, unless they name one. Who asks again for what he joined already writes nothing.

    Args:
        instance: Of the log.
        grant: Who asks.
        ref: The partition.
        client_id: Who is behind the request; the grant's actor where it is empty.
        allow_delegation: Whether an attempt of another build may be the answer.
        timeout_s: How long to wait for the outcome of such an attempt, seconds; 0 to answer at
            once. Over this time the answer is who makes it.
        build_request_id: The caller's own build. With it, repeating a request whose answer was
            lost is exact: it answers `Building` again.
        asked_by: Logs whose instances passed the request on, oldest first.

    Raises:
        NotOwner: Another build is making it, and delegation is not allowed; names the build.
        Conflict: The attempt that was waited for failed. Or it would be made by an upstream, and
            delegation is not allowed.
        Misconfigured: The instances that own it ask each other in a circle.
        Forbidden: The grant may not append, or not for this partition.
        InvalidEvent: The ref, the client or the build cannot be.
        ReplicaRefused: The log is a replica.
        BelogError: What an append raises.
    """
    grant.require(Role.APPEND)
    grant.check_refs((ref,))
    asking = _Asking(instance, grant, ref, client_id or grant.actor, build_request_id)
    upstreams = instance.upstreams
    upstream = None if upstreams is None else upstreams.owner_of(ref)
    deadline = asyncio.get_running_loop().time() + timeout_s
    with instance.observer.span("request_partition", subject=f"partition:{ref}"):
        if upstream is None:
            answer = await asking.once(allow_delegation=allow_delegation)
            return await asking.outcome(answer, deadline)
        for _ in range(ATTEMPTS_MAX):
            if not await upstream.is_made_here(ref, build_request_id):
                break
            here = await asking.under_way(allow_delegation=allow_delegation)
            if here is not None:
                return await asking.outcome(here, deadline)
    try:
        return await upstream.request(
            ref,
            asking.client_id,
            build_request_id=build_request_id,
            allow_delegation=allow_delegation,
            timeout_s=timeout_s,
            asked_by=asked_by,
        )
    except BelogError as error:
        # A copy: the same error may be kept, and raised for others.
        told = copy(error)
        told.hint = _asked_of(upstream, error)
        raise told from error


def _asked_of(upstream: Upstream, error: BelogError) -> str:
    # An error's message names another service's URL; who asked here knows only this one.
    asked = f"the upstream {upstream.name} was asked, which owns this partition"
    return f"{asked}: {error.hint}" if error.hint else asked


class _Asking:
    """One request, over as many attempts as it takes."""

    def __init__(
        self,
        instance: Instance,
        grant: Grant,
        ref: str,
        client_id: str,
        build_request_id: str | None,
    ) -> None:
        self.instance = instance
        self.grant = grant
        self.ref = ref
        self.client_id = client_id
        self.named_build = build_request_id
        self.build_id = build_request_id or str(uuid4())
        self.producer: Producer = instance.require_producer()

    async def once(self, *, allow_delegation: bool) -> Requested:
        """Ask until the log has answered, without waiting for anybody's work."""
        self._check()
        owned = self.producer.lifecycle.owned_states
        answer: Requested | None
        state = await self._known_state(allow_delegation=allow_delegation)
        for _ in range(ATTEMPTS_MAX):
            if state is not None and state.state == "available":
                return await self._available(state.index)
            if state is not None and state.state in owned:
                answer = await self._take_part(state, allow_delegation=allow_delegation)
            elif (ahead := self.instance.beginning.get(self.ref)) is not None:
                # Most likely it will be his. To try as well would only be refused, by the log.
                await asyncio.wait((ahead,))
                state = await self._known_state(allow_delegation=allow_delegation)
                continue
            else:
                answer = await self._begin(state)
            if answer is not None:
                return answer
            state = await self._state()
        msg = f"the state of {self.ref!r} changed {ATTEMPTS_MAX} times while it was asked for"
        raise Conflict(msg, state="", last_index=-1, allowed=(), subject=f"partition:{self.ref}")

    async def under_way(self, *, allow_delegation: bool) -> Requested | None:
        """Answer by the attempt that is under way; None where there is none, or it ended."""
        self._check()
        state = await self._state()
        if state is None or state.state not in self.producer.lifecycle.owned_states:
            return None
        return await self._take_part(state, allow_delegation=allow_delegation)

    async def outcome(self, answer: Requested, deadline: float) -> Requested:
        """Wait for what becomes of another build's attempt, until a time of the loop's clock."""
        loop = asyncio.get_running_loop()
        while isinstance(answer, Delegated) and (left := deadline - loop.time()) > 0:
            answer = await self.wait(answer, min(left, LOOK_S))
        return answer

    def _check(self) -> None:
        check_subject_id("partition", self.ref)
        check_subject_id("build", self.build_id)
        check_id("client_id", self.client_id, "ACTOR_BYTES_MAX", ACTOR_BYTES_MAX)

    async def _take_part(self, state: SubjectState, *, allow_delegation: bool) -> Requested | None:
        if state.owner == self.build_id:
            return await self._mine(state)
        if not allow_delegation:
            raise self._not_delegated(state)
        return await self._join(state)

    async def _known_state(self, *, allow_delegation: bool) -> SubjectState | None:
        # Reading to the log's end first would cost a round trip; beginning and joining are decided
        # by the log itself. What is answered without writing must not be said by hearsay.
        state = self.producer.known_state("partition", self.ref)
        if state is not None and (
            state.state == "available" or state.owner == self.build_id or not allow_delegation
        ):
            return await self._state()
        return state

    async def _state(self) -> SubjectState | None:
        return await self.instance.calls.run(self.producer.state, "partition", self.ref)

    def _event(
        self,
        payload: Payload,
        subject_id: str | None = None,
        *,
        expected: int | None = None,
        caused_by: bytes | None = None,
    ) -> Event:
        return new_event(
            payload,
            self.ref if subject_id is None else subject_id,
            event_id=uuid4(),
            actor=self.grant.actor,
            occurred_at=self.instance.queries.clock(),
            expected=expected,
            caused_by=caused_by,
        )

    async def _append(self, event: Event) -> Receipt | BelogError:
        (result,) = await self.instance.append(self.grant, [event])
        return result

    async def _begin(self, state: SubjectState | None) -> Building | None:
        """Begin an attempt; None where another one was faster."""
        # Without `expected` it would also be legal over data that another build made meanwhile.
        event = self._event(
            PartitionRequested(build_request_id=self.build_id, requesting_clients=[self.client_id]),
            expected=-1 if state is None else state.index,
        )
        done = asyncio.get_running_loop().create_future()
        self.instance.beginning[self.ref] = done
        try:
            result = await self._append(event)
        finally:
            del self.instance.beginning[self.ref]
            done.set_result(None)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, BelogError):
            raise result
        await self._receive(event.event_id)
        return Building(self.ref, self.build_id, result.created_at, result.index)

    async def _receive(self, cause: bytes | None) -> None:
        """Say that the build is there, unless the caller has said so."""
        received = self._event(
            BuildReceived(requested_partitions=[self.ref], client_id=self.client_id),
            self.build_id,
            caused_by=cause,
        )
        result = await self._append(received)
        if isinstance(result, BelogError) and not (
            isinstance(result, Conflict) and self.named_build is not None
        ):
            raise result

    async def _mine(self, state: SubjectState) -> Building:
        """Answer one who owns the attempt already."""
        # Whoever wrote the request may have died before he could say that the build is there.
        if self.producer.known_state("build", self.build_id) is None:
            await self._receive(None)
        row = await self._row(state.index)
        attempt = None if row is None else row.attempt
        if attempt is None or attempt.build_id != self.build_id:
            return Building(self.ref, self.build_id, self.instance.queries.clock(), state.index)
        return Building(self.ref, self.build_id, attempt.requested_at, attempt.requested_index)

    async def _join(self, state: SubjectState) -> Delegated | None:
        """Join an attempt; None where it ended meanwhile."""
        row = await self._row(state.index)
        if row is not None and self._has_joined(row, state):
            return await self._delegated(state.owner or "", state.index, row)
        joined = self._event(
            PartitionJoined(
                # Without a build of its own the client waits with the one that makes it.
                build_request_id=self.named_build or state.owner or "",
                requesting_clients=[self.client_id],
            )
        )
        result = await self._append(joined)
        if isinstance(result, Conflict):
            return None
        if isinstance(result, BelogError):
            raise result
        # Joining is legal in any attempt: is it still the one that was looked at?
        now = self.producer.known_state("partition", self.ref)
        if now is None or now.index < result.index or now.owner != state.owner:
            return None
        return await self._delegated(state.owner or "", result.index, row)

    def _has_joined(self, row: PartitionRow, state: SubjectState) -> bool:
        attempt = row.attempt
        return (
            attempt is not None
            and attempt.build_id == state.owner
            and row.state in self.producer.lifecycle.owned_states
            and self.client_id in attempt.requesting_clients
            and self.named_build in {None, *attempt.joined_builds}
        )

    async def _row(self, index: int) -> PartitionRow | None:
        await self.instance.reach(index, REACH_S)
        tables = self.instance.queries.tables
        if isinstance(tables, MemoryTables):
            return tables.get(PartitionRow, self.ref).value
        return (await self.instance.calls.run(tables.get, PartitionRow, self.ref)).value

    async def _available(self, index: int) -> Available:
        row = await self._row(index)
        data = None if row is None else row.available
        return Available(
            self.ref,
            index if data is None else data.index,
            str(self.instance.identity.log_id),
            None if data is None else data.manifest,
        )

    async def _delegated(self, owner: str, index: int, row: PartitionRow | None) -> Delegated:
        estimate = None
        if row is not None and _job_label(row) is not None:
            estimate = await self.instance.calls.run(_estimate, self.instance, row)
        log_id = str(self.instance.identity.log_id)
        return Delegated(self.ref, owner, log_id, index, estimate)

    def _not_delegated(self, state: SubjectState) -> NotOwner:
        return NotOwner(
            f"build {state.owner!r} is making it",
            state=state.state,
            last_index=state.index,
            allowed=self.producer.lifecycle.allowed("partition", state.state),
            owner=state.owner,
            hint="allow delegation, or wait for its end",
            index=state.index,
            subject=f"partition:{self.ref}",
        )

    async def wait(self, answer: Delegated, wait_s: float) -> Available | Delegated:
        """Wait for what becomes of an attempt.

        Raises:
            Conflict: It failed.
        """
        feed = self.instance.feed
        mine = EventFilter(partition_refs=(self.ref,), subject_kinds=("partition",))
        since = answer.index + 1
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            state = await self._state()
            if state is not None and state.state == "available":
                return await self._available(state.index)
            if state is None or state.state not in self.producer.lifecycle.owned_states:
                raise await self._ended(state)
            since = max(since, state.index + 1)
            left = deadline - loop.time()
            if left <= 0:
                return Delegated(
                    self.ref,
                    state.owner or "",
                    answer.log_id,
                    state.index,
                    answer.estimated_completion,
                )
            await feed.page(since, mine, limit=1, wait_s=left)

    async def _ended(self, state: SubjectState | None) -> Conflict:
        row = None if state is None else await self._row(state.index)
        attempt = None if row is None else row.attempt
        reason = None if attempt is None else attempt.failure_reason
        name = "" if state is None else state.state
        return Conflict(
            f"the attempt ended, it is {name}{': ' + reason if reason else ''}",
            state=name,
            last_index=-1 if state is None else state.index,
            allowed=self.producer.lifecycle.allowed("partition", name),
            owner=None if attempt is None else attempt.build_id,
            hint="ask again to make it yourself",
            index=None if state is None else state.index,
            subject=f"partition:{self.ref}",
        )


def _job_label(row: PartitionRow) -> str | None:
    attempt, data = row.attempt, row.available
    if attempt is None:
        return None
    return attempt.job_label or (None if data is None else data.job_label)


def _estimate(instance: Instance, row: PartitionRow) -> int | None:
    """Return when an attempt will end, by half of the job's newest runs; blocks."""
    attempt, label = row.attempt, _job_label(row)
    if attempt is None or label is None:
        return None
    try:
        usual_us = instance.repositories.jobs.metrics(label).value.duration_p50_us
    except NotFound:
        return None
    if usual_us is None:
        return None
    started_at = attempt.requested_at
    if attempt.job_run_id is not None:
        run = instance.queries.tables.get(JobRunRow, attempt.job_run_id).value
        if run is not None and run.started_at is not None:
            started_at = run.started_at
    return max(started_at + usual_us, instance.queries.clock())
