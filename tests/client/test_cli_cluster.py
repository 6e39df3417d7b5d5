"""`evenkeel queue`, `nodes`, `open`, `explain` and `metrics` against a portal that answers as scripted."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from evenkeel import schemas
from evenkeel.cli import cluster

from tests.client.cli_portal import make_job
from tests.client.test_cli_resources import PAGE, Run, Scripted, portal, run

__all__ = ["portal", "run"]  # fixtures

HELD: schemas.OthersJob = {"number": 7, "name": None, "project": "Speech"}


def gpu(index: int, job: schemas.OthersJob | None) -> schemas.NodeAccelerator:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "memory_mib": 12_288,
        "state": "held" if job else "free",
        "kind": "running" if job else None,
        "job": job,
        "parts": [{"job": job, "kind": "running", "share_percent": 100}] if job else [],
    }


NODE: schemas.Node = {
    "name": "n1",
    "type": "v100",
    "gpus": 3,
    "emulated": False,
    "schedulable": True,
    "drained": False,
    "lost": False,
    "unclear": None,
    "unclear_since_at": None,
    "power": None,
    "up_in_s": None,
    "cpus": 16,
    "memory_mib": 65_536,
    "last_seen_at": None,
    "accelerators": [gpu(0, HELD), gpu(1, HELD), gpu(2, None)],
    "taken": [],
    "drain": None,
    "check": {
        "state": None,
        "open": None,
        "last": None,
        "failures": 0,
        "next_at": None,
        "waived_at": None,
        "waived_by": None,
    },
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_queue_is_listed_in_its_order(run: Run, portal: Scripted) -> None:
    hold: Any = {"kind": "user", "by": "Ada", "at": "2026-11-21T14:32:10Z", "text": ""}
    jobs = [make_job(3, queue_position=2), make_job(4, hold=hold), make_job(5, queue_position=1)]
    portal["GET jobs"] = PAGE | {"results": jobs}
    lines = run("queue", "--owner", "me").output.splitlines()
    assert portal.asked[0][0] == "GET jobs?state=queued&ordering=number&limit=200&owner=me"
    assert [cells(line)[:2] for line in lines[1:]] == [["1", "5"], ["2", "3"], ["-", "4"]]
    assert "on hold" in lines[3]
    assert [job["number"] for job in json.loads(run("queue", "--output", "json").output)] == [5, 3, 4]


def test_a_long_queue_says_how_many_are_left_out(run: Run, portal: Scripted) -> None:
    portal["GET jobs"] = PAGE | {"results": [make_job(number, queue_position=number) for number in (1, 2, 3)]}
    said = run("queue", "--limit", "1").output
    assert "and 2 more" in said
    portal["GET jobs"] = PAGE | {"results": []}
    assert run("queue").output == "No queued jobs.\n"


def test_nodes_say_how_many_gpus_are_free_and_who_holds_the_others(run: Run, portal: Scripted) -> None:
    drain = {"state": "drained", "since_at": None, "deadline_at": "2026-11-22T18:00:00Z", "reason": "", "by": None}
    drained = NODE | {"name": "n2", "drained": True, "emulated": True, "drain": {**drain, "jobs": []}}
    draining = NODE | {"drain": {**drain, "state": "draining", "reason": "new fans", "jobs": []}}
    asleep, waking = ({"power": power, "up_in_s": 90.4} for power in ("powered_down", "powering_up"))
    portal["GET nodes"] = [NODE, drained, NODE | {"lost": True}, draining, NODE | asleep, NODE | waking]
    rows = [cells(line) for line in run("nodes").output.splitlines()[1:]]
    assert rows[0] == ["n1", "v100", "up", "3", "1", "#7", "16", "64"]
    assert rows[1][:3] == ["n2", "v100 (emulated)", "drained"]
    assert rows[2][2] == "lost"
    assert (rows[4][2], rows[5][2]) == ("powered down (90 s to power up)", "powering up (90 s left)")
    assert rows[3][2].startswith("draining until 2026-11-2")
    assert rows[3][2].endswith("(new fans)")
    part: schemas.AcceleratorPart = {"job": HELD, "kind": "running", "share_percent": 30}
    shared = NODE | {"accelerators": [gpu(0, HELD) | {"parts": [part] * parts} for parts in (3, 2)]}
    portal["GET nodes"] = [shared, shared | {"schedulable": False}]
    assert [cells(line)[4] for line in run("nodes").output.splitlines()[1:]] == ["0 + 40%", "0"]
    assert json.loads(run("nodes", "--output", "json").output)[0]["name"] == "n1"


def taken(gpus: int, cpus: int, mib: int, until_at: str | None) -> schemas.TakenByOthers:
    return {"gpus": gpus, "cpus": cpus, "memory_mib": mib, "until_at": until_at}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([taken(2, 4, 32_768, "2026-11-28T14:20:00Z")], "2 GPUs, 4 CPUs, 32 GiB until 2026-11-28"),
        ([taken(1, 0, 0, "2026-11-28T14:20:00Z"), taken(0, 4, 0, None)], "1 GPU, 4 CPUs, the first until 2026-11-28"),
        ([taken(1, 0, 0, None)], "1 GPU"),
        ([taken(0, 0, 0, None)], "-"),
    ],
)
def test_what_others_have_of_a_node_is_said(
    run: Run, portal: Scripted, rows: list[schemas.TakenByOthers], words: str
) -> None:
    others = [gpu(0, HELD), *({**gpu(index, None), "state": "others"} for index in (1, 2))]
    shared = NODE | {"taken": rows, "accelerators": others}
    portal["GET nodes"] = [shared, NODE]
    first, second = (cells(line) for line in run("nodes").output.splitlines()[1:])
    assert (first[4], first[-1].startswith(words), second[-1]) == ("0", True, "-")
    use = {"from_at": "", "to_at": "", "bucket_s": 1800, "allocated": [], "allocated_part": None}
    page = {"jobs": [], "use": use, "faults": [], "faults_by_reason": {}, "events": []}
    portal["GET nodes/n1"] = shared | page
    said = run("nodes", "n1").output
    assert "1 of 1 in use" in said
    assert words == "-" or words in said


def test_one_node_is_shown_with_its_jobs_its_use_and_what_failed(run: Run, portal: Scripted) -> None:
    mine: schemas.OthersJob = {"number": 9, "name": "quick", "project": "Vision"}
    jobs = [
        {"job": HELD, "gpus": 2, "share_percent": 100, "since_at": "2026-01-01T00:00:00Z"},
        {"job": mine, "gpus": 1, "share_percent": 50, "since_at": None},
    ]
    use = {"from_at": "", "to_at": "", "bucket_s": 1800, "allocated": [], "allocated_part": 0.416}
    page = {"jobs": jobs, "use": use, "faults": [], "faults_by_reason": {"signal": 1, "runner_lost": 3}, "events": []}
    portal["GET nodes/n1"] = NODE | page
    lines = [cells(line) for line in run("nodes", "n1").output.splitlines()]
    shown = dict(line for line in lines if len(line) == 2)
    assert (shown["Node"], shown["State"], shown["GPUs"]) == ("n1", "up", "2 of 3 in use")
    assert (shown["Allocated, 24 h"], shown["Failed, 7 d"]) == ("42%", "3 runner_lost, 1 signal")
    assert lines[-3] == ["JOB", "NAME", "GPUS", "FOR"]
    assert lines[-2][:3] == ["7", "Speech", "2"]
    assert lines[-1] == ["9", "quick", "50% of 1", "assigned"]
    assert json.loads(run("nodes", "n1", "--output", "json").output)["use"]["allocated_part"] == 0.416
    portal["GET nodes/n1"] = NODE | page | {"jobs": [], "faults_by_reason": {}, "use": use | {"allocated_part": None}}
    said = run("nodes", "n1").output
    assert said.endswith("No jobs.\n")
    assert "Failed, 7 d  none" in said
    assert run("nodes", "nothing").exit_code == 102
    part: schemas.AcceleratorPart = {"job": HELD, "kind": "running", "share_percent": 30}
    portal["GET nodes/gpu1.lab"] = NODE | page | {"accelerators": [gpu(0, HELD) | {"parts": [part] * 2}]}
    assert "1 of 3 in use, 40% of one free" in run("nodes", "gpu1.lab").output


def test_the_portal_is_opened_or_its_address_is_said(
    run: Run, portal: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"http://127.0.0.1:{portal.server_address[1]}"
    portal["GET jobs/57_3"] = make_job(60)
    assert run("open").output == f"{root}\n"
    assert run("open", "57_3").output == f"{root}/jobs/60\n"
    launched: list[str] = []

    def launch(address: str) -> int:
        launched.append(address)
        return 0

    monkeypatch.setattr(cluster, "is_terminal", lambda: True)
    monkeypatch.setattr(click, "launch", launch)
    assert run("open").output == ""
    assert launched == [root]
    monkeypatch.setattr(click, "launch", lambda address: 1)  # no browser here
    assert run("open").output == f"{root}\n"


def test_explain_is_why(run: Run, portal: Scripted) -> None:
    assert run("explain", "999").exit_code == run("why", "999").exit_code == 102
    assert "took its GPUs" in run("explain", "--help").output
    assert "Usage: cli explain" in run("explain", "--help").output


def test_metrics_are_shown_by_their_last_value_or_as_csv(run: Run, portal: Scripted) -> None:
    series = {"loss": [[1.5, 10, 2.25], [3.0, 20, 1.125]], "accuracy": [[3.0, 20, 0.5]], "empty": []}
    portal["GET jobs/12/metrics"] = {"series": series, "names": [], "predicted_steps_per_s": [], "emulated": False}
    rows = [cells(line) for line in run("metrics", "12").output.splitlines()]
    assert rows == [["SERIES", "STEP", "LAST VALUE"], ["accuracy", "20", "0.5"], ["loss", "20", "1.125"]]
    assert portal.last[0] == "GET jobs/12/metrics?points=500"
    said = run("metrics", "12", "--csv", "--name", "loss", "--name", "accuracy", "--points", "2").output
    assert portal.last[0] == "GET jobs/12/metrics?points=2&names=loss%2Caccuracy"
    lines = ["name,seconds,step,value", "accuracy,3.0,20,0.5", "loss,1.5,10,2.25", "loss,3.0,20,1.125"]
    assert said.splitlines() == lines
    assert json.loads(run("metrics", "12", "--output", "json").output)["series"] == series
    portal["GET jobs/12/metrics"] = {"series": {}, "names": [], "predicted_steps_per_s": [], "emulated": False}
    assert run("metrics", "12").output == "Nothing was reported.\n"


def test_throughputs_are_listed_by_program_and_count(run: Run, portal: Scripted) -> None:
    known = {"age_s": 60.0, "samples": 47, "relative_error": None}
    points = [
        {"count": 1, "steps_per_s": 8.4, "source": "measured", **known},
        {"count": 2, "steps_per_s": 15.0, "source": "estimated", **known, "relative_error": 0.3},
    ]
    curves = {"v100": {"points": points}}
    portal["GET model-types"] = [{"name": "resnet50", "curves": curves}, {"name": "tiny_lm", "curves": curves}]
    rows = [cells(line) for line in run("throughputs", "resnet50").output.splitlines()[1:]]
    assert rows[0] == ["resnet50", "v100", "1", "8.4", "measured", "60", "47", "-"]
    assert rows[1][4:] == ["estimated", "60", "47", "0.3"]
    assert len(rows) == 2
    found = json.loads(run("throughputs", "--gpus", "2", "--output", "json").output)
    assert [(one["model"], one["count"]) for one in found] == [("resnet50", 2), ("tiny_lm", 2)]
    assert "No throughput" in run("throughputs", "nothing").output
