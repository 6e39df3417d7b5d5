"""With compatible=true the simulator's figures are those that the reference recorded for its own traces."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from benchmarks.reference_traces import Recorded, cluster, recorded, run
from scheduling.domain import Curve, Job
from scheduling.engine.rounds import plan_round
from scheduling.policies import load_policy
from tests.builders import make_job, make_nodes, make_snapshot

CONTINUOUS, STATIC, SHORT = "cont_single_300_lam2400", "static_multi_150", "max_min_fairness"
TOLERANCE = 0.03


def cases(chosen: Iterable[str] = (CONTINUOUS, STATIC, SHORT, "minimize_makespan")) -> list[Recorded]:
    return [entry for entry in recorded() if entry.policy and entry.trace in chosen]


def check(entry: Recorded) -> None:
    assert entry.policy is not None
    name, variant = entry.policy
    found = run(entry.trace, cluster(entry.cluster), name, variant=variant, compatible=True)
    assert found["finished"] == found["jobs"]
    assert found["jct_s"]["mean"] == pytest.approx(entry.mean_jct_s, rel=TOLERANCE)
    assert found["makespan_s"] == pytest.approx(entry.makespan_s, rel=TOLERANCE)


def label(entry: Recorded) -> str:
    return f"{entry.theirs}-{entry.trace}-{entry.cluster}"


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # half a minute on a core of one's own
@pytest.mark.parametrize("entry", cases(), ids=label)
def test_mean_jct_and_makespan_are_the_references(entry: Recorded) -> None:
    check(entry)


QUICK = {
    ("fifo", SHORT, "12:12:12"),
    ("isolated", SHORT, "8:16:24"),
    ("fifo_perf", "minimize_makespan", "12:12:12"),
    ("max_min_fairness_perf", "minimize_makespan", "12:12:12"),
    ("min_total_duration_perf", SHORT, "12:12:12"),
    ("finish_time_fairness_perf", SHORT, "8:16:24"),
}


@pytest.mark.parametrize("entry", [e for e in cases() if (e.theirs, e.trace, e.cluster) in QUICK], ids=label)
def test_a_short_trace_ends_as_the_reference_recorded(entry: Recorded) -> None:
    check(entry)


def jobs_of(count: int, **speeds: float) -> list[Job]:
    curves = {kind: Curve((value,)) for kind, value in speeds.items()}
    return [make_job(number=n + 1, curves=curves, submitted_at=0.0) for n in range(count)]


def test_types_are_filled_in_the_fixed_order() -> None:
    """A job that is faster on the last type gets the first one that has room for it, whatever it is promised."""
    nodes = [*make_nodes(1, type="k80", first_id=0), *make_nodes(1, type="v100", first_id=10)]
    (job,) = jobs_of(1, k80=9.0, v100=1.0)
    snapshot = make_snapshot(job, nodes=nodes)
    for compatible, kind in ((True, "v100"), (False, "k80")):
        policy = load_policy("max_sum_throughput", {"compatible": compatible})
        (move,) = plan_round(snapshot, policy).moves
        assert move.gang is not None
        assert move.gang.type == kind
