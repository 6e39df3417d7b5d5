"""The policy `multifactor`: order, backfill, preemption by level of service, and what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.capacity.release_timetable import Timetable
from scheduling.domain import Curve, Entity, Gang, Job, Node, Plan, Qos, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.policies.queue.multifactor import PRESETS
from scheduling.priority.multifactor import Weights
from scheduling.priority.scoring import Formula, score

NOW = 1_000_000.0
HOUR = 3_600.0


def waiting(number: int, gpus: int = 1, hours: float = 1.0, **more: Any) -> Job:
    """A job of one step a second on any gang, submitted `number` seconds after the first."""
    values: dict[str, Any] = {
        "id": f"j{number}",
        "number": number,
        "project": "p",
        "user": "u",
        "state": State.WAITING_FOR_RESOURCE,
        "submitted_at": NOW - 10_000 + number,
        "curves": {"v100": Curve((1.0,) * 16)},
        "min_gpus": gpus,
        "max_gpus": gpus,
        "remaining_steps": hours * HOUR,
    }
    return Job(**(values | more))


def running(number: int, gpus: tuple[int, ...], hours: float = 1.0, **more: Any) -> Job:
    held = {"state": State.RUNNING, "gpu_ids": gpus, "gang": Gang("v100", len(gpus)), "held_since": NOW - HOUR}
    return waiting(number, len(gpus), hours, **(held | more))


def cluster(*jobs: Job, gpus: int = 4, nodes: int = 1, **more: Any) -> Snapshot:
    machines = tuple(Node(f"n{n}", "v100", tuple(range(n * gpus, (n + 1) * gpus))) for n in range(nodes))
    return Snapshot(NOW, machines, jobs, **more)


def plan(snapshot: Snapshot, **parameters: Any) -> Plan:
    return plan_round(snapshot, load_policy("multifactor", parameters))


def started(found: Plan) -> set[str]:
    return {move.job_id for move in found.moves if move.kind == "start"}


class TestOrder:
    def test_who_used_less_goes_first(self) -> None:
        heavy, light = waiting(1, 4, user="heavy"), waiting(2, 4, user="light")
        usage = {"p": {"heavy": {"v100": 1e6}}}
        assert started(plan(cluster(heavy, light))) == {"j1"}
        assert started(plan(cluster(heavy, light, usage=usage, usage_at=NOW))) == {"j2"}

    def test_what_is_held_now_counts(self) -> None:
        busy = running(1, (0,), user="heavy", held_since=NOW - 100 * HOUR)
        heavy, light = waiting(2, 3, user="heavy"), waiting(3, 3, user="light")
        assert started(plan(cluster(busy, heavy, light))) == {"j3"}

    def test_usage_of_long_ago_counts_little(self) -> None:
        """A million GPU-seconds ten half-lives ago are less than two hours of now."""
        busy = running(1, (0,), user="light", held_since=NOW - 2 * HOUR)
        heavy, light = waiting(3, 3, user="heavy"), waiting(2, 3, user="light")
        usage = {"p": {"heavy": {"v100": 1e6}}}
        snapshot = cluster(busy, heavy, light, usage=usage, usage_at=NOW - 70 * 24 * HOUR)
        assert started(plan(snapshot)) == {"j3"}
        assert started(plan(snapshot, half_life_days=None)) == {"j2"}

    def test_who_waited_overtakes_who_used_nothing(self) -> None:
        """Neuron: 3,024 minutes are worth 3,000 points."""
        usage = {"p": {"heavy": {"v100": 1e9}}, "q": {}}
        projects = {"p": Entity(), "q": Entity()}
        new = waiting(2, 4, project="q", user="new", submitted_at=NOW)
        for minutes, first in ((3_000, "j2"), (3_050, "j1")):
            old = waiting(1, 4, user="heavy", submitted_at=NOW - minutes * 60)
            members = {"p": {"heavy": 1e-6, "other": 1.0}, "q": {"new": 1.0}}
            found = plan(cluster(old, new, usage=usage, usage_at=NOW, members=members, entities=projects))
            assert started(found) == {first}

    def test_a_project_with_a_larger_share_goes_first(self) -> None:
        one, other = waiting(1, 4, project="small"), waiting(2, 4, project="large")
        entities = {"small": Entity(weight=1), "large": Entity(weight=3)}
        usage = {"small": {"u": {"v100": 100.0}}, "large": {"u": {"v100": 100.0}}}
        assert started(plan(cluster(one, other, entities=entities, usage=usage, usage_at=NOW))) == {"j2"}

    def test_a_project_of_higher_priority_goes_first_where_that_has_a_weight(self) -> None:
        """Those below it too, but for what has a priority of its own."""
        tree = {
            "top": Entity(priority=10),
            "mine": Entity("top"),
            "own": Entity("top", priority=2),
            "plain": Entity(),
        }
        one, other = waiting(1, 4, project="plain"), waiting(2, 4, project="mine")
        assert started(plan(cluster(one, other, entities=tree))) == {"j1"}
        assert started(plan(cluster(one, other, entities=tree), weight_assoc=1e6)) == {"j2"}
        snapshot = cluster(one, other, waiting(3, 4, project="own"), entities=tree)
        scores = load_policy("multifactor", {"weight_assoc": 100}).scores_of(snapshot, snapshot.jobs)  # type: ignore[attr-defined]
        assert list(scores.priorities.weighted["assoc"]) == [0, 100, 20]

    def test_billing_weights_make_a_type_dearer(self) -> None:
        one, other = waiting(1, 4, user="a"), waiting(2, 4, user="b")
        usage = {"p": {"a": {"k80": 200.0}, "b": {"v100": 100.0}}}
        snapshot = cluster(one, other, usage=usage, usage_at=NOW)
        assert started(plan(snapshot)) == {"j2"}
        assert started(plan(snapshot, billing_weights={"k80": 0.1})) == {"j1"}

    def test_nice_lowers_and_an_administrators_priority_raises(self) -> None:
        one, other = waiting(1, 4), waiting(2, 4)
        assert started(plan(cluster(replace(one, priority=-500), other))) == {"j2"}
        assert started(plan(cluster(one, replace(other, priority=500)))) == {"j2"}

    def test_site_and_nice_are_told_apart_and_make_the_same_sum(self) -> None:
        both, less = replace(waiting(1, 4), priority=680, nice=20), replace(waiting(2, 4), priority=-50)
        plain = replace(waiting(3, 4), priority=680)
        found = score(cluster(both, less, plain), [both, less, plain], Formula(Weights(age=1_000)))
        assert found.priorities.site.tolist() == [700, -50, 680]
        assert found.priorities.nice.tolist() == [20, 0, 0]
        assert found.priorities.total[0] == found.priorities.total[2]

    def test_a_level_counts_where_it_has_a_weight(self) -> None:
        levels = {"normal": Qos(), "high": Qos(100)}
        snapshot = cluster(waiting(1, 4, qos="normal"), waiting(2, 4, qos="high"), qos=levels)
        assert started(plan(snapshot, weight_qos=3_000)) == {"j2"}
        assert started(plan(snapshot)) == {"j1"}

    def test_large_jobs_or_small_ones_can_be_favoured(self) -> None:
        small, large = waiting(1, 1, user="a"), waiting(2, 4, user="b")
        blocked = cluster(small, large)
        assert started(plan(blocked, weight_job_size=1_000)) == {"j2"}
        assert started(plan(blocked, weight_job_size=1_000, favor_small=True)) == {"j1"}


class TestBackfill:
    """Three of four GPUs are held for an hour; the first that waits needs all four."""

    def snapshot(self, *behind: Job) -> Snapshot:
        return cluster(running(1, (0, 1, 2), hours=1.0), waiting(2, 4, priority=100), *behind)

    def test_a_short_job_goes_before_and_a_long_one_does_not(self) -> None:
        found = plan(self.snapshot(waiting(3, 1, hours=0.5), waiting(4, 1, hours=2.0)))
        assert started(found) == {"j3"}
        assert {key: found.reasons[key].token for key in ("j2", "j3", "j4")} == {
            "j2": "resources",
            "j3": "backfilled",
            "j4": "priority",
        }
        assert found.reasons["j2"].detail["expected_start_at"] == NOW + HOUR
        assert found.reasons["j2"].detail["freed_by"] == "j1"
        assert found.reasons["j4"].detail["by"] == "j2"

    def test_a_job_that_waits_for_the_fast_gpus_waits_behind_the_others_who_do(self) -> None:
        """Four fast GPUs are there for them in two hours. Each of half an hour adds an eighth to the wait of the next:
        the 22nd would end there after 5 h 8 min, and on the slow one, which is free, after 5 h 3 min."""
        both = {"v100": Curve((1.0,)), "slow": Curve((0.099,))}
        for jobs, expected in ((21, set()), (22, {"j31"}), (30, {"j31"})):
            behind = [replace(waiting(10 + n, 1, hours=0.5), curves=both) for n in range(jobs)]
            busy = self.snapshot(running(5, (3,), hours=1.0), *behind)
            busy = replace(busy, nodes=(*busy.nodes, Node("old", "slow", (10,))))
            assert started(plan(busy)) == expected

    def test_without_backfill_no_job_passes(self) -> None:
        assert started(plan(self.snapshot(waiting(3, 1, hours=0.5)), backfill="none")) == set()

    def test_a_time_limit_is_as_good_as_known_steps(self) -> None:
        limited = waiting(3, 1, curves={}, time_limit_s=1_800.0)
        assert started(plan(self.snapshot(limited))) == {"j3"}
        assert started(plan(self.snapshot(replace(limited, time_limit_s=None)))) == set()

    def test_of_whom_nothing_else_is_known_the_deadline_counts(self) -> None:
        """It is taken to be over by then; one that has passed says nothing."""
        unknown = waiting(3, 1, curves={})
        for in_h, expected in ((0.5, {"j3"}), (2.0, set()), (-1.0, set())):
            assert started(plan(self.snapshot(replace(unknown, deadline=NOW + in_h * HOUR)))) == expected
        limited = replace(unknown, time_limit_s=1_800.0, deadline=NOW + 2 * HOUR)
        assert started(plan(self.snapshot(limited))) == {"j3"}

    def test_easy_protects_the_first_only_and_conservative_all(self) -> None:
        """Two are held for one hour and one for three. #3 (four GPUs) can start in three hours; #4 needs two for
        three hours, now two are free for it only if #3 may wait; #5 would delay #4 but not #3."""
        first = waiting(2, 3, hours=1.0, priority=100)
        second = waiting(3, 3, hours=1.0, priority=50)
        long = waiting(4, 1, hours=1.5)
        snapshot = cluster(running(1, (0, 1, 2), hours=1.0), first, second, long, gpus=4)
        # At one hour #2 starts on three; one is left beside it. Until #3 starts at two hours the fourth GPU is free.
        assert started(plan(snapshot)) == {"j4"}
        assert started(plan(snapshot, backfill="conservative")) == {"j4"}
        whole = replace(second, min_gpus=4, max_gpus=4)
        snapshot = cluster(running(1, (0, 1, 2), hours=1.0), first, whole, replace(long, remaining_steps=2.5 * HOUR))
        assert started(plan(snapshot)) == {"j4"}  # delays #3, which EASY allows
        assert started(plan(snapshot, backfill="conservative")) == set()

    def test_what_a_launch_costs_counts_before_a_job_trains_and_not_after(self) -> None:
        """#1 ends in an hour; who ends five minutes later delays #2, and so does who has to be launched first."""
        first = replace(running(1, (0, 1, 2), hours=1.0), restart_cost_s=600.0)
        last, tight = waiting(2, 4, priority=100), replace(waiting(3, 1), remaining_steps=HOUR - 60.0)
        late = replace(waiting(4, 1), remaining_steps=HOUR + 300.0)
        assert started(plan(cluster(first, last, late))) == set()
        assert started(plan(cluster(first, last, tight))) == {"j3"}
        assert started(plan(cluster(first, last, replace(tight, restart_cost_s=600.0)))) == set()

    def test_a_job_that_can_never_run_holds_up_no_job(self) -> None:
        found = plan(cluster(waiting(1, 99, priority=100), waiting(2, 4)))
        assert started(found) == {"j2"}
        assert found.reasons["j1"].token == "never"

    def test_the_queue_is_looked_at_to_a_depth(self) -> None:
        found = plan(cluster(*(waiting(n) for n in range(1, 4))), backfill_depth=2)
        assert started(found) == {"j1", "j2"}
        assert "is considered once some of them start" in found.reasons["j3"].text


class TestPreemption:
    levels = {"normal": Qos(0), "high": Qos(100, preempts=("normal",))}

    def snapshot(self, *jobs: Job) -> Snapshot:
        return cluster(*jobs, qos=self.levels)

    def test_a_higher_level_puts_out_the_lowest_priority_and_no_more_than_it_needs(self) -> None:
        found = plan(
            self.snapshot(
                running(1, (0,), qos="normal", priority=5),
                running(2, (1,), qos="normal"),
                running(3, (2, 3), qos="normal", priority=9),
                waiting(4, 1, qos="high"),
            )
        )
        assert {(move.job_id, move.kind) for move in found.moves} == {("j2", "preempt"), ("j4", "start")}
        assert found.reasons["j2"].token == "preempted"
        assert found.reasons["j2"].detail["by"] == "j4"

    def test_a_level_says_whether_its_jobs_queue_again(self) -> None:
        levels = {"low": Qos(0, cancelled_when_put_out=True), "high": Qos(100, preempts=("low",))}
        found = plan(cluster(running(1, (0, 1, 2, 3), qos="low"), waiting(2, 1, qos="high"), qos=levels))
        assert found.reasons["j1"].detail["mode"] == "cancel"
        assert "are then cancelled" in found.reasons["j1"].text

    @pytest.mark.parametrize(
        "kept",
        [
            {"state": State.RUNNING_PROTECTED, "protected_until": NOW + 60},
            {"restartable": False},
            {"qos": "high"},
        ],
        ids=["protected", "rigid", "same level"],
    )
    def test_whom_it_may_not_preempt(self, kept: dict[str, Any]) -> None:
        found = plan(self.snapshot(running(1, (0, 1, 2, 3), **({"qos": "normal"} | kept)), waiting(2, 1, qos="high")))
        assert not found.moves

    def test_the_same_level_waits(self) -> None:
        assert not plan(self.snapshot(running(1, (0, 1, 2, 3), qos="normal"), waiting(2, 1, qos="normal"))).moves

    def test_no_job_is_preempted_where_it_would_not_be_enough(self) -> None:
        found = plan(
            self.snapshot(running(1, (0,), qos="normal"), running(2, (1, 2, 3), qos="high"), waiting(3, 4, qos="high"))
        )
        assert not found.moves


class TestTimetable:
    @given(
        st.integers(0, 6),
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), max_size=6),
        st.lists(st.tuples(st.integers(1, 8), st.integers(1, 15)), max_size=8),
    )
    @settings(max_examples=200)
    def test_each_start_is_the_earliest_possible(
        self, free: int, releases: list[tuple[int, int]], asked: list[tuple[int, int]]
    ) -> None:
        """Against counting second by second."""
        table, taken = Timetable(0.0, free, [(float(at), n) for at, n in releases]), dict[int, int]()

        def left(at: int) -> int:
            return free + sum(n for end, n in releases if end <= at) - taken.get(at, 0)

        for count, duration in asked:
            slow = next((s for s in range(200) if all(left(at) >= count for at in range(s, s + duration))), None)
            found = table.earliest(count, float(duration))
            assert found == (math.inf if slow is None else slow)
            if slow is not None:
                table.take(count, found, float(duration))
                for at in range(slow, slow + duration):
                    taken[at] = taken.get(at, 0) + count

    def test_what_never_ends_is_never_given_back(self) -> None:
        table = Timetable(0.0, 2)
        table.take(1, 0.0, math.inf)
        assert (table.earliest(1, 10.0), table.earliest(2, 10.0)) == (0.0, math.inf)


def test_the_sites_own_factor_replaces_ours_where_it_has_one() -> None:
    usage = {"p": {"heavy": {"v100": 1e6}, "light": {"v100": 1.0}}}
    members = {"p": {"heavy": 1.0, "light": 1.0}}
    jobs = (waiting(1, user="heavy"), waiting(2, user="light"))
    site = {"p": {"heavy": 0.9, "stranger": 0.5}, "elsewhere": {"heavy": 0.1}}
    seen = cluster(*jobs, members=members, usage=usage, usage_at=NOW, site_factors=site)
    ours = score(seen, jobs, Formula(Weights(fair_share=1_000.0)))
    theirs = score(seen, jobs, Formula(Weights(fair_share=1_000.0), use_site_factors=True))
    assert ours.columns.fair_share[0] < ours.columns.fair_share[1]
    assert list(theirs.columns.fair_share) == [0.9, ours.columns.fair_share[1]]
    assert (theirs.order, ours.order) == ([0, 1], [1, 0])
    assert set(theirs.standings) == set(ours.standings)


def test_a_round_reads_the_sites_factors_where_the_policy_says_so() -> None:
    usage = {"p": {"heavy": {"v100": 1e9}}}
    jobs = [waiting(1, 4, user="heavy"), waiting(2, 4, user="light")]
    site = {"p": {"heavy": 1.0, "light": 0.0}}
    seen = cluster(*jobs, usage=usage, usage_at=NOW, site_factors=site)
    assert started(plan(seen)) == {"j2"}
    assert started(plan(seen, site_fair_share=True)) == {"j1"}


def test_presets_are_valid_and_said() -> None:
    for values in PRESETS.values():
        assert load_policy("multifactor", dict(values)).parameters is not None
    slurm: Any = load_policy("multifactor", dict(PRESETS["slurm"])).parameters
    assert (slurm.weight_age, slurm.fair_share) == (0, "fair_tree")


@given(st.permutations(range(1, 7)), st.integers(0, 3))
@settings(max_examples=40)
def test_the_order_in_which_jobs_are_listed_changes_nothing(order: list[int], heavy: int) -> None:
    jobs = {n: waiting(n, 1 + n % 3, hours=n, user=f"u{n % 3}") for n in order}
    usage = {"p": {f"u{heavy}": {"v100": 1e5}}}
    there = cluster(*(jobs[n] for n in order), usage=usage, usage_at=NOW)
    back = cluster(*(jobs[n] for n in sorted(order)), usage=usage, usage_at=NOW)
    assert plan(there) == plan(back)


def test_a_job_that_runs_stays_where_it_is_though_one_node_would_be_faster() -> None:
    """A restart nobody asked for: only a level of service may end what runs."""
    curve = {"v100": Curve((1.0,) * 4, spread_factor=0.1)}
    spans = running(1, (0, 1, 4, 5), hours=100.0, curves=curve, restart_cost_s=1.0, has_trained=True)
    assert plan(cluster(spans, nodes=3)).moves == ()
