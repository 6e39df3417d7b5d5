"""Every job gets a fixed share of each type: the static baseline for comparisons with sharing.

X = X_isolated; nothing is optimised. Source: Gavel (OSDI 2020), section 4.1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduling.domain import Snapshot
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.time_shares.base import FractionPolicy
from scheduling.policies.time_shares.programs.groups import NO_PARTNER, Fractions
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand


class Isolated(FractionPolicy):
    name: ClassVar[str] = "isolated"
    title: ClassVar[str] = "Isolated shares"
    capabilities = Capabilities(Answer.TIME_SHARES, time_dependent=False)

    def solve(self, snapshot: Snapshot, found: Fractions) -> tuple[float, Shares]:
        columns = found.columns
        values = found.isolated[columns.group, columns.kind] * found.count[columns.group]
        values = np.where(columns.partner == NO_PARTNER, values, 0.0)
        return float(values @ columns.steps_per_s), expand(found, values)
