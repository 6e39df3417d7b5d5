"""manage.py simulate: neither server nor database."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

import portal.operations.management.commands.simulate as command
from scheduling.simulator import Simulation
from scheduling.simulator.suite import Suite, run_suite

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KEYS = {
    "policy", "parameters", "jobs", "finished", "makespan_s", "jct_s", "queueing_s", "launching_s", "running_s",
    "utilisation", "utilisation_cdf", "slowdown", "finish_time_fairness", "restarts", "cost", "rounds", "wall_s",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    jobs = [{"arrival_s": 10 * n, "total_steps": 100, "model_type": "resnet50"} for n in range(3)]
    (tmp_path / "trace.json").write_text(json.dumps({"jobs": jobs}))
    (tmp_path / "cluster.json").write_text('{"nodes": [{"type": "titan_xp", "count": 1, "gpus": 6}]}')
    return tmp_path


def simulate(files: Path, *more: str) -> str:
    out = io.StringIO()
    call_command(
        "simulate", "--trace", str(files / "trace.json"), "--cluster", str(files / "cluster.json"), *more, stdout=out
    )
    return out.getvalue()


def test_it_prints_a_table_and_writes_every_key(files: Path) -> None:
    more = ("--policy", "f_scheduling:v_bound=0.5", "--policy", "static_partition:n=2", "--json", str(files / "o.json"))
    assert "static_partition (n=2)" in simulate(files, *more)
    document = json.loads((files / "o.json").read_text())
    assert document["schema"] == "simulation/1"
    assert [result["policy"] for result in document["results"]] == ["f_scheduling", "static_partition"]
    for result in document["results"]:
        assert set(result) >= KEYS
        assert set(result["slowdown"]) == {"mean", "p99", "max", "variance"}
        assert result["finished"] == 3


def test_types_that_the_trace_does_not_know_are_an_error(files: Path) -> None:
    (files / "cluster.json").write_text('{"nodes": [{"type": "Titan Xp", "count": 1, "gpus": 6}]}')
    with pytest.raises(
        CommandError, match=r"none of its jobs .* titan_xp.*, and the cluster has 6 Titan Xp \(types are"
    ):
        simulate(files, "--policy", "fifo_gang")


@pytest.mark.parametrize(
    ("job", "cluster", "words"),
    [
        ({"min_gpus": 7}, {}, "needs 7 GPUs of one type, and there are 6 titan_xp at most"),
        ({"min_gpus": 5}, {"multi_node": False}, "needs 5 GPUs of one node, and there are 3 titan_xp at most"),
        ({"types": ["V100"]}, {}, "asks for V100 and is known on "),
        (
            {"types": ["k80"], "throughputs": {"k80": [1]}},
            {},
            "asks for k80 and is known on k80, and the",
        ),
        ({"throughputs": {"titan_xp": [0, 0, 0, 2]}, "max_gpus": 2}, {}, "makes no step on any gang of titan_xp"),
    ],
)
def test_who_never_runs_is_told_before_the_others_are_simulated(
    files: Path, capsys: pytest.CaptureFixture[str], job: dict[str, Any], cluster: dict[str, Any], words: str
) -> None:
    document = json.loads((files / "trace.json").read_text())
    document["jobs"].append({"id": "odd", "arrival_s": 0, "total_steps": 9, "model_type": "resnet50"} | job)
    (files / "trace.json").write_text(json.dumps(document))
    nodes = [{"type": "titan_xp", "count": 2, "gpus": 3}]
    (files / "cluster.json").write_text(json.dumps({"nodes": nodes} | cluster))
    assert " 3/4 " in simulate(files, "--policy", "fifo_gang").splitlines()[1]
    assert f"1 of its 4 jobs never run: job odd {words}" in capsys.readouterr().err


def test_the_example_gives_the_papers_table(tmp_path: Path) -> None:
    """The command of docs/simulator.md; the four static columns are in the thesis, to the second."""
    policies = [f"static_partition:n={n}" for n in (1, 2, 3, 6)] + ["f_scheduling:v_bound=0.5,objective=paper"]
    call_command(
        "simulate",
        *("--trace", str(EXAMPLES / "paper.trace.json"), "--cluster", str(EXAMPLES / "paper.cluster.json")),
        *(word for policy in policies for word in ("--policy", policy)),
        *("--json", str(tmp_path / "o.json")),
        stdout=io.StringIO(),
    )
    results = json.loads((tmp_path / "o.json").read_text())["results"]
    *static, fair = [result["makespan_s"] for result in results]
    assert static == pytest.approx([1557, 1593, 1498, 2138], abs=0.5)
    assert fair == pytest.approx(1277, abs=0.5)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("nosuch", "policy: 'nosuch' is none; there are best_fit, "),
        ("f_schedulin", "policy: 'f_schedulin' is none; did you mean f_scheduling?"),
        ("f_scheduling:v_bound=7", "f_scheduling: v_bound: Input should be less than or equal to 1"),
        ("f_scheduling:vbound=1", "f_scheduling: vbound: is no parameter of this policy; did you mean v_bound?"),
        ("f_scheduling:foo=1", "f_scheduling: foo: is no parameter of this policy; there are v_bound, min_gain, "),
        ("f_scheduling:v_bound=0.1:x", "; parameters are separated by commas, "),
        ("static_partition:n=1:2", "static_partition: 'n=1:2' is no number; parameters are separated by commas, "),
        ("static_partition:n=[1", "static_partition: 'n=[1' has a value that cannot be read; "),
        ("static_partition:n", "static_partition: 'n' is not of the form key=value; "),
        ("static_partition:n=1, n=2", "static_partition: n is given twice"),
    ],
)
def test_a_wrong_policy_is_one_line_that_says_what_there_is(files: Path, policy: str, words: str) -> None:
    with pytest.raises(CommandError) as error:
        simulate(files, "--policy", "fifo_gang", "--policy", policy)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_who_leaves_jobs_out_is_named_after_the_table(files: Path) -> None:
    jobs = [{"arrival_s": 0, "total_steps": 100, "model_type": "resnet50", "min_gpus": n} for n in (1, 1, 4)]
    (files / "trace.json").write_text(json.dumps({"jobs": jobs}))
    first, second, *said = simulate(files, "--policy", "static_partition:n=2", "--policy", "fifo_gang").splitlines()[1:]
    assert " 2/3 " in first
    assert " 3/3 " in second
    assert said == ["static_partition (n=2): 1 of 3 jobs never finished: its makespan and cost are of the others."]


def test_limits_that_allow_no_job_are_told(files: Path) -> None:
    document = json.loads((files / "cluster.json").read_text()) | {"limits": [{"kind": "running_jobs", "most": 0}]}
    (files / "cluster.json").write_text(json.dumps(document))
    assert simulate(files, "--policy", "fifo_gang").splitlines()[2] == "fifo_gang: none of 3 jobs ever finished."


def test_who_was_interrupted_and_who_has_not_begun_are_named(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(suite: Suite, processes: int, report: Any) -> list[Simulation]:
        [begun] = run_suite(replace(suite, policies=suite.policies[:1]), processes, report)
        begun.outcome.interrupted = begun.result["interrupted"] = True
        return [begun]

    monkeypatch.setattr(command, "run_suite", stopped)
    out = io.StringIO()
    where = ("--trace", str(files / "trace.json"), "--cluster", str(files / "cluster.json"))
    policies = ("--policy", "fifo_gang", "--policy", "static_partition:n=2", "--policy", "fifo_gang")
    with pytest.raises(CommandError, match="results are those up to then") as error:
        call_command("simulate", *where, *policies, stdout=out)
    assert error.value.returncode == 130
    assert out.getvalue().splitlines()[2:] == [
        "fifo_gang: interrupted when 3 of 3 jobs had finished: its figures are up to then.",
        "Not begun: fifo_gang, static_partition (n=2).",
    ]


@pytest.mark.parametrize("where", ["load_trace", "run_suite"])
def test_an_interrupt_that_leaves_nothing_says_so(files: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, where, press)
    with pytest.raises(
        CommandError, match=r"^Interrupted(: nothing was simulated| twice: no results are kept)\.$"
    ) as error:
        simulate(files, "--policy", "fifo_gang")
    assert error.value.returncode == 130


@pytest.mark.parametrize(
    ("option", "path", "words"),
    [
        ("--json", "none/x.json", "No such file or directory"),
        ("--csv", "", "Is a directory"),
        ("--plots", "trace.json", "File exists"),
        ("--plots", "trace.json/x", "Not a directory"),
    ],
)
def test_what_cannot_be_written_is_told_before(
    files: Path, monkeypatch: pytest.MonkeyPatch, option: str, path: str, words: str
) -> None:
    monkeypatch.setattr(command, "run_suite", lambda *_: pytest.fail("it simulated"))
    with pytest.raises(CommandError) as error:
        simulate(files, "--policy", "fifo_gang", option, str(files / path))
    assert str(error.value) == f"{option} {files / path}: cannot be written: {words}."


def test_a_file_that_fails_keeps_no_other_from_being_written(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.Command, "_write_json", full)
    more = ("--json", str(files / "o.json"), "--csv", str(files / "o.csv"))
    with pytest.raises(CommandError, match=r"--json .*o\.json: cannot be written: No space left on device\."):
        simulate(files, "--policy", "fifo_gang", *more)
    assert len((files / "o.csv").read_text().splitlines()) == 4
    assert not (files / "o.json").exists()


@pytest.mark.parametrize(("option", "start"), [("--json", '{\n  "schema"'), ("--csv", "policy,id,number,")])
def test_a_dash_is_standard_output(files: Path, capsys: pytest.CaptureFixture[str], option: str, start: str) -> None:
    assert simulate(files, "--policy", "fifo_gang", option, "-").startswith(start)
    assert " 3/3 " in capsys.readouterr().err
    with pytest.raises(CommandError, match="cannot both be standard output"):
        simulate(files, "--policy", "fifo_gang", "--json", "-", "--csv", "-")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--noise", "-1", "--noise must be between 0 and 10, and is -1."),
        ("--processes", "0", "--processes must be at least 1, and is 0."),
        ("--coalesce", "nan", "--coalesce must be between 0 and 3,600 seconds, and is nan."),
    ],
)
def test_a_wrong_value_is_told_with_its_option(files: Path, option: str, value: str, words: str) -> None:
    with pytest.raises(CommandError) as error:
        simulate(files, "--policy", "fifo_gang", option, value)
    assert str(error.value) == words


PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def test_pods_and_nodes_of_openb_are_packed(tmp_path: Path) -> None:
    """Four halves of an hour each: side by side on two GPUs, one after the other where each has a whole one."""
    rows = [f"p{n},4000,1024,1,500,,LS,Succeeded,{n},{n + 3600},{n}" for n in range(4)]
    (tmp_path / "pods.csv").write_text(PODS + "\n".join(rows) + "\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\n")
    (tmp_path / "none.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n")
    where = ("--trace", str(tmp_path / "pods.csv"), "--policy", "fgd", "--policy", "fifo_gang")
    out = tmp_path / "o.json"
    call_command("simulate", *where, "--cluster", str(tmp_path / "nodes.csv"), "--json", str(out), stdout=io.StringIO())
    packed, whole = json.loads(out.read_text())["results"]
    assert packed["makespan_s"] == pytest.approx(3 + 20 + 3600)
    assert whole["makespan_s"] > 2 * 3600
    with pytest.raises(CommandError, match="no node has a GPU"):
        call_command("simulate", *where, "--cluster", str(tmp_path / "none.csv"), stdout=io.StringIO())


def test_rows_that_are_left_out_are_called_so(tmp_path: Path, files: Path) -> None:
    rows = [
        "JobID|Submit|Start|End|State|AllocTRES",
        "2|2026-01-01T05:00:00|2026-01-01T05:00:01|Unknown|RUNNING|gres/gpu=1",
    ]
    rows += ["1|2026-01-01T05:00:00|2026-01-01T05:00:01|2026-01-01T05:10:01|COMPLETED|gres/gpu=1"]
    (tmp_path / "trace.txt").write_text("\n".join(rows))
    said = io.StringIO()
    given = {"trace": tmp_path / "trace.txt", "cluster": files / "cluster.json", "policy": ["fifo_gang"]}
    call_command("simulate", **given, stdout=io.StringIO(), stderr=said)
    assert f"{tmp_path / 'trace.txt'}: 1 rows are left out" in said.getvalue()
