"""Parts of GPUs in simulated time: who shares, what it costs, and what policies that do not share make of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.domain import WHOLE, Curve
from scheduling.errors import InvalidInput
from scheduling.lifecycle import State
from scheduling.policies import load_policy
from scheduling.simulator.engine import Engine
from scheduling.simulator.holdings import Holdings
from scheduling.simulator.inputs.clusters import load_cluster
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.outcome import Options, Outcome
from scheduling.simulator.output.report import summarise
from scheduling.simulator.readers import load_trace
from scheduling.simulator.snapshot import Whole
from tests.builders import make_nodes

ONE = {"titan_xp": Curve((1.0,))}
PARTS = (100, 250, 400, 500, 600, WHOLE)


def cluster(*sizes: int, **changes: int) -> Cluster:
    nodes = tuple(replace(node, cpu_milli=8_000, memory_mib=16_000) for node in make_nodes(*sizes))
    return Cluster(nodes, {"titan_xp": 3.6}, 10.0, 4.0, 1.0, **changes)  # type: ignore[arg-type]


def part(number: int, arrival_s: float, steps: float, milli: int, **changes: int) -> TraceJob:
    return TraceJob(str(number), number, arrival_s, steps, ONE, max_gpus=1, gpu_milli=milli, **changes)  # type: ignore[arg-type]


def test_two_halves_train_on_one_gpu_and_pay_half_each() -> None:
    jobs = [part(1, 0.0, 100.0, 500), part(2, 0.0, 100.0, 500)]
    outcome = Engine(jobs, cluster(1), load_policy("first_fit")).run()
    assert [run.finished_at for run in outcome.runs] == [110.0, 110.0]
    assert [run.cost for run in outcome.runs] == pytest.approx([0.5 * 110 / 1000] * 2)
    assert [run.gpu_seconds for run in outcome.runs] == pytest.approx([55.0, 55.0])
    assert summarise(outcome, cluster(1))["utilisation"] == pytest.approx(100 / 110)


def test_a_policy_that_does_not_share_gives_whole_gpus_which_are_paid() -> None:
    jobs = [part(1, 0.0, 100.0, 500), part(2, 0.0, 100.0, 500)]
    outcome = Engine(jobs, cluster(1), load_policy("fifo_gang")).run()
    assert [run.finished_at for run in outcome.runs] == [110.0, 220.0]
    assert [run.cost for run in outcome.runs] == pytest.approx([110 / 1000] * 2)


def test_a_part_waits_until_there_is_room_for_it() -> None:
    jobs = [part(1, 0.0, 100.0, 600), part(2, 1.0, 100.0, 300), part(3, 2.0, 50.0, 500)]
    first, second, third = Engine(jobs, cluster(1), load_policy("first_fit")).run().runs
    assert (first.finished_at, second.finished_at) == (110.0, 111.0)
    assert third.seconds[State.WAITING_FOR_INITIAL_RESOURCE] == pytest.approx(108.0)  # until the first is gone
    assert third.finished_at == 170.0


def test_processors_bound_who_starts() -> None:
    jobs = [part(1, 0.0, 100.0, 100, cpu_milli=6_000), part(2, 0.0, 100.0, 100, cpu_milli=6_000)]
    outcome = Engine(jobs, cluster(2), load_policy("first_fit")).run()
    assert [run.finished_at for run in outcome.runs] == [110.0, 220.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(PARTS)), max_size=30), st.data())
def test_holdings_are_what_was_taken_and_not_given_back(wanted: list[tuple[int, int]], data: st.DataObject) -> None:
    holdings, held = Holdings(), list[tuple[int, int]]()
    for gpu, milli in wanted:
        taken = Counter[int]()
        for other, amount in held:
            taken[other] += amount
        assert holdings.gpus == set(taken)
        assert holdings.has_room((gpu,), milli) == (taken[gpu] + milli <= WHOLE)
        if holdings.has_room((gpu,), milli):
            holdings.take((gpu,), milli)
            held.append((gpu, milli))
        elif held:
            gone = held.pop(data.draw(st.integers(0, len(held) - 1)))
            holdings.give_back((gone[0],), gone[1])


class Checked(Engine):
    def _round(self) -> None:
        super()._round()
        for of in ("gpu_ids", "occupied"):
            taken = Counter[int]()
            for run in self.live.values():
                for gpu in getattr(run, of):
                    taken[gpu] += run.gpu_milli
            assert max(taken.values(), default=0) <= WHOLE


@st.composite
def mixes(draw: st.DrawFn) -> list[TraceJob]:
    jobs = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        at, steps = draw(st.integers(0, 200)), draw(st.integers(1, 400))
        jobs.append(part(number, float(at), float(steps), draw(st.sampled_from(PARTS)), cpu_milli=1_000))
    return jobs


def run(name: str, jobs: list[TraceJob], *, whole: bool, failing: bool) -> Outcome:
    on = cluster(2, 1)
    if failing:
        on = replace(on, reliability={"titan_xp": (400.0, 50.0)}, checkpoint_every_s=20.0)
    engine = Checked(jobs, on, load_policy(name), options=Options(seed=5, keep_holds=True))
    if whole:
        engine.sight = Whole(engine)
    return engine.run()


@pytest.mark.parametrize("name", ["first_fit", "round_robin", "tetris", "fgd", "genetic", "packing_exact"])
@settings(max_examples=6, deadline=None)
@given(jobs=mixes(), failing=st.booleans())
def test_every_job_ends_and_rounds_without_anybody_waiting_are_not_missed(
    name: str, jobs: list[TraceJob], *, failing: bool
) -> None:
    quick, whole = (run(name, jobs, whole=whole, failing=failing) for whole in (False, True))
    assert all(run.state is State.FINISHED for run in quick.runs)
    assert quick.holds == whole.holds
    assert quick.rounds <= whole.rounds


# What is read -------------------------------------------------------------------------------------------

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,32000,262144,0,\nc,96000,786432,8,G9\n"


def test_a_node_list_of_openb_is_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    found = load_cluster(tmp_path / "nodes.csv")
    first, second = found.nodes
    assert (first.name, first.type, first.gpu_ids, first.cpu_milli) == ("a", "P100", (0, 1), 64_000)
    assert (first.gpu_memory_mib, second.gpu_memory_mib) == (16_384, None)
    assert (second.memory_mib, found.gpus) == (786_432, 10)
    (tmp_path / "none.csv").write_text(NODES[: NODES.index("a,")])
    with pytest.raises(InvalidInput, match="no node has a GPU"):
        load_cluster(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text(NODES.replace(",2,P100", ",two,P100"))
    with pytest.raises(InvalidInput, match="line 2, column gpu: 'two' is not a number"):
        load_cluster(tmp_path / "bad.csv")


@pytest.mark.parametrize("head", ["", "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n"])
def test_machines_of_pai_are_a_cluster(tmp_path: Path, head: str) -> None:
    (tmp_path / "m.csv").write_text(head + "a,CPU,96,512,0\nb,T4,96,512,2\nc,V100M32,96,384,8\n")
    first, second = load_cluster(tmp_path / "m.csv").nodes
    assert (first.name, first.type, first.gpu_ids, first.cpu_milli) == ("b", "T4", (0, 1), 96_000)
    assert (second.memory_mib, second.gpu_memory_mib, len(second.gpu_ids)) == (393_216, 32_768, 8)
    (tmp_path / "m.csv").write_text("b,T4,96,512,two\n")
    with pytest.raises(InvalidInput, match="line 1, column cap_gpu: 'two' is not a number"):
        load_cluster(tmp_path / "m.csv")


def test_a_cluster_file_says_what_its_nodes_have(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(
        '{"nodes": [{"type": "a", "gpus": 2, "cpus": 1.5, "memory_mib": 512, "gpu_memory_mib": 99}]}'
    )
    (node,) = load_cluster(tmp_path / "c.json").nodes
    assert (node.cpu_milli, node.memory_mib, node.gpu_memory_mib) == (1_500, 512, 99)
    (tmp_path / "c.json").write_text('{"nodes": [{"type": "a", "gpus": 2, "cpus": 0}]}')
    with pytest.raises(InvalidInput, match="0 must be above 0"):
        load_cluster(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ('"gpu_milli": 1001', "gpu_milli: 1001 must be at most 1000"),
        ('"gpu_milli": 0', "gpu_milli: 0 must be a number of at least 1"),
        ('"gpu_milli": 500, "max_gpus": 2', "gpu_milli: 500 must be at most 1000, and below that"),
        ('"cpu_milli": -1', "cpu_milli: -1 must be a number of at least 0"),
    ],
)
def test_a_trace_with_wrong_parts_is_refused(tmp_path: Path, changes: str, named: str) -> None:
    given = '"total_steps": 1, "throughputs": {"a": [1.0]}'
    (tmp_path / "t.json").write_text(f'{{"jobs": [{{{given}, {changes}}}]}}')
    with pytest.raises(InvalidInput, match=named):
        load_trace(tmp_path / "t.json")


def test_a_trace_says_parts_and_memory(tmp_path: Path) -> None:
    needs = '"gpu_milli": 250, "max_gpus": 1, "gpu_memory_mib": 4000, "cpu_milli": 2000, "memory_mib": 8000'
    (tmp_path / "t.json").write_text(f'{{"jobs": [{{"total_steps": 1, "throughputs": {{"a": [1.0]}}, {needs}}}]}}')
    (job,) = load_trace(tmp_path / "t.json").jobs
    assert (job.gpu_milli, job.gpu_memory_mib, job.cpu_milli, job.memory_mib) == (250, 4_000, 2_000, 8_000)
