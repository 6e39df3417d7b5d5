"""No form of a secret gets through, wherever the text was cut."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from evenkeel.runner.redaction import MASK, Redactor
from hypothesis import given
from hypothesis import strategies as st

SECRET = "s3cr3t/+value&more"


def streamed(redactor: Redactor, data: bytes, cuts: list[int]) -> bytes:
    stream, out, start = redactor.stream(), b"", 0
    for cut in [*sorted(c for c in cuts if c <= len(data)), len(data)]:
        out += stream.feed(data[start:cut])
        start = cut
    return out + stream.close()


@given(
    st.lists(st.sampled_from([SECRET.encode(), b"s3cr3t", b"s", b"value", b"\n", b"plain text "]), max_size=8),
    st.lists(st.integers(0, 120), max_size=10),
)
def test_cuts_make_no_difference(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    assert streamed(Redactor([SECRET]), data, cuts) == data.replace(SECRET.encode(), MASK)


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_base64_is_hidden_wherever_the_value_lies_in_it(before: bytes, after: bytes) -> None:
    redactor = Redactor([SECRET])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        said = redactor.clean(encode(before + SECRET.encode() + after))
        assert MASK in said
        assert len(said) <= len(MASK) + len(encode(before + after)) + 8


@pytest.mark.parametrize(
    "text", [f"x{SECRET}y", f"?q={quote(SECRET, safe='')}", json.dumps({"key": SECRET}), repr(SECRET)]
)
def test_usual_ways_of_writing_are_hidden(text: str) -> None:
    assert "s3cr3t" not in Redactor([SECRET]).clean_text(text)


@pytest.mark.parametrize("length", [18, 19, 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_of_a_value_in_base64_by_itself_nothing_is_left(length: int, end: str) -> None:
    value = "s3cr3t-s3cr3t-s3cr3t"[:length]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert Redactor([value]).clean(encode((value + end).encode())) == MASK


def test_lines_of_a_long_value_are_hidden_each_and_in_rows() -> None:
    value = "\n".join(f"line {n} of a private key" for n in range(9))
    redactor = Redactor([value])
    assert "line 4" not in redactor.clean_text("said: line 4 of a private key")
    rows = base64.encodebytes(value.encode())
    assert rows.splitlines()[1] not in redactor.clean(rows)


def test_of_two_values_the_longer_one_is_hidden_whole() -> None:
    redactor = Redactor(["abcdef", "abcdef-and-more"])
    assert streamed(redactor, b"abcdef-and-more abcdef.", [6]) == MASK + b" " + MASK + b"."


def test_the_beginning_of_a_value_waits_and_the_rest_does_not() -> None:
    stream = Redactor([SECRET]).stream()
    assert stream.feed(b"loss 0.5\ns3c") == b"loss 0.5\n"
    assert stream.feed(b"ure\n") == b"s3cure\n"


def test_without_values_nothing_changes() -> None:
    assert Redactor([]).clean_object({"a": ["b", 1, None]}) == {"a": ["b", 1, None]}
    assert Redactor([SECRET]).clean_object({SECRET: [SECRET, 1.5]}) == {"[redacted]": ["[redacted]", 1.5]}
