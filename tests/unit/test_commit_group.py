import threading
from collections.abc import Sequence

import pytest

from belog.schemas.errors import Unavailable
from belog.storage.commit_group import CommitGroup
from tests.servers import eventually


class Gate:
    """A commit that waits to be let through, and remembers its groups."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.open = threading.Event()

    def __call__(self, items: Sequence[int]) -> list[int | BaseException]:
        self.groups.append(list(items))
        assert self.open.wait(30)
        if 13 in items:
            raise Unavailable("the whole group")
        return [Unavailable("odd one") if item < 0 else item * 10 for item in items]


def submit_all(
    group: CommitGroup[int, int], gate: Gate, items: Sequence[int]
) -> dict[int, int | BaseException]:
    """The first item leads and is held; the others queue in order."""
    outcomes: dict[int, int | BaseException] = {}

    def submit(item: int) -> None:
        try:
            outcomes[item] = group.submit(item, 10)
        except Unavailable as error:
            outcomes[item] = error

    threads = [threading.Thread(target=submit, args=(item,)) for item in items]
    for n, thread in enumerate(threads):
        thread.start()
        if n == 0:
            eventually(lambda: gate.groups)
        else:
            eventually(lambda n=n: len(group._waiting) == n)  # type: ignore[misc]  # noqa: SLF001
    gate.open.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


def test_who_waits_goes_together_and_in_order() -> None:
    gate = Gate()
    group: CommitGroup[int, int] = CommitGroup(gate)
    outcomes = submit_all(group, gate, [1, 2, 3, 4])
    assert gate.groups == [[1], [2, 3, 4]]
    assert outcomes == {1: 10, 2: 20, 3: 30, 4: 40}
    assert group.submit(5, 10) == 50


def test_a_group_ends_at_its_bound() -> None:
    gate = Gate()
    group: CommitGroup[int, int] = CommitGroup(gate, group_bytes_max=20)
    assert submit_all(group, gate, [1, 2, 3, 4, 5, 6])[6] == 60
    assert gate.groups == [[1], [2, 3], [4, 5], [6]]


def test_an_error_of_one_is_not_that_of_others() -> None:
    gate = Gate()
    outcomes = submit_all(CommitGroup(gate), gate, [1, -2, 3])
    assert isinstance(outcomes[-2], Unavailable)
    assert (outcomes[1], outcomes[3]) == (10, 30)


def test_an_error_of_the_group_reaches_all_and_the_next_group_goes_on() -> None:
    gate = Gate()
    group: CommitGroup[int, int] = CommitGroup(gate)
    outcomes = submit_all(group, gate, [1, 13, 2])
    assert outcomes[1] == 10
    assert isinstance(outcomes[13], Unavailable)
    assert isinstance(outcomes[2], Unavailable)
    assert group.submit(4, 10) == 40


def test_an_interrupted_leader_leaves_nobody_waiting() -> None:
    reached, interrupt = threading.Event(), threading.Event()

    def commit(items: Sequence[int]) -> list[int | BaseException]:
        reached.set()
        assert interrupt.wait(30)
        if 2 in items and 3 in items:
            raise KeyboardInterrupt
        return list(items)

    group: CommitGroup[int, int] = CommitGroup(commit)
    outcomes: dict[int, BaseException | int] = {}

    def submit(item: int) -> None:
        try:
            outcomes[item] = group.submit(item, 1)
        except (Unavailable, KeyboardInterrupt) as error:
            outcomes[item] = error

    threads = [threading.Thread(target=submit, args=(item,)) for item in (1, 2, 3)]
    threads[0].start()
    reached.wait(30)
    for n, thread in enumerate(threads[1:], 1):
        thread.start()
        eventually(lambda n=n: len(group._waiting) == n)  # type: ignore[misc]  # noqa: SLF001
    interrupt.set()
    for thread in threads:
        thread.join(30)
    assert outcomes[1] == 1
    assert isinstance(outcomes[2], KeyboardInterrupt)
    assert isinstance(outcomes[3], Unavailable)


def test_the_group_needs_results_for_all() -> None:
    group: CommitGroup[int, int] = CommitGroup(lambda _: [])
    with pytest.raises(ValueError, match="shorter"):
        group.submit(1, 1)
