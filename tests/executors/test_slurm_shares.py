"""What `sshare` says of the site's fair share."""

from __future__ import annotations

import pytest

from scheduling.executors.slurm.cluster.shares import read_shares

#: As printed by 22.05 with Fair Tree: accounts are indented, and have a factor under the classic form alone.
PRINTED = """root||
 root|root|1.000000
 vision||
  vision|ana|0.250000
  vision|portal|0.750000
 language||0.400000
  language|ana|0.500000
"""


def test_factors_are_read_by_account_and_user() -> None:
    assert read_shares(PRINTED) == {
        ("root", "root"): 1.0, ("vision", "ana"): 0.25, ("vision", "portal"): 0.75, ("language", "ana"): 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["", "vision", "vision|ana", "vision|ana|", "vision|ana|nan", "vision|ana|inf", "vision|ana|-0.1", "vision|ana|1.1",
     "|ana|0.5", "vision||0.5", "sshare: error"],
)  # fmt: skip
def test_a_line_that_says_no_factor_is_left_out(line: str) -> None:
    assert read_shares(f"{line}\nvision|bob|0.5\n") == {("vision", "bob"): 0.5}
