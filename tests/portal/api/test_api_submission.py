"""What a submission may be, and what becomes of one that may not."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection

from accounts.models import Quota, User
from accounts.services import add_member
from portal.jobs.models import IdempotencyKey, Job, JobEvent, ModelType
from tests.cases import in_turn
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
FILE: dict[str, Any] = {"command": "python train.py", "project": "vision", "total_steps": 1000}


def nothing_stored() -> bool:
    return not (Job.objects.exists() or IdempotencyKey.objects.exists() or JobEvent.objects.exclude(job=None).exists())


@in_turn(
    ("change", "field"),
    [
        ({"total_steps": "many"}, "total_steps"),
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": 10**30}, "total_steps"),
        ({"total_steps": 1.5}, "total_steps"),
        ({"total_steps": None}, "total_steps"),
        ({"command": ["a"]}, "command"),
        ({"command": "x" * 20_000}, "command"),
        ({"command": "a\x00b"}, "command"),
        ({"name": "bell\x07"}, "name"),
        ({"name": "n" * 121}, "name"),
        ({"model_type": "resnet50"}, "model_type"),
        ({"command": None, "model_type": "no-such"}, "model_type"),
        ({"command": None}, "model_type"),
        ({"project": "no-such"}, "project"),
        ({"project": "../etc"}, "project"),
        ({"gpus": 4.5}, "gpus"),
        ({"gpus": {"min": 3, "max": 2}}, "gpus"),
        ({"gpus": {"min": -1}}, "gpus.min"),
        ({"gpus": {"max": 10**9}}, "gpus.max"),
        ({"gpus": {"types": ["k1"] * 21}}, "gpus.types"),
        ({"gpus": {"types": ["bad type"]}}, "gpus.types.0"),
        ({"memory": "8 elephants"}, "memory"),
        ({"memory": 10**18}, "memory"),
        ({"max_duration": "soon"}, "max_duration"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"deadline": "2026-01-01T00:00:00"}, "deadline"),
        ({"max_cost": "NaN"}, "max_cost"),
        ({"env": {"A B": "x"}}, "env"),
        ({"env": {"EVENKEEL_TOKEN": "x"}}, "env"),
        ({"env": {"A": "\x1b[31m"}}, "env.A"),
        ({"labels": {"bad key!": "x"}}, "labels"),
        ({"labels": {f"k{n}": "v" for n in range(51)}}, "labels"),
        ({"retry": {"limit": 21}}, "retry.limit"),
        ({"checkpoint": {"every_steps": 0}}, "checkpoint.every_steps"),
        ({"throughput": {"k1": []}}, "throughput"),
        ({"throughput": {"k1": [1.0] * 10_001}}, "throughput"),
        ({"restartable": "perhaps"}, "restartable"),
        ({"priority": 10**6}, "priority"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_stored(api: Api, change: dict[str, Any], field: str) -> None:
    refused = api.post("jobs", {**FILE, **change}, Idempotency_Key="k")
    assert refused.status == 400
    assert field in refused.fields
    assert nothing_stored()


@in_turn(
    ("key", "near"), [("total_step", "total_steps"), ("Command", "command"), ("gpu", "gpus"), ("lables", "labels")]
)
def test_an_unknown_key_names_the_nearest(api: Api, key: str, near: str) -> None:
    refused = api.post("jobs", {**FILE, key: 1})
    (error,) = refused.json["errors"]
    assert (refused.status, error["field"]) == (400, key)
    assert near in error["message"]


@in_turn(
    "body",
    [
        b"", b"{", b"[]", b"null", b"3", b'"text"', b"\xff\xfe", b'{"a": NaN}', b'{"name": "\\ud800"}',
        b'{"name": "a", "name": "b"}', b"[" * 100_000, b'{"a":' * 50_000, b'{"total_steps": ' + b"9" * 5_000 + b"}",
        b'{"\\u0000": 1}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_job_file_is_400(api: Api, body: bytes) -> None:
    refused = api.post("jobs", body)
    assert refused.status == 400
    assert refused.fields
    assert nothing_stored()


ALIASES = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@in_turn(
    "text",
    [
        ALIASES, "a: 1\na: 2\n", "- a\n", "a: [", "a: !!python/object/apply:os.system ['true']", "[" * 5_000,
        "name: \x01", "{a: " * 3_000, "? [a]\n: b", "a: 0x" + "f" * 200_000, 'name: "\\ud800"', "1: 2", "a: 2001-99-99",
        "a: 1:99999999999999999999999:99",
    ],
)  # fmt: skip
def test_yaml_that_is_no_job_file_is_400(api: Api, text: str) -> None:
    refused = api.post("jobs", text, content_type="application/yaml")
    assert refused.status == 400
    assert refused.fields
    assert nothing_stored()


@in_turn("content_type", ["application/json", "application/yaml"])
def test_ten_megabytes_are_413(api: Api, content_type: str) -> None:
    assert api.post("jobs", b"a" * 10_000_000, content_type=content_type).status == 413
    assert api.post("jobs", b" " * (256 * 1024 + 1), content_type=content_type).status == 413


def test_a_body_may_have_the_limit(api: Api) -> None:
    text = json.dumps(FILE)
    assert api.post("jobs", text + " " * (256 * 1024 - len(text))).status == 201


@in_turn("content_type", ["text/plain", "application/xml", "multipart/form-data; boundary=x", ""])
def test_another_content_type_is_415(api: Api, content_type: str) -> None:
    assert api.post("jobs", json.dumps(FILE), content_type=content_type).status == 415


def test_a_job_beyond_the_quota_is_refused(world: World, api: Api) -> None:
    Quota.objects.create(project=world.project, limit=2)
    refused = api.post("jobs", FILE | {"gpus": {"min": 3}})
    assert (refused.status, refused.fields) == (409, ["gpus.min"])
    assert "limit of 2 GPUs at once on project Vision (0 in use)" in refused.json["detail"]


def test_a_program_of_the_catalogue_brings_its_batch_size(api: Api) -> None:
    ModelType.objects.create(name="digits", title="Digits", argv=["python"], default_batch_size=128)
    made = api.post("jobs", {"project": "vision", "model_type": "digits", "total_steps": 5})
    assert (made.status, made.json["batch_size"], made.json["name"]) == (201, 128, "digits")


def test_one_key_is_one_job(api: Api) -> None:
    first = api.post("jobs", FILE, Idempotency_Key="abc")
    again = api.post("jobs", FILE, Idempotency_Key="abc")
    assert (first.status, again.status) == (201, 200)
    assert first.json["id"] == again.json["id"]
    assert api.post("jobs", FILE | {"total_steps": 7}, Idempotency_Key="abc").status == 409
    assert Job.objects.count() == 1


def test_a_key_is_each_persons_own(world: World, api: Api) -> None:
    first = api.post("jobs", FILE, Idempotency_Key="abc")
    bo = User.objects.create_user("bo@example.org", "x")
    add_member(actor=None, project=world.project, user=bo, role="member")
    theirs = Api(bo).post("jobs", FILE | {"total_steps": 7}, Idempotency_Key="abc")
    assert (theirs.status, theirs.json["total_steps"]) == (201, 7)
    assert Api(bo).post("jobs", FILE | {"total_steps": 7}, Idempotency_Key="abc").json["id"] == theirs.json["id"]
    assert api.post("jobs", FILE, Idempotency_Key="abc").json["id"] == first.json["id"]


@in_turn("key", ["", "k" * 201, "a b", "é"])
def test_a_key_has_visible_characters(api: Api, key: str) -> None:
    refused = api.post("jobs", FILE, Idempotency_Key=key)
    assert (refused.status, refused.fields) == (400, ["Idempotency-Key"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("limited", [False, True])
def test_ten_at_once_with_one_key_make_one_job(world: World, limited: bool) -> None:
    if limited:
        Quota.objects.create(project=world.project, kind="queued_jobs", limit=1, hard=True)
    api = Api(world.user)
    answers: list[tuple[int, str]] = []
    start = threading.Barrier(10)

    def submit() -> None:
        try:
            start.wait(20)
            made = api.post("jobs", FILE, Idempotency_Key="same")
            answers.append((made.status, made.json["id"]))
        finally:
            connection.close()

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 10
    assert {status for status, _ in answers} <= {200, 201}
    assert [status for status, _ in answers].count(201) == 1
    assert len({job for _, job in answers}) == 1
    assert Job.objects.count() == 1
