"""The future a writer holds: decided once, by whichever thread, and everybody learns of it."""

import logging
import threading

import pytest

from belog.producers import Pending
from belog.schemas.errors import IllegalTransition, Unavailable
from belog.storage import Receipt
from tests.examples import event

EVENT = event("v1.partition.observed", n=1)
RECEIPT = Receipt(7, 70, EVENT.event_id)
REFUSED = IllegalTransition("no", state="", last_index=-1, allowed=())


def test_an_outcome_is_a_receipt_or_an_error() -> None:
    accepted, refused = Pending(EVENT), Pending(EVENT)
    assert not accepted.done()
    accepted.resolve(RECEIPT)
    refused.resolve(REFUSED)
    assert (accepted.done(), refused.done()) == (True, True)
    assert (accepted.result(0), accepted.exception(0)) == (RECEIPT, None)
    assert refused.exception(0) is REFUSED
    with pytest.raises(IllegalTransition):
        refused.result(0)


def test_waiting_has_an_end() -> None:
    pending = Pending(EVENT)
    for wait in (pending.result, pending.exception):
        with pytest.raises(Unavailable, match="not decided"):
            wait(0.01)
    pending.resolve(RECEIPT)
    assert pending.result(0.01) == RECEIPT


def test_only_the_first_outcome_counts() -> None:
    pending = Pending(EVENT)
    calls: list[Pending] = []
    pending.on_done(calls.append)
    assert pending.decide(RECEIPT)
    assert not calls, "decided, and not announced yet"
    pending.announce()
    pending.resolve(REFUSED)
    assert not pending.decide(REFUSED)
    assert pending.result(0) == RECEIPT
    assert calls == [pending]


def test_threads_that_decide_at_once_agree() -> None:
    for _ in range(300):
        pending = Pending(EVENT)
        calls: list[Pending] = []
        pending.on_done(calls.append)
        start = threading.Barrier(4)

        def decide(
            number: int, pending: Pending = pending, start: threading.Barrier = start
        ) -> None:
            start.wait()
            pending.resolve(RECEIPT if number % 2 else REFUSED)

        threads = [threading.Thread(target=decide, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        error = pending.exception(0)
        assert error in {None, REFUSED}
        if error is None:
            assert pending.result(0) == RECEIPT
        assert calls == [pending]


def test_every_waiter_wakes() -> None:
    pending = Pending(EVENT)
    found: list[Receipt] = []
    waiting = [threading.Thread(target=lambda: found.append(pending.result(20))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    threading.Thread(target=pending.resolve, args=(RECEIPT,)).start()
    for thread in waiting:
        thread.join()
    assert found == [RECEIPT] * 8


def test_a_callback_is_called_in_the_deciding_thread_or_at_once() -> None:
    pending = Pending(EVENT)
    threads: list[threading.Thread] = []
    pending.on_done(lambda _: threads.append(threading.current_thread()))
    deciding = threading.Thread(target=pending.resolve, args=(RECEIPT,))
    deciding.start()
    deciding.join()
    pending.on_done(lambda _: threads.append(threading.current_thread()))
    assert threads == [deciding, threading.current_thread()]


def test_a_callback_that_fails_is_logged_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pending = Pending(EVENT)
    calls: list[Pending] = []

    def fail(_: Pending) -> None:
        raise RuntimeError("of the callback")

    pending.on_done(fail)
    pending.on_done(calls.append)
    with caplog.at_level(logging.ERROR, "belog.producers"):
        pending.resolve(RECEIPT)
    assert calls == [pending]
    assert "of the callback" in caplog.text
    with pytest.raises(RuntimeError):
        pending.on_done(fail)
