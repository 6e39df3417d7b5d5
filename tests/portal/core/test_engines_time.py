"""What a launch is paid for where its engine says how long it ran."""

from __future__ import annotations

import pytest

from portal.core.times import engines_time, from_posix
from scheduling.executors.base import Fact


@pytest.mark.parametrize(
    ("began", "ended", "paid"),
    [
        (None, None, (100, 200)),  # it does not say
        (103, 190, (103, 190)),
        (99, 190, (100, 191)),  # its clock knows whole seconds only
        (103, 103, (103, 103)),  # cancelled before it began
        (73, 160, (100, 187)),  # its clock is half a minute behind
        (133, 220, (113, 200)),  # or before ours
        (50, 600, (100, 200)),  # never more than we saw
        (190, 103, (103, 103)),  # and what makes no sense is no time
    ],
)
def test_a_launch_is_paid_for_as_long_as_its_engine_ran_it(
    began: float | None, ended: float | None, paid: tuple[float, float]
) -> None:
    fact = Fact("r", 1, "exited", 200.0, began_at=began, ended_at=ended)
    assert engines_time(from_posix(100.0), fact) == tuple(map(from_posix, paid))
