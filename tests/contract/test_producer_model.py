"""Two producers on one log, whatever they do, against a model that knows only the diagrams."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from belog.producers import Pending, Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import (
    BelogError,
    Conflict,
    EventIdReused,
    ExpectedMismatch,
    IllegalTransition,
    NotOwner,
)
from belog.schemas.fold import Fold
from belog.storage import EventLog, OrderedLog, Receipt, open_log
from belog.storage.interface import fold_log
from belog.storage.kafka_topic import create_topic
from belog.storage.memory import MemoryLog
from tests.examples import event
from tests.producing import (
    BACKENDS,
    DIAGRAM,
    DOORS,
    OWNERLESS,
    UNDER_WAY,
    Answer,
    Judgement,
    assert_told_the_truth,
    settled,
    submitted,
)
from tests.servers import Broker

EXAMPLES = {"memory": 60, "sqlite": 12, "file": 12, "kafka": 6}

TYPES = st.sampled_from([t for t in DIAGRAM if t.startswith("v1.partition")])
REFS = st.sampled_from(["a", "b"])
BUILDS = st.sampled_from(["one", "two"])
Door = Callable[[Producer, Event], Answer]
WHICH = st.integers(0, 1)
DOOR = st.sampled_from(DOORS)
EXPECTED = st.sampled_from(["", "", "", "right", "wrong", "never"])


class Model:
    """What a log must make of events that come one after the other."""

    def __init__(self) -> None:
        self.states: dict[str, tuple[str, int]] = {}
        self.owners: dict[str, str] = {}
        self.accepted: dict[bytes, tuple[int, Event]] = {}

    def last(self, ref: str) -> int:
        return self.states.get(ref, ("∅", -1))[1]

    def expect(self, what: Event) -> type[Conflict] | int | None:
        """Return the error, the first index of a repeat, or None: accepted."""
        found = self.accepted.get(what.event_id)
        if found is not None:
            index, first = found
            is_same = (first.event_type, first.subject_id, first.payload) == (
                *(what.event_type, what.subject_id),
                what.payload,
            )
            return index if is_same else EventIdReused
        state, last = self.states.get(what.subject_id, ("∅", -1))
        if what.expected not in {None, last}:
            return ExpectedMismatch
        if state not in DIAGRAM[what.event_type][0].split():
            return IllegalTransition
        is_mine = what.event_type in OWNERLESS or state not in UNDER_WAY
        if not is_mine and what.event_type != "v1.partition.joined":
            return (
                None
                if what.body()["build_request_id"] == self.owners[what.subject_id]
                else NotOwner
            )
        return None

    def take(self, what: Event, index: int) -> None:
        state = self.states.get(what.subject_id, ("∅", -1))[0]
        after = DIAGRAM[what.event_type][1]
        if what.event_type not in OWNERLESS and state not in UNDER_WAY:
            self.owners[what.subject_id] = str(what.body()["build_request_id"])
        self.states[what.subject_id] = (state if after == "=" else after, index)
        self.accepted[what.event_id] = (index, what)


class TwoProducers(RuleBasedStateMachine):
    """Two producers, each with its own object over the log where it can be shared."""

    def __init__(self, open_: Callable[[], EventLog]) -> None:
        super().__init__()
        self.logs = [open_(), open_()]
        self.producers = [Producer(log, actor=f"p{n}") for n, log in enumerate(self.logs)]
        self.model = Model()
        self.ids = itertools.count(1)
        self.made: list[Event] = []
        self.flying: list[tuple[Event, Pending | BelogError]] = []
        self.told: dict[bytes, tuple[Event, Answer]] = {}

    def make(self, event_type: str, ref: str, build: str, expected: str = "") -> Event:
        body = {} if event_type in OWNERLESS else {"build_request_id": build}
        if event_type == "v1.partition.delegated":
            body["delegated_to_log"] = "elsewhere"
        last = self.model.last(ref)
        made = event(event_type, ref, body, n=next(self.ids))
        named = {"": None, "right": last, "wrong": last + 1, "never": -1}[expected]
        self.made.append(made)
        return msgspec.structs.replace(made, expected=named)

    def check(self, what: Event, answer: Answer) -> None:
        expected = self.model.expect(what)
        if expected is None:
            assert isinstance(answer, Receipt), (what, answer)
            assert not answer.duplicate
            self.model.take(what, answer.index)
            self.told[what.event_id] = (what, answer)
        elif isinstance(expected, int):
            assert isinstance(answer, Receipt), (what, answer)
            assert (answer.index, answer.duplicate) == (expected, True)
        else:
            assert type(answer) is expected, (what, answer)
            if expected is not EventIdReused:
                assert answer.last_index == self.model.last(what.subject_id)
                self.told.setdefault(what.event_id, (what, answer))

    def is_quiet(self) -> bool:
        return not self.flying

    @precondition(is_quiet)
    @rule(which=WHICH, door=DOOR, event_type=TYPES, ref=REFS, build=BUILDS, expected=EXPECTED)
    def append(
        self, *, which: int, door: Door, event_type: str, ref: str, build: str, expected: str
    ) -> None:
        what = self.make(event_type, ref, build, expected)
        self.check(what, door(self.producers[which], what))

    @precondition(is_quiet)
    @rule(which=WHICH, door=DOOR, ref=REFS, data=st.data())
    def advance(self, *, which: int, door: Door, ref: str, data: st.DataObject) -> None:
        """Append what is legal, so that every state is reached."""
        state = self.model.states.get(ref, ("∅", -1))[0]
        legal = [t for t, (sources, _) in DIAGRAM.items() if state in sources.split()]
        event_type = data.draw(st.sampled_from([t for t in legal if t.startswith("v1.partition")]))
        what = self.make(event_type, ref, self.model.owners.get(ref, "one"))
        assert self.model.expect(what) is None
        self.check(what, door(self.producers[which], what))

    @precondition(lambda self: self.is_quiet() and self.made)
    @rule(which=WHICH, door=DOOR, data=st.data(), other=st.booleans())
    def repeat(self, which: int, door: Door, data: st.DataObject, *, other: bool) -> None:
        what = data.draw(st.sampled_from(self.made))
        if other:
            what = msgspec.structs.replace(what, subject_id="a" if what.subject_id == "b" else "b")
        self.check(what, door(self.producers[which], what))

    @precondition(is_quiet)
    @rule(which=WHICH, parts=st.lists(st.tuples(TYPES, REFS, BUILDS), max_size=6))
    def append_batch(self, which: int, parts: list[tuple[str, str, str]]) -> None:
        batch = [self.make(*part) for part in parts]
        batch += batch[:1]
        answers = self.producers[which].append_batch(batch)
        for what, answer in zip(batch, answers, strict=True):
            self.check(what, answer)

    @precondition(is_quiet)
    @rule(which=WHICH, parts=st.lists(st.tuples(TYPES, REFS, BUILDS), min_size=1, max_size=5))
    def append_atomically(self, which: int, parts: list[tuple[str, str, str]]) -> None:
        if isinstance(self.logs[which], OrderedLog):
            return
        batch = [self.make(*part) for part in parts]
        before = self.logs[which].next_position()
        try:
            answers = self.producers[which].append_batch(batch, atomic=True)
        except Conflict:
            assert self.logs[which].next_position() == before
            return
        for what, answer in zip(batch, answers, strict=True):
            self.check(what, answer)

    @rule(which=WHICH, event_type=TYPES, ref=REFS, build=BUILDS)
    def submit(self, which: int, event_type: str, ref: str, build: str) -> None:
        what = self.make(event_type, ref, build)
        self.flying.append((what, submitted(self.producers[which], what)))

    @precondition(lambda self: self.flying)
    @rule()
    def settle(self) -> None:
        """Let what is in flight land; in which order, the log says."""
        answers = [(what, settled(pending)) for what, pending in self.flying]
        self.flying = []
        landed = sorted(
            ((answer.index, what) for what, answer in answers if isinstance(answer, Receipt)),
            key=lambda pair: pair[0],
        )
        for index, what in landed:
            assert self.model.expect(what) is None
            self.model.take(what, index)
        self.told |= {what.event_id: (what, answer) for what, answer in answers}

    @precondition(is_quiet)
    @rule(which=WHICH, share=st.floats(0, 1))
    def restart(self, which: int, share: float) -> None:
        log = self.logs[which]
        self.producers[which].close()
        fold = fold_log(
            log, Fold(keeps_root=False), until_position=int(log.next_position() * share)
        )
        self.producers[which] = Producer(log, actor=f"p{which}", fold=fold)

    @invariant()
    def the_state_is_the_models(self) -> None:
        if self.flying:
            return
        for ref, (state, index) in self.model.states.items():
            for producer in self.producers:
                known = producer.state("partition", ref)
                assert known is not None
                assert (known.state, known.index) == (state, index)

    def teardown(self) -> None:
        if self.flying:
            self.settle()
        for producer in self.producers:
            producer.close()
        judged = Judgement(self.logs[0])
        assert_told_the_truth(judged, self.told.values())
        assert {i: n for i, n in judged.accepted.items() if i in self.model.accepted} == {
            i: n for i, (n, _) in self.model.accepted.items()
        }
        assert len(judged.accepted) == len(self.model.accepted) + 1


@pytest.fixture(params=BACKENDS)
def opener(
    request: pytest.FixtureRequest, tmp_path: Path, topic_name: str
) -> Iterator[Callable[[], Callable[[], EventLog]]]:
    """Makes openers, each of a log of its own."""
    numbers = itertools.count()
    opened: list[EventLog] = []

    def new() -> Callable[[], EventLog]:
        for log in opened:
            log.close()
        opened.clear()
        number = next(numbers)
        uri = {
            "memory": "memory:",
            "sqlite": f"sqlite:///{tmp_path}/{number}.db",
            "file": f"file://{tmp_path}/{number}",
        }.get(request.param)
        if uri is None:
            broker: Broker = request.getfixturevalue("broker")
            uri = f"{broker.uri}/{topic_name}-{number}"
            create_topic(uri)

        def open_() -> EventLog:
            if opened and request.param in {"memory", "file"}:
                return opened[0]
            log = MemoryLog() if request.param == "memory" else open_log(uri)
            log.initialize()
            opened.append(log)
            return log

        return open_

    yield new
    for log in opened:
        log.close()


@pytest.mark.timeout(180)
def test_two_producers_agree_with_the_model(
    request: pytest.FixtureRequest, opener: Callable[[], Callable[[], EventLog]]
) -> None:
    backend = request.node.callspec.params["opener"]

    class Here(TwoProducers):
        def __init__(self) -> None:
            super().__init__(opener())

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES[backend],
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
