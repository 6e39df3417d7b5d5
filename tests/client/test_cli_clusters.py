"""Where a portal has several clusters: which one each command asks for, and where lists say which it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.client.cli_portal import make_job
from tests.client.test_cli_checks import ENDED, detail, node
from tests.client.test_cli_cluster import NODE, cells
from tests.client.test_cli_fairness import NOW
from tests.client.test_cli_portal import Shell
from tests.client.test_cli_resources import PAGE, Run, Scripted, portal, run
from tests.flows.test_clusters import two_clusters

__all__ = ["portal", "run"]  # fixtures

EMPTY: dict[str, Any] = PAGE | {"results": [], "in_force": True}
TWO = {"clusters": [{"name": "a100s", "stream": "cluster"}, {"name": "lab", "stream": "cluster:lab"}]}
IDLE = {
    "enabled": True,
    "warn_after_s": 1800.0,
    "release_after_s": None,
    "utilisation_below": 0.05,
    "extension_s": 3600.0,
    "extensions_max": 3,
}
ANSWERS: dict[str, Any] = {
    "GET jobs": EMPTY,
    "GET nodes/n1": detail(last=ENDED | {"passed": True}),
    "GET model-types": [],
    "POST nodes/n1/drain": NODE,
    "GET nodes/n1/drain-preview": {"deadline_at": None, "jobs": []},
    "POST nodes/n1/resume": NODE,
    "POST nodes/n1/check": node(open=ENDED),
    "POST nodes/n1/use-anyway": NODE,
    "GET partitions": EMPTY,
    "PUT partitions/p": {"name": "p"},
    "DELETE partitions/p": (204, None),
    "GET windows": EMPTY,
    "POST windows": {"id": 1},
    "GET prices": EMPTY,
    "GET idle-rule": IDLE,
    "PUT idle-rule": IDLE,
    "GET priorities": EMPTY,
    "GET shares": EMPTY,
    "GET shares/history": EMPTY,
    "GET fairness": NOW,
    "GET fairness/history": EMPTY,
}
COMMANDS = [
    "ls",
    "queue",
    "nodes n1",
    "throughputs",
    "drain n1 --preview",
    "drain n1",
    "resume n1",
    "check n1",
    "check n1 --use-anyway",
    "partition ls",
    "partition set p --node n1",
    "partition rm p",
    "window ls",
    "window add maintenance 2097-03-01T12:00Z 2097-03-01T18:00Z --all",
    "cost prices",
    "idle show",
    "idle set --below 10",
    "prio",
    "shares --trend",
    "fairness",
]


@pytest.fixture
def scripted(portal: Scripted) -> Scripted:
    for what, answer in ANSWERS.items():
        portal[what] = answer
    portal["GET session"] = TWO
    return portal


@pytest.mark.parametrize("command", COMMANDS)
def test_all_that_a_command_asks_is_of_the_cluster_that_it_names(run: Run, scripted: Scripted, command: str) -> None:
    assert run(*command.split()).exit_code == 0
    asked = [what for what, _ in scripted.asked]
    assert not any("cluster=" in what for what in asked)  # the API knows which is the first
    scripted.asked.clear()
    assert run(*command.split(), "--cluster", "lab").exit_code == 0
    of_cluster = [what for what, _ in scripted.asked if what != "GET session"]
    assert of_cluster
    assert all("cluster=lab" in what.partition("?")[2].split("&") for what in of_cluster), of_cluster


@pytest.mark.parametrize("command", [*COMMANDS, "nodes"])
def test_of_an_unknown_cluster_the_portals_own_words_are_said(run: Run, scripted: Scripted, command: str) -> None:
    said = "unknown cluster; there are a100s, lab"
    wrong = {"field": "cluster", "message": said, "code": "unknown"}
    problem = {"title": "Bad request", "status": 400, "detail": f"cluster: {said}", "errors": [wrong]}
    for what in (*ANSWERS, "GET nodes"):
        scripted[what] = (400, problem)
    refused = run(*command.split(), "--cluster", "labb")
    assert (refused.exit_code, refused.stderr) == (1, f"Error: Bad request\n  cluster: {said}\n")


def test_jobs_say_their_cluster_only_where_there_are_several(run: Run, portal: Scripted) -> None:
    jobs = [
        make_job(3, cluster={"name": "lab", "choice": None}),
        make_job(2, cluster={"name": "a100s", "choice": None}),
    ]
    portal["GET jobs"] = PAGE | {"results": jobs}
    for command, heads in (("ls", ["JOB", "NAME", "PROJECT"]), ("queue", ["PLACE", "JOB", "NAME", "PROJECT"])):
        portal["GET session"] = {"clusters": TWO["clusters"][:1]}
        alone = run(command).stdout
        assert "CLUSTER" not in alone
        assert "a100s" not in alone
        portal["GET session"] = TWO
        head, *lines = run(command).stdout.splitlines()
        assert cells(head)[: len(heads) + 1] == [*heads, "CLUSTER"]
        column = head.index("CLUSTER")
        assert {line[column:].split()[0] for line in lines} == {"lab", "a100s"}
    assert cells(head)[0] == "PLACE"
    scaled = run("ls").stdout.splitlines()
    assert scaled[1].index("0/2,000") + len("0/2,000") == scaled[0].index("STEPS") + len("STEPS")  # still to the right
    portal.asked.clear()
    assert json.loads(run("ls", "--output", "json").stdout) == jobs
    assert [what for what, _ in portal.asked] == ["GET jobs"]  # who reads JSON has it in each job


def test_nodes_of_all_clusters_are_listed_each_with_its_cluster(run: Run, portal: Scripted) -> None:
    portal["GET session"] = TWO
    portal.queued["GET nodes"] = [[NODE], [NODE, NODE | {"name": "n2"}]]
    portal["GET nodes"] = [NODE]
    head, *lines = run("nodes").stdout.splitlines()
    assert cells(head)[:3] == ["CLUSTER", "NODE", "TYPE"]
    assert [cells(line)[:2] for line in lines] == [["a100s", "n1"], ["lab", "n1"], ["lab", "n2"]]
    assert [what for what, _ in portal.asked] == ["GET session", "GET nodes?cluster=a100s", "GET nodes?cluster=lab"]
    portal.asked.clear()
    found = json.loads(run("nodes", "--cluster", "lab", "--output", "json").stdout)
    assert [(one["cluster"], one["name"]) for one in found] == [("lab", "n1")]
    assert [what for what, _ in portal.asked] == ["GET session", "GET nodes?cluster=lab"]
    portal["GET session"] = {"clusters": TWO["clusters"][:1]}
    assert "CLUSTER" not in run("nodes").stdout
    assert json.loads(run("nodes", "--output", "json").stdout) == [NODE]
    portal["GET nodes"] = []
    assert run("nodes").stdout == "No nodes.\n"


def test_prices_of_a_cluster(run: Run, portal: Scripted) -> None:
    rate = {"resource": "gpu", "accelerator_type": "v100", "price_per_hour": "1", "cluster": None}
    portal["GET prices"] = PAGE | {"results": [rate | {"cluster": "lab"}, rate]}
    assert "lab" not in run("cost", "prices").stdout
    portal["GET session"] = TWO
    head, *lines = run("cost", "prices").stdout.splitlines()
    assert [cells(line)[0] for line in (head, *lines)] == ["CLUSTER", "lab", "-"]
    portal["POST prices"] = rate
    run("cost", "set-price", "1", "--type", "v100", "--cluster", "lab")
    assert portal.last[1] == {"price_per_hour": "1", "resource": "gpu", "accelerator_type": "v100", "cluster": "lab"}


def test_a_cluster_is_enough_for_many_jobs_at_once(run: Run, portal: Scripted) -> None:
    portal["POST jobs/bulk"] = {"succeeded": 0, "refused": 0, "results": []}
    assert run("bulk", "cancel", "--cluster", "lab", "--yes").exit_code == 0
    live = ["queued", "starting", "running", "rescaling"]
    assert portal.last[1] == {"action": "cancel", "filter": {"cluster": "lab", "state": live}}


def test_priority_of_a_job_has_no_other_cluster(run: Run, portal: Scripted) -> None:
    refused = run("prio", "12", "--cluster", "lab")
    assert refused.exit_code == 1
    assert "a job or a cluster" in refused.output
    assert not portal.asked


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_two_clusters_from_the_command_line(tmp_path: Path) -> None:
    with two_clusters() as live, live.api() as api:
        live.wait_for("nodes of both", lambda: api.get("nodes").json() and api.get("nodes?cluster=fast").json())
        evenkeel = Shell(tmp_path, live)
        evenkeel.log_in("--admin")
        assert [cells(line)[:2] for line in evenkeel("nodes").splitlines()[1:]] == [
            ["slow", "slow-node"],
            ["fast", "fast-node"],
        ]
        evenkeel("nodes", "fast-node", code=102)  # of the first cluster
        assert "fast-node" in evenkeel("nodes", "fast-node", "--cluster", "fast")
        evenkeel("drain", "fast-node", "--cluster", "fast")
        assert [one["drained"] for one in evenkeel.json("nodes")] == [False, True]
        evenkeel("resume", "fast-node", "--cluster", "fast")
        evenkeel("partition", "set", "quick", "--node", "fast-node", "--cluster", "fast")
        assert "quick" in evenkeel("partition", "ls", "--cluster", "fast")
        assert "no partitions" in evenkeel("partition", "ls")
        span = [(datetime.now(UTC) + timedelta(days=ahead)).isoformat() for ahead in (1, 2)]
        window = evenkeel.json("window", "add", "maintenance", *span, "--all", "--cluster", "fast")
        assert "no windows" in evenkeel("window", "ls")
        evenkeel("window", "rm", str(window["id"]))
        evenkeel("idle", "set", "--below", "7", "--cluster", "fast")
        below = [evenkeel.json("idle", "show", "--cluster", name)["utilisation_below"] for name in ("slow", "fast")]
        assert below[0] != below[1] == 0.07
        evenkeel("cost", "set-price", "3", "--type", "v100", "--cluster", "fast")
        assert [rate["cluster"] for rate in evenkeel.json("cost", "prices", "--cluster", "fast")] == ["fast"]
        job = ("submit", "--project", "default", "--model", "digits_mlp", "--steps", "10", "--gpus", "1")
        numbers = [evenkeel.json(*job, "--cluster", name)["number"] for name in ("slow", "fast")]
        assert [row["number"] for row in evenkeel.json("ls", "--cluster", "fast")] == numbers[1:]
        assert [cells(line)[3] for line in evenkeel("ls").splitlines()] == ["CLUSTER", "fast", "slow"]
        for command in ("nodes", "ls", "partition ls", "window ls", "cost prices", "throughputs", "prio", "fairness"):
            assert "no cluster; there are " in evenkeel(*command.split(), "--cluster", "fasst", code=1), command


def test_lists_say_which_engines_do_not_answer(run: Run, portal: Scripted) -> None:
    away = {"engine": "Slurm", "engine_away_since_at": "2026-11-28T08:02:35Z"}
    here = {"engine": "Ray", "engine_away_since_at": None}
    portal["GET session"] = {"clusters": [TWO["clusters"][0] | here, TWO["clusters"][1] | away]}
    portal["GET jobs"] = PAGE | {"results": [make_job(1)]}
    portal["GET nodes"] = [NODE]
    for command in ("ls", "queue", "nodes", "nodes --cluster lab"):
        said = run(*command.split()).stderr
        assert said.startswith("Cluster lab: Slurm has not answered since 2026-11-28 "), command
        assert "no job is started, stopped or resized until it answers" in " ".join(said.split())
    assert run("nodes", "--cluster", "a100s").stderr == ""
    assert run("nodes", "--output", "json").stderr == ""
    portal["GET session"] = {"clusters": [TWO["clusters"][1] | away]}
    assert run("ls").stderr.startswith("Slurm has not answered since ")
