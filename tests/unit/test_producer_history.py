"""Histories: what a file says, what is passed by, and what an import adds."""

import gzip
from pathlib import Path

import pytest

from belog.producers import Producer, history
from belog.producers.history import HistoryRow, Skipped, import_history, read_history
from belog.schemas.errors import InvalidInput, LimitExceeded
from belog.storage.memory import MemoryLog
from tests.examples import event

LINE = "2024-02-29T12:00:00.000001+01:00\tA\tdata/a.csv"
MICROS = 1_709_204_400_000_001


def read(folder: Path, text: str | bytes, name: str = "h.tsv") -> list[HistoryRow | Skipped]:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    return list(read_history(folder / name))


ROW = HistoryRow(1, MICROS, "A", "data/a.csv", "")


def test_without_a_header_the_columns_are_time_change_ref(tmp_path: Path) -> None:
    assert read(tmp_path, LINE + "\n") == [ROW]
    assert read(tmp_path, LINE) == [ROW], "the last line needs no end"
    assert read(tmp_path, LINE + "\r\n") == [ROW]
    assert read(tmp_path, "") == []


def test_with_a_header_the_columns_go_by_name(tmp_path: Path) -> None:
    text = "path\tsize\tcommit\tchange\tcommit_time\na b\t3\tc0ffee\tD\t2024-02-29T11:00:00Z\n"
    assert read(tmp_path, text) == [
        HistoryRow(2, MICROS - 1, "D", "a b", "c0ffee"),
    ]
    assert read(tmp_path, b"\xef\xbb\xbf" + text.encode()) == read(tmp_path, text)
    assert read(tmp_path, "\n\n" + text)[0].line == 4
    first_only = read(tmp_path, f"{LINE}\ntime\tchange\tref\n")
    assert isinstance(first_only[1], Skipped), "a header stands first"


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(LINE.encode()), "h.tsv.gz") == [ROW]


@pytest.mark.parametrize("header", ["time\tchange", "change\tref\tx", "time\tref\tpath\tchange"])
def test_a_header_must_name_each_column_once(tmp_path: Path, header: str) -> None:
    with pytest.raises(InvalidInput, match=r"has (no column for|two columns)"):
        read(tmp_path, header + "\n" + LINE)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2024-02-29T12:00:00Z\tA", "2 columns, not 3"),
        (LINE + "\tx", "4 columns, not 3"),
        (LINE.replace("A", "R"), "'R' is none of A, M, D"),
        ("2024-02-29T12:00:00\tA\tr", "has no zone"),
        ("2024-02-29\tA\tr", "has no zone"),
        ("2024-02-30T12:00:00Z\tA\tr", "not ISO 8601"),
        ("yesterday\tA\tr", "not ISO 8601"),
        ("\tA\tr", "not ISO 8601"),
        ("\t\t", "none of A, M, D"),
    ],
)
def test_a_bad_row_is_passed_by(tmp_path: Path, line: str, reason: str) -> None:
    bad, good = read(tmp_path, f"{line}\n\n{LINE}\n")
    assert isinstance(bad, Skipped)
    assert bad.line == 1
    assert reason in bad.reason
    assert isinstance(good, HistoryRow)
    assert good.line == 3


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(LINE.encode() * 1_000)
    broken = packed[:40] + bytes(20) + packed[60:]
    for data in (packed[:-9], broken, b"no gzip at all", packed[:5]):
        with pytest.raises(InvalidInput, match="cannot be read"):
            read(tmp_path, data, "h.tsv.gz")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path, b"2024\tA\t\xff\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(read_history(tmp_path / "nowhere.tsv"))
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(read_history(tmp_path))


def test_a_line_has_a_bound(tmp_path: Path) -> None:
    longest = LINE + "x" * (history.LINE_CHARS_MAX - len(LINE) - 1) + "\n"
    assert len(read(tmp_path, longest)) == 1
    with pytest.raises(LimitExceeded, match="LINE_CHARS_MAX"):
        read(tmp_path, "x" + longest)
    with pytest.raises(LimitExceeded, match="LINE_CHARS_MAX"):
        read(tmp_path, gzip.compress(b"x" * 50_000_000), "bomb.gz")


# --- what an import adds


def rows(*changes: str) -> list[HistoryRow | Skipped]:
    """One row a change: `A ref`, a second apart."""
    return [
        HistoryRow(n, MICROS + n * 1_000_000, change[0], change[2:], "c")
        for n, change in enumerate(changes, 1)
    ]


def counts(producer: Producer, given: list[HistoryRow | Skipped]) -> tuple[int, int, int]:
    report = import_history(producer, given)
    assert report.rows == len(given)
    return report.appended, report.already_there, report.skipped


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.initialize()
    return made


def test_changes_become_events(log: MemoryLog) -> None:
    with Producer(log, actor="importer") as producer:
        given = rows("A a", "A b", "M a", "D b", "D b", "D c", "A b", "A \x07", "D a")
        given.append(Skipped(10, "x", "bad"))
        seen: list[int] = []
        report = import_history(producer, given, on_progress=seen.append)
        assert (report.appended, report.already_there, report.skipped) == (6, 0, 4)
        assert sorted((s.line, s.ref) for s in report.first_skipped) == [
            *((5, "b"), (6, "c"), (8, "\x07"), (10, "x")),
        ]
        assert seen == [10]
        state = producer.state("partition", "b")
        assert state is not None
        assert state.state == "available"
    stored = log.read(1).events
    assert [e.event.occurred_at for e in stored] == [
        MICROS + n * 1_000_000 for n in (1, 2, 3, 4, 7, 9)
    ]
    assert stored[3].event.body() == {"reason": "deleted by commit c"}


def test_importing_again_adds_what_is_new(log: MemoryLog) -> None:
    history_rows = rows(*(f"{'AMMMMM'[n % 6]} r{n % 3}" for n in range(60)))
    with Producer(log, actor="importer") as producer:
        assert counts(producer, history_rows[:40]) == (40, 0, 0)
        assert counts(producer, history_rows[:40]) == (0, 40, 0)
        assert counts(producer, history_rows) == (20, 40, 0)
    with Producer(log, actor="importer") as producer:
        assert counts(producer, history_rows) == (0, 60, 0)
    assert log.next_position() == 61


def test_equal_rows_are_two_changes(log: MemoryLog) -> None:
    twice = [HistoryRow(n, MICROS, "M", "a", "c") for n in (1, 2)]
    with Producer(log, actor="importer") as producer:
        assert counts(producer, [*twice]) == (2, 0, 0)
        assert counts(producer, [*twice]) == (0, 2, 0)


def test_an_import_gives_way_to_an_attempt_under_way(log: MemoryLog) -> None:
    with Producer(log, actor="importer") as producer:
        producer.append_event(event("v1.partition.requested", "a", n=1))
        report = import_history(producer, rows("A a", "A b"))
        assert (report.appended, report.skipped) == (1, 1)
        assert "requested" in report.first_skipped[0].reason


def test_only_so_many_reasons_are_kept(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SKIPPED_KEPT_MAX", 3)
    with Producer(log, actor="importer") as producer:
        report = import_history(producer, rows(*["D a"] * 9))
    assert (report.skipped, [s.line for s in report.first_skipped]) == (9, [1, 2, 3])
