"""An excerpt of the cluster gives the plan that the whole gives; node failures cost what they should."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import Curve
from scheduling.policies import load_policy
from scheduling.policies.capabilities import Answer, Capabilities
from scheduling.policies.queue.fifo_gang import FifoGang
from scheduling.simulator.engine import Engine
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options, Outcome
from tests.builders import make_nodes


class Unhurried(FifoGang):
    """The same policy, simulated on whole snapshots."""

    capabilities = Capabilities(Answer.COUNTS)


def _job(number: int, draw: st.DrawFn) -> TraceJob:
    least = draw(st.integers(1, 9))
    most = draw(st.none() | st.integers(least, 12))
    curve = Curve((0.0,) * draw(st.integers(0, 3)) + tuple(sorted(draw(st.lists(st.floats(0.5, 9), min_size=1)))))
    kinds = draw(st.sampled_from([("a",), ("b",), ("a", "b")]))
    return TraceJob(
        str(number),
        number,
        float(draw(st.integers(0, 60))) * 5.0,
        draw(st.floats(1, 900)),
        {kind: Curve(curve.steps_per_s, spread_factor=draw(st.sampled_from([1.0, 0.5]))) for kind in kinds},
        priority=draw(st.sampled_from([0, 0, 1])),
        min_gpus=least,
        max_gpus=most,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[TraceJob], Cluster, str]:
    sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
    first = make_nodes(*draw(sizes), type="a")
    nodes = first + make_nodes(*draw(sizes), type="b", first_id=100)
    reliability = {"a": (2000.0, 60.0)} if draw(st.booleans()) else {}
    several = draw(st.booleans())
    cluster = Cluster(nodes, {}, 10.0, 4.0, 1.0, 360.0, several, checkpoint_every_s=20.0, reliability=reliability)
    jobs = [_job(number, draw) for number in range(1, draw(st.integers(1, 14)) + 1)]
    return jobs, cluster, draw(st.sampled_from(["min", "max"]))


def simulate(policy: FifoGang, jobs: list[TraceJob], cluster: Cluster) -> Outcome:
    return Engine(jobs, cluster, policy, options=Options(seed=3, keep_holds=True)).run()


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_an_excerpt_gives_the_plan_of_the_whole(case: tuple[list[TraceJob], Cluster, str]) -> None:
    jobs, cluster, gang = case
    parameters = load_policy("fifo_gang", {"gang": gang}).parameters
    quick, whole = (simulate(kind(parameters), jobs, cluster) for kind in (FifoGang, Unhurried))
    assert quick.holds == whole.holds
    assert [run.finished_at for run in quick.runs] == [run.finished_at for run in whole.runs]
    if all(run.finished_at is not None for run in quick.runs):  # else both go on until so many rounds were in vain
        assert quick.rounds <= whole.rounds


def _long(steps: float = 1000.0, **changes: float) -> TraceJob:
    return TraceJob("1", 1, 0.0, steps, {"titan_xp": Curve((1.0,))}, max_gpus=1, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fifo_gang", "f_scheduling", "static_partition"])
def test_a_lost_node_takes_the_work_since_the_last_checkpoint(name: str) -> None:
    # Nodes fail now and then and stay away; others are there to go on.
    reliability = {"titan_xp": (1500.0, 1e9)}
    cluster = Cluster(make_nodes(*[1] * 40), {}, 10.0, 4.0, 1.0, checkpoint_every_s=50.0, reliability=reliability)
    options = Options(seed=1, keep_holds=True)
    outcome = Engine([_long(3000.0)], cluster, load_policy(name), options=options).run()
    (run,) = outcome.runs
    assert run.failures >= 1
    assert run.restarts == run.failures
    trained = [end - start - 10.0 for _, _, start, end in outcome.holds[:-1]]
    lost = sum(seconds % 50.0 if seconds > 0 else 0.0 for seconds in trained)
    assert run.lost_steps == pytest.approx(lost)
    assert run.lost_gpu_s == pytest.approx(lost)
    held = sum(end - start for _, _, start, end in outcome.holds)
    launching = sum(min(10.0, end - start) for _, _, start, end in outcome.holds)
    assert held == pytest.approx(3000.0 + lost + launching)
    assert outcome.meter.gpu_seconds == pytest.approx(held - launching)
    assert outcome.meter.training == outcome.meter.milli == 0
    assert run.finished_at == pytest.approx(held)


def test_failures_come_at_the_same_times_under_every_policy_and_end_with_the_jobs() -> None:
    cluster = Cluster(
        make_nodes(2, 2), {}, 10.0, 4.0, 1.0, reliability={"titan_xp": (800.0, 30.0)}, checkpoint_every_s=20.0
    )
    first, second = (
        Engine([_long(5000.0)], cluster, load_policy(name), options=Options(seed=5)).run()
        for name in ("fifo_gang", "f_scheduling")
    )
    assert first.failures > 3
    assert first.runs[0].finished_at == second.runs[0].finished_at


def test_a_job_that_can_never_run_does_not_keep_a_failing_cluster_going() -> None:
    cluster = Cluster(make_nodes(2), {}, reliability={"titan_xp": (200.0, 30.0)})
    outcome = Engine([TraceJob("1", 1, 0.0, 5.0, {"titan_xp": Curve((1.0,))}, min_gpus=9)], cluster, FifoGang()).run()
    assert outcome.runs[0].finished_at is None


def test_the_true_speed_is_found_by_measuring() -> None:
    cluster = Cluster(make_nodes(1), {}, 10.0, 4.0, 1.0, measure_s=60.0)
    engine = Engine([_long()], cluster, load_policy("f_scheduling"), options=Options(seed=1, noise=0.3))
    (run,) = engine.run().runs
    factor = run.factors["titan_xp"]
    assert factor != 1.0
    assert run.finished_at == pytest.approx(10.0 + 1000.0 / factor)
    assert run.measured == {"titan_xp"}
    assert run.curves()["titan_xp"] == Curve((factor,), "measured")
