"""`EventLogService`: appending, single events, and how the log is."""

import uuid
from collections.abc import Sequence
from typing import Final

from belog.processors.rows import SystemRow
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Forbidden, InvalidInput, LimitExceeded, NotFound
from belog.schemas.filters import NO_TERMS, Terms, terms_of
from belog.schemas.wire import event_from_wire
from belog.service.access import Grant
from belog.service.grpc_api.guard import Context, current_grant
from belog.service.grpc_api.pages import event_message
from belog.service.grpc_api.settings import GrpcSettings, index_from
from belog.service.instance import Instance
from belog.service.wire_answers import receipt_to_wire, result_to_wire
from belog.storage.interface import Receipt
from belog.v1 import event_log_pb2 as pb
from belog.v1 import events_pb2
from belog.v1.event_log_pb2_grpc import EventLogServiceServicer

__all__ = ["EventLogService"]

INLINE_BYTES_MAX: Final = 16 * 1024
"""Requests whose events the event loop itself parses, bytes: some milliseconds at the very most.
Larger ones go to a thread."""


class EventLogService(EventLogServiceServicer):
    """See `belog/v1/event_log.proto`."""

    def __init__(self, instance: Instance, settings: GrpcSettings) -> None:
        """Serve the log of an instance."""
        self._instance = instance
        self._settings = settings

    # --- writing

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        """Append one event; durable on return."""
        grant = current_grant()
        if request.ByteSize() > INLINE_BYTES_MAX:
            event = await self._instance.calls.run(self._event, grant, request.event)
        else:
            event = self._event(grant, request.event)
        at = request.at if request.HasField("at") else None
        (result,) = await self._instance.append(grant, (event,), at=at)
        if isinstance(result, BelogError):
            raise result
        return pb.AppendResponse(receipt=receipt_to_wire(result))

    async def AppendBatch(
        self, request: pb.AppendBatchRequest, context: Context
    ) -> pb.AppendBatchResponse:
        """Append events in order, with a result for each; with `atomic` or `at` all or none."""
        count, most = len(request.events), self._settings.batch_events_max
        if count > most:
            raise LimitExceeded("events", limit="batch_events_max", limit_value=most, value=count)
        grant = current_grant()
        if request.ByteSize() > INLINE_BYTES_MAX:
            parsed = await self._instance.calls.run(self._events, grant, request.events)
        else:
            parsed = self._events(grant, request.events)
        at = request.at if request.HasField("at") else None
        good = [event for event in parsed if isinstance(event, Event)]
        if request.atomic or at is not None:
            for event in parsed:
                if isinstance(event, BelogError):
                    raise event
        appended: list[Receipt | BelogError] = []
        if good:
            appended = await self._instance.append(grant, good, atomic=request.atomic, at=at)
        following = iter(appended)
        return pb.AppendBatchResponse(
            results=[
                result_to_wire(event if isinstance(event, BelogError) else next(following))
                for event in parsed
            ]
        )

    def _events(
        self, grant: Grant, messages: Sequence[events_pb2.BuildEvent]
    ) -> list[Event | BelogError]:
        parsed: list[Event | BelogError] = []
        for message in messages:
            try:
                parsed.append(self._event(grant, message))
            except BelogError as error:
                parsed.append(error)
        return parsed

    def _event(self, grant: Grant, message: events_pb2.BuildEvent) -> Event:
        """Return the event that a client means, with who he is, and the time where he says none."""
        actor = grant.actor_for(message.actor)
        if not message.occurred_at:
            message.occurred_at = self._instance.queries.clock()
        event_id = None if message.event_id else uuid.uuid4().bytes
        return event_from_wire(message, actor=actor, event_id=event_id)

    # --- reading

    async def GetEvent(
        self, request: pb.GetEventRequest, context: Context
    ) -> events_pb2.BuildEvent:
        """Return one event by its index or its id."""
        log, calls = self._instance.log, self._instance.calls
        which = request.WhichOneof("which")
        if which == "index":
            index = index_from("index", request.index)
            stored = await calls.run(log.get, index)
            named = f"at index {index}"
        elif which == "event_id":
            try:
                event_id = uuid.UUID(request.event_id)
            except ValueError as error:
                msg = f"event_id is not a UUID: {request.event_id!r:.80}"
                raise InvalidInput(msg) from error
            stored = await calls.run(log.get_by_id, event_id.bytes)
            named = f"with the id {event_id}"
        else:
            msg = "neither index nor event_id is given"
            raise InvalidInput(msg)
        if stored is None:
            msg = f"there is no event {named}"
            raise NotFound(msg, log=log.name)
        grant = current_grant()
        if grant.is_restricted:
            await calls.run(self._check_seen, grant, stored)
        return await event_message(calls, stored)

    def _check_seen(self, grant: Grant, stored: StoredEvent) -> None:
        event = stored.event
        refs = terms_of(event, _not_looked_up).partition_refs
        if not refs and event.subject_kind in {"build", "job_run"}:
            refs = tuple(self._instance.refs_of(event.subject_kind, event.subject_id) or ())
        if not grant.sees(refs):
            msg = f"{grant.actor!r} may not see this event"
            raise Forbidden(msg, index=stored.index, hint="it concerns none of its partitions")

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.LogStatus:
        """Return where the log ends and how far its tables are."""
        if request.HasField("min_index"):
            index = index_from("min_index", request.min_index)
            await self._instance.reach(index, self._settings.index_wait_s)
        return await self._instance.calls.run(self._status)

    def _status(self) -> pb.LogStatus:
        instance = self._instance
        tables = instance.queries.tables
        end = instance.end()
        status = tables.status()
        next_position = instance.log.next_position()
        system = tables.get(SystemRow, str(end.log_id)).value
        version = None if system is None else system.lifecycle_version
        return pb.LogStatus(
            next_idx=end.next_idx,
            root=end.root,
            log_id=str(end.log_id),
            instance=instance.identity.instance,
            applied=status.applied,
            lag_records=max(next_position - status.position, 0),
            is_replica=instance.identity.is_replica,
            lifecycle_version=version or 0,
            next_position=max(next_position, end.next_idx),
            applied_created_at=status.created_at,
        )


def _not_looked_up(_job_run_id: str) -> Terms | None:
    return NO_TERMS
