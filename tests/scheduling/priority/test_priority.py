"""Fair share and multifactor priority against what a real Slurm printed, against hand-made trees, and as laws."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.priority.decay import decayed, held
from scheduling.priority.fair_share import Account, Leaf, Standing, Tree, effective_usage, factor_of, standings
from scheduling.priority.multifactor import (
    Columns,
    Floats,
    Priorities,
    Weights,
    age_factor,
    priorities,
    size_factor,
)

CASES = Path(os.environ.get("EVENKEEL_SHARED", Path(__file__).parents[4] / "shared")) / "data" / "slurm_cases"


def seconds(text: str) -> float:
    """Slurm's D-HH:MM:SS."""
    days, _, rest = text.rpartition("-")
    hours, minutes, whole = rest.split(":")
    return int(days or 0) * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + int(whole)


def resources(text: str) -> dict[str, float]:
    return {name: float(re.sub(r"[KMG]$", "", amount)) for name, amount in re.findall(r"([\w/]+)=([\d.]+\w?)", text)}


class Recorded:
    """A file of `sprio`, `sshare` and `scontrol` output."""

    def __init__(self, path: Path) -> None:
        self.case: dict[str, Any] = json.loads(path.read_text())
        self.config = self.case["config"]
        self.jobs = self.case["jobs"]

    def weights(self) -> Weights:
        value = {name: float(self.config[f"PriorityWeight{name}"]) for name in ("Age", "Assoc", "FairShare", "JobSize")}
        given = {name.lower(): weight for name, weight in resources(self.config["PriorityWeightTRES"]).items()}
        return Weights(
            age=value["Age"],
            assoc=value["Assoc"],
            fair_share=value["FairShare"],
            job_size=value["JobSize"],
            partition=float(self.config["PriorityWeightPartition"]),
            qos=float(self.config["PriorityWeightQOS"]),
            resources=given,
        )

    def fair_share(self, user: str) -> float:
        """From what sshare printed of usage and shares; the parts' raw usage is of another moment."""
        rows = self.case["sshare"]
        me = next(row for row in rows if row["User"] == user)
        above = next(row for row in rows if row["Account"] == me["Account"] and not row["User"])
        siblings = [row for row in rows if row["Account"] == me["Account"] and row["User"]]
        part = float(me["RawShares"]) / sum(float(row["RawShares"]) for row in siblings)
        tops = [float(row["RawShares"]) for row in rows if not row["User"] and row["RawShares"]]
        top = sum(tops) + next(float(row["RawShares"]) for row in rows if row["User"] == "root")
        norm = float(above["RawShares"]) / top * part
        assert norm == pytest.approx(float(me["NormShares"]), abs=5e-7)
        effective = effective_usage(float(me["NormUsage"]), float(above["EffectvUsage"]), part)
        assert effective == pytest.approx(float(me["EffectvUsage"]), abs=1.1e-6)
        return factor_of(effective, norm)

    def columns(self) -> Columns:
        def column(values: list[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        jobs, partitions = self.jobs, self.case["partitions"]
        of = [partitions[job["partition"]] for job in jobs]
        most = max(float(each["PriorityJobFactor"]) for each in partitions.values())
        rank = {each["Name"]: float(each["Priority"]) for each in self.case["qos"]}
        asked, whole = [resources(job["TRES"]) for job in jobs], [resources(each["TRES"]) for each in of]
        parts = {
            name: column([one.get(name, 0.0) / all_[name] for one, all_ in zip(asked, whole, strict=True)])
            for name in ("node", "cpu", "gres/gpu")
        }
        waited = [self.case["sampled_at"] - job["accrue"] for job in jobs]
        return Columns(
            # Slurm counts from its last look, in whole seconds; what it printed says which.
            age=age_factor(np.minimum(column(waited), self.looked(waited)), seconds(self.config["PriorityMaxAge"])),
            assoc=np.zeros(len(jobs)),
            fair_share=column([self.fair_share(job["user"]) for job in jobs]),
            job_size=size_factor(parts["node"], parts["cpu"], favor_small=self.config["PriorityFavorSmall"] == "Yes"),
            partition=column([float(each["PriorityJobFactor"]) / most for each in of]),
            qos=column([rank[job["qos"]] / max(rank.values()) for job in jobs]),
            site=np.zeros(len(jobs)),
            nice=column([float(job["nice"]) for job in jobs]),
            resources={"cpu": parts["cpu"], "gres/gpu": parts["gres/gpu"]},
        )

    def looked(self, waited: list[float]) -> Floats:
        """Waits at Slurm's last look, of which one job's printed age says when it was."""
        first = float(self.jobs[0]["normalized"]["AGE"]) * seconds(self.config["PriorityMaxAge"])
        return np.array(waited) - (waited[0] - round(first))


@pytest.fixture(scope="module", params=sorted(path.name for path in CASES.glob("*.json")) or [""])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    if not request.param:
        pytest.skip("the recorded cases are not there (EVENKEEL_SHARED)")
    return Recorded(CASES / request.param)


class TestAgainstSlurm:
    def test_each_factor_agrees_to_the_digits_printed(self, recorded: Recorded) -> None:
        columns = recorded.columns()
        names = {"AGE": "age", "FAIRSHARE": "fair_share", "JOBSIZE": "job_size", "PARTITION": "partition", "QOS": "qos"}
        for at, job in enumerate(recorded.jobs):
            for theirs, ours in names.items():
                printed, mine = float(job["normalized"][theirs]), float(getattr(columns, ours)[at])
                assert mine == pytest.approx(printed, abs=1.1e-6), (job["id"], theirs)

    def test_weighted_factors_and_totals_are_the_printed_ones(self, recorded: Recorded) -> None:
        found = priorities(recorded.weights(), recorded.columns())
        names = {"AGE": "age", "FAIRSHARE": "fair_share", "JOBSIZE": "job_size", "PARTITION": "partition", "QOS": "qos"}
        for at, job in enumerate(recorded.jobs):
            printed = job["weighted"]
            mine = {name: round(float(found.weighted[ours][at])) for name, ours in names.items()}
            assert mine == {name: int(printed[name]) for name in names}, job["id"]
            for name, amount in resources(printed["TRES"]).items():
                assert round(float(found.weighted[name][at])) == amount, (job["id"], name)
            assert int(found.total[at]) == int(printed["PRIORITY"]) == int(job["scontrol_priority"])


def tree(accounts: dict[str, tuple[float, str | None]], users: dict[str, tuple[float, float]]) -> Tree:
    """users: "account/user" -> (shares, usage)."""
    leaves = {Leaf(*name.split("/")): value for name, value in users.items()}
    return Tree(
        {name: Account(shares, parent) for name, (shares, parent) in accounts.items()},
        {leaf: shares for leaf, (shares, _) in leaves.items()},
        {leaf: used for leaf, (_, used) in leaves.items()},
    )


class TestClassic:
    def test_a_hierarchy_by_hand(self) -> None:
        """Slurm's documentation, "Classic Fairshare": effective usage takes in what the siblings used."""
        found = standings(
            tree(
                {"a": (40, None), "d": (60, None), "b": (30, "a"), "c": (10, "a"), "e": (25, "d"), "f": (35, "d")},
                {"b/1": (1, 20), "c/2": (1, 0), "c/3": (1, 25), "e/4": (1, 25), "f/5": (1, 0)},
            )
        )
        total = 70
        a = 45 / total
        b = 20 / total + (a - 20 / total) * 30 / 40
        c = 25 / total + (a - 25 / total) * 10 / 40
        assert found["a"].effective_usage == pytest.approx(a)
        assert found["b"].effective_usage == pytest.approx(b)
        two = 0 + (c - 0) / 2
        assert found[Leaf("c", "2")].effective_usage == pytest.approx(two)
        assert found[Leaf("c", "2")].norm_shares == pytest.approx(0.4 * 0.25 * 0.5)
        assert found[Leaf("c", "2")].factor == pytest.approx(2 ** (-two / 0.05))
        assert found[Leaf("f", "5")].factor > found[Leaf("e", "4")].factor

    def test_without_any_usage(self) -> None:
        found = standings(tree({"a": (1, None)}, {"a/1": (1, 0), "a/2": (3, 0)}))
        assert [standing.factor for standing in found.values()] == [1.0, 1.0, 1.0]

    def test_without_shares_the_factor_is_nothing(self) -> None:
        found = standings(tree({"a": (0, None), "b": (1, None)}, {"a/1": (1, 0), "b/2": (1, 0)}))
        assert (found[Leaf("a", "1")].factor, found[Leaf("b", "2")].factor) == (0.0, 1.0)

    def test_who_used_its_share_has_a_half(self) -> None:
        found = standings(tree({"a": (1, None), "b": (3, None)}, {"a/1": (1, 25), "b/2": (1, 75)}))
        assert {standing.factor for standing in found.values()} == {0.5}


class TestFairTree:
    def test_an_account_before_another_takes_all_its_users_with_it(self) -> None:
        """However much one of them used: "if accounts are unequal, all users of the better are ahead"."""
        found = standings(
            tree(
                {"good": (1, None), "bad": (1, None)},
                {"good/heavy": (1, 40), "good/light": (1, 0), "bad/none": (1, 0), "bad/most": (1, 60)},
            ),
            "fair_tree",
        )
        order = sorted((key for key in found if isinstance(key, Leaf)), key=lambda leaf: -found[leaf].factor)
        assert [leaf.user for leaf in order] == ["light", "heavy", "none", "most"]
        assert [found[leaf].factor for leaf in order] == [1.0, 0.75, 0.5, 0.25]

    def test_users_that_tie_have_one_rank(self) -> None:
        found = standings(tree({"a": (1, None)}, {"a/1": (1, 10), "a/2": (1, 10), "a/3": (1, 30)}), "fair_tree")
        assert [found[Leaf("a", user)].factor for user in "123"] == [1.0, 1.0, pytest.approx(1 / 3)]

    def test_accounts_that_tie_are_ranked_as_one(self) -> None:
        found = standings(
            tree(
                {"a": (1, None), "b": (1, None)},
                {"a/1": (1, 10), "a/2": (1, 40), "b/3": (1, 20), "b/4": (1, 30)},
            ),
            "fair_tree",
        )
        assert [found[Leaf(*name)].factor for name in ("a1", "b3", "b4", "a2")] == [1.0, 0.75, 0.5, 0.25]

    def test_a_user_that_ties_with_an_account_ranks_as_its_best(self) -> None:
        found = standings(tree({"a": (1, None)}, {"/u": (1, 50), "a/1": (1, 10), "a/2": (1, 40)}), "fair_tree")
        assert [found[Leaf(*name)].factor for name in (("", "u"), ("a", "1"), ("a", "2"))] == [
            1.0,
            1.0,
            pytest.approx(1 / 3),
        ]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1))
    accounts = {
        name: Account(draw(st.integers(1, 50)), draw(st.sampled_from([None, *names[:at]])))
        for at, name in enumerate(names)
    }
    leaves = [Leaf(name, str(user)) for name in names for user in range(draw(st.integers(0, 3)))]
    shares = {leaf: float(draw(st.integers(1, 20))) for leaf in leaves}
    used = {leaf: float(draw(st.integers(0, 1000))) for leaf in leaves}
    return Tree(accounts, shares, used)


class TestLaws:
    @given(trees(), st.sampled_from(["classic", "fair_tree"]))
    def test_factors_are_in_bounds_and_fall_with_use(self, whole: Tree, form: Any) -> None:
        before = standings(whole, form)
        assert all(0 <= standing.factor <= 1 for standing in before.values())
        for leaf in list(whole.users)[:3]:
            more = Tree(whole.accounts, whole.users, {**whole.usage, leaf: whole.usage[leaf] + 100})
            assert standings(more, form)[leaf].factor <= before[leaf].factor + 1e-12

    @given(trees())
    def test_shares_and_usage_add_up(self, whole: Tree) -> None:
        found = standings(whole)
        total = sum(whole.usage.values())
        leaves = [found[leaf] for leaf in whole.users]
        assert sum(standing.norm_usage for standing in leaves) == pytest.approx(1.0 if total else 0.0)
        assert sum(standing.norm_shares for standing in leaves) <= 1 + 1e-9

    @given(trees())
    def test_fair_tree_never_puts_a_users_sibling_of_lower_level_fair_share_before_it(self, whole: Tree) -> None:
        found = standings(whole, "fair_tree")
        for one in whole.users:
            for other in whole.users:
                if one.account == other.account and found[one].level_fs > found[other].level_fs:
                    assert found[one].factor > found[other].factor

    @given(
        st.floats(0, 1e6),
        st.floats(0, 1e5),
        st.floats(0, 1e6),
        st.floats(60, 1e7),
        st.floats(0, 1),
    )
    def test_what_is_held_decays_alike_however_it_is_cut(
        self, start: float, length: float, later: float, half_life: float, part: float
    ) -> None:
        middle, end = start + part * length, start + length
        whole = held(start, end, end + later, half_life)
        parts = held(start, middle, end + later, half_life) + held(middle, end, end + later, half_life)
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-6)
        assert decayed(held(start, end, end, half_life), later, half_life) == pytest.approx(whole, rel=1e-6, abs=1e-6)
        assert 0 <= whole <= length + 1e-6


def test_without_a_half_life_nothing_is_forgotten() -> None:
    assert (held(10, 30, 1e9, None), decayed(20, 1e9, None)) == (20, 20)


def test_half_of_it_is_left_after_a_half_life() -> None:
    assert decayed(8, 7 * 86_400, 7 * 86_400) == 4
    assert held(0, 3_600, 3_600, 3_600) == pytest.approx(3_600 / math.log(2) / 2)


def one_each(**values: float) -> Columns:
    def column(name: str) -> Floats:
        return np.array([values.get(name, 0.0)])

    factors = {name: column(name) for name in ("age", "assoc", "fair_share", "job_size", "partition", "qos")}
    return Columns(**factors, site=column("site"), nice=column("nice"), resources={})


class TestNeuron:
    """10,000 x age over 7 days + 3,000 x fair share."""

    weights = Weights(age=10_000, fair_share=3_000)

    def total(self, waited_min: float, factor: float) -> int:
        age = float(age_factor(np.array([waited_min * 60]), 7 * 86_400)[0])
        return int(priorities(self.weights, one_each(age=age, fair_share=factor)).total[0])

    def test_the_heaviest_user_overtakes_one_who_used_nothing_after_3024_minutes(self) -> None:
        assert self.total(3_023, 0.0) < self.total(0, 1.0) <= self.total(3_024, 0.0)

    def test_about_a_point_a_minute_up_to_seven_days(self) -> None:
        assert self.total(1_440, 0.0) == 1_428
        assert self.total(7 * 1_440, 0.0) == self.total(30 * 1_440, 0.0) == 10_000


def test_nice_lowers_and_site_raises_and_nothing_is_below_one() -> None:
    found: Priorities = priorities(Weights(qos=100), one_each(qos=0.5, nice=20, site=7))
    assert found.total.tolist() == [37]
    assert priorities(Weights(qos=100), one_each(nice=5_000)).total.tolist() == [1]


def test_small_jobs_can_be_favoured() -> None:
    parts = np.array([0.25, 1.0])
    assert size_factor(parts).tolist() == [0.25, 1.0]
    assert size_factor(parts, favor_small=True).tolist() == [0.75, 0.0]


def test_standings_are_plain_values() -> None:
    assert Standing(1, 1, 0, 0, 0, 1, math.inf) == standings(tree({"a": (1, None)}, {}))["a"]
