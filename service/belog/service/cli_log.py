"""Commands on a log: append, events, import, topic."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final, Protocol, cast
from uuid import UUID

import msgspec
import typer

from belog.producers import Producer
from belog.producers.history import HistoryReport, import_history, read_history
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, InvalidInput, InvalidUri, status_of
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX
from belog.schemas.payload import JsonValue
from belog.service import options
from belog.service.opening import writable_log
from belog.service.placing import LogCommand, placed
from belog.service.rendering import (
    error_json,
    event_json,
    event_line,
    micros,
    receipt_json,
    to_text,
)
from belog.service.sources import Appender, Source
from belog.service.terminal import note, progress_bar, put, put_json
from belog.storage import Receipt, open_log
from belog.storage.factory import redacted

__all__ = ["append", "events", "import_app", "topic_app"]

INDEX_MAX: Final = 2**63 - 1
"""Indices are integers of 64 bits."""

DEFAULT_EVENTS: Final = 100
"""Events listed when no limit is given."""

import_app = typer.Typer(no_args_is_help=True, help="Bring in what other sources know.")
topic_app = typer.Typer(no_args_is_help=True, help="Kafka topics: make one, check one.")


class DraftEvent(msgspec.Struct, forbid_unknown_fields=True):
    """One line of `append --from`."""

    event_type: str
    subject_id: str
    payload: dict[str, object] = {}
    event_id: UUID | None = None
    occurred_at: str | None = None
    caused_by: UUID | None = None
    expected: int | None = None
    subject_kind: SubjectKind | None = None


@placed
def append(
    source: Source,
    event_type: Annotated[str | None, typer.Argument(metavar="TYPE", show_default=False)] = None,
    subject_id: Annotated[str | None, typer.Argument(metavar="SUBJECT", show_default=False)] = None,
    *,
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="The payload.")] = "{}",
    lines: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Append events from JSON lines instead; - for stdin."
        ),
    ] = None,
    actor: options.ActorOption = None,
    event_id: Annotated[
        UUID | None, typer.Option("--event-id", help="Id to retry with; made when not given.")
    ] = None,
    occurred_at: Annotated[
        str | None, typer.Option("--occurred-at", metavar="TIME", help="Now when not given.")
    ] = None,
    caused_by: Annotated[UUID | None, typer.Option("--caused-by")] = None,
    expected: Annotated[
        int | None,
        typer.Option(
            "--expected",
            metavar="INDEX",
            help="Index of the subject's last event; -1 for none. Anything else is a conflict.",
        ),
    ] = None,
    subject_kind: options.SubjectKindOption = None,
    instance: options.InstanceOption = "local",
    as_json: options.JsonOption = False,
) -> None:
    """Append an event, if it is a legal next one of its subject.

    Example: belog append v1.partition.requested sales/2026-01-31
    --payload '{"build_request_id": "nightly"}' --log sqlite:///demo.db

    Example: belog append --from events.jsonl --url http://localhost:8000
    """
    if lines is not None and event_type is not None:
        msg = "TYPE and --from were both given"
        raise InvalidInput(msg)
    with source.appender(actor, instance) as appender:
        if lines is not None:
            _append_lines(appender, lines, as_json=as_json)
            return
        if event_type is None or subject_id is None:
            msg = "TYPE and SUBJECT are needed"
            raise InvalidInput(msg, hint="or --from FILE for many events")
        event = appender.make(
            event_type,
            subject_id,
            _json_object(payload),
            event_id=event_id,
            occurred_at=None if occurred_at is None else micros(occurred_at),
            caused_by=caused_by,
            expected=expected,
            subject_kind=cast("SubjectKind | None", subject_kind),
        )
        receipt = appender.append(event)
    if as_json:
        put_json(receipt_json(receipt))
    else:
        again = " (it was there before)" if receipt.duplicate else ""
        put(f"accepted at index {receipt.index}{again}")


def _json_object(text: str) -> dict[str, JsonValue]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        msg = f"the payload is not JSON: {error}"
        raise InvalidInput(msg) from error
    if not isinstance(value, dict):
        msg = "the payload is not a JSON object"
        raise InvalidInput(msg)
    return cast("dict[str, JsonValue]", value)


def _append_lines(appender: Appender, source: Path, *, as_json: bool) -> None:
    failed: BelogError | None = None
    accepted = known = refused = 0
    for lines in _batches(source):
        events = [_draft(appender, number, line) for number, line in lines]
        for (number, _), result in zip(lines, appender.append_batch(events), strict=True):
            if isinstance(result, Receipt):
                accepted += 1
                known += result.duplicate
                if as_json:
                    put_json({"line": number, **receipt_json(result)})
            else:
                refused += 1
                failed = failed or result
                if as_json:
                    put_json({"line": number, "error": error_json(result)})
                else:
                    note(f"line {number}: {result}")
    if not as_json:
        before = f" ({known} of them there before)" if known else ""
        put(f"{accepted} accepted{before}, {refused} refused")
    if failed is not None:
        raise typer.Exit(status_of(failed).exit_code)


def _batches(source: Path) -> Iterator[list[tuple[int, str]]]:
    try:
        with sys.stdin if str(source) == "-" else source.open(encoding="utf-8") as stream:
            batch: list[tuple[int, str]] = []
            for number, line in enumerate(stream, 1):
                if line.strip():
                    batch.append((number, line))
                if len(batch) == BATCH_EVENTS_MAX:
                    yield batch
                    batch = []
            if batch:
                yield batch
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{source} cannot be read: {error}"
        raise InvalidInput(msg) from error


def _draft(appender: Appender, number: int, line: str) -> Event:
    try:
        draft = msgspec.json.decode(line, type=DraftEvent)
        return appender.make(
            draft.event_type,
            draft.subject_id,
            cast("dict[str, JsonValue]", draft.payload),
            event_id=draft.event_id,
            occurred_at=None if draft.occurred_at is None else micros(draft.occurred_at),
            subject_kind=draft.subject_kind,
            caused_by=draft.caused_by,
            expected=draft.expected,
        )
    except msgspec.MsgspecError as error:
        msg = f"line {number}: {error}"
        raise InvalidInput(msg, hint="nothing of this batch was appended") from error
    except InvalidInput as error:
        error.message = f"line {number}: {error.message}"
        raise


@placed
def events(
    source: Source,
    *,
    since: Annotated[
        int, typer.Option("--since", min=0, max=INDEX_MAX, help="First index wanted.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most events; 100 unless --follow.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with live events until interrupted.")
    ] = False,
    partition: options.PartitionTerms = None,
    pattern: options.PatternTerms = None,
    label: options.LabelTerms = None,
    job_run: options.JobRunTerms = None,
    build: options.BuildTerms = None,
    task: options.TaskTerms = None,
    event_type: options.TypeTerms = None,
    kind: options.KindTerms = None,
    actor: options.ActorTerms = None,
    created_from: options.FromTime = None,
    created_to: options.ToTime = None,
    as_json: options.JsonOption = False,
) -> None:
    """List events in order, from an index on; terms of one option are alternatives.

    Example: belog events --log sqlite:///demo.db --pattern 'sales/**' --follow

    Example: belog events --url http://localhost:8000 --since 1234 --follow --json
    """
    wanted = options.event_filter(
        partition=partition,
        pattern=pattern,
        label=label,
        job_run=job_run,
        build=build,
        task=task,
        event_type=event_type,
        kind=kind,
        actor=actor,
        created_from=created_from,
        created_to=created_to,
    )
    if follow:
        for count, stored in enumerate(source.follow(since, wanted), 1):
            _put_event(stored, as_json=as_json)
            if count == limit:
                return
        return
    cursor, left = since, limit or DEFAULT_EVENTS
    while left:
        page = source.page(cursor, wanted, min(left, PAGE_EVENTS_MAX))
        for stored in page.events:
            _put_event(stored, as_json=as_json)
        left -= len(page.events)
        cursor = page.next_idx
        if not page.has_more:
            return
    note(f"there is more: --since {cursor}")


def _put_event(stored: StoredEvent, *, as_json: bool) -> None:
    put(to_text(event_json(stored)) if as_json else event_line(stored))


# --- import


@import_app.command("history", cls=LogCommand)
def history(
    path: Annotated[Path, typer.Argument(metavar="FILE")],
    log: options.LogOption,
    *,
    actor: Annotated[str, typer.Option("--actor", help="Who writes.")] = "import",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a row was passed by.")
    ] = False,
    instance: options.InstanceOption = "local",
    as_json: options.JsonOption = False,
) -> None:
    """Import a tab-separated history of time, change (A, M, D) and ref; .gz is unpacked.

    Run it again to go on after an interruption, or to add what a longer history holds.

    Example: belog import history snapshots.tsv --log sqlite:///demo.db
    """
    rows = list(read_history(path))
    with (
        writable_log(log, instance) as opened,
        Producer(opened, actor=actor) as producer,
        progress_bar("importing", len(rows)) as show,
    ):
        report = import_history(producer, rows, on_progress=lambda done: show(done, None))
    _put_history(report, as_json=as_json)
    if strict and report.skipped:
        raise typer.Exit(1)


def _put_history(report: HistoryReport, *, as_json: bool) -> None:
    if as_json:
        put_json(cast("dict[str, object]", msgspec.to_builtins(report)))
        return
    for row in report.first_skipped:
        note(f"line {row.line}: {row.ref}: {row.reason}")
    put(
        f"{report.rows} rows: {report.appended} appended, {report.already_there} were there, "
        f"{report.skipped} passed by"
    )


# --- topic


@topic_app.command("create", cls=LogCommand)
def topic_create(
    log: options.LogOption,
    *,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="The broker's default.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Further settings.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Make a topic that can hold a log: one partition, compacted, stamped by the broker.

    One that is there already and fits is left alone.

    Example: belog topic create --log kafka://localhost:9092/builds
    """
    settings = dict(_key_value(text) for text in config or ())
    report = _topics(log).create_topic(log, replication_factor=replication_factor, config=settings)
    _put_topic(report, as_json=as_json)


@topic_app.command("check", cls=LogCommand)
def topic_check(log: options.LogOption, *, as_json: options.JsonOption = False) -> None:
    """Check that a topic's settings keep the promises of the log; warnings do not fail.

    Example: belog topic check --log kafka://localhost:9092/builds
    """
    _put_topic(_topics(log).check_topic(log), as_json=as_json)


class _Topics(Protocol):
    def check_topic(self, uri: str) -> object: ...
    def create_topic(
        self, uri: str, *, replication_factor: int | None, config: Mapping[str, str]
    ) -> object: ...


def _topics(uri: str) -> _Topics:
    """Return the module that knows topics, for a URI that names one.

    Raises:
        InvalidUri: It names another kind of log, or the extra is not installed.
    """
    if not uri.startswith("kafka:"):
        msg = f"{redacted(uri)!r} is no topic"
        raise InvalidUri(msg, hint="kafka://host:port/topic")
    open_log(uri).close()  # refuses what is malformed or not installed, as for every command
    return cast("_Topics", import_module("belog.storage.kafka_topic"))


def _put_topic(report: object, *, as_json: bool) -> None:
    fields = cast("dict[str, object]", msgspec.to_builtins(report))
    if as_json:
        put_json(fields)
        return
    for warning in cast("Sequence[str]", fields.get("warnings", ())):
        note(f"warning: {warning}")
    put("\n".join(f"{name}: {value}" for name, value in fields.items() if name != "warnings"))


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        msg = f"--config {text!r} is not of the form KEY=VALUE"
        raise InvalidInput(msg)
    return key, value
