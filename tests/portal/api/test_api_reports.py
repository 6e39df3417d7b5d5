"""What runners report."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from portal.jobs.models import Checkpoint, Job, JobEvent, MetricPoint
from portal.reporting import reports
from portal.reporting.run_tokens import run_token
from scheduling.lifecycle import State
from tests.portal.api_calls import Answer, Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(world: World) -> Job:
    job = world.submit(gpus={"min": 1, "max": 1})
    world.round()
    return job


def body(epoch: int = 1, seq: int = 1, **more: Any) -> dict[str, Any]:
    return {"epoch": epoch, "seq": seq, "sent_at": time.time(), "phase": "running", **more}


def send(job: Job, content: Any, token: str | None = None) -> Answer:
    job.refresh_from_db()
    assert job.run_id
    return Api(token=token or run_token(job.run_id, 1)).post(f"runs/{job.run_id}/reports", content)


def test_a_report_moves_the_job_on(world: World, job: Job) -> None:
    metrics = [{"step": 3, "at": time.time(), "loss": 2.5}]
    answer = send(job, body(ready_at=time.time(), step=3, metrics=metrics, sdk=True, usage={"cpu_s": 1}, exit=None))
    assert answer.status == 200
    orders = {"command": None, "next_report_s": 10.0, "total_steps": 1000, "max_duration_s": None}
    assert answer.json == {**orders, "others": []}
    assert world.state(job) is State.RUNNING_PROTECTED
    assert world.run(job).step == 3
    assert MetricPoint.objects.get().values == {"loss": 2.5}


def test_a_repeated_report_changes_nothing(world: World, job: Job) -> None:
    send(job, body(ready_at=time.time(), step=3))
    events = JobEvent.objects.count()
    assert send(job, body(ready_at=time.time(), step=9)).status == 200
    assert (world.run(job).step, JobEvent.objects.count()) == (3, events)


def test_links_of_its_program_are_shown_and_only_addresses_are(world: World, job: Job) -> None:
    links = {"W&B": "https://wandb.example.org/runs/7", "bad": "javascript:alert(1)", "none": "https://"}
    assert send(job, body(links=links)).status == 200
    shown = Api(world.user).get(f"jobs/{job.number}").json["links"]
    board = {"name": "W&B", "url": "https://wandb.example.org/runs/7"}
    assert shown == [{**board, "leads_here": False, "may_lead_here": True}]
    send(job, body(seq=2, links={"W&B": "https://wandb.example.org/runs/8"}))
    send(job, body(seq=3, links={"board": "https://board.example.org/"}))
    send(job, body(seq=4))
    assert [link["url"] for link in Api(world.user).get(f"jobs/{job.number}").json["links"]] == [
        "https://wandb.example.org/runs/8",
        "https://board.example.org/",
    ]


def test_of_many_checkpoints_the_newest_are_kept(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_CHECKPOINTS", 3)
    for seq, step in enumerate((10, 20, 30, 25, 20, 40, 5), start=1):
        assert send(job, body(seq=seq, checkpoint={"step": step, "at": time.time(), "bytes": 1})).status == 200
    assert list(Checkpoint.objects.order_by("step").values_list("step", flat=True)) == [25, 30, 40]
    assert world.run(job).checkpoint_step == 40


def test_what_a_program_says_is_shown_without_what_is_not_seen(world: World, job: Job) -> None:
    links = {
        "a\u202eb\x1b[2J": "https://a.example.org/",
        "c": "https://b.example.org/\u202e",
        "\u200b": "https://c.example.org",
    }
    metrics = [{"step": 1, "at": time.time(), "lo\u202ess\n": 1.0, "\u200b": 2.0}]
    said = body(ready_at=time.time(), links=links, metrics=metrics, notices=["two\nlines\x1b[2J\u202e" + "x" * 600])
    assert send(job, said).status == 200
    assert Api(world.user).get(f"jobs/{job.number}").json["links"] == [
        {"name": "a b [2J", "url": "https://a.example.org/", "leads_here": False, "may_lead_here": True}
    ]
    assert MetricPoint.objects.get().values == {"lo ss": 1.0}
    text = JobEvent.objects.get(kind="notice").text
    assert text.startswith(f"#{job.number}: two lines [2J xx")
    assert len(text) < 420


def points(count: int, names: int, *, first: int = 0, size: int = 1) -> list[dict[str, float]]:
    values = {f"{'n' * size}{first + name}": 1.0 for name in range(names)}
    return [{"step": float(first + step), "at": time.time(), **values} for step in range(count)]


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        (points(1, 51), 50),
        (points(500, 1, size=40), 500),
        (points(100, 50), 46),
        ([point for first in range(0, 250, 25) for point in points(1, 25, first=first)], 200),
    ],
)
def test_metrics_are_bounded_and_what_is_over_is_told_once(
    world: World, job: Job, metrics: list[dict[str, float]], kept: int
) -> None:
    for seq in range(1, 2 if kept == 500 else 4):
        assert send(job, body(seq=seq, ready_at=time.time(), metrics=metrics)).status == 200
    rows = list(MetricPoint.objects.values_list("values", flat=True))
    assert all(len(values) <= 50 for values in rows)
    assert len({name for values in rows for name in values}) <= 200
    assert kept in (len(rows), len({name for values in rows for name in values}))
    told = JobEvent.objects.filter(kind="notice").values_list("text", flat=True)
    assert ["200 names, a point 50" in text for text in told] == [True] * (kept != 500)


def test_metrics_of_reports_that_follow_each_other_quickly_are_fewer(job: Job) -> None:
    assert send(job, body(ready_at=time.time(), metrics=points(1, 1))).status == 200
    for seq in range(2, 42):
        metrics = [point | {"step": float(seq * 100 + n)} for n, point in enumerate(points(30, 50))]
        assert send(job, body(seq=seq, metrics=metrics)).status == 200
    size = sum(len(json.dumps(point.values)) for point in MetricPoint.objects.all())
    assert size < 41 * 16 * 1024


def test_tokens_of_other_launches_people_and_nobody_are_401(world: World, job: Job) -> None:
    other = world.submit()
    assert job.run_id
    assert other.run_id
    for token in (run_token(other.run_id, 1), run_token(job.run_id, 2), "ekr_", "nonsense"):
        assert send(job, body(), token).status == 401
    user = Api(world.user)
    assert user.post(f"runs/{job.run_id}/reports", body()).status == 401
    assert Api().post(f"runs/{job.run_id}/reports", body()).status == 401
    unknown = "00000000-0000-0000-0000-000000000000"
    assert Api().post(f"runs/{unknown}/reports", body()).status == 401
    assert Api(token=run_token(unknown, 1)).post(f"runs/{unknown}/reports", body()).status == 404


def test_a_stale_launch_is_409(world: World, job: Job) -> None:
    assert job.run_id
    assert send(job, body(epoch=2), run_token(job.run_id, 2)).status == 409


def test_a_cancelled_job_is_told_to_die(world: World, job: Job) -> None:
    Api(world.user).post(f"jobs/{job.number}/cancel")
    assert send(job, body()).json["command"] == "kill"


def test_what_programs_log_is_taken_as_it_comes(world: World, job: Job) -> None:
    send(job, body(ready_at=time.time()))
    metrics = '[{"step": 1, "at": 1795221131.0, "loss": NaN, "lo\\u0000ss": 1.5, "\\ud800": Infinity}]'
    text = json.dumps(body(seq=2, notices=["nul \0 and half \ud800"], metrics=["M"])).replace('["M"]', metrics)
    assert send(job, text).status == 200
    assert MetricPoint.objects.get().values == {"lo\ufffdss": 1.5}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", {"epoch": 1}, body(seq=-1), body(seq=10**30), body(step=-1), body(sent_at=1e300),
        body(metrics=[{"step": "x"}]), body(metrics=[{}] * 600), body(checkpoint={"step": 1}), b"[" * 100_000,
        body(notices=["x"] * 101),
    ],
)  # fmt: skip
def test_a_report_that_is_none_is_400(job: Job, content: Any) -> None:
    assert send(job, content).status == 400


def test_reports_have_a_size_limit_of_their_own(job: Job) -> None:
    assert send(job, json.dumps(body()) + " " * 500_000).status == 200
    assert send(job, b" " * (1024 * 1024 + 1)).status == 413


def carried(job: Job, epoch: int = 1, token: str | None = None, **report: Any) -> dict[str, Any]:
    job.refresh_from_db()
    assert job.run_id
    content = {key: value for key, value in (body(epoch) | report).items() if value is not ...}
    return {"run": str(job.run_id), "token": token or run_token(job.run_id, epoch), "report": content}


def test_what_others_on_the_node_say_comes_along(world: World, job: Job) -> None:
    others = [world.submit(gpus={"min": 1, "max": 1}) for _ in range(2)]
    world.round()
    sent = body(ready_at=time.time(), others=[carried(one, ready_at=time.time(), step=5) for one in others])
    answer = send(job, sent)
    assert answer.status == 200
    assert [one["status"] for one in answer.json["others"]] == [200, 200]
    assert answer.json["others"][0]["orders"] == {
        "command": None,
        "next_report_s": 10.0,
        "total_steps": 1000,
        "max_duration_s": None,
    }
    assert {world.state(one) for one in (job, *others)} == {State.RUNNING_PROTECTED}
    assert {world.run(one).step for one in others} == {5}


def test_each_of_them_is_refused_by_itself(world: World, job: Job, settings: Any) -> None:
    good, cancelled, crowding = (world.submit(gpus={"min": 1, "max": 1}) for _ in range(3))
    world.round()
    settings.RATES_PER_MINUTE = settings.RATES_PER_MINUTE | {"run": 1}
    assert send(crowding, body()).status == 200
    Api(world.user).post(f"jobs/{cancelled.number}/cancel")
    unknown = "00000000-0000-0000-0000-000000000000"
    along = [
        carried(good, token=run_token(unknown, 1)),
        carried(good, step=-1),
        carried(good, sent_at=...),
        carried(good, epoch=2),
        {"run": unknown, "token": run_token(unknown, 1), "report": body()},
        carried(crowding, seq=2),
        carried(good, ready_at=time.time(), step=5),
        carried(cancelled),
    ]
    answer = send(job, body(ready_at=time.time(), others=along))
    assert [one["status"] for one in answer.json["others"]] == [401, 400, 400, 409, 404, 429, 429, 200]
    assert answer.json["others"][-1]["orders"]["command"] == "kill"
    assert answer.headers["RateLimit"].startswith('"run";r=0')
    assert world.state(job) is State.RUNNING_PROTECTED


def test_nobody_brings_others_along_without_a_token_of_their_own(world: World, job: Job) -> None:
    other = world.submit(gpus={"min": 1, "max": 1})
    world.round()
    along = [carried(other, ready_at=time.time())]
    assert send(job, body(others=along), "ekr_wrong").status == 401
    assert send(job, body(others=along * 64)).status == 400
    assert world.state(other) is State.LAUNCHING


def test_where_the_one_that_carries_is_over_the_others_are_taken_and_told_when_they_come_again(
    world: World, job: Job
) -> None:
    other = world.submit(gpus={"min": 1, "max": 1})
    world.round()
    along = carried(other, ready_at=time.time(), step=5)
    assert job.run_id
    assert send(job, body(epoch=2, others=[along]), run_token(job.run_id, 2)).status == 409
    assert world.run(other).step == 5
    again = send(other, along["report"])
    assert (again.status, again.json["command"], again.json["total_steps"]) == (200, None, 1000)
