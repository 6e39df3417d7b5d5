"""Logs as a terminal shows them, within bounds whatever the lines."""

from collections.abc import Callable

import pytest

from portal.storage.log_text import (
    LINE_BYTES,
    SCAN_BYTES,
    Chunk,
    Read,
    chunk_of,
    search_of,
    search_tail_of,
    tail_of,
    whole_size,
)

MIB = 1024 * 1024
LIMIT = 256 * 1024


def of(data: bytes) -> tuple[Read, int]:
    return lambda offset, limit: data[offset : offset + limit], len(data)


def walk(data: bytes, wanted: str, limit: int = LIMIT) -> tuple[str, int]:
    """All that is found, and in how many calls."""
    read, size = of(data)
    found, offset, calls = "", 0, 0
    while offset < size:
        answer = search_of(read, size, wanted, offset, limit)
        assert answer.next_offset > offset
        found, offset, calls = found + answer.text, answer.next_offset, calls + 1
    return found, calls


BAR = b"".join(b"\r%3d%%|####    | %d/10000" % (n // 100, n) for n in range(10_000))
LONG = {
    "states of a bar": b"\r000 on one line" * (30 * MIB // 16),
    "one line": b"x" * 30 * MIB,
    "lines of five MiB": (b"y" * (5 * MIB) + b"\n") * 6,
    "line ends of others": b"a\x0b\x0c\xc2\x85" * (6 * MIB),
    "short lines": b"1234567\n" * (30 * MIB // 8),
}


@pytest.mark.parametrize("data", LONG.values(), ids=LONG)
def test_a_search_reads_as_much_in_every_call(data: bytes) -> None:
    found, calls = walk(data, "needle")
    assert (found, calls <= len(data) // SCAN_BYTES + 2) == ("", True)


@pytest.mark.parametrize("data", LONG.values(), ids=LONG)
@pytest.mark.parametrize("at", [5, SCAN_BYTES - 3, SCAN_BYTES, 2 * SCAN_BYTES + 70_000, 30 * MIB - 9])
def test_a_search_finds_what_is_there_wherever_pieces_end(data: bytes, at: int) -> None:
    found, calls = walk(data[:at] + b"Needle" + data[at + 6 :], "needle")
    assert found.count("Needle") == 1
    assert calls <= len(data) // SCAN_BYTES + 2
    assert len(found.encode()) <= LINE_BYTES


def test_a_line_longer_than_the_limit_is_cut_around_what_was_found_and_says_so() -> None:
    read, size = of(b"first\n" + b"z" * 3_000_000 + b"needle" + b"z" * 1_000 + b"\nlast\n")
    text = search_of(read, size, "needle", 0, LIMIT).text
    assert "zneedlez" in text
    assert text.startswith("…z")
    assert text.endswith("… [cut: a line of 3,001,007 bytes]\n")
    answer = search_of(read, size, "last", 0, 2_000)
    assert (answer.text, answer.next_offset) == ("last\n", size), "a long line without it is passed over"


def test_results_fill_a_limit_and_go_on() -> None:
    assert walk(b"Loss 1\nstep\nLoss 2\nloss 3", "LOSS", limit=14) == ("Loss 1\nLoss 2\nloss 3", 2)
    assert walk(b"abcdefgh\n" * 3, "h", limit=3)[0].count("\n") == 3, "even where no line fits"


def test_lines_end_at_line_feeds_alone() -> None:
    read, size = of("separators x\u2028y \x0b\x0c \x85 in one line\nother\n".encode())
    for find in (search_of(read, size, "in one", 0, LIMIT), search_tail_of(read, size, "separators", 5, LIMIT)):
        assert find.text == "separators x\u2028y \x0b\x0c \x85 in one line\n"


def test_a_word_is_found_however_it_was_typed() -> None:
    read, size = of("cafe\u0301\n".encode())
    assert search_of(read, size, "CAFÉ", 0, LIMIT).text == "cafe\u0301\n"


def test_of_a_bar_the_last_state_is_shown_and_any_is_found() -> None:
    read, size = of(b"epoch 1\n" + BAR + b"\nend\r\nneedle-two\n" + BAR)
    assert (
        tail_of(read, size, 5, LIMIT).text
        == "epoch 1\n 99%|####    | 9999/10000\nend\nneedle-two\n 99%|####    | 9999/10000"
    )
    assert search_of(read, size, " 9999/", 0, LIMIT).text.count("\n") == 1
    assert search_of(read, size, " 50%", 0, LIMIT).text.startswith(" 50%|####    | 5099/10000\n")


def test_the_last_lines_are_found_behind_long_ones_and_say_where_they_begin() -> None:
    data = b"one\ntwo\n" + b"\rstate" * (MIB // 2) + b"\n" + b"w" * MIB
    read, size = of(data)
    answer = tail_of(read, size, 3, LIMIT)
    two, state, long = answer.text.split("\n")
    assert (two, state) == ("two", "state")
    assert long.endswith(f"… [cut: a line of {MIB:,} bytes]")
    assert (answer.offset, answer.next_offset) == (4, size)


def test_a_tail_keeps_to_its_limit() -> None:
    read, size = of(b"".join(b"line %d\n" % n for n in range(1_000)))
    answer = tail_of(read, size, 500, 100)
    assert len(answer.text) <= 100
    assert answer.text.endswith("line 999\n")
    assert chunk_of(read, size, answer.offset, 1_000).text == answer.text


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("take", [chunk_of, lambda read, size, _, limit: tail_of(read, size, 9, limit)])
def test_of_a_log_that_grows_a_character_written_in_part_is_left_for_later(
    size: int, take: Callable[[Read, int, int, int], Chunk]
) -> None:
    whole = "cut 🚂 in two\n".encode()
    read, written = of(whole[: 4 + size])
    first = take(read, whole_size(read, written), 0, LIMIT)
    assert (first.text, first.next_offset, first.size) == ("cut ", 4, 4)
    assert chunk_of(*of(whole), first.next_offset, LIMIT).text == "🚂 in two\n"


def test_bytes_that_begin_no_character_are_not_waited_for() -> None:
    for data in (b"\xff", b"a\xc0", b"\xe2\x9c\x93", b"\x93", b"\xf5\x80"):
        assert whole_size(*of(data)) == len(data)
