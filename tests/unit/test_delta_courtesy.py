"""Writers of one Delta table, simulated: who wins a commit must not win all of them."""

from itertools import pairwise

import pytest

from belog.storage.delta_courtesy import TURN_S_MAX, TURN_S_MIN, Courtesy, loser_pause_s

COMMIT_S = 0.02
READ_S = 0.01


class Writer:
    """Commits without a pause of its own."""

    def __init__(self, *, is_courteous: bool) -> None:
        self.courtesy = Courtesy() if is_courteous else None
        self.begins_s = self.ends_s = 0.0
        self.loaded = 0
        self.losses = 0
        self.wins_s: list[float] = []

    def prepare(self, now_s: float, version: int) -> None:
        pause_s = 0.0 if self.courtesy is None else self.courtesy.pause_s(now_s, COMMIT_S)
        self.begins_s = now_s + pause_s
        self.ends_s = self.begins_s + COMMIT_S
        self.loaded = version

    def end(self, version: int) -> int:
        now_s = self.ends_s
        if self.loaded == version:
            version += 1
            self.wins_s.append(now_s)
            self.losses = 0
            if self.courtesy is not None:
                self.courtesy.won(now_s)
            self.prepare(now_s, version)
        else:
            self.losses += 1
            if self.courtesy is not None:
                self.courtesy.lost(now_s)
            self.prepare(now_s + READ_S + loser_pause_s(0.5, self.losses), version)
        return version


def simulated(writers: list[Writer], until_s: float) -> None:
    version = 0
    for writer in writers:
        writer.prepare(0.0, version)
    while (writer := min(writers, key=lambda w: w.ends_s)).ends_s < until_s:
        version = writer.end(version)


def longest_wait_s(writer: Writer, until_s: float) -> float:
    times = [0.0, *writer.wins_s, until_s]
    return max(later - before for before, later in pairwise(times))


def test_who_loses_loses_for_ever_where_nobody_gives_way() -> None:
    writers = [Writer(is_courteous=False) for _ in range(2)]
    simulated(writers, 60.0)
    assert not writers[1].wins_s


@pytest.mark.parametrize("count", [2, 3])
def test_who_gives_way_lets_everybody_have_commits(count: int) -> None:
    writers = [Writer(is_courteous=True) for _ in range(count)]
    simulated(writers, 60.0)
    for writer in writers:
        assert longest_wait_s(writer, 60.0) < TURN_S_MAX + 1.0
        assert len(writer.wins_s) > 100


def test_a_writer_that_is_alone_hardly_notices() -> None:
    (writer,) = writers = [Writer(is_courteous=True)]
    simulated(writers, 60.0)
    assert len(writer.wins_s) > 0.98 * 60.0 / COMMIT_S


def test_who_has_met_others_gives_way_soon_and_who_meets_none_seldom() -> None:
    courtesy = Courtesy()
    courtesy.lost(0.0)
    now_s, gave_way_at = 0.0, list[float]()
    while now_s < 40.0:
        pause_s = courtesy.pause_s(now_s, COMMIT_S)
        if pause_s:
            gave_way_at.append(now_s)
        now_s += pause_s + COMMIT_S
        courtesy.won(now_s)
    assert gave_way_at[0] == pytest.approx(TURN_S_MIN, abs=2 * COMMIT_S)
    turns = [later - before for before, later in pairwise(gave_way_at)]
    assert turns[:4] == sorted(turns[:4])
    assert turns[-1] > TURN_S_MAX


def test_a_pause_of_its_own_is_way_enough() -> None:
    courtesy = Courtesy()
    for n in range(1, 100):
        assert courtesy.pause_s(n * 1.0, COMMIT_S) == 0.0
        courtesy.won(n * 1.0 + COMMIT_S)
