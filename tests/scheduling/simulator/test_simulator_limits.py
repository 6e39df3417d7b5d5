"""Limits of projects and throughputs of pairs, as cluster and throughput files give them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scheduling.domain import Allocation, Curve, Snapshot
from scheduling.errors import InvalidInput
from scheduling.policies import load_policy
from scheduling.policies.time_shares.max_min_fairness import MaxMinFairness
from scheduling.simulator.engine import Engine
from scheduling.simulator.gpu_sharing.pairs import read_pairs
from scheduling.simulator.inputs.limits import read_limits
from scheduling.simulator.inputs.trace import Cluster, TraceJob, parse_cluster, read_cluster, read_throughputs
from scheduling.simulator.outcome import Options
from scheduling.throughput.colocation import Pairs
from tests.builders import make_nodes

NODE = {"type": "v100", "gpus": 4}
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
    [
        ({"most": -1}, "limits[0].most: -1 must be at least 0"),
        ({"most": 1, "kind": "money"}, "limits[0].kind: 'money' must be 'gpus', "),
        ({"most": 1, "gpu": 2}, "limits[0].gpu: is no known key; there are kind, most, type, projects."),
        ({"most": 1, "type": "h100"}, "limits[0].type: the cluster has no 'h100', only k80, v100"),
    ],
)
def test_a_limit_that_cannot_be_read_is_named(entry: dict[str, object], complaint: str) -> None:
    nodes = [*make_nodes(1, type="v100"), *make_nodes(1, type="k80")]
    with pytest.raises(InvalidInput, match=re.escape(f"c.json: {complaint}")):
        read_limits(Path("c.json"), [entry], nodes)


@pytest.mark.parametrize(
    ("cluster", "complaint"),
    [
        ([], "c.json: [] must be an object"),
        ({}, "nodes: it is missing"),
        ({"nodes": {}}, "nodes: {} must be a list"),
        ({"nodes": [NODE, {"gpus": 4}]}, "nodes[1].type: it is missing"),
        ({"nodes": [NODE, {**NODE, "coutn": 3}]}, "nodes[1].coutn: is no known key; did you mean count?"),
        ({"nodes": [NODE], "lanch_s": 3}, "lanch_s: is no known key; did you mean launch_s?"),
        ({"nodes": [{**NODE, "count": -1}]}, "nodes[0].count: -1 must be at least 0"),
        ({"nodes": [{**NODE, "count": 2.5}]}, "nodes[0].count: 2.5 must be a whole number"),
        ({"nodes": [{**NODE, "count": "3"}]}, "nodes[0].count: '3' must be a whole number"),
        ({"nodes": [{**NODE, "count": 10**8}]}, "nodes[0].count: 100000000 must be at most 1000000"),
        ({"nodes": [NODE, {**NODE, "count": 10**6}]}, "nodes: 4,000,004 GPUs in all must be at most 1,000,000"),
        ({"nodes": [{**NODE, "price_per_gpu_hour": -2}]}, "nodes[0].price_per_gpu_hour: -2 must be at least 0"),
        ({"nodes": [{**NODE, "mtbf_s": 0}]}, "nodes[0].mtbf_s: 0 must be above 0"),
        ({"nodes": [NODE], "launch_s": -20}, "launch_s: -20 must be at least 0"),
        ({"nodes": [NODE], "round_seconds": 0}, "round_seconds: 0 must be above 0"),
        ({"nodes": [NODE], "multi_node": "no"}, "multi_node: 'no' must be true or false"),
        ({"nodes": [NODE], "guarantees": [{"project": "a"}]}, "guarantees[0].gpus: it is missing"),
    ],
)
def test_a_cluster_file_that_is_wrong_is_named_by_place_and_what_is_allowed(cluster: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(complaint)) as error:
        parse_cluster(cluster, Path("c.json"))
    assert str(error.value).startswith("c.json: ")


def test_every_documented_key_of_a_cluster_file_is_read() -> None:
    """Those of docs/simulator.md, and what simulations of the portal have beside them."""
    node = {**NODE, "count": 2, "price_per_gpu_hour": 2.0, "mtbf_s": 2e6, "repair_s": 60, "cpus": 8, "memory_mib": 512}
    times = {"launch_s": 1, "checkpoint_s": 2, "stop_s": 3, "round_seconds": 4, "checkpoint_every_s": 5, "measure_s": 6}
    own = {"name": "n1", "watts": None, "gpu_memory_mib": None}
    owned = [{"project": "speech", "gpus": 1, "type": "v100", "reclaim_within_s": 9}]
    more = {"limits": [{"most": 1, "type": "v100"}], "guarantees": owned, "note": "ours", "multi_node": False}
    found = parse_cluster({"nodes": [{**node, **own}], **times, **more}, Path("c.json"))
    assert (found.gpus, found.price_per_gpu_hour, found.reliability) == (8, {"v100": 2.0}, {"v100": (2e6, 60.0)})
    assert {key: getattr(found, key) for key in times} == times
    assert (len(found.limits), len(found.guarantees), found.multi_node) == (1, 1, False)
    assert (found.nodes[0].cpu_milli, found.nodes[0].memory_mib, found.nodes[0].gpu_memory_mib) == (8_000, 512, None)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ([], "f.json: [] must map models to steps/s"),
        ({"m": [1, 2]}, "f.json, model 'm': [1, 2] must map accelerator types to steps/s"),
        ({"m": {"v100": "fast"}}, "f.json, model 'm', type 'v100': 'fast' must be steps/s on 1, 2, ... GPUs"),
        ({"m": {"v100": [2, -1]}}, "f.json, model 'm', type 'v100': on 2 GPUs: -1 must be a number of at least 0"),
        ({"m": {"v100": {"two": 1}}}, "type 'v100': 'two' must be a number of GPUs, from 1 to 1,000,000"),
        ({"m": {"v100": {"9" * 9: 1}}}, "type 'v100': '999999999' must be a number of GPUs"),
        ({"m": {"v100": {"steps_per_s": [1], "spread_factor": "x"}}}, "type 'v100': spread_factor: 'x' must be"),
        ({"v100": {"('m', 1)": 3}}, "f.json, type 'v100', ('m', 1): 3 must have its steps/s alone under \"null\""),
        ({"v100": {"('m', 1)": {"null": "x"}}}, "f.json, type 'v100', ('m', 1), null: 'x' must be a number"),
        ({"v100": {"('m'": {"null": 3}}}, "f.json, type 'v100': the key \"('m'\" must read ('<model>', <gang>)"),
    ],
)
def test_a_throughput_file_that_is_wrong_is_named_by_model_and_type(tmp_path: Path, table: Any, complaint: str) -> None:
    (tmp_path / "f.json").write_text(json.dumps(table))
    with pytest.raises(InvalidInput, match=re.escape(complaint)):
        read_throughputs(tmp_path / "f.json")


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
