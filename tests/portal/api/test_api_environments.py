"""Environments: one per requirements, waited for without GPUs, their log shown."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Membership, User
from portal.execution import executors, preparation
from portal.execution import prepare as prepare_module
from portal.execution.launch_request import launch_request
from portal.jobs.models import Hold
from portal.material import environments, requirements
from portal.material.models import Environment, RunMaterial
from portal.reporting import acceptance, timeouts
from scheduling.executors.base import Preparation, Progress
from scheduling.lifecycle import State
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
TEXT = "# what we need\nSix==1.16.0\n\nattrs>=20  # newer is fine\n"


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.EVENKEEL_DATA = tmp_path
    return World()


class Builder:
    """An executor as far as preparations go: the test says how far they are."""

    name, isolation_problem, supports_warm_start = "test", None, False
    supports_git = supports_bundles = supports_environments = supports_secrets = supports_artifacts = True
    supports_modules = supports_containers = False

    def __init__(self) -> None:
        self.progress = Progress("working")
        self.asked: list[Preparation] = []

    def prepare(self, wish: Preparation) -> Progress:
        self.asked.append(wish)
        return self.progress


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()
    monkeypatch.setattr(executors, "executor_for", lambda name: made)
    monkeypatch.setattr(prepare_module.prepare_run, "apply_async", lambda *args, **options: None)
    return made


def look(world: World, builder: Builder) -> None:
    """What a round and a worker do for runs that wait."""
    RunMaterial.objects.update(next_look_at=timezone.now() - timedelta(seconds=1))
    for run_id in preparation.due(world.cluster.pk, timezone.now()):
        prepare_module.prepare_run(str(run_id))
    acceptance.accept_waiting(
        cluster_id=world.cluster.pk, problem_of=lambda run: preparation.why_not(run, builder), now=timezone.now()  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_same_requirements_are_one_environment(world: World) -> None:
    for text in (TEXT, "attrs>=20\nsix==1.16.0\n"):
        world.submit(environment={"requirements": text})
    (row,) = Environment.objects.all()
    assert row.requirements == "attrs>=20\nsix==1.16.0\n"
    world.submit(environment={"requirements": "six==1.15.0"})
    world.submit(environment={"digest": row.digest})
    assert Environment.objects.count() == 2


@pytest.mark.parametrize(
    ("rule", "field", "words"),
    [
        ({"requirements": "six\n-r other.txt"}, "environment.requirements", "line 2: options are not allowed"),
        ({"requirements": "--find-links https://example.org/x"}, "environment.requirements", "options"),
        ({"requirements": "x @ git+https://example.org/x"}, "environment.requirements", "package index"),
        ({"requirements": "a b c"}, "environment.requirements", "is no requirement"),
        ({"requirements": "evenkeel==1"}, "environment.requirements", "the portal's own"),
        ({"requirements": "# nothing"}, "environment.requirements", "names no package"),
        ({"digest": "a" * 64}, "environment.digest", "no such environment"),
        ({}, "environment", "give requirements, digest, modules or image"),
    ],
)
def test_what_cannot_be_asked_for_is_named(api: Api, rule: dict[str, str], field: str, words: str) -> None:
    wish = {"command": "train", "project": "vision", "total_steps": 5, "environment": rule}
    answer = api.post("jobs", wish)
    assert (answer.status, answer.fields) == (400, [field])
    assert words in answer.json["detail"]


def test_hashes_stay_with_their_requirement() -> None:
    line = "six==1.16.0 --hash=sha256:" + "a" * 64
    assert requirements.normalise(line) == line + "\n"


def test_a_job_waits_without_gpus_and_queues_when_it_is_built(world: World, api: Api, builder: Builder) -> None:
    job = world.submit(environment={"requirements": TEXT})
    look(world, builder)
    assert world.state(job) is State.WAITING_FOR_INITIAL_CONTACT
    assert "environment is being built" in api.get(f"jobs/{job.number}").json["reason"]["text"]
    timeouts.advance_clock(cluster_id=world.cluster.pk, now=timezone.now() + timedelta(hours=1))
    assert world.state(job) is State.WAITING_FOR_INITIAL_CONTACT
    assert not Hold.objects.exists()
    builder.progress = Progress("done", "", {"bytes": 12_345})
    look(world, builder)
    assert world.state(job) is State.WAITING_FOR_INITIAL_RESOURCE
    world.round()
    digest = Environment.objects.get().digest
    request = launch_request(world.run(job), 1)
    assert (request.environment, request.environment_owner) == (digest, "vision")
    shown = api.get(f"projects/vision/environments/{digest}").json
    assert (shown["state"], shown["bytes"]) == ("ready", 12_345)
    assert api.get(f"jobs/{job.number}").json["runs"][0]["material"]["environment"]["digest"] == digest
    assert "torch==" in builder.asked[0].options["constraints"][0]


def test_a_failed_build_ends_the_job_with_the_end_of_its_log(
    world: World, api: Api, builder: Builder, settings: Any
) -> None:
    job = world.submit(environment={"requirements": TEXT}, retry={"limit": 3})
    digest = Environment.objects.get().digest
    log = Path(settings.EVENKEEL_DATA) / "environments" / "vision" / digest
    log.mkdir(parents=True)
    (log / "log").write_text("first\nERROR: no matching distribution\n")
    said = "installing the requirements failed with exit code 1: ERROR: no matching distribution"
    builder.progress = Progress("failed", said)
    look(world, builder)
    run = world.run(job)
    assert (State(run.state), run.attempt) == (State.FAILED, 1)
    assert said in run.reason_text
    assert (
        api.get(f"projects/vision/environments/{digest}/log?tail=1").json["text"] == "ERROR: no matching distribution\n"
    )
    whole = api.get(f"projects/vision/environments/{digest}/log?limit=5").json
    assert (whole["text"], whole["complete"]) == ("first", False)
    world.submit(environment={"requirements": TEXT})
    row = Environment.objects.get()
    assert (row.state, row.attempt) == ("building", 2)


def test_code_is_fetched_first_and_its_commit_is_shown(world: World, api: Api, builder: Builder) -> None:
    code = {"git": "https://example.org/code.git", "ref": "main", "subdir": "src"}
    job = world.submit(code=code)
    look(world, builder)
    assert "code is being fetched" in world.run(job).reason_text
    assert builder.asked[0].options["url"] == code["git"]
    builder.progress = Progress("done", "", {"commit": "c" * 40, "bytes": 5})
    look(world, builder)
    world.round()
    assert api.get(f"jobs/{job.number}").json["runs"][0]["material"]["commit"] == "c" * 40
    assert launch_request(world.run(job), 1).code_subdir == "src"


@pytest.mark.parametrize("size", [-1, 2**62, True, 1.5, "12", None, float("nan")])
def test_a_size_that_cannot_be_evicts_nobody(world: World, builder: Builder, size: Any) -> None:
    good = world.submit(environment={"requirements": "six==1.1"})
    builder.progress = Progress("done", "", {"bytes": 100})
    look(world, builder)
    bad = world.submit(environment={"requirements": TEXT})
    builder.progress = Progress("done", "", {"bytes": size})
    look(world, builder)
    assert "Its environment cannot be built: Its result makes no sense: bytes" in world.run(bad).reason_text
    assert sorted(Environment.objects.values_list("state", "size_bytes")) == [("failed", 0), ("ready", 100)]
    assert world.state(good) is State.WAITING_FOR_INITIAL_RESOURCE


@pytest.mark.parametrize(
    "detail", [{}, {"bytes": 5, "commit": "\0"}, {"bytes": -5, "commit": ""}, {"commit": "c" * 40}]
)
def test_code_of_which_nonsense_is_told_fails_its_job(world: World, builder: Builder, detail: dict[str, Any]) -> None:
    job = world.submit(code={"git": "https://example.org/code.git", "ref": "main"})
    builder.progress = Progress("done", "", detail)
    look(world, builder)
    assert "Its code cannot be had: Its result makes no sense" in world.run(job).reason_text


def test_an_executor_that_cannot_says_so(world: World, builder: Builder) -> None:
    builder.supports_git = False
    job = world.submit(code={"git": "https://example.org/code.git", "ref": "main"})
    look(world, builder)
    assert world.run(job).reason_text == "This cluster cannot give a job code from git."


def test_the_least_recently_used_go_and_what_is_needed_stays(world: World, api: Api, builder: Builder) -> None:
    jobs = [world.submit(environment={"requirements": f"six==1.{n}"}) for n in range(3)]
    builder.progress = Progress("done", "", {"bytes": 100})
    look(world, builder)
    rows = {row.requirements: row for row in Environment.objects.all()}
    api.post(f"jobs/{jobs[1].number}/cancel")
    api.post(f"jobs/{jobs[2].number}/cancel")
    assert [row.requirements for row in environments.over_budget(250)] == ["six==1.1\n"]
    assert [row.requirements for row in environments.over_budget(0)] == ["six==1.1\n", "six==1.2\n"]
    assert api.delete(f"projects/vision/environments/{rows['six==1.0' + chr(10)].digest}").status == 409
    assert environments.forget(actor=None, environment=rows["six==1.1\n"]) == [
        f"environments/vision/{rows['six==1.1' + chr(10)].digest}"
    ]


def test_who_may_see_and_remove_them(world: World, api: Api) -> None:
    world.submit(environment={"requirements": TEXT})
    digest = Environment.objects.get().digest
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    for path in ("environments", f"environments/{digest}", f"environments/{digest}/log"):
        assert stranger.get(f"projects/vision/{path}").status == 404
        assert api.get(f"projects/vision/{path}").status == 200
    Membership.objects.update(role="viewer")
    assert api.delete(f"projects/vision/environments/{digest}").status == 403


def test_shared_ones_belong_to_nobody(world: World, settings: Any) -> None:
    settings.EVENKEEL_MATERIAL = dataclasses.replace(settings.EVENKEEL_MATERIAL, environments_shared=True)
    world.submit(environment={"requirements": TEXT})
    assert environments.owner_of(Environment.objects.select_related("project").get()) == "_shared"


@pytest.mark.parametrize("shared", [True, False])
def test_an_environment_for_all_projects_is_made_of_wheels(
    world: World, builder: Builder, settings: Any, shared: bool
) -> None:
    """A source package runs its code while it is built, as the account of all projects."""
    settings.EVENKEEL_MATERIAL = dataclasses.replace(settings.EVENKEEL_MATERIAL, environments_shared=shared)
    world.submit(environment={"requirements": TEXT})
    look(world, builder)
    assert [wish.options["wheels_only"] for wish in builder.asked] == [shared]
