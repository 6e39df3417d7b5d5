"""The audit log through the API, and what of the API's refusals is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from asgiref.sync import async_to_sync
from django.contrib.sessions.backends.base import SessionBase
from django.core.cache import cache
from django.db import connection
from django.test import AsyncClient, Client
from django.urls import reverse

from accounts.models import AuditEntry, Membership, Project, Quota, User
from accounts.tokens import ALL_SCOPES, create_token, revoke_token
from portal.reporting.run_tokens import run_token
from tests.portal.api_calls import Api
from tests.portal.live.test_live import Socket
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    cache.clear()
    yield World()
    cache.clear()


@pytest.fixture
def boss(world: World) -> Api:
    return Api(User.objects.create_superuser("root@example.org", "x"))


def denied() -> list[tuple[str | None, str, int]]:
    entries = AuditEntry.objects.filter(action="access.denied").order_by("id")
    return [(e.actor_email, e.target, e.detail["status"]) for e in entries]


def test_only_administrators_read_it(world: World, boss: Api) -> None:
    assert Api(world.user).get("audit").status == 403
    assert Api(world.user).get("audit/export").status == 403
    assert Api().get("audit").status == 401
    assert boss.get("audit").status == 200


def test_an_entry_says_who_what_and_where_from(world: World, boss: Api) -> None:
    answer = boss.post("nodes/a/drain", X_Request_ID="my-id.1")
    assert answer.headers["X-Request-ID"] == "my-id.1"
    (entry,) = boss.get("audit?action=node.drained").json["results"]
    assert (entry["actor"], entry["target"], entry["address"]) == ("root@example.org", "a", "127.0.0.1")
    assert entry["credential"].startswith("token ek_")
    assert entry["request_id"] == "my-id.1"


def test_a_request_id_that_is_none_is_replaced(boss: Api) -> None:
    assert boss.get("audit", X_Request_ID="a b\tc").headers["X-Request-ID"].isalnum()


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("actor=ROOT@example.org", 1),
        ("actor=eve@example.org", 0),
        ("action=node.", 1),
        ("action=node", 0),
        ("target=a&action=node.drained", 1),
        ("address=127.0.0.1&action=node.drained", 1),
        ("from_at=2200-01-01T00:00:00Z", None),
        ("from_at=2100-01-01T00:00:00Z", 0),
    ],
)
def test_it_is_filtered(world: World, boss: Api, filters: str, found: int | None) -> None:
    boss.post("nodes/a/drain")
    answer = boss.get(f"audit?{filters}")
    if found is None:
        assert answer.fields == ["from_at"]
    else:
        assert len([e for e in answer.json["results"] if e["action"] != "token.create"]) == found


def test_denials_are_kept_and_unknown_things_are_not(world: World) -> None:
    job = world.submit()
    Project.objects.create(key="hidden", name="Hidden")
    eve = Api(User.objects.create_user("eve@example.org", "x"))
    assert eve.get(f"jobs/{job.number}").status == 404
    assert eve.get("jobs/999999").status == 404
    assert eve.get("live/project:hidden").status == 404
    assert eve.post("nodes/a/drain").status == 403
    assert denied() == [
        ("eve@example.org", f"/api/v1/jobs/{job.number}", 404),
        ("eve@example.org", "/api/v1/live/project:hidden", 404),
        ("eve@example.org", "/api/v1/nodes/a/drain", 403),
    ]


@pytest.mark.django_db(transaction=True)
def test_pages_and_sockets_refuse_as_the_api_does() -> None:
    cache.clear()
    world = World()
    Project.objects.create(key="hidden", name="Hidden")
    client = Client()
    client.force_login(world.user)
    assert client.get("/admin/accounts/user/").status_code == 302
    assert client.get("/admin/login/").status_code == 200
    assert client.get("/").status_code == 200
    assert Client().get("/admin/").status_code == 302
    User.objects.filter(pk=world.user.pk).update(is_staff=True)
    assert client.get("/admin/accounts/user/").status_code == 403
    async_to_sync(_subscribe)(
        world.user, client.session, ["project:hidden", "project:none", "nonsense", "project:vision"]
    )
    email = world.user.email
    assert denied() == [
        (email, "/admin/accounts/user/", 302),
        (email, "/admin/accounts/user/", 403),
        (email, "/ws/v1/live", 404),
    ]
    entry = AuditEntry.objects.latest("id")
    assert (entry.detail["streams"], entry.address) == (["project:hidden"], "10.1.2.3")


async def _subscribe(user: User, session: SessionBase, streams: list[str]) -> None:
    socket = Socket(user, session, client=("10.1.2.3", 999))
    await socket.connect()
    await socket.say(json.dumps({"subscribe": streams}))
    for _ in streams:
        await socket.hear()
    await socket.leave()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "usage?project=hidden", None, 404),
        ("GET", "jobs?project=hidden", None, 404),
        ("GET", "events?project=hidden", None, 404),
        ("POST", "jobs/bulk", {"action": "cancel", "filter": {"project": "hidden"}}, 404),
        ("GET", "limits/QUOTA", None, 404),
        ("DELETE", "tokens/TOKEN", None, 404),
        ("POST", "jobs", {"command": "x", "project": "hidden", "total_steps": 1}, 400),
        ("POST", "jobs", {"command": "x", "project": "own", "total_steps": 1, "resume_from": {"job": "JOB"}}, 400),
        ("POST", "jobs/bulk", {"action": "cancel", "ids": ["JOB", "999999"]}, 200),
    ],
)
def test_what_a_query_or_body_names_is_noticed(
    world: World, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    job = world.submit()
    hidden = Project.objects.create(key="hidden", name="Hidden")
    quota = Quota.objects.create(project=hidden, kind="gpus", limit=1)
    token, _ = create_token(user=world.user, name="ana's")
    eve = User.objects.create_user("eve@example.org", "x")
    own = Project.objects.create(key="own", name="Own")
    Membership.objects.create(project=own, user=eve)
    names = {"QUOTA": quota.pk, "TOKEN": token.pk, "JOB": job.number}
    for name, value in names.items():
        path = path.replace(name, str(value))
    sent = json.loads(json.dumps(body).replace('"JOB"', str(job.number)))
    assert Api(eve).request(method, f"{path}", sent).status == status
    assert [who for who, *_ in denied()] == ["eve@example.org"]
    asked = AuditEntry.objects.latest("id").detail.get("hidden", {})
    if "hidden" in f"{path} {sent}":
        assert asked == {"project": ["hidden"]}
    if "resume_from" in str(sent):
        assert asked == {"job": [str(job.number)]}


def test_a_wrong_body_is_no_denial(world: World, boss: Api) -> None:
    quota = Quota.objects.create(project=world.project, kind="gpus", limit=1)
    made = boss.post("projects/vision/service-accounts", {"name": "ci", "role": "member"}).json
    token = create_token(user=User.objects.get(pk=made["id"]), name="ci")[0]
    assert boss.put(f"limits/{quota.pk}", {"limit": "much"}).status == 400
    assert boss.post(f"tokens/{token.pk}/rotate", {"overlap_hours": "long"}).status == 400
    assert denied() == []


def test_what_is_not_there_in_ones_own_project_is_no_denial(world: World) -> None:
    job = world.submit()
    api = Api(world.user)
    for path in (f"jobs/{job.number}/artifacts/999", "projects/vision/bundles/" + "0" * 64, "usage?project=none"):
        assert api.get(path).status == 404, path
    assert api.get("jobs?project=vision&state=nonsense").status == 400
    assert denied() == []


@pytest.mark.parametrize("act", ["cancel", "hold", "patch", "resubmit"])
def test_what_is_done_to_others_jobs_is_kept(world: World, boss: Api, act: str) -> None:
    own, others = Api(world.user), world.submit()
    mine = world.submit()
    for api, job in ((own, mine), (boss, others)):
        path = f"jobs/{job.number}"
        answer = api.request("PATCH", path, {"name": "x"}) if act == "patch" else api.post(f"{path}/{act}", {})
        assert answer.status in (200, 201)
    entries = AuditEntry.objects.filter(action=f"job.{act}")
    assert [(e.actor_email, e.target) for e in entries] == [("root@example.org", f"job {others.number}")]


def test_a_run_s_token_opens_no_other_run(world: World) -> None:
    job = world.submit()
    world.round()
    run = world.run(job)
    body = {"epoch": run.epoch, "seq": 1, "sent_at": 0.0}
    for token in (run_token(run.pk, run.epoch + 1), "nonsense"):
        assert Api(token=token).post(f"runs/{run.pk}/reports", body).status == 401
    assert denied() == [("", f"/api/v1/runs/{run.pk}/reports", 401)]


def test_failed_sign_ins_at_the_administration_are_kept(world: World) -> None:
    data = {"username": world.user.email, "password": "wrong"}
    assert Client().post("/admin/login/", data).status_code == 200
    assert [e.target for e in AuditEntry.objects.filter(action="session.refused")] == [world.user.email]


@pytest.mark.parametrize("path", ["projects/vision%00", "projects/vision/secrets/A%00", "live/project:vision%00"])
def test_a_path_with_nul_leads_nowhere(world: World, boss: Api, path: str) -> None:
    assert boss.get(path).status == 404


def test_dead_tokens_are_noticed_and_made_up_ones_are_not(world: World) -> None:
    token, text = create_token(user=world.user, name="ci", scopes=ALL_SCOPES)
    revoke_token(actor=world.user, token=token)
    assert Api(token=text).get("jobs").status == 401
    assert Api(token="ek_0000000000_x").get("jobs").status == 401
    assert Api(token="ek_\x00").get("jobs").status == 401
    assert denied() == [("ana@example.org", "/api/v1/jobs", 401)]
    assert AuditEntry.objects.latest("id").detail["token"] == token.prefix


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_it_is_exported_as_a_stream(kind: str) -> None:
    cache.clear()
    World()
    root = User.objects.create_superuser("root@example.org", "x")
    text = create_token(user=root, name="ci", scopes=ALL_SCOPES)[1]
    for n in range(3):
        create_token(user=root, name=f"t{n}")

    async def export() -> tuple[Any, str]:
        response: Any = await AsyncClient().get(
            f"/api/v1/audit/export?format={kind}&action=token.create", headers={"Authorization": f"Bearer {text}"}
        )
        return response, b"".join([part async for part in response.streaming_content]).decode()

    response, said = async_to_sync(export)()
    assert response.status_code == 200
    assert "attachment" in response["Content-Disposition"]
    lines = said.strip().split("\n")
    assert len(lines) == 4 + (kind == "csv")
    if kind == "jsonl":
        assert [json.loads(line)["position"] for line in lines] == [1, 2, 3, 4]


@pytest.fixture
def unwritable(transactional_db: None) -> Iterator[None]:
    """An audit log that takes none of the entries in question."""
    with connection.cursor() as cursor:
        refused = "'storage.set', 'session.end', 'session.end_others', 'session.end_all'"
        cursor.execute(
            f"ALTER TABLE accounts_auditentry ADD CONSTRAINT full_up CHECK (action NOT IN ({refused})) NOT VALID"
        )
        yield
        cursor.execute("ALTER TABLE accounts_auditentry DROP CONSTRAINT full_up")


def test_what_cannot_be_written_down_does_not_happen(unwritable: None) -> None:
    world = World()
    root = User.objects.create_superuser("root@example.org", "x")
    browser, other, boss = (Client(raise_request_exception=False) for _ in range(3))
    for client, user in ((browser, world.user), (other, world.user), (boss, root)):
        client.force_login(user)
    elsewhere = UserSession.objects.get(session_key=other.session.session_key)
    storage = boss.put("/api/v1/projects/vision/storage", {"bundles_bytes": 5}, content_type="application/json")
    assert storage.status_code == 500
    assert browser.delete(f"/api/v1/sessions/{elsewhere.pk}").status_code == 500
    assert browser.delete("/api/v1/sessions").status_code == 500
    assert boss.delete(f"/api/v1/people/{world.user.pk}/sessions").status_code == 500
    action = {"action": "end", "_selected_action": [str(elsewhere.pk)]}
    assert boss.post(reverse("admin:usersessions_usersession_changelist"), action).status_code == 500
    assert Api(world.user).get("projects/vision/storage").json["bundles"]["quota_bytes"] != 5
    assert other.get("/api/v1/jobs").status_code == 200
