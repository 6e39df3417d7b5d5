"""Modules and images of a site, as a job file asks for them, and as clusters offer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from portal.config.datasets import DataSettings
from portal.config.engines import Engine
from portal.execution.launch_request import launch_request
from portal.jobs.clusters import engine_of
from portal.jobs.models import Cluster
from portal.material.claims import belongs_to_project, needs_preparation
from scheduling.executors.base import NO_SOFTWARE, Software
from scheduling.executors.offering import software_findings
from tests.portal.api_calls import Api
from tests.portal.cluster.test_clusters import second
from tests.portal.world import CURVES, World

pytestmark = pytest.mark.django_db
IMAGE = {"image": "/shared/images/pytorch.sif"}
FETCHED = {"image": "docker://registry.example.org:5000/team/train:2.6"}
MODULES = {"modules": ["cuda/12.4", "gcc/12"]}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def api(world: World) -> Api:
    return Api(world.user)


@pytest.fixture
def offer(settings: Any, tmp_path: Path) -> Any:
    """What the clusters named have of the site's own."""

    def say(**offered: Software) -> None:
        settings.EVENKEEL_CLUSTERS = {
            name: Engine(
                "local", {"software": software}, tmp_path / name, None, DataSettings("", 0, 60.0, {}), emulated=True
            )
            for name, software in offered.items()
        }

    return say


def wish(environment: dict[str, Any], **more: Any) -> dict[str, Any]:
    curves = {"k1": CURVES["fast"]}
    given = {"command": "train", "project": "vision", "total_steps": 5, "throughput": curves}
    return given | {"environment": environment} | more


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"modules": ["-h"]}, "environment.modules.0"),
        ({"modules": ["cuda", "a; rm -rf /"]}, "environment.modules.1"),
        ({"modules": ["$(id)"]}, "environment.modules.0"),
        ({"modules": ["x" * 201]}, "environment.modules.0"),
        ({"modules": ["x"] * 21}, "environment.modules"),
        ({"modules": []}, "environment"),
        ({"modules": "cuda"}, "environment.modules"),
        ({"image": "--writable"}, "environment.image"),
        ({"image": "images/here.sif"}, "environment.image"),
        ({"image": "/shared/../etc"}, "environment.image"),
        ({"image": "https://example.org/x.sif"}, "environment.image"),
        ({"image": "docker://-x"}, "environment.image"),
        ({"image": "/shared/with space.sif"}, "environment.image"),
        ({**IMAGE, **MODULES}, "environment"),
        ({**IMAGE, "requirements": "six"}, "environment"),
    ],
)
def test_what_cannot_be_asked_for_is_named(api: Api, environment: dict[str, Any], field: str) -> None:
    refused = api.post("jobs", wish(environment))
    assert refused.status == 400
    assert refused.fields == [field]


@pytest.mark.parametrize("path", ["jobs", "jobs/preview"])
@pytest.mark.parametrize(
    ("environment", "field", "words"),
    [
        (MODULES, "environment.modules", "cluster test does not offer the site's modules"),
        (IMAGE, "environment.image", "cluster test does not run programs in images"),
    ],
)
def test_a_cluster_that_has_neither_refuses_it(
    api: Api, path: str, environment: dict[str, Any], field: str, words: str
) -> None:
    refused = api.post(path, wish(environment))
    assert (refused.status, refused.fields) == (400, [field])
    assert words == refused.json["errors"][0]["message"]


def test_a_refusal_says_which_clusters_do(world: World, api: Api, offer: Any) -> None:
    second(world)
    offer(test=NO_SOFTWARE, other=Software(modules=True, container_tool="bwrap"))
    refused = api.post("jobs", wish(MODULES, cluster="test"))
    assert "does not offer the site's modules, but other does" in refused.json["errors"][0]["message"]
    refused = api.post("jobs", wish(FETCHED, cluster="other"))
    assert "does not fetch images (bwrap runs what lies on the nodes), nor" in refused.json["errors"][0]["message"]


@pytest.mark.parametrize("path", ["jobs", "jobs/preview"])
def test_no_packages_are_built_where_jobs_run_as_people(api: Api, path: str, settings: Any, tmp_path: Path) -> None:
    options = {"software": NO_SOFTWARE, "run_as": "person"}
    engine = Engine("slurm", options, tmp_path, None, DataSettings("", 0, 60.0, {}), emulated=True)
    settings.EVENKEEL_CLUSTERS = {"test": engine}
    refused = api.post(path, wish({"requirements": "six", **MODULES}))
    assert refused.status == 400
    assert refused.fields == ["environment.modules", "environment.requirements"]
    assert (
        "does not build environments, as its jobs run as each person's account; use a virtual environment"
        in (refused.json["errors"][1]["message"])
    )


@pytest.mark.parametrize("environment", [MODULES, IMAGE])
def test_one_left_to_the_portal_goes_where_it_is_offered(
    world: World, api: Api, offer: Any, environment: dict[str, Any]
) -> None:
    second(world)
    offer(test=NO_SOFTWARE, other=Software(modules=True, container_tool="apptainer"))
    made = api.post("jobs", wish(environment))
    assert made.status == 201, made.json
    assert made.json["cluster"]["name"] == "other"
    assert "the only one that can run it" in made.json["cluster"]["choice"]
    assert api.post("jobs/preview", wish(environment)).json["cluster"]["name"] == "other"
    offer(test=NO_SOFTWARE, other=NO_SOFTWARE)
    refused = api.post("jobs", wish(environment))
    assert (refused.status, refused.fields) == (400, ["cluster"])
    assert "no cluster can run the job" in refused.json["errors"][0]["message"]


def test_it_reaches_the_executor_and_nothing_is_prepared(world: World, settings: Any, offer: Any) -> None:
    offer(test=Software(modules=True, container_tool="apptainer"))
    assert engine_of(Cluster.objects.get().pk).software.modules
    for environment, modules, image in (
        (MODULES, ("cuda/12.4", "gcc/12"), None),
        (FETCHED, (), FETCHED["image"]),
    ):
        job = world.submit(gpus={"min": 1, "max": 1}, environment=environment)
        assert not needs_preparation(job.spec)
        assert belongs_to_project(job.spec) is None
        world.round()
        run = world.run(job)
        request = launch_request(run, run.epoch)
        assert (request.modules, request.image, request.environment) == (modules, image, None)


def test_what_nodes_say_becomes_findings() -> None:
    there = {"modules": "Modules Release 5.2.0", "bwrap": "bubblewrap 0.8.0"}
    modules, images = software_findings(there, Software(True, "bwrap"), "n1: ")
    assert (modules.subject, modules.ok, modules.seen) == ("n1: modules", True, "Modules Release 5.2.0")
    assert (images.subject, images.ok, images.seen) == ("n1: images", True, "bwrap: bubblewrap 0.8.0")
    modules, images = software_findings({}, Software(True, "apptainer"))
    assert (modules.ok, images.ok, images.seen) == (False, False, "apptainer is not there")
    assert "install apptainer" in images.fix
    modules, images = software_findings(there, NO_SOFTWARE)
    assert modules.ok
    assert "EVENKEEL_MODULES=1 offers" in modules.seen
    assert "EVENKEEL_CONTAINER_TOOL offers" in images.seen
