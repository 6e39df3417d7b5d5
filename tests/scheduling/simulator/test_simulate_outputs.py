"""What a simulation leaves behind: JSON by its schema, a line per job, pictures, and partial results."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

import scheduling.simulator as package
from scheduling.simulator import Options, run_policy
from scheduling.simulator.inputs.trace import Cluster, TraceJob
from scheduling.simulator.output.gantt import Bar, _free_gap
from scheduling.simulator.output.plots import write_plots
from scheduling.simulator.run import Run
from scheduling.simulator.suite import Suite, run_suite
from tests.builders import make_curve, make_nodes

SCHEMA = json.loads((Path(package.__file__).parent / "simulation-1.schema.json").read_text())
ROOT = Path(package.__file__).parents[2]
POLICIES = ("--policy", "f_scheduling:v_bound=0.2", "--policy", "fifo_gang", "--policy", "static_partition:n=2")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    jobs = [
        {"arrival_s": 40 * n, "total_steps": 300 + 50 * n, "model_type": "resnet50", "max_gpus": 4} for n in range(9)
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"schema": "evenkeel-trace/1", "jobs": jobs}))
    node = {"type": "titan_xp", "count": 2, "gpus": 3, "price_per_gpu_hour": 2.0, "mtbf_s": 2000, "repair_s": 100}
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": [node], "checkpoint_every_s": 30}))
    return tmp_path


def simulate(files: Path, name: str, *more: str) -> str:
    """The bytes of the JSON, wall times aside."""
    out = files / f"{name}.json"
    where = ("--trace", str(files / "trace.json"), "--cluster", str(files / "cluster.json"), "--json", str(out))
    call_command("simulate", *where, *POLICIES, *more, stdout=io.StringIO(), stderr=io.StringIO())
    document = json.loads(out.read_text())
    jsonschema.validate(document, SCHEMA)
    for result in document["results"]:
        result["wall_s"] = 0
    return json.dumps(document)


def test_the_json_follows_its_published_schema_and_processes_change_nothing(files: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    alone = simulate(files, "a", "--seed", "3", "--noise", "0.2", "--csv", str(files / "a.csv"))
    together = simulate(files, "b", "--seed", "3", "--noise", "0.2", "--csv", str(files / "b.csv"), "--processes", "3")
    assert alone == together
    assert (files / "a.csv").read_bytes() == (files / "b.csv").read_bytes()
    assert alone != simulate(files, "c", "--seed", "4", "--noise", "0.2")


def test_there_is_a_line_for_each_job_and_policy(files: Path) -> None:
    document = json.loads(simulate(files, "a", "--csv", str(files / "a.csv")))
    with (files / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 27
    for result, own in zip(document["results"], (rows[:9], rows[9:18], rows[18:]), strict=True):
        assert sum(float(row["jct_s"]) for row in own) / 9 == pytest.approx(result["jct_s"]["mean"])
        assert sum(float(row["cost"]) for row in own) == pytest.approx(result["cost"])
        assert max(float(row["slowdown"]) for row in own) == pytest.approx(result["slowdown"]["max"])
        for row in own:
            spent = sum(float(row[key]) for key in ("queueing_s", "launching_s", "running_s"))
            assert spent == pytest.approx(float(row["jct_s"]))


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_are_the_same_bytes_again(files: Path, kind: str) -> None:
    for name in ("first", "again"):
        simulate(files, name, "--plots", str(files / name), "--plot-format", kind)
    drawn = sorted(path.name for path in (files / "first").iterdir())
    assert len(drawn) == 7
    assert {f"jct_cdf.{kind}", f"utilisation.{kind}", f"utilisation_cdf.{kind}", f"slowdown_cdf.{kind}"} < set(drawn)
    for name in drawn:
        assert (files / "first" / name).read_bytes() == (files / "again" / name).read_bytes()
        assert (files / "first" / name).stat().st_size > 2000


def test_the_gantt_chart_names_jobs_nodes_and_projects(files: Path) -> None:
    document = json.loads((files / "trace.json").read_text())
    for number, job in enumerate(document["jobs"]):
        job |= {"id": f"${number}$", "project": ("north", "south")[number % 2]}
    (files / "trace.json").write_text(json.dumps(document))
    simulate(files, "a", "--plots", str(files / "plots"), "--plot-format", "svg")
    drawn = (files / "plots" / "gantt_1_f_scheduling.svg").read_text()
    for words in ("$0$", "titan_xp-0 GPU 0", "titan_xp-1 GPU 2", "north", "south"):
        assert f">{words}</text>" in drawn


def test_of_many_gpus_nodes_are_named_and_of_many_projects_ten(tmp_path: Path) -> None:
    curves = {"titan_xp": make_curve(1.0)}
    jobs = [TraceJob(f"job{n}", n, 0.0, 100.0, curves, project=f"p{n}", max_gpus=1) for n in range(1, 16)]
    cluster = Cluster(make_nodes(*[8] * 20), {})
    simulation = run_policy(jobs, cluster, "fifo_gang", {}, Options(keep_holds=True))
    write_plots([simulation], cluster, tmp_path, "svg")
    drawn = (tmp_path / "gantt_1_fifo_gang.svg").read_text()
    assert "first 128 GPUs" in drawn
    assert ">6 other projects</text>" in drawn
    assert f">{cluster.nodes[15].name}</text>" in drawn
    assert f">{cluster.nodes[16].name}</text>" not in drawn
    assert " GPU 0" not in drawn


def test_parts_of_a_gpu_are_drawn_one_above_the_other() -> None:
    lane: list[Bar] = []

    def drawn(milli: int, *times: float) -> list[tuple[float, float]]:
        run = Run(TraceJob("a", 1, 0.0, 1.0, {}), 1.0, gpu_milli=milli)
        found = _free_gap(run, 0, (times[0], times[1]), lane)
        return [(round(bar.top, 6), round(bar.height, 6)) for bar in found]

    assert drawn(250, 0.0, 1.0) == [(-0.45, 0.225)]
    assert drawn(500, 0.0, 2.0) == [(-0.225, 0.45)]
    assert drawn(500, 1.0, 2.0) == [(-0.45, 0.225), (0.225, 0.225)]
    assert drawn(500, 1.0, 2.0) == []
    assert drawn(500, 2.0, 3.0) == [(-0.45, 0.45)]


def test_matplotlib_is_imported_for_pictures_only() -> None:
    code = "import sys, scheduling.simulator.suite, scheduling.simulator.output.tables as _"
    code += "; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupt_leaves_partial_results(processes: int) -> None:
    jobs = [TraceJob(str(n), n, 30.0 * n, 100.0, {"titan_xp": make_curve(1.0)}) for n in range(1, 50_001)]
    policies: list[tuple[str, dict[str, object]]] = [
        (name, {}) for name in ("f_scheduling", "static_partition", "f_scheduling")
    ]
    suite = Suite(jobs, Cluster(make_nodes(4), {}), policies, Options())

    pressed: list[int] = []

    def press(ended: int) -> None:
        if ended and not pressed:
            pressed.append(ended)
            os.kill(os.getpid(), signal.SIGINT)

    done = run_suite(suite, processes, press)
    assert 1 <= len(done) <= processes
    for simulation in done:
        assert simulation.result["interrupted"]
        assert simulation.result["finished"] < len(jobs)
    assert sum(simulation.result["finished"] for simulation in done) > 0


@pytest.mark.parametrize("wrong", [("--processes", "0"), ("--noise", "-1"), ("--format", "openb")])
def test_wrong_options_are_one_line(files: Path, wrong: tuple[str, str]) -> None:
    with pytest.raises(CommandError) as error:
        simulate(files, "a", *wrong)
    assert "\n" not in str(error.value)


def test_a_generated_trace_is_simulated(files: Path) -> None:
    (files / "f.json").write_text('{"m": {"v100": [1.0, 1.9], "k80": [0.2, 0.3]}}')
    more = ("--jobs-per-hour", "20", "--multi-gpu", "--seed", "2")
    for name in ("t.json", "u.json"):
        call_command("generate_trace", "--jobs", "30", "--throughputs", str(files / "f.json"), *more,
                     "--out", str(files / name), stdout=io.StringIO())  # fmt: skip
    assert (files / "t.json").read_bytes() == (files / "u.json").read_bytes()
    (files / "trace.json").write_bytes((files / "t.json").read_bytes())
    (files / "cluster.json").write_text('{"nodes": [{"type": "v100", "gpus": 4}, {"type": "k80", "gpus": 4}]}')
    assert json.loads(simulate(files, "a"))["results"][1]["finished"] == 30


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--jobs", "0"), "--jobs must be between 1 and 5,000,000, and is 0."),
        (("--jobs", "6000000"), "--jobs must be between 1 and 5,000,000, and is 6,000,000."),
        (("--jobs-per-hour", "-2.5"), "--jobs-per-hour must be above 0 and finite, and is -2.5."),
        (("--jobs-per-hour", "inf"), "--jobs-per-hour must be above 0 and finite, and is inf."),
        (("--out", "/none/t.json"), "--out /none/t.json: cannot be written: No such file or directory."),
        (("--out", "-"), "--out must be a file; - is not taken for standard output here."),
    ],
)
def test_wrong_options_of_generated_traces_are_told_with_their_value(
    files: Path, wrong: tuple[str, str], words: str
) -> None:
    right = ("--jobs", "5", "--throughputs", str(files / "f.json"), "--out", str(files / "t.json"))
    with pytest.raises(CommandError) as error:
        call_command("generate_trace", *right, *wrong)
    assert str(error.value) == words
