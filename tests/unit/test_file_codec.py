from uuid import UUID

import pytest

from belog.schemas.errors import Corrupt
from belog.storage.file_codec import (
    EndMark,
    IndexEntry,
    SegmentHeader,
    decode_end,
    decode_header,
    decode_index,
    encode_end,
    encode_header,
    encode_index_entry,
    encode_records,
    find_tail,
    walk,
)

LOG_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
HEADER = SegmentHeader(
    LOG_ID, "hér", is_replica=True, first_index=7, previous_first_index=3, previous_bytes=99
)


def group(*batches: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    for batch in batches:
        pieces += encode_records(batch, sum(map(len, pieces)))
    return b"".join(pieces)


def test_the_bytes_are_the_documented_ones() -> None:
    # Changing these breaks every log that exists: raise FORMAT_VERSION instead.
    assert encode_header(HEADER).hex() == (
        "42454c4f47534547"
        "0100"
        "0100"
        "42000000"
        "00112233445566778899aabbccddeeff"
        "0700000000000000"
        "0300000000000000"
        "6300000000000000"
        "0400"
        "68c3a972" + encode_header(HEADER)[-4:].hex()
    )
    assert group([(5, -1, b"ab"), (6, 2, b"c")])[4:30].hex() == (
        "02000080000000000500000000000000ffffffffffffffff6162"
    )
    assert group([(5, -1, b"ab"), (6, 2, b"c")])[34:59].hex() == (
        "010000001e0000000600000000000000020000000000000063"
    )


def test_the_checksum_is_that_of_zlib() -> None:
    assert encode_index_entry(IndexEntry(1, 2)).hex() == "01000000000000000200000000000000b9ddf600"


def test_what_is_written_is_read_back() -> None:
    data = encode_header(HEADER)
    assert decode_header(data + b"more") == (HEADER, len(data))
    mark = EndMark(LOG_ID, 7, 1234, 99)
    assert decode_end(encode_end(mark)) == mark
    entries = [IndexEntry(1, 50), IndexEntry(9, 70_000)]
    assert decode_index(b"".join(map(encode_index_entry, entries)) + b"rest") == entries
    rows = [(1, 5, b"one"), (2, 5, b"x" * 1000), (9, 6, b"")]
    found = walk(group(rows[:2], rows[2:]), 0, 0, 10, -1)
    assert [(r.position, r.created_at, r.value) for r in found.records] == rows
    assert (found.after, found.flaw) == (9, "")


def test_records_below_and_over_the_limit_are_left() -> None:
    data = group([(n, 0, b"v") for n in range(10)])
    found = walk(data, 0, 4, 3, -1)
    assert [r.position for r in found.records] == [4, 5, 6]
    assert [r.position for r in walk(data, found.at, 0, 10, found.after).records] == [7, 8, 9]


@pytest.mark.parametrize("index", [4, 5])
def test_an_index_that_does_not_grow_is_a_flaw(index: int) -> None:
    found = walk(group([(5, 0, b"a")], [(index, 0, b"b")]), 0, 0, 10, -1)
    assert [r.position for r in found.records] == [5]
    assert "after 5" in found.flaw


def test_a_header_that_was_changed_is_corrupt() -> None:
    data = encode_header(HEADER)
    for at in range(len(data)):
        with pytest.raises(Corrupt):
            decode_header(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        with pytest.raises(Corrupt):
            decode_header(data[:at])


def test_a_tail_without_its_last_record_is_cut_off_at_the_batch() -> None:
    first = group([(1, 0, b"a")])
    second = group([(2, 0, b"b"), (3, 0, b"c")])
    for length in range(1, len(second)):
        tail = find_tail(first + second[:length], 0, 0)
        assert (tail.end, tail.is_damage) == (len(first), False)
        assert tail.flaw
        assert tail.last is not None
        assert tail.last.position == 1
    whole = find_tail(first + second, 0, 0)
    assert (whole.end, whole.flaw) == (len(first + second), "")


def test_a_flaw_in_the_last_group_is_torn_and_one_before_it_is_damage() -> None:
    earlier = group([(1, 0, b"aaaa")], [(2, 0, b"bbbb")])
    last = group([(3, 0, b"cccc")], [(4, 0, b"dddd")])
    data = earlier + last
    for at in range(len(data)):
        tail = find_tail(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], 0, 0)
        assert tail.flaw
        assert tail.is_damage == (at < len(earlier)), at
        assert tail.end <= at


def test_a_tail_of_zeros_is_torn() -> None:
    data = group([(1, 0, b"a")])
    tail = find_tail(data + bytes(4096), 0, 0)
    assert (tail.end, tail.is_damage) == (len(data), False)
    assert tail.flaw
