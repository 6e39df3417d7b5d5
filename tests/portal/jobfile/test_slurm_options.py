"""Options of sbatch in job files: what is taken, what is refused, and what becomes of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from accounts.models import Project
from portal.config.datasets import DataSettings
from portal.config.engines import Engine
from portal.core.problems import Problems
from portal.execution.launch_request import launch_request
from portal.jobfile.parsing import parse_job_file
from portal.jobfile.slurm_options import sbatch_options
from portal.jobs.models import Cluster, Job
from scheduling.errors import ExecutorError
from scheduling.executors.slurm.cluster.inventory import parse_nodes
from scheduling.executors.slurm.launch.launching import arguments, parts_of
from scheduling.executors.slurm.options import Options
from tests.cases import in_turn
from tests.executors.test_sharing import make_request
from tests.executors.test_slurm_words import NODE
from tests.portal.api_calls import Api
from tests.portal.cluster.test_clusters import second
from tests.portal.world import CURVES, World

BASE = {"command": "true", "total_steps": 1}


@in_turn(
    ("given", "options"),
    [
        ({}, {}),
        ({"constraint": "[a100|h100]&nvlink"}, {"constraint": "[a100|h100]&nvlink"}),
        ({"licenses": "matlab:2,ansys@flex:1"}, {"licenses": "matlab:2,ansys@flex:1"}),
        ({"exclusive": True, "nice": 100}, {"exclusive": "", "nice": "100"}),
        ({"exclusive": False}, {}),
        (
            {"mail_type": ["END", "FAIL"], "mail_user": "ada@example.org"},
            {"mail-type": "END,FAIL", "mail-user": "ada@example.org"},
        ),
        (
            {"threads_per_core": 1, "gres_flags": "enforce-binding"},
            {"threads-per-core": "1", "gres-flags": "enforce-binding"},
        ),
        (
            {"comment": "for the paper", "wckey": "p-7", "switches": "1@30:00"},
            {"comment": "for the paper", "wckey": "p-7", "switches": "1@30:00"},
        ),
    ],
)
def test_what_is_allowed_becomes_options_of_sbatch(given: dict[str, Any], options: dict[str, str]) -> None:
    stored = parse_job_file(BASE | {"slurm": given}).model_dump(mode="json", exclude_none=True)
    assert sbatch_options(stored["slurm"]) == options


@in_turn(
    ("key", "value"),
    [
        ("constraint", "--wrap=id"), ("constraint", "a b"), ("constraint", "a;id"), ("constraint", "$(id)"),
        ("constraint", "a\n#SBATCH --uid=0"), ("constraint", ""), ("constraint", "x" * 201),
        ("constraint", "a100\u0661"),
        ("licenses", "matlab:2 --uid=0"), ("licenses", "matlab,"), ("licenses", ":1"), ("licenses", "-x"),
        ("comment", "a|b"), ("comment", "a\x00b"), ("comment", "x" * 121), ("wckey", "--x"), ("wckey", "*"),
        ("nice", -1), ("nice", "x"), ("nice", 2**31), ("mail_user", "a b@c"), ("mail_user", "-f"),
        ("mail_user", "ada@example.org,eve@example.org"), ("mail_type", ["OFTEN"]), ("switches", "0"),
        ("hint", "whatever"), ("tmp", 0), ("exclusive", "mcs"), ("threads_per_core", 0),
        ("wrap", "id"), ("uid", 0), ("account", "root"), ("nodelist", "gpu1"), ("partition", "x"), ("export", "ALL"),
        ("output", "/etc/passwd"), ("time", "1"), ("dependency", "x"), ("array", "1-9"),
    ],
)  # fmt: skip
def test_what_is_not_is_refused_by_its_name(key: str, value: Any) -> None:
    with pytest.raises(Problems) as refusal:
        parse_job_file(BASE | {"slurm": {key: value, "mail_type": ["END"]} | {key: value}})
    assert refusal.value.problems[0].field.startswith(f"slurm.{key}")


def test_mail_to_somebody_says_when() -> None:
    with pytest.raises(Problems, match="mail_type: say when"):
        parse_job_file(BASE | {"slurm": {"mail_user": "ada@example.org"}})


def words(sbatch: dict[str, str], **changes: Any) -> list[str]:
    text = "\n".join([NODE.strip(), NODE.replace("NodeName=gpu1", "NodeName=gpu2")])
    nodes = {node.info.name: node for node in parse_nodes(text)}
    placement = {"gpu1": (0, 1), "gpu2": (0,)}
    request = dataclasses.replace(make_request(), placement=placement, sbatch=sbatch)
    options = Options(account="all", partition="gpu", **changes)
    return arguments(request, parts_of(request, nodes), options, Path("/e"))


def test_each_component_has_them_and_the_whole_job_once_what_is_its() -> None:
    found = words(
        {"constraint": "fast", "licenses": "matlab:1", "exclusive": "", "account": "vision", "comment": "own"}
    )
    second = found.index(":")
    assert {"--constraint=fast", "--exclusive", "--licenses=matlab:1", "--account=vision", "--partition=gpu"} <= {
        *found[:second]
    }
    assert {"--constraint=fast", "--exclusive", "--account=vision", "--partition=gpu"} <= {*found[second:]}
    assert "--licenses=matlab:1" not in found[second:]
    assert "--account=all" not in found
    assert sum(word.endswith("; own") for word in found) == 2


@in_turn("sbatch", [{"wrap": "id"}, {"uid": "0"}, {"constraint": "a\nb"}, {"wckey": "x" * 300}])
def test_nothing_else_reaches_sbatch(sbatch: dict[str, str]) -> None:
    with pytest.raises(ExecutorError, match="sbatch") as refusal:
        words(sbatch)
    assert refusal.value.permanent


@pytest.mark.django_db
def test_a_cluster_that_is_no_slurm_says_where_there_is_one(settings: Any, tmp_path: Path) -> None:
    world = World()
    api, wish = Api(world.user), BASE | {"project": "vision", "throughput": {"k1": CURVES["fast"]}, "cluster": "test"}
    second(world)
    data = DataSettings("", 0, 60.0, {})
    settings.EVENKEEL_CLUSTERS = {
        name: Engine(engine, {}, tmp_path / name, None, data, emulated=True)
        for name, engine in (("test", "local"), ("other", "slurm"))
    }
    refused = api.post("jobs", wish | {"slurm": {"constraint": "fast"}})
    assert refused.fields == ["slurm"]
    assert "test is none: leave it out, or name a cluster that is one: other" in refused.json["errors"][0]["message"]
    assert api.post("jobs/preview", wish | {"slurm": {}}).fields == ["slurm"]


@pytest.mark.django_db
def test_a_launch_asks_for_what_its_project_has_and_its_file_wishes() -> None:
    world = World()
    Project.objects.filter(pk=world.project.pk).update(slurm={"account": "vision", "wckey": "lab"})
    job = world.submit()
    Job.objects.filter(pk=job.pk).update(spec=job.spec | {"slurm": {"wckey": "own", "nice": 5}})
    world.round()
    run = world.run(job)
    assert launch_request(run, run.epoch).sbatch == {}
    Cluster.objects.update(executor="slurm")
    run = world.run(job)
    request = launch_request(run, run.epoch)
    assert request.sbatch == {"account": "vision", "wckey": "own", "nice": "5"}
    assert request.job_name == job.name
