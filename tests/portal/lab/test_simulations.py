"""Simulations through the API: who may, what is refused, and what comes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from accounts.models import AuditEntry
from portal.core.packed_json import pack, unpack
from portal.jobs.models import Job, Run
from portal.lab import running
from portal.lab.inputs import Inputs, build
from portal.lab.models import Simulation, State, Trial
from portal.lab.tasks import prune_simulations, run_simulations
from scheduling import lifecycle
from scheduling.simulator import Options, run_policy
from scheduling.simulator.inputs.trace import read_cluster
from scheduling.simulator.readers import load_trace
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
NODES = [{"type": "v100", "count": 2, "gpus": 4, "price_per_gpu_hour": "2.5", "watts": 250.0}]
MIX = {
    "workload": {"kind": "synthetic", "jobs": 12, "jobs_per_hour": 6.0, "multi_gpu": True},
    "hardware": {"kind": "edited", "nodes": NODES},
    "policies": [{"name": "fifo_gang"}],
}


@pytest.fixture
def world() -> World:
    return World({"a": 4})


def end(world: World, job: Job, minutes: int) -> None:
    at = timezone.now() - timedelta(minutes=minutes)
    Job.objects.filter(pk=job.pk).update(submitted_at=at)
    values = {"state": lifecycle.State.FINISHED, "ended_at": at + timedelta(seconds=100)}
    job.runs.update(**values, queueing_s=10.0, launching_s=20.0, running_s=70.0)


def history(world: World) -> dict[str, Any]:
    for i in range(6):
        end(world, world.submit(steps=3_000 + 500 * i, gpus={"min": 2, "max": 2}), 30 - i)
    world.submit()
    now = timezone.now()
    workload = {"kind": "history", "from_at": (now - timedelta(hours=1)).isoformat(), "to_at": now.isoformat()}
    return {"workload": workload, "policies": [{"name": "fifo_gang"}, {"name": "f_scheduling"}]}


def run(api: Api, spec: dict[str, Any]) -> dict[str, Any]:
    made = api.post("simulations", spec)
    assert made.status == 201, made.text
    run_simulations()
    found: dict[str, Any] = api.get(f"simulations/{made.json['id']}").json
    return found


def figures(simulation: dict[str, Any]) -> list[Any]:
    return [{**trial["metrics"], "wall_s": 0} for trial in simulation["trials"]]


def test_history_has_the_figures_of_the_simulator_itself(world: World, root: Api) -> None:
    found = run(root, history(world))
    assert (found["state"], found["reason"]) == ("succeeded", "")
    assert [trial["role"] for trial in found["trials"]] == ["candidate", "candidate", "as_it_was"]
    assert (found["workload_summary"]["jobs"], found["workload_summary"]["left_out"]) == (6, 1)
    inputs = Inputs(unpack(Simulation.objects.get().inputs))
    for trial in found["trials"]:
        options = Options(0, coalesce_s=60.0 if trial["role"] == "candidate" else 0.0)
        again = run_policy(inputs.jobs(0), inputs.cluster, trial["policy"], trial["given"], options).result
        for key in ("jobs", "finished", "makespan_s", "jct_s", "utilisation", "slowdown", "restarts", "rounds"):
            assert trial["metrics"][key] == again[key]
        assert trial["metrics"]["wait_s"]["mean"] == pytest.approx(again["queueing_s"])
    assert {job.user for job in inputs.jobs(0)} == {"ana@example.org"}


def test_restarts_cost_what_they_cost_here(world: World, root: Api) -> None:
    spec = history(world)
    for launch_s, checkpoint_s, run in zip((3.0, 9.0, 5.0), (1.0, 2.0, 4.0), Run.objects.all(), strict=False):
        Run.objects.filter(pk=run.pk).update(launch_s=launch_s, checkpoint_s=checkpoint_s)
    root.post("simulations", spec)
    inputs = build(Simulation.objects.get())[0]
    for cluster in (inputs.cluster, inputs.own_cluster):
        assert (cluster.launch_s, cluster.checkpoint_s, cluster.stop_s) == (5.0, 2.0, 2.0)


def test_only_administrators_simulate_history_and_others_see_nothing(world: World, root: Api) -> None:
    assert Api(world.user).post("simulations", history(world)).status == 403
    made = root.post("simulations", MIX).json
    assert Api(world.user).get(f"simulations/{made['id']}").status == 404
    assert Api(world.user).get("simulations").json["results"] == []
    mine = Api(world.user).post("simulations", MIX).json
    assert root.get(f"simulations/{mine['id']}").status == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policies": [{"name": "nothing"}]}, "policies.0.name"),
        ({"policies": [{"name": "f_scheduling", "parameters": {"v_bound": "x"}}]}, "policies.0.parameters.v_bound"),
        ({"policies": [{"name": "f_scheduling", "sweep": {"v_bound": [0.1] * 5}}] * 2}, "policies"),
        ({"workload": {"kind": "synthetic", "jobs": 20_001}}, "workload.synthetic.jobs"),
        ({"workload": {"kind": "trace", "trace_id": str(uuid4())}}, "workload.trace_id"),
        ({"hardware": {"kind": "edited", "nodes": [{"type": "t", "count": 9_999, "gpus": 8}]}}, "hardware.nodes"),
        ({"cluster": "nowhere"}, "cluster"),
        ({"repetitions": 6}, "repetitions"),
    ],
)
def test_what_is_wrong_is_named(root: Api, change: dict[str, Any], field: str) -> None:
    answer = root.post("simulations", MIX | change)
    assert (answer.status, answer.fields) == (400, [field])


def test_three_at_once_for_one_person(root: Api) -> None:
    assert [root.post("simulations", MIX).status for _ in range(4)] == [201, 201, 201, 409]


def test_a_rerun_comes_to_the_same(root: Api) -> None:
    first = run(root, MIX | {"policies": [{"name": "f_scheduling"}], "repetitions": 2})
    assert root.post(f"simulations/{first['id']}/rerun").status == 201
    run_simulations()
    newest = root.get("simulations").json["results"][0]
    assert newest["id"] != first["id"]
    assert figures(newest) == figures(first)
    assert first["trials"][0]["metrics"]["energy_kwh"] > 0


def test_a_cancelled_one_never_runs(root: Api) -> None:
    key = root.post("simulations", MIX).json["id"]
    assert root.post(f"simulations/{key}/cancel").json["state"] == "cancelled"
    run_simulations()
    found = root.get(f"simulations/{key}").json
    assert (found["state"], found["trials"][0]["state"]) == ("cancelled", "cancelled")
    assert root.post(f"simulations/{key}/cancel").status == 409
    assert root.delete(f"simulations/{key}").status == 204
    assert set(AuditEntry.objects.filter(action__startswith="simulation.").values_list("action", flat=True)) == {
        "simulation.create",
        "simulation.cancel",
        "simulation.delete",
    }


def test_one_that_runs_is_cancelled_on_the_way(root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    key = root.post("simulations", MIX).json["id"]
    monkeypatch.setattr(running, "_REPORT_EVERY_S", 0.0)

    def cancelled_meanwhile(row: Simulation) -> Any:
        Simulation.objects.filter(pk=row.pk).update(cancel_asked=True)
        return build(row)

    monkeypatch.setattr(running, "build", cancelled_meanwhile)
    run_simulations()
    assert root.get(f"simulations/{key}").json["state"] == "cancelled"


def test_one_whose_worker_died_is_taken_up_and_given_up_after_the_third_time(root: Api) -> None:
    key = root.post("simulations", MIX).json["id"]
    long_ago = timezone.now() - timedelta(hours=1)
    dead = {"state": State.RUNNING, "heard_at": long_ago, "claim": uuid4()}
    Simulation.objects.update(**dead, attempts=1)
    Trial.objects.update(state=State.RUNNING)
    run_simulations()
    assert root.get(f"simulations/{key}").json["state"] == "succeeded"
    Simulation.objects.update(**dead, attempts=3)
    run_simulations()
    found = root.get(f"simulations/{key}").json
    assert found["state"] == "failed"
    assert "died 3 times" in found["reason"]


def test_a_lost_claim_writes_nothing(root: Api) -> None:
    root.post("simulations", MIX)
    row = running.claim_next()
    assert row is not None
    Simulation.objects.update(claim=uuid4())
    running.run(row)
    assert Simulation.objects.get().state == State.RUNNING


def test_an_uploaded_trace_is_simulated_and_is_its_owners(world: World, root: Api) -> None:
    job = {"arrival_s": 0, "total_steps": 100, "throughputs": {"v100": [1.0, 2.0]}}
    file = SimpleUploadedFile("mine.json", json.dumps({"jobs": [job, job]}).encode())
    answer = root.client.post("/api/v1/simulation-traces", {"file": file}, headers=root.headers)
    assert answer.status_code == 201, answer.content
    trace = answer.json()
    assert (trace["jobs"], trace["format"], trace["left_out"]) == (2, "json", 0)
    spec = MIX | {"workload": {"kind": "trace", "trace_id": trace["id"]}}
    assert Api(world.user).post("simulations", spec).fields == ["workload.trace_id"]
    assert run(root, spec)["trials"][0]["metrics"]["finished"] == 2
    wrong = SimpleUploadedFile("mine.json", b"{")
    refused = root.client.post("/api/v1/simulation-traces", {"file": wrong}, headers=root.headers)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "file")


def test_an_export_can_be_read_again(root: Api, tmp_path: Path) -> None:
    found = run(root, MIX)
    document = root.get(f"simulations/{found['id']}/export?format=json").json
    (tmp_path / "t.json").write_text(json.dumps(document["traces"]["0"]))
    (tmp_path / "c.json").write_text(json.dumps(document["cluster"]))
    jobs, cluster = load_trace(tmp_path / "t.json").jobs, read_cluster(tmp_path / "c.json")
    again = run_policy(jobs, cluster, "fifo_gang", {}, Options(0)).result
    assert again["jct_s"] == found["trials"][0]["metrics"]["jct_s"]
    lines = root.get(f"simulations/{found['id']}/export").text.splitlines()
    assert len(lines) == 13


def test_the_oldest_go_when_there_is_too_much(root: Api, settings: Any) -> None:
    first, second = run(root, MIX), run(root, MIX)
    settings.EVENKEEL_KEEP = replace(
        settings.EVENKEEL_KEEP, simulations_bytes=Simulation.objects.latest("number").size_bytes
    )
    prune_simulations()
    assert root.get(f"simulations/{first['id']}").status == 404
    assert root.get(f"simulations/{second['id']}").status == 200


def test_what_is_packed_comes_back() -> None:
    assert unpack(pack({"a": [1, 2.5, None]})) == {"a": [1, 2.5, None]}
