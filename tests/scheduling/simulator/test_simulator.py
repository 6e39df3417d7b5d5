"""The simulator: hand-computed times, honest states, readable inputs, same seed same answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_paper_table import F_SCHED, STATIC, middle, sweep
from scheduling.domain import Curve
from scheduling.errors import InvalidInput, InvalidParameters
from scheduling.lifecycle import State
from scheduling.policies import POLICIES, load_policy
from scheduling.simulator import Options, parse_policy, simulate
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob, read_cluster, read_throughputs
from scheduling.simulator.output.report import percentile, table
from scheduling.simulator.readers import read_trace
from tests.builders import make_nodes


def cluster(*sizes: int) -> Cluster:
    return Cluster(make_nodes(*sizes), {"titan_xp": 3.6}, launch_s=10.0, checkpoint_s=4.0, stop_s=1.0)


def job(number: int, arrival_s: float, steps: float, *curve: float, **changes: int) -> TraceJob:
    return TraceJob(str(number), number, arrival_s, steps, {"titan_xp": Curve(curve)}, **changes)  # type: ignore[arg-type]


def test_one_job_launches_and_trains() -> None:
    result = simulate([job(1, 5.0, 200.0, 1.0, 2.0)], cluster(2), "f_scheduling")
    assert result["makespan_s"] == pytest.approx(110.0)  # 10 s launch, 200 steps at 2 steps/s
    assert (result["queueing_s"], result["launching_s"], result["running_s"]) == pytest.approx((0.0, 10.0, 100.0))
    assert result["utilisation"] == pytest.approx(100 / 110)
    assert result["cost"] == pytest.approx(2 * 110 / 3600 * 3.6)
    assert result["slowdown"]["mean"] == pytest.approx(1.1)
    assert result["restarts"] == 0


@pytest.mark.parametrize("policy", ["f_scheduling", "multifactor", "static_partition"])
def test_rounds_that_look_at_all_may_be_kept_apart(policy: str) -> None:
    # The first round is at once, so the next may be 60 s later: the second job starts at 60, not at its arrival at 5.
    jobs = [job(1, 0.0, 500.0, 1.0, max_gpus=1), job(2, 5.0, 500.0, 1.0, max_gpus=1)]
    apart = Options(coalesce_s=60.0)
    assert simulate(jobs, cluster(2), policy, options=apart)["queueing_s"] == pytest.approx(55.0 / 2)
    assert simulate(jobs, cluster(2), "fifo_gang", options=apart)["queueing_s"] == 0.0  # looks at the queue's head


def test_policies_know_the_prices_of_the_cluster() -> None:
    """The lowest cost is on the type that is slower and cheaper still."""
    curves = {"fast": Curve((2.0,)), "slow": Curve((1.0,))}
    nodes = (*make_nodes(1, type="fast"), *make_nodes(1, type="slow", first_id=10))
    on = Cluster(nodes, {"fast": 9.0, "slow": 1.0}, launch_s=0.0, checkpoint_s=0.0, stop_s=0.0)
    result = simulate([TraceJob("1", 1, 0.0, 7_200.0, curves, max_gpus=1)], on, "min_cost")
    assert result["cost"] == pytest.approx(2.0)


def test_an_arrival_shrinks_the_other_and_stands_by_until_gpus_are_free() -> None:
    # First: launches 0-10, trains alone, unprotected from 40. Second arrives at 100: the first checkpoints (4 s)
    # and stops (1 s), both launch at 105 on one GPU each, and train from 115.
    jobs = [job(1, 0.0, 1000.0, 1.0, 2.0), job(2, 100.0, 50.0, 1.0, 2.0)]
    engine = Engine(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5}))
    outcome = engine.run()
    first, second = outcome.runs
    assert second.seconds[State.STANDBY] == pytest.approx(5.0)
    assert second.finished_at == pytest.approx(165.0)
    # 180 steps until 100, 50 until 165; then its growth to 2 GPUs costs 15 s, at 2 steps/s from 180.
    assert first.restarts == 2
    assert first.finished_at == pytest.approx(180.0 + 770.0 / 2.0)


def test_a_job_is_not_resized_while_protected() -> None:
    jobs = [job(1, 0.0, 1000.0, 1.0, 2.0), job(2, 20.0, 50.0, 1.0, 2.0)]
    outcome = Engine(jobs, cluster(2), load_policy("f_scheduling", {"v_bound": 0.5})).run()
    assert outcome.runs[1].seconds[State.WAITING_FOR_INITIAL_RESOURCE] == pytest.approx(20.0)  # until 10 + 3 x 10


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_job_ends_and_no_gpu_is_held_twice(name: str, data: st.DataObject) -> None:
    jobs = [
        job(n, data.draw(st.floats(0, 300)), data.draw(st.floats(1, 2000)), *sorted(data.draw(_STEPS)), max_gpus=5)
        for n in range(1, data.draw(st.integers(1, 6)) + 1)
    ]
    engine = Checked(jobs, cluster(3, 2), load_policy(name))
    outcome = engine.run()
    assert all(run.state is State.FINISHED for run in outcome.runs)
    for run in outcome.runs:
        assert run.finished_at is not None
        assert sum(run.seconds.values()) == pytest.approx(run.finished_at - run.job.arrival_s)
    assert sum(run.gpu_seconds for run in outcome.runs) >= outcome.meter.gpu_seconds - 1e-6


_STEPS = st.lists(st.floats(0.5, 20), min_size=1, max_size=5)


class Checked(Engine):
    """Re-checks after every round what must always hold."""

    def _round(self) -> None:
        super()._round()
        assigned = [gpu for run in self.live.values() for gpu in run.gpu_ids]
        held = [gpu for run in self.live.values() for gpu in run.occupied]
        assert len(assigned) == len(set(assigned))
        assert len(held) == len(set(held))
        assert set(held) == self.occupied.gpus


def test_same_seed_same_bytes() -> None:
    jobs = [job(n, 30.0 * n, 500.0, 1.0, 1.9, 2.5) for n in range(1, 8)]

    def once() -> str:
        return json.dumps({**simulate(jobs, cluster(4), "f_scheduling", seed=7), "wall_s": 0}, sort_keys=True)

    assert once() == once()


def test_a_job_that_never_fits_leaves_the_rest_alone() -> None:
    result = simulate([job(1, 0.0, 10.0, 1.0, min_gpus=3), job(2, 0.0, 10.0, 1.0)], cluster(2), "f_scheduling")
    assert (result["jobs"], result["finished"]) == (2, 1)


def test_the_paper_is_matched_on_a_small_sweep() -> None:
    values = [value for _, value in sweep(quick=True)]
    low, high = middle(values)
    assert len(values) == 32  # every point reproduces the static columns to the second
    assert high < min(STATIC.values())
    assert low <= F_SCHED <= high


def test_it_reads_our_trace_and_cluster_files(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        json.dumps(
            {
                "jobs": [
                    {"arrival_s": 9, "total_steps": 5, "model_type": "resnet50"},
                    {"total_steps": 7, "throughputs": {"v100": {"1": 1, "4": 3}}, "min_gpus": 2, "max_gpus": 4},
                ]
            }
        )
    )
    first, second = read_trace(tmp_path / "t.json")
    assert (first.total_steps, first.curves["v100"].steps_per_s) == (7.0, (1.0, 1.0, 1.0, 3.0))
    assert (second.arrival_s, set(second.curves) >= {"titan_xp"}) == (9.0, True)
    (tmp_path / "c.json").write_text('{"nodes": [{"type": "v100", "count": 2, "gpus": 3}], "launch_s": 7}')
    found = read_cluster(tmp_path / "c.json")
    assert [node.gpu_ids for node in found.nodes] == [(0, 1, 2), (3, 4, 5)]
    assert found.launch_s == 7.0


def test_it_reads_the_reference_formats(tmp_path: Path) -> None:
    row = ["ResNet-18 (batch size 16)", "python3 main.py", "dir", "--num_steps", "1", "900", "2", "1", "-1.0", "12.5"]
    (tmp_path / "a.trace").write_text("\t".join(row) + "\n")
    key = f"('{row[0]}', 2)"
    (tmp_path / "f.json").write_text(
        json.dumps({"v100": {key: {"null": 4.0}}, "v100_unconsolidated": {key: {"null": 3.0}}})
    )
    (read,) = read_trace(tmp_path / "a.trace", read_throughputs(tmp_path / "f.json"))
    assert (read.arrival_s, read.total_steps, read.min_gpus, read.max_gpus) == (12.5, 900.0, 2, 2)
    assert read.curves["v100"] == Curve((0.0, 4.0), "user", spread_factors=(1.0, 0.75))
    assert read_trace(tmp_path / "a.trace")[0].curves["v100"].at(2) == pytest.approx(100.142)  # the published table
    (tmp_path / "a.trace").write_text("\t".join(["GPT-9", *row[1:]]) + "\n")
    with pytest.raises(InvalidInput, match="line 1, column job_type: no throughput is known"):
        read_trace(tmp_path / "a.trace")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "line 1"), ('{"jobs": 3}', "list of jobs"), ('{"jobs": [{}]}', "job 0"), ('{"jobs": []}', "no jobs")],
)
def test_an_unreadable_trace_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InvalidInput, match=complaint):
        read_trace(tmp_path / "t.json")


def test_policies_are_named_with_parameters() -> None:
    assert parse_policy("f_scheduling:v_bound=0.1,amortise=true") == (
        "f_scheduling",
        {"v_bound": 0.1, "amortise": True},
    )
    for wrong in ("nosuch", "fifo_gang:gang"):
        with pytest.raises(InvalidParameters):
            parse_policy(wrong)


def test_the_table_has_a_line_for_each_policy() -> None:
    results = [simulate([job(1, 0.0, 10.0, 1.0)], cluster(1), name) for name in sorted(POLICIES)]
    lines = table(results).splitlines()
    assert len(lines) == 1 + len(POLICIES)
    assert len({len(line) for line in lines}) == 1


def test_percentiles_are_linear() -> None:
    assert percentile([1.0, 3.0, 2.0], 0.75) == 2.5
    assert percentile([], 0.5) == 0.0
