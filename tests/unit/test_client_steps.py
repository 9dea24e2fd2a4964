"""What a client decides, step by step, without a service."""

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import pytest

from belog.client import AsyncClient, Client, Cursor, calls
from belog.client.answers import event_to_append, message_of, page_of
from belog.client.cursors import Page
from belog.client.problems import error_from, problem_in
from belog.client.settings import settings_of
from belog.client.steps import Lost, Pause, Request, Response, Session, Steps
from belog.schemas import errors
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Conflict,
    Corrupt,
    InvalidConfiguration,
    InvalidInput,
    InvalidUri,
    LogReplaced,
    LogTruncated,
    OutcomeUnknown,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from belog.schemas.events import PartitionObserved, new_event
from belog.schemas.filters import ALL
from belog.schemas.wire_json import to_json
from belog.service.http_api.answers import problem
from belog.v1.event_log_pb2 import LogStatus

T = TypeVar("T")
LOG_ID = UUID("0bc9094a-ffac-4f60-80f2-1bed0da34337")
OTHER = UUID("1bc9094a-ffac-4f60-80f2-1bed0da34337")


class Clock:
    """Time that pauses make pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Played:
    """Runs steps against answers that are given, and keeps what was asked."""

    def __init__(self, *answers: Response | Lost, retry_s: float = 30.0) -> None:
        self.clock = Clock()
        self.session = Session(url="http://there", retry_s=retry_s, clock=self.clock)
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.pauses: list[float] = []

    def step(self, step: Request | Pause) -> Response | Lost | None:
        if isinstance(step, Pause):
            self.pauses.append(step.pause_s)
            self.clock.now_s += step.pause_s
            return None
        self.requests.append(step)
        self.clock.now_s += 0.001
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def run(self, steps: Steps[T]) -> T:
        came: Response | Lost | None = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as done:
                result: T = done.value
                return result
            came = self.step(step)

    def pages(self, steps: calls.FollowSteps) -> list[Page]:
        pages: list[Page] = []
        came: Response | Lost | None = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration:
                return pages
            if isinstance(step, Page):
                pages.append(step)
                came = None
            else:
                came = self.step(step)


def event(ref: str = "a/1", expected: int | None = None) -> Event:
    return new_event(
        PartitionObserved(),
        ref,
        event_id=UUID(int=7),
        actor="me",
        occurred_at=1,
        expected=expected,
    )


def answer(status: int = 200, body: object = None, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, json.dumps(body).encode())


def refusal(error: BelogError, **headers: str) -> Response:
    made = problem(error)
    given = {name.decode(): value.decode() for name, value in made.headers}
    return Response(made.status, {**given, **headers}, made.body)


RECEIPT = {"index": "5", "created_at": "9", "event_id": str(UUID(int=7)), "duplicate": False}


def stored(index: int = 5, event_id: int = 7) -> dict[str, Any]:
    made = event()
    plain = json.loads(to_json(event_to_append(made)))
    return {**plain, "event_id": str(UUID(int=event_id)), "index": str(index), "created_at": "9"}


def status_answer(next_idx: int, log_id: UUID = LOG_ID) -> Response:
    return answer(200, {"next_idx": str(next_idx), "log_id": str(log_id)})


def page_answer(
    events: Sequence[dict[str, Any]] = (),
    next_idx: int = 10,
    process: str = "p",
    log: UUID = LOG_ID,
) -> Response:
    body = {"events": list(events), "next_idx": str(next_idx), "has_more": False}
    return answer(200, body, belog_log_id=str(log), belog_process=process)


# --- trying again


def test_an_append_is_tried_again_with_growing_pauses_until_it_is_answered() -> None:
    lost = Lost(was_sent=False, reason="refused")
    played = Played(lost, lost, lost, answer(200, RECEIPT))
    assert played.run(calls.append(played.session, event())).index == 5
    assert len({request.body for request in played.requests}) == 1
    assert played.pauses == [0.05, 0.1, 0.2]


def test_what_the_service_says_about_when_is_waited_for() -> None:
    busy = refusal(Overloaded("much"))
    assert busy.headers["retry-after"] == "1"
    played = Played(busy, answer(200, RECEIPT))
    played.run(calls.append(played.session, event()))
    # The driver pauses at least half of it.
    assert played.pauses == [2.0]


def test_trying_ends_and_says_whether_anything_may_be_written() -> None:
    away = Played(Lost(was_sent=False, reason="refused"))
    with pytest.raises(Unavailable, match="refused"):
        away.run(calls.append(away.session, event()))
    assert 20 < away.clock.now_s <= 30
    doubtful = Played(
        Lost(was_sent=True, reason="cut off"), Lost(was_sent=False, reason="refused"), retry_s=1
    )
    with pytest.raises(OutcomeUnknown) as raised:
        doubtful.run(calls.append(doubtful.session, event()))
    assert raised.value.event_id == event().event_id


@pytest.mark.parametrize(
    ("response", "is_doubtful"),
    [
        pytest.param(refusal(Unavailable("no log")), False, id="the service wrote nothing"),
        pytest.param(refusal(errors.Closed("stopping")), False, id="it took nothing"),
        pytest.param(refusal(OutcomeUnknown("lost", event_id=bytes(16))), True, id="it cannot say"),
        pytest.param(Response(502, {}, b"<html>"), True, id="a proxy cannot say"),
        pytest.param(Response(503, {}, b"<html>"), True, id="nor whether it was there"),
    ],
)
def test_after_which_answers_an_event_may_be_in_the_log(
    response: Response,
    *,
    is_doubtful: bool,
) -> None:
    played = Played(response, retry_s=0)
    with pytest.raises(OutcomeUnknown if is_doubtful else Unavailable):
        played.run(calls.append(played.session, event()))


def test_a_conflict_with_itself_is_no_conflict() -> None:
    mismatch = errors.ExpectedMismatch("moved on", state="available", last_index=5, allowed=())
    lost = Lost(was_sent=True, reason="cut off")
    played = Played(lost, refusal(mismatch), answer(200, stored()))
    receipt = played.run(calls.append(played.session, event(expected=4)))
    assert (receipt.index, receipt.duplicate) == (5, True)
    assert played.requests[-1].path == f"/events/{UUID(int=7)}"
    # Another's event stands there: the conflict is one.
    there = refusal(errors.NotFound("no event", index=9))
    played = Played(lost, refusal(mismatch), there)
    with pytest.raises(Conflict):
        played.run(calls.append(played.session, event(expected=4)))
    # Sent once, so it cannot be itself, and nobody looks.
    played = Played(refusal(mismatch))
    with pytest.raises(Conflict):
        played.run(calls.append(played.session, event(expected=4)))
    assert len(played.requests) == 1


def test_a_batch_knows_its_own_conflicts_after_doubt() -> None:
    item = {"code": "expected_mismatch", "message": "moved on", "state": "available"}
    results = answer(200, {"results": [{"problem": item}, {"receipt": RECEIPT}]})
    played = Played(Lost(was_sent=True, reason="cut off"), results, answer(200, stored()))
    first, second = played.run(
        calls.append_batch(played.session, [event(expected=4), event("b")], atomic=False, at=None)
    )
    assert not isinstance(first, BelogError)
    assert first.duplicate
    assert not isinstance(second, BelogError)


def test_a_batch_is_answered_in_full() -> None:
    played = Played(answer(200, {"results": [{"receipt": RECEIPT}]}))
    with pytest.raises(Corrupt, match="2 events were sent"):
        played.run(calls.append_batch(played.session, [event(), event()], atomic=False, at=None))


# --- errors


EVERY_ERROR: list[BelogError] = [
    errors.InvalidEvent("no", index=3, subject="partition:a"),
    errors.InvalidFilter("no"),
    errors.LimitExceeded("events", limit="BATCH", limit_value=3, value=4),
    errors.IllegalTransition(
        "no",
        state="building",
        last_index=7,
        allowed=("a", "b"),
        owner="b1",
        hint="wait",
        index=9,
        subject="partition:x",
    ),
    errors.NotOwner("no", state="s", last_index=-1, allowed=(), owner="b2"),
    errors.EventIdReused("no", state="", last_index=1, allowed=()),
    errors.IndexConflict("moved", next_idx=12),
    errors.Unauthenticated("who"),
    errors.Forbidden("not you"),
    errors.NotFound("nothing", index=4),
    errors.Gone("vacuumed", horizon=8, snapshot="s.avro"),
    errors.Unsupported("not here"),
    errors.LogReplaced("another"),
    errors.LogTruncated("short"),
    errors.NewerFormat("newer"),
    errors.ReplicaRefused("replica"),
    errors.Corrupt("bits"),
    errors.Diverged("two"),
]


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: error.code)
def test_errors_come_back_as_they_were(error: BelogError) -> None:
    sent = problem(error)
    got = error_from(problem_in(sent.body), status=sent.status, url="http://there")
    assert type(got) is type(error)
    kept = {k: v for k, v in vars(error).items() if k != "log"}
    assert {k: v for k, v in vars(got).items() if k != "log"} == kept


def test_every_error_that_can_be_answered_is_among_them() -> None:
    def below(cls: type[BelogError]) -> set[type[BelogError]]:
        return {cls, *(sub for each in cls.__subclasses__() for sub in below(each))}

    elsewhere = {
        "error", "invalid", "invalid_uri", "invalid_configuration", "conflict",
        "expected_mismatch", "outcome_unknown", "overloaded", "unavailable", "closed",
        "wrong_log", "misconfigured",
    }  # fmt: skip
    named = {cls.code for cls in below(BelogError) if cls.__module__ == errors.__name__}
    assert named - elsewhere == {error.code for error in EVERY_ERROR}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"<html>", 404, errors.NotFound),
        (b'{"code":"of_tomorrow","detail":"x"}', 409, BelogError),
        (b'{"code":"of_tomorrow","detail":"x"}', 403, errors.Forbidden),
        (b"[1,2", 500, BelogError),
        (b"\xff", 401, errors.Unauthenticated),
    ],
)
def test_answers_of_others_are_errors_too(body: bytes, status: int, kind: type) -> None:
    assert type(error_from(problem_in(body), status=status, url="http://there")) is kind


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"events":[{}]}', b'{"next_idx":"x"}'])
def test_a_page_of_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt):
        page_of(body)


def test_a_payload_that_was_changed_on_the_way_is_refused() -> None:
    changed = {**stored(), "payload": "oWFhAg=="}
    with pytest.raises(Corrupt, match="digest"):
        page_of(json.dumps({"events": [changed], "next_idx": "6"}).encode())


def test_fields_of_newer_software_are_passed_over() -> None:
    assert message_of(b'{"next_idx":"3","later":1}', LogStatus).next_idx == 3
    assert page_of(b'{"events":[],"next_idx":"3","later":1}').next_idx == 3


# --- following


def follow(
    played: Played,
    cursor: Cursor,
    *,
    patience_s: float = 5.0,
    on_trouble: Callable[[BelogError], None] | None = None,
) -> list[Page]:
    steps = calls.follow(
        played.session,
        cursor,
        ALL,
        limit=10,
        wait_s=25,
        idle_s=0,
        patience_s=patience_s,
        on_trouble=on_trouble,
    )
    return played.pages(steps)


def test_a_follower_goes_on_from_its_cursor_over_all_that_passes() -> None:
    troubles: list[BelogError] = []
    played = Played(
        page_answer([stored(5)], 6),
        Lost(was_sent=True, reason="cut off"),
        Response(500, {}, b"<html>"),
        refusal(Overloaded("much")),
        page_answer([], 9),
    )
    pages = follow(played, Cursor(), on_trouble=troubles.append)
    assert [page.cursor.next_idx for page in pages] == [6, 9]
    since = [request.path.split("since=")[1].split("&")[0] for request in played.requests]
    assert since == ["0", "6", "6", "6", "6"]
    assert [type(error) for error in troubles] == [Unavailable, BelogError, Overloaded]


@pytest.mark.parametrize("error", [Unauthenticated("who"), InvalidInput("no"), LogTruncated("x")])
def test_a_follower_ends_where_asking_again_is_no_use(error: BelogError) -> None:
    with pytest.raises(type(error)):
        follow(Played(refusal(error)), Cursor())


def test_a_follower_has_the_patience_that_it_is_given() -> None:
    played = Played(Lost(was_sent=False, reason="refused"))
    with pytest.raises(Unavailable):
        follow(played, Cursor(), patience_s=7.0)
    assert 5 < played.clock.now_s <= 7


def test_another_run_of_the_service_is_looked_at_before_going_on() -> None:
    seen = Cursor(6, LOG_ID, 5, UUID(int=7).bytes)
    played = Played(
        page_answer([], 6, process="first"),
        status_answer(6),
        answer(200, stored(5)),
        page_answer([], 6, process="first"),
    )
    assert follow(played, seen) == []
    paths = [request.path.partition("?")[0] for request in played.requests]
    assert paths == ["/events", "/status", "/events/5"]


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        pytest.param([status_answer(6, OTHER)], LogReplaced, id="another log"),
        pytest.param([status_answer(5)], LogTruncated, id="a shorter log"),
        pytest.param(
            [status_answer(60), answer(200, stored(5, event_id=8))], LogReplaced, id="rewritten"
        ),
    ],
)
def test_a_log_of_another_history_is_refused(
    answers: list[Response], error: type[BelogError]
) -> None:
    seen = Cursor(6, LOG_ID, 5, UUID(int=7).bytes)
    with pytest.raises(error):
        follow(Played(page_answer([], 6), *answers), seen)


def test_what_a_vacuum_removed_is_no_change_of_history() -> None:
    seen = Cursor(6, LOG_ID, 5, UUID(int=7).bytes)
    gone = refusal(errors.NotFound("removed", index=9))
    played = Played(page_answer([], 6), status_answer(6), gone, page_answer([], 6))
    assert follow(played, seen) == []


def test_a_page_that_goes_on_from_the_page_before_asks_nothing_else() -> None:
    played = Played(page_answer([stored(5)], 6), page_answer([], 6))
    checked = calls.Checked()
    first = played.run(calls.page(played.session, checked, Cursor(), ALL, limit=10, wait_s=0))
    played.run(calls.page(played.session, checked, first.cursor, ALL, limit=10, wait_s=0))
    assert len(played.requests) == 2


# --- cursors and settings


@pytest.mark.parametrize(
    "cursor",
    [Cursor(), Cursor(7), Cursor(7, LOG_ID), Cursor(7, LOG_ID, 5, UUID(int=7).bytes)],
)
def test_cursors_are_read_as_they_are_written(cursor: Cursor) -> None:
    assert Cursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "x", "-1", "1@", "1@abc", f"1@{LOG_ID}+2", "1+2:00"])
def test_other_texts_are_no_cursors(text: str) -> None:
    with pytest.raises(InvalidInput):
        Cursor.parse(text)


@pytest.mark.parametrize("url", ["", "sqlite:///a", "http://", "http://u:p@h", "http://h?x=1"])
def test_urls_that_are_not_a_service(url: str) -> None:
    with pytest.raises(InvalidUri) as raised:
        settings_of(url, {})
    assert "u:p" not in str(raised.value)


@pytest.mark.parametrize("token", ["", "a b", "a\n", "x" * 2_000])
def test_tokens_that_cannot_be_sent_are_never_shown(token: str) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        settings_of("http://h", {"token": token})
    assert not token or token not in str(raised.value)


def test_both_clients_have_the_same_methods() -> None:
    def methods(cls: type) -> dict[str, list[tuple[str, str, object]]]:
        return {
            name: [
                (p.name, p.kind.name, p.default)
                for p in inspect.signature(member).parameters.values()
            ]
            for name, member in vars(cls).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert inspect.signature(Client.__init__) == inspect.signature(AsyncClient.__init__)
