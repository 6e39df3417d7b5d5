"""Uploading code: what is taken in, by whom, how much of it, and when it goes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import AuditEntry, Membership, Project, User
from portal.material import bundles
from portal.material.models import Bundle
from tests.portal.api_calls import Answer, Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db
GZIP = "application/gzip"


def packed(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("_", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


CODE = packed(train=b"print(1)")
SHA = hashlib.sha256(CODE).hexdigest()


@pytest.fixture
def world(settings: Any, tmp_path: Any) -> World:
    settings.EVENKEEL_DATA = tmp_path
    return World()


def upload(api: Api, data: bytes = CODE, project: str = "vision", kind: str = GZIP) -> Answer:
    return api.request("POST", f"projects/{project}/bundles", data, content_type=kind)


def limited(settings: Any, **changes: Any) -> None:
    settings.EVENKEEL_MATERIAL = dataclasses.replace(settings.EVENKEEL_MATERIAL, **changes)


def test_the_same_content_is_stored_once(api: Api, world: World) -> None:
    first = upload(api)
    assert (first.status, first.json["sha256"], first.json["files"]) == (201, SHA, 1)
    assert upload(api).status == 200
    other = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=other, user=world.user)
    assert upload(api, project="speech").status == 201
    assert [p.name for p in bundles.directory().rglob("*") if p.is_file()] == [f"{SHA}.tar.gz"]
    assert bundles.path_of(SHA).stat().st_mode & 0o777 == 0o600
    assert api.delete(f"projects/vision/bundles/{SHA}").status == 204
    assert bundles.path_of(SHA).exists()
    assert api.delete(f"projects/speech/bundles/{SHA}").status == 204
    assert not bundles.path_of(SHA).exists()
    assert AuditEntry.objects.filter(action="bundle.delete").count() == 2


def test_it_is_there_for_members_and_to_be_seen_by_viewers(api: Api, world: World) -> None:
    upload(api)
    stranger = Api(User.objects.create_user("eve@example.org", "x"))
    for path in ("projects/vision/bundles", f"projects/vision/bundles/{SHA}", "projects/none/bundles"):
        assert stranger.get(path).status == 404
    assert upload(stranger).status == 404
    Membership.objects.update(role="viewer")
    assert api.get("projects/vision/bundles").json["results"][0]["sha256"] == SHA
    assert upload(api, packed(x=b"2")).status == 403
    assert api.delete(f"projects/vision/bundles/{SHA}").status == 403


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"nonsense", "not a readable gzipped tar"),
        (CODE[:-9], "not a readable gzipped tar"),
        (packed(**{".._x": b"1"}), "leads out"),
        (packed(), "empty"),
    ],
    ids=["nonsense", "cut off", "leads out", "empty"],
)
def test_what_is_no_archive_is_refused(api: Api, data: bytes, words: str) -> None:
    answer = upload(api, data)
    assert (answer.status, answer.fields) == (400, ["body"])
    assert words in answer.json["detail"]
    assert not Bundle.objects.exists()
    assert not list(bundles.directory().glob(".incoming-*"))


def test_limits_hold(api: Api, settings: Any) -> None:
    limited(settings, bundle_max_bytes=len(CODE) - 1)
    assert upload(api).status == 413
    limited(settings, bundle_max_bytes=10_000, bundle_unpacked_max_bytes=100_000)
    assert "larger than" in upload(api, packed(zeros=bytes(200_000))).json["detail"]
    limited(settings, bundle_max_files=1)
    assert "more than the 1" in upload(api, packed(a=b"1", b=b"2")).json["detail"]
    limited(settings, bundle_quota_bytes=len(CODE) + 10)
    assert upload(api).status == 201
    refused = upload(api, packed(more=b"1"))
    assert refused.json["errors"][0]["code"] == "storage_quota"
    assert upload(api, kind="text/plain").status == 415


def test_a_job_needs_a_bundle_of_its_own_project(api: Api, world: World) -> None:
    other = Project.objects.create(key="speech", name="Speech")
    Membership.objects.create(project=other, user=world.user)
    upload(api, project="speech")
    wish = {"command": "python train.py", "project": "vision", "total_steps": 5, "code": {"bundle": SHA}}
    assert api.post("jobs", wish).fields == ["code.bundle"]
    upload(api)
    job = api.post("jobs", wish).json
    assert api.get(f"projects/vision/bundles/{SHA}").json["used_by"] == [job["number"]]
    assert api.delete(f"projects/vision/bundles/{SHA}").status == 409
    api.post(f"jobs/{job['number']}/cancel")
    assert api.delete(f"projects/vision/bundles/{SHA}").status == 204


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ({"path": "/x", "git": "https://example.org/x.git", "ref": "main"}, "code"),
        ({"git": "https://example.org/x.git"}, "code"),
        ({"git": "https://ana:token@example.org/x.git", "ref": "main"}, "code.git"),
        ({"git": "ssh://example.org/x.git", "ref": "main"}, "code.git"),
        ({"git": "file:///etc", "ref": "main"}, "code.git"),
        ({"git": "http://example.org/x.git", "ref": "main"}, "code.git"),
        ({"git": "https://example.org/x.git", "ref": "--upload-pack=x"}, "code.ref"),
        ({"git": "https://example.org/x.git", "ref": "main", "subdir": "../x"}, "code.subdir"),
        ({"git": "https://example.org/x.git", "ref": "main", "token_secret": "NONE"}, "code.token_secret"),
        ({"bundle": "abc"}, "code.bundle"),
        ({"bundle": "a" * 64, "token_secret": "X"}, "code"),
    ],
)
def test_wrong_code_names_its_field(api: Api, code: dict[str, str], field: str) -> None:
    wish = {"command": "python train.py", "project": "vision", "total_steps": 5, "code": code}
    answer = api.post("jobs", wish)
    assert (answer.status, answer.fields) == (400, [field])


def test_unused_ones_go_by_rule(api: Api, settings: Any) -> None:
    upload(api)
    assert bundles.remove_unused(timezone.now() + timedelta(days=29)) == 0
    assert bundles.remove_unused(timezone.now() + timedelta(days=31)) == 1
    assert not bundles.path_of(SHA).exists()
