"""The Faust worker: tails a Kafka log and hands its records to the follower of the tables.

Faust brings the records and decides which worker of a group gets them; it decides nothing else. The
position is that of the tables: on assignment the worker reads up to the log's end by itself and
seeks there, whatever the group committed. A record that does not follow the last one taken is
not taken from Faust: what is missing is read from the log. So no fault of the group's offsets, and
no record that Faust drops or repeats, can reach the tables.

The one module that imports Faust: the import reads the command line and sets environment variables.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
# Faust's own types are incomplete; what it hands over is checked where it enters.

import asyncio
import logging
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from belog.processors.log_lines import Outage, log_event
from belog.processors.redis_client import parse_redis_uri
from belog.processors.redis_tables import from_uri
from belog.processors.replay import TableFollower
from belog.processors.tables import TableReader, lost_end
from belog.processors.worker import (
    CHECK_S,
    TAIL_WAIT_S,
    TailContext,
    Watchdog,
)
from belog.schemas.errors import BelogError, Unavailable, Unsupported
from belog.schemas.fold import Record
from belog.storage.kafka_target import KafkaTarget, parse_uri

__all__ = ["tail_with_faust"]

PENDING_RECORDS_MAX: Final = 10_000
"""Records taken from Faust and not written yet; past that Faust waits."""

STOP_S: Final = 10.0
"""How long Faust may take to leave its group, seconds; after that the worker ends without it."""

HEARTBEATS_PER_SESSION: Final = 4
"""Heartbeats within one session time-out: losing one or two is no death."""

COMMIT_S: Final = 5.0
"""How often the group's offset is committed, seconds. For lag monitors only."""

T = TypeVar("T")


def tail_with_faust(context: TailContext) -> None:
    """Follow a Kafka log until told to stop. Blocks; runs an event loop of its own.

    Raises:
        Unavailable: Faust failed, or the log or Redis stayed unreachable.
        Diverged: The tables stood still while the log moved.
        NewerFormat: A record needs newer software; everything before it is in the tables.
        As `belog.processors.worker.run_worker`.
    """
    folder = tempfile.mkdtemp(prefix="belog-faust-")
    try:
        asyncio.run(_run(context, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(context: TailContext, folder: str) -> None:
    # Made here and not before: Faust takes the loop that runs when it is made.
    await _FaustTail(context, folder).run()


class _ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """Seeks to where the tables are, in place of where the group committed."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        app = cast("_App", self.app)
        position = await app.tail.take_over()
        return cast("Mapping[TP, int]", await self.call_thread(self._seek_all, position))

    async def _seek_all(self, position: int) -> Mapping[TP, int]:
        consumer = self._ensure_consumer()
        assigned = list(consumer.assignment())
        for partition in assigned:
            consumer.seek(partition, position)
        return {TP(partition.topic, partition.partition): position for partition in assigned}


class _Consumer(driver.Consumer):  # type: ignore[misc]
    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class _Transport(driver.Transport):  # type: ignore[misc]
    Consumer = _Consumer


class _App(faust.App):  # type: ignore[misc]
    tail: "_FaustTail"

    def _new_transport(self) -> _Transport:
        return _Transport(self.conf.broker_consumer, self)


class _FaustTail:
    """One run of the Faust app. All methods run in its event loop; the follower in one thread."""

    def __init__(self, context: TailContext, folder: str) -> None:
        self._context = context
        self._follower: TableFollower = context.follower
        self._reader: TableReader = from_uri(context.tables_uri)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="belog-follower")
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="belog-watch")
        self._pending: list[Record] = []
        self._is_assigned = False
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._app = self._make_app(folder)

    def _make_app(self, folder: str) -> _App:
        context = self._context
        target = parse_uri(context.log_uri)
        session_s = context.settings.session_timeout_s
        app = _App(
            _group_of(context),
            broker=";".join(f"kafka://{server}" for server in target.servers.split(",")),
            broker_credentials=_credentials(target),
            broker_session_timeout=session_s,
            broker_heartbeat_interval=session_s / HEARTBEATS_PER_SESSION,
            broker_request_timeout=max(90.0, session_s + 1),
            broker_commit_interval=COMMIT_S,
            consumer_auto_offset_reset="earliest",
            datadir=folder,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            stream_wait_empty=False,
            autodiscover=False,
        )
        app.tail = self
        topic = app.topic(target.topic, value_type=bytes, value_serializer="raw", allow_empty=True)
        app.agent(topic, name="belog.tables", concurrency=1)(self._receive)
        app.on_partitions_revoked.connect(self._on_revoked)
        return app

    async def run(self) -> None:
        """Run until told to stop or until something fails."""
        writing = asyncio.create_task(self._write_pending())
        watching = asyncio.create_task(self._watch())
        running = asyncio.create_task(self._app.start())
        log_event("tailing", group=self._app.conf.id, by="faust")
        try:
            while not self._context.stop.is_set() and self._failure is None:
                await asyncio.sleep(TAIL_WAIT_S / 5)
                self._look_after(writing, watching, running)
        finally:
            for task in (writing, watching):
                task.cancel()
            await asyncio.gather(writing, watching, return_exceptions=True)
            await self._stop_app(running)
            self._worker.shutdown()
            self._watcher.shutdown()
            self._reader.close()
        if self._failure is not None:
            raise self._failure

    def _look_after(self, *tasks: "asyncio.Task[None]") -> None:
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                self._fail(error)
        if self._app.crashed:
            self._fail(self._app.crash_reason or RuntimeError("it said no reason"))

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        log_event("failed", logging.ERROR, error=str(error))
        if not isinstance(error, BelogError):
            wrapped = Unavailable(f"Faust failed: {error!r}", log=self._context.log.name)
            wrapped.__cause__ = error
            error = wrapped
        self._failure = error

    async def _stop_app(self, running: "asyncio.Task[None]") -> None:
        try:
            await asyncio.wait_for(self._app.stop(), STOP_S)
        except TimeoutError:
            log_event("abandoned", logging.WARNING, reason=f"Faust did not stop in {STOP_S} s")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    # --- what Faust calls

    async def take_over(self) -> int:
        """Bring the tables up to the log's end; return the position to read on from."""
        try:
            await self._in_worker(self._follower.catch_up)
        except BelogError as error:
            self._fail(error)
            # Faust must not go on by itself: it waits here until the worker ends.
            await asyncio.Event().wait()
        self._pending.clear()
        self._is_assigned = True
        self._context.observer.assigned(is_assigned=True)
        log_event("assigned", position=self._follower.position)
        return self._follower.position

    async def _on_revoked(self, sender: object, *args: object, **options: object) -> None:
        del sender, args, options
        self._is_assigned = False
        self._context.observer.assigned(is_assigned=False)
        self._pending.clear()
        log_event("revoked", position=self._follower.position)

    async def _receive(self, stream: Any) -> None:  # noqa: ANN401 - Faust types its streams at run time
        events = cast("AsyncIterator[Any]", stream.events())
        async for event in events:
            message = event.message
            at = round(message.timestamp * 1000) * 1000
            self._pending.append(Record(message.offset, at, message.value, message.key))
            self._wake.set()
            while len(self._pending) >= PENDING_RECORDS_MAX:
                self._room.clear()
                await self._room.wait()

    # --- the tables

    async def _in_worker(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, action)

    async def _write_pending(self) -> None:
        """Write what came in; while one batch is written the next one gathers."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            records = [r for r in self._pending if r.position >= self._follower.position]
            self._pending.clear()
            self._room.set()
            if records and self._is_assigned:
                await self._in_worker(partial(self._follower.take, records))

    async def _watch(self) -> None:
        """See that the tables are there and move; standing by, fold what another worker writes."""
        settings = self._context.settings
        dog = Watchdog(max(settings.watchdog_s, 3 * settings.session_timeout_s))
        loop = asyncio.get_running_loop()
        outage = Outage(self._context.settings.retry_s)
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self._in_worker(
                    self._follower.check if self._is_assigned else self._follower.stand_by
                )
                status = await loop.run_in_executor(self._watcher, self._reader.status)
                end = await loop.run_in_executor(self._watcher, self._context.log.next_position)
            except Unavailable as error:
                self._context.observer.failed(error)
                outage.lasts(error)
                dog.pause()
                continue
            outage.is_over()
            if status.position > end:
                # Also where nothing here had heard of the end that was lost.
                raise lost_end(self._context.log, end, status)
            dog.look(status, end)


def _group_of(context: TailContext) -> str:
    """Return the name that all workers of the same tables share, however their URIs are spelled."""
    tables = parse_redis_uri(context.tables_uri)
    return f"belog-tables-{context.identity.log_id}-{tables.db}-{tables.prefix}"


def _credentials(target: KafkaTarget) -> Any:  # noqa: ANN401 - one of several types of Faust
    """Return the credentials that a log URI's settings stand for.

    Raises:
        Unsupported: A mechanism that Faust's driver does not know.
    """
    settings = target.settings
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    tls = None
    if protocol in {"SSL", "SASL_SSL"}:
        tls = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        if "ssl.certificate.location" in settings:
            tls.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
        if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            tls.check_hostname = False
    if protocol == "PLAINTEXT":
        return None
    if protocol == "SSL":
        return faust.SSLCredentials(tls)
    mechanism = settings.get("sasl.mechanism", "PLAIN").upper()
    if mechanism not in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        msg = f"Faust does not know sasl.mechanism {mechanism}"
        raise Unsupported(msg, log=target.name, hint="use the plain tail")
    return faust.SASLCredentials(
        username=settings.get("sasl.username"),
        password=settings.get("sasl.password"),
        ssl_context=tls,
        mechanism=mechanism,
    )
