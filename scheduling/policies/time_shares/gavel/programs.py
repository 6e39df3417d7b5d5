"""The reference's programs in the form that its engine gets, which determines the resulting shares.

Spec: heterogeneity-policies, "The reference implementation's own rules". `found` has a separate group for every job.
Besides the objective the rows matter, since the engine ends near the centre of the feasible set: it gives jobs time on
types on which they cannot run, searches for a makespan without an objective, and states finish-time fairness with a
cone for every job.
"""

from __future__ import annotations

import numpy as np

from scheduling.policies.time_shares.gavel.objective import everywhere
from scheduling.policies.time_shares.programs.groups import NO_PARTNER, Fractions
from scheduling.policies.time_shares.programs.max_min import MakespanSearch
from scheduling.policies.time_shares.programs.ungrouping.ungroup import Shares, expand
from scheduling.solvers.interior_point import centre
from scheduling.solvers.lp import Floats


class _Table:
    """Valid allocations: shares of time by column, then `extra` more variables."""

    def __init__(self, found: Fractions, extra: int = 0) -> None:
        self.found = found if (found.columns.partner != NO_PARTNER).any() else everywhere(found)
        columns, entries = self.found.columns, self.found.entries
        self.width, self.jobs, count = len(columns), np.concatenate(found.members), len(found.gang)
        self.variables = self.width + extra
        self.speeds, turns = np.zeros((count, self.variables)), np.zeros((count, self.variables))
        self.speeds[entries.group, entries.column] = entries.steps_per_s
        turns[entries.group, entries.column] = entries.mass
        room = np.zeros((len(found.capacity), self.variables))
        room[columns.kind, np.arange(self.width)] = found.gang[columns.group]
        self._rows = np.concatenate((-np.eye(self.width, self.variables), room, turns))
        self._bounds = np.concatenate((np.zeros(self.width), found.capacity, np.ones(count)))

    def solve(self, costs: Floats, rows: Floats, bounds: Floats, quadratic: int = 0) -> tuple[Floats, Shares]:
        """The variables, and the shares among them."""
        rows, bounds = np.concatenate((self._rows, rows)), np.concatenate((self._bounds, bounds))
        values = centre(costs, rows, bounds, quadratic)
        return values, expand(self.found, np.clip(values[: self.width], 0.0, 1.0))


def raised(found: Fractions, needs: Floats) -> Shares:
    """`needs` (steps/s by job), raised in proportion as far as possible."""
    table = _Table(found, extra=1)
    rows = -table.speeds / np.maximum(needs[table.jobs], 1e-300)[:, None]
    rows[:, -1] = 1.0
    return table.solve(-np.eye(table.variables)[-1], rows, np.zeros(len(rows)))[1]


def met(found: Fractions, needs: Floats) -> Shares:
    """`needs` are met, without an objective."""
    table = _Table(found)
    return table.solve(np.zeros(table.variables), -table.speeds, -needs[table.jobs])[1]


def best(found: Fractions, speed_worth: Floats) -> Shares:
    """The largest throughput, with `speed_worth` as the worth of one step/s of each job."""
    table = _Table(found)
    return table.solve(-(speed_worth @ table.speeds), np.zeros((0, table.variables)), np.zeros(0))[1]


def least_late(found: Fractions, race: MakespanSearch) -> tuple[float, Shares]:
    """(theta, shares) with the least theta that all reach: spent + steps * u <= rate * theta with u * speed >= 1."""
    count = len(found.gang)
    table = _Table(found, extra=1 + count)
    rate, theta, slowness = race.rate[table.jobs], table.width, np.zeros((count, table.variables))
    slowness[:, theta + 1 :] = np.eye(count)
    late = slowness * (race.steps[table.jobs] / rate)[:, None]
    late[:, theta] = -1.0
    # (speed + u, speed - u, 2) in a quadratic cone
    cones = np.stack((-table.speeds - slowness, -table.speeds + slowness, np.zeros_like(late)), axis=1)
    bounds = np.concatenate((-race.spent[table.jobs] / rate, np.tile([0.0, 0.0, 2.0], count)))
    rows = np.concatenate((late, cones.reshape(3 * count, -1)))
    values, shares = table.solve(np.eye(table.variables)[theta], rows, bounds, quadratic=count)
    return float(values[theta]), shares
