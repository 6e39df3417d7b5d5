"""Sizes and durations as people write them, and texts that only look like some."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from portal.jobfile.fields import Memory, Seconds

_MEMORY: TypeAdapter[Any] = TypeAdapter(Memory)
_SECONDS: TypeAdapter[Any] = TypeAdapter(Seconds)


@pytest.mark.parametrize(("written", "mib"), [("8GiB", 8192), (" 512 ", 512), ("1.5 g", 1536), ("1\tTB\n", 1024**2)])
def test_sizes(written: str, mib: int) -> None:
    assert _MEMORY.validate_python(written) == mib


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90), ("1d12h30m", 131_400), (" 1d 12h\t30m 5.5s ", 131_405.5), ("1h5", 3605), ("2m ", 120)],
)
def test_durations(written: str, seconds: float) -> None:
    assert _SECONDS.validate_python(written) == seconds


@pytest.mark.parametrize("written", ["", "GiB", "8 G iB", "8GiB" + " " * 100, "9" * 400])
def test_what_is_no_size(written: str) -> None:
    """Long ones are refused by their length: were they looked through, the time would grow with its square or more."""
    with pytest.raises(ValidationError, match="write memory as"):
        _MEMORY.validate_python(written)


@pytest.mark.parametrize("written", ["", " ", "1x", "30m1h", "1 h", "2m" + " " * 100, " " * 60 + "x", "9" * 400 + "d"])
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(ValidationError, match="write a duration as"):
        _SECONDS.validate_python(written)
