"""Log lines: one object or one line each, with their fields, and without any secret."""

import asyncio
import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from belog.schemas.errors import IllegalTransition, Unavailable
from belog.service.access import Access, TokenEntry, hash_token
from belog.service.bridge import Calls
from belog.service.instance import InstanceSettings
from belog.service.observation import Observation
from belog.service.structured_logs import (
    FIELD_CHARS_MAX,
    LogFormat,
    LogLevel,
    StructuredFormatter,
    bind,
    configure_logging,
    request_fields,
    without_secrets,
)
from tests.examples import event
from tests.observed_service import in_loop, logging_put_back, watched

TOKEN = "belog_" + "s3cr3t-" * 6 + "x"
SECRETS = ("pa55w0rd", TOKEN, "s3cr3t")

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logged() -> Iterator[Callable[..., Lines]]:
    """Configures logging into a text that the test reads; puts everything back."""
    stream = io.StringIO()

    def lines() -> list[dict[str, Any]]:
        return [cast("dict[str, Any]", json.loads(line)) for line in stream.getvalue().splitlines()]

    def configure(level: LogLevel = "info") -> Lines:
        configure_logging("json", level, stream=stream)
        return lines

    with logging_put_back():
        yield configure


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("belog.test", logging.INFO, "", 0, message, args, None)
    made.fields = fields
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://worker:pa55w0rd@cache:6379/0", "redis://worker:***@cache:6379/0"),
        ("postgresql://u:pa@55@h/db is away", "postgresql://u:***@h/db is away"),
        ("redis://:pa55w0rd@h", "redis://:***@h"),
        ("kafka://h/t?sasl.password=pa55&acks=all", "kafka://h/t?sasl.password=***&acks=all"),
        ("kafka://h/t?ssl.key.password=a%20b", "kafka://h/t?ssl.key.password=***"),
        ("{'sasl.password': 'a b', 'acks': 'all'}", "{'sasl.password': ***, 'acks': 'all'}"),
        ('{"token":"a b","n":1}', '{"token":***,"n":1}'),
        ("authorization: Bearer abc.def-123", "authorization: Bearer ***"),
        ("Authorization: Basic dXNlcjpwYQ==", "Authorization: Basic ***"),
        (f"no such token {TOKEN}", "no such token ***"),
        # What only looks like one stays, or nobody could read the log.
        ("that is no token: one has 22 characters", "that is no token: one has 22 characters"),
        ("belog_append_duration_seconds", "belog_append_duration_seconds"),
        ("partition lake/a@b/date=1", "partition lake/a@b/date=1"),
        ("http://host:4318/v1/traces", "http://host:4318/v1/traces"),
    ],
)
def test_secrets_are_taken_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_form_of_a_line_holds_a_secret(log_format: LogFormat) -> None:
    formatter = StructuredFormatter(log_format)
    uri = "redis://worker:pa55w0rd@cache:6379/0"
    made = record("cannot reach %s", uri, tables=uri, note=[f"Bearer {TOKEN}"])
    made.__dict__["fields"]["sasl.password"] = "pa55w0rd"
    try:
        try:
            raise OSError(uri)  # noqa: TRY301 - its text is what matters
        except OSError as cause:
            raise Unavailable(f"no {uri}", log=uri, hint=f"ask with {TOKEN}") from cause
    except Unavailable:
        made.exc_info = sys.exc_info()
    text = formatter.format(made)
    assert [secret for secret in SECRETS if secret in text] == []
    assert "cache:6379" in text
    assert "Traceback" in text


def test_a_line_is_one_object_with_its_fields() -> None:
    made = record("snapshot %s\ntaken", 7, index=7, nothing=None, level="mine", raw=b"\x01\xff")
    line = json.loads(StructuredFormatter("json", lambda: "ab" * 16).format(made))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "belog.test",
        "message": "snapshot 7\ntaken",
        "index": 7,
        "raw": "01ff",
        "trace_id": "ab" * 16,
    }


def test_as_text_a_message_cannot_begin_a_line_of_its_own() -> None:
    made = record("asked for %s", "a\n2026-01-01 ERROR forged", subject='x y="z"')
    text = StructuredFormatter("text").format(made)
    assert "\n" not in text
    assert text.endswith('subject="x y=\\"z\\""')


def test_an_error_brings_its_code_and_coordinates() -> None:
    error = IllegalTransition(
        "not now", state="building", last_index=3, allowed=(), index=9, subject="partition:a"
    )
    made = record("refused")
    made.exc_info = (type(error), error, None)
    line = json.loads(StructuredFormatter("json").format(made))
    assert (line["error_code"], line["index"], line["subject"]) == (
        "illegal_transition",
        9,
        "partition:a",
    )
    assert line["exception"]["type"] == "IllegalTransition"


def test_whatever_is_logged_makes_a_line() -> None:
    for made in (
        record("%d things", "no number"),
        record("%s %s", "one"),
        record("x", value=object(), long="y" * (2 * FIELD_CHARS_MAX)),
        record("lone \ud800 surrogate", ref="\udcff"),
    ):
        for formatter in (StructuredFormatter("json"), StructuredFormatter("text")):
            text = formatter.format(made)
            assert len(text) < 2 * FIELD_CHARS_MAX
            text.encode()


def test_fields_of_a_request_go_into_its_threads_and_no_further(
    logged: Callable[..., Lines],
) -> None:
    lines = logged()
    logger = logging.getLogger("belog.test")

    async def request(calls: Calls, actor: str) -> None:
        with request_fields():
            bind(actor=actor)
            await calls.run(logger.info, "in a thread")

    async def test() -> None:
        calls = Calls()
        await asyncio.gather(*(request(calls, f"a{n}") for n in range(5)))
        bind(actor="nobody")
        logger.info("outside")
        calls.close()

    in_loop(test)
    found = lines()
    assert sorted(line["actor"] for line in found[:-1]) == [f"a{n}" for n in range(5)]
    assert "actor" not in found[-1]


def test_what_no_one_caught_is_logged(logged: Callable[..., Lines]) -> None:
    lines = logged()

    def fails() -> None:
        raise ValueError("redis://a:pa55w0rd@h")

    thread = threading.Thread(target=fails, name="a thread")
    thread.start()
    thread.join()
    (line,) = lines()
    assert (line["level"], line["thread"]) == ("critical", "a thread")
    assert line["exception"]["message"] == "redis://a:***@h"


def test_the_access_log_says_who_asked_what_and_never_how(
    logged: Callable[..., Lines], tmp_path: Path
) -> None:
    lines = logged()
    access = Access([TokenEntry(actor="alice", role="read", hash=hash_token(TOKEN))])

    async def test() -> None:
        settings = InstanceSettings(log_uri=f"sqlite:///{tmp_path / 'log.db'}")
        async with watched(settings, Observation(), access) as service:
            headers = {"authorization": f"Bearer {TOKEN}"}
            await service.http.get("/partitions/a%20b", headers=headers)
            await service.http.get("/events", params={"token": TOKEN}, headers=headers)
            await service.http.get("/status", headers={"authorization": f"Bearer {TOKEN}x"})
            await service.http.get("/healthz")

    in_loop(test)
    found = [line for line in lines() if line["logger"] == "belog.access"]
    shown = [(line["route"], line["status"], line.get("actor")) for line in found]
    assert shown == [
        ("/partitions/{ref}", 404, "alice"),
        ("/events", 400, "alice"),
        ("/status", 401, None),
    ]
    assert [line.get("error_code") for line in found] == ["not_found", "invalid", "unauthenticated"]
    assert all(line["duration_s"] > 0 and line["client"] == "127.0.0.1" for line in found)
    text = json.dumps(lines())
    assert [secret for secret in SECRETS if secret in text] == []


def test_appends_are_logged_for_who_looks_closely(
    logged: Callable[..., Lines], tmp_path: Path
) -> None:
    lines = logged("debug")

    async def test() -> None:
        settings = InstanceSettings(log_uri=f"sqlite:///{tmp_path / 'log.db'}")
        async with watched(settings, Observation()) as service:
            grant = Access.open().authenticate(None)
            asked = event("v1.partition.requested", "a", n=1, actor="bob")
            await service.instance.append(grant, [asked])
            again = event("v1.partition.requested", "a", n=2, actor="bob")
            await service.instance.append(grant, [again])

    in_loop(test)
    accepted, refused = (line for line in lines() if line["logger"] == "belog.service.appends")
    assert (accepted["message"], accepted["index"], accepted["subject"], accepted["actor"]) == (
        "append accepted",
        1,
        "partition:a",
        "bob",
    )
    assert len(accepted["log_id"]) == len(accepted["event_id"]) == 36
    assert refused["error_code"] == "illegal_transition"


def test_failures_by_the_thousand_are_a_few_lines(logged: Callable[..., Lines]) -> None:
    lines = logged()
    observation = Observation()
    away = Unavailable("away", log="kafka://h/t")
    for n in range(1_000):
        observation.appended([event("v1.partition.requested", "a", n=n)], [away], 0.001)
    assert 1 <= len(lines()) < 10
