"""The contract suite: creation, identity, closing and opening again."""

import threading
from uuid import UUID, uuid4

import pytest

from belog.schemas.errors import BelogError, Closed, LogReplaced, NotFound
from belog.schemas.lifecycle import LOG_CREATED
from belog.storage.interface import EventLog
from belog.storage.testing_base import (
    ORIGIN_ID,
    WAIT_S,
    ContractBase,
    LogOpener,
    MakeLog,
    appended,
    folded,
)
from belog.storage.testing_events import observed

__all__ = ["LifeContract"]


class LifeContract(ContractBase):
    """How a log begins and ends."""

    def test_a_new_log_begins_with_its_identity(self, make_log: MakeLog) -> None:
        with make_log() as log:
            identity = log.initialize(instance="Köln")
            first = log.get(0)
            assert first is not None
            assert first.event.event_type == LOG_CREATED
            assert first.event.subject_id == str(identity.log_id)
            assert first.event.body()["instance"] == identity.instance == "Köln"
            assert not identity.is_replica
            assert (log.end().next_idx, log.end().log_id) == (1, identity.log_id)
            assert log.next_position() == 1

    def test_initialize_is_idempotent(self, make_log: MakeLog, open_log: LogOpener) -> None:
        log = open_log()
        identity = log.initialize()
        appended(log, [observed(1)])
        assert log.initialize() == identity
        assert log.initialize(instance="another name", log_id=identity.log_id) == identity
        assert log.next_position() == 2
        again = make_log()
        if log.capabilities.shared:
            assert again.initialize() == identity
            assert again.next_position() == 2
        else:
            assert_apart(again, identity.log_id)
        again.close()

    def test_identify_creates_nothing(self, make_log: MakeLog, open_log: LogOpener) -> None:
        with make_log() as before:
            assert before.identify() is None
            assert before.identify() is None
        log = open_log()
        assert log.identify() == log.initialize()
        if log.capabilities.shared:
            with make_log() as other:
                assert other.identify() == log.initialize()

    def test_a_new_log_takes_the_identity_it_is_given(self, make_log: MakeLog) -> None:
        wanted = UUID("11111111-2222-4333-8444-555555555555")
        with make_log() as log:
            assert log.initialize(log_id=wanted).log_id == wanted
            assert log.end().log_id == wanted

    def test_another_identity_is_refused(self, open_log: LogOpener) -> None:
        log = open_log()
        log_id = log.initialize().log_id
        with pytest.raises(LogReplaced):
            log.initialize(log_id=uuid4())
        with pytest.raises(LogReplaced):
            log.initialize(log_id=log_id, replica=True)
        with pytest.raises(LogReplaced):
            log.initialize(log_id=uuid4(), replica=True)
        assert log.next_position() == 1

    def test_another_object_is_refused_another_identity(
        self, make_log: MakeLog, open_log: LogOpener
    ) -> None:
        log = open_log()
        if not log.capabilities.shared:
            return assert_apart(make_log(), log.initialize().log_id)
        with make_log() as other, pytest.raises(LogReplaced):
            other.initialize(log_id=uuid4())
        with make_log() as other, pytest.raises(LogReplaced):
            other.initialize(log_id=log.initialize().log_id, replica=True)
        return None

    def test_a_replica_is_no_primary_log(self, open_log: LogOpener) -> None:
        log = open_log(replica=True)
        identity = log.initialize(log_id=ORIGIN_ID, replica=True)
        assert (identity.log_id, identity.is_replica) == (ORIGIN_ID, True)
        with pytest.raises(LogReplaced):
            log.initialize(log_id=ORIGIN_ID)
        assert log.next_position() == 0
        with pytest.raises(NotFound):
            log.end()

    def test_writing_before_initialize_is_refused(self, make_log: MakeLog) -> None:
        with make_log() as log, pytest.raises(NotFound):
            log.append(observed(1))

    def test_close_is_idempotent_and_ends_everything(self, open_log: LogOpener) -> None:
        log = open_log()
        appended(log, [observed(1)])
        log.read()
        log.close()
        log.close()
        for call in (
            log.next_position,
            lambda: log.scan(0),
            lambda: log.wait(0, 1.0),
            lambda: log.append(observed(2)),
            lambda: log.append_batch([observed(2)]),
            log.read,
            lambda: log.get(1),
            lambda: log.get_by_id(bytes(16)),
            log.end,
            log.statistics,
            log.initialize,
        ):
            with pytest.raises(Closed):
                call()

    def test_close_wakes_who_waits(self, open_log: LogOpener) -> None:
        log = open_log()
        outcome: list[object] = []
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            try:
                outcome.append(log.wait(1, WAIT_S * 10))
            except BelogError as error:
                outcome.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(WAIT_S)
        log.close()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert outcome == [False] or isinstance(outcome[0], Closed)

    def test_what_was_acknowledged_is_there_after_opening_again(
        self, make_log: MakeLog, open_log: LogOpener
    ) -> None:
        log = open_log()
        identity = log.initialize()
        receipts = appended(log, [observed(n) for n in range(1, 50)])
        end, page = log.end(), log.read()
        log.close()
        if not log.capabilities.durable:
            again = make_log()
            assert again.identify() is None
            return again.close()
        again = open_log()
        assert again.initialize() == identity
        assert again.end() == end
        assert again.read() == page
        assert [s.index for s in page.events[1:]] == [r.index for r in receipts]
        (receipt,) = appended(again, [observed(50)])
        assert receipt.index == receipts[-1].index + 1
        assert folded(again)[0].merkle.root() == again.end().root
        return None


def assert_apart(log: EventLog, log_id: UUID) -> None:
    """Check that an object over a log that cannot be shared is refused, or another log."""
    try:
        found = log.initialize()
    except BelogError:
        return
    finally:
        log.close()
    assert found.log_id != log_id
