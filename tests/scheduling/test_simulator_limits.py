"""Limits of projects and throughputs of pairs, as cluster and throughput files give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from scheduling.colocation import Pairs
from scheduling.domain import Allocation, Curve, Snapshot
from scheduling.errors import InvalidInput
from scheduling.policies import load_policy
from scheduling.policies.max_min_fairness import MaxMinFairness
from scheduling.simulator.engine import Engine
from scheduling.simulator.limits import read_limits
from scheduling.simulator.outcome import Options
from scheduling.simulator.pairs import read_pairs
from scheduling.simulator.trace import Cluster, TraceJob, read_cluster
from tests.builders import make_nodes

MODELS = "ResNet-18 (batch size 64)", "LM (batch size 20)"


def job(number: int, project: str = "vision", model: str = "") -> TraceJob:
    curves = {"titan_xp": Curve((1.0,))}
    return TraceJob(str(number), number, 0.0, 500.0, curves, model, project, max_gpus=1)


@pytest.mark.parametrize("name", ["fifo_gang", "f_scheduling", "max_min_fairness", "shortest_remaining_time"])
def test_a_project_never_holds_more_than_its_limit(name: str, tmp_path: Path) -> None:
    nodes = [{"type": "titan_xp", "gpus": 6}]
    limits = [{"projects": ["vision"], "most": 1}, {"kind": "running_jobs", "most": 3}]
    (tmp_path / "c.json").write_text(json.dumps({"nodes": nodes, "limits": limits}))
    jobs = [job(n) for n in range(1, 4)] + [job(n, "speech") for n in range(4, 8)]
    engine = Engine(jobs, read_cluster(tmp_path / "c.json"), load_policy(name), options=Options(keep_holds=True))
    holds = engine.run().holds
    assert all(run.finished_at for run in engine.runs)
    for _, _, moment, _ in holds:
        now = [number for number, _, start, end in holds if start <= moment < end]
        assert sum(number <= 3 for number in now) <= 1
        assert len(now) <= 3


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [({"most": -1}, "limits, 0, most"), ({"most": 1, "kind": "money"}, "0, kind"), ({"most": 1, "gpu": 2}, "0, gpu")],
)
def test_a_limit_that_cannot_be_read_is_named(entry: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read_limits(Path("c.json"), [entry])


class Watched(MaxMinFairness):
    """Notes the pairs that it is told of."""

    told: ClassVar[list[Pairs]] = []

    def allocate(self, snapshot: Snapshot) -> Allocation:
        self.told.append(dict(snapshot.pairs))
        return super().allocate(snapshot)


def test_packed_variants_see_the_pairs_of_the_throughput_file(tmp_path: Path) -> None:
    one, other = MODELS
    both = {f"('{other}', 1)": [0.9, 0.8], f"('{one}', 1)": [0.0, 0.0]}
    table = {"titan_xp": {f"('{one}', 1)": {"null": 1.0, **both}}, "titan_xp_unconsolidated": {}}
    (tmp_path / "f.json").write_text(json.dumps(table))
    pairs = read_pairs(tmp_path / "f.json")
    assert pairs == {(one, other, 1): {"titan_xp": (0.9, 0.8)}}
    Watched.told.clear()
    policy = Watched(load_policy("max_min_fairness", {"variant": "packed"}).parameters)
    engine = Engine([job(1, model=one), job(2, model=other)], Cluster(make_nodes(1), {}), policy)
    engine.run()
    estimated = Watched.told[0]
    (key,) = estimated
    assert set(key[:2]) == set(MODELS)
    Watched.told.clear()
    options = Options(pairs=pairs)
    Engine([job(1, model=one), job(2, model=other)], Cluster(make_nodes(1), {}), policy, options=options).run()
    expected = (0.9, 0.8) if key[0] == one else (0.8, 0.9)
    assert Watched.told[0] == {key: {"titan_xp": expected}}
    assert Watched.told[0] != estimated
    assert Watched.told[-1] == {}  # one is left


def test_pairs_are_not_worked_out_for_policies_that_do_not_pack() -> None:
    Watched.told.clear()
    Engine([job(1, model=MODELS[0]), job(2, model=MODELS[1])], Cluster(make_nodes(1), {}), Watched()).run()
    assert all(not told for told in Watched.told)
