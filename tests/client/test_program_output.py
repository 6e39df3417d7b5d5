"""What of a program's output reaches a terminal, and how wide names are there."""

from itertools import product

import pytest
from evenkeel.cli.output import fitted, table
from evenkeel.cli.widths import clean, display_width
from evenkeel.program_output import RESET, ShownText, last_state, shown_lines, split_lines

SEQUENCES = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "clipboard, other end": "\x1b]52;c;ZXZpbA==\x1b\\",
    "clipboard in C1": "\x9d52;c;ZXZpbA==\x9c",
    "clear screen": "\x1b[2J",
    "cursor in C1": "\x9b10;10H",
    "title": "\x1b]0;title\x07",
    "device control": "\x1bP1$r0m\x1b\\",
    "private message": "\x1b^hidden\x1b\\",
    "application": "\x1b_Ga=T;xxxx\x1b\\",
    "reset": "\x1bc",
    "alternate screen": "\x1b[?1049h",
    "character set": "\x1b(0",
    "report": "\x1b[6n",
    "bell and backspace": "\x07\x08\x08",
    "delete": "\x7f",
    "next line": "\x85",
    "direction": "\u202e\u2066",
    "vertical tab": "\x0b\x0c",
    "endless colour": "\x1b[" + "1;" * 100 + "m",
}


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_only_colours_reach_a_terminal_however_the_output_is_cut(sequence: str) -> None:
    output = f"one\x1b[31mred\x1b[0m {sequence}two\rthree\tfour\n"
    ways = ((True, "one\x1b[31mred\x1b[0m "), (False, "onered "))
    for size, (colours, before) in product((1, 2, 3, 1000), ways):
        text = ShownText(colours=colours)
        shown = "".join(text.feed(output[at : at + size]) for at in range(0, len(output), size)) + text.close()
        rest = shown.removeprefix(before).removesuffix(RESET if colours else "")
        assert rest.endswith("two\rthree\tfour\n")
        assert not set(rest) & set("\x1b\x07\x08\x7f\x85\x9b\x9d\x0b\x0c\u202e\u2066")
        assert "ZXZpbA" not in rest
        assert len(rest) <= len("two\rthree\tfour\n") + 200


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("\x1b[8m", ""), ("\x1b[05;6m", ""), ("\x1b[31;8;1m", "\x1b[31;1m"), ("\x1b[38;5;8m", "\x1b[38;5;8m"),
        ("\x1b[48;2;5;6;8;8m", "\x1b[48;2;5;6;8m"), ("\x1b[m", "\x1b[m"), ("\x1b[38:5:8m", "\x1b[38:5:8m"),
    ],
)  # fmt: skip
def test_nothing_blinks_or_is_hidden(given: str, kept: str) -> None:
    text = ShownText(colours=True)
    assert text.feed(f"a{given}b\n") == f"a{kept}b\n"


def test_a_sequence_without_an_end_keeps_no_line_back() -> None:
    text = ShownText(colours=True)
    assert text.feed("a\x1b]0;never ended\nnext\n") == "a\nnext\n"
    assert text.feed("\x1b[3") == ""
    assert text.close() == ""


def test_lines_end_at_line_feeds_and_show_their_last_state() -> None:
    assert split_lines(b"a\rb\x0bc\x85d\ne") == [b"a\rb\x0bc\x85d\n", b"e"]
    assert split_lines(b"") == []
    assert [last_state(line) for line in (b"1\r2\r\n", b"1\r2\r", b"a\r\n", b"", b"\r", b"a\r b")] == [
        b"2\n", b"2", b"a\n", b"", b"", b" b",
    ]  # fmt: skip
    assert shown_lines("\x1b[1mx\x1b[0m\u2028y\n\n".encode()) == ["x\u2028y", ""]


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("名前", 4), ("e\u0301", 1), ("👩\u200d💻", 2), ("❤\ufe0f", 2), ("👍🏽", 2), ("ｶﾅ", 2), ("ไทยที่", 4)],
)
def test_text_is_as_wide_as_a_terminal_shows_it(text: str, width: int) -> None:
    assert display_width(text) == width
    assert clean(text) == text


def test_columns_stand_under_each_other() -> None:
    lines = table(["NAME", "STATE"], [["名前👩\u200d💻", "queued"], ["plain", "running"]]).split("\n")
    starts = {
        display_width(line[: line.index(word)]) for line, word in zip(lines[1:], ("queued", "running"), strict=True)
    }
    assert starts == {8}


def test_cutting_keeps_characters_whole() -> None:
    assert fitted("名前名前", 5) == "名前…"
    assert fitted("ab👩\u200d💻cd", 4) == "ab…"
    assert display_width(fitted("👩\u200d💻" * 10, 9)) <= 9


def test_what_a_terminal_would_obey_is_a_space() -> None:
    assert clean("a\x1b[2Jb\u202ec\u200bd\ne\u200df") == "a [2Jb c d e f"
