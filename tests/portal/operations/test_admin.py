"""The administration's pages and what they change."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiToken, AuditEntry, Discount, Membership, Project, Quota, Rate, User
from accounts.tokens import create_token, find_token
from portal.cluster.drains import drain_node
from portal.cluster.policy import set_policy
from portal.jobs.models import Cluster, ModelType, Node, PolicyChange
from scheduling.lifecycle import State
from scheduling.policies import POLICIES
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    world = World()
    ModelType.objects.create(name="digits", title="Digits", argv=["python", "x.py"])
    set_policy(actor=None, cluster=world.cluster, name="f_scheduling", parameters={})
    world.train(world.submit())
    return world


@pytest.fixture
def boss(world: World) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.org", "x"))
    return client


def _act(client: Client, model: str, action: str, pk: Any) -> str:
    """Do it to one row; the page with what is said of it."""
    data = {"action": action, "_selected_action": [str(pk)]}
    answer = client.post(reverse(f"admin:{model}_changelist"), data)
    assert answer.status_code == 302
    return client.get(answer["Location"]).content.decode()


def test_every_list_add_page_and_first_row_opens(world: World, boss: Client) -> None:
    create_token(user=world.user, name="ci")
    assert boss.get("/admin/").status_code == 200
    for model, model_admin in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert boss.get(reverse(f"{name}_changelist")).status_code == 200, name
        may_add = model_admin.has_add_permission(boss.get("/admin/").wsgi_request)
        assert boss.get(reverse(f"{name}_add")).status_code == (200 if may_add else 403), name
        row = model._default_manager.first()
        if row is not None:
            assert boss.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200, name


def test_others_are_sent_to_sign_in(world: World) -> None:
    client = Client()
    client.force_login(world.user)
    assert client.get(reverse("admin:jobs_job_changelist")).status_code == 302


def test_a_user_is_created_by_email(boss: Client) -> None:
    data = {
        "email": "new@example.org",
        "usable_password": "true",
        "password1": "a long enough one",
        "password2": "a long enough one",
    }
    assert boss.post(reverse("admin:accounts_user_add"), data).status_code == 302
    assert User.objects.get(email="new@example.org").check_password("a long enough one")
    assert AuditEntry.objects.filter(action="user.create", target="new@example.org").exists()


def test_a_project_gets_members_and_a_quota(world: World, boss: Client) -> None:
    data = {
        "key": "speech", "name": "Speech", "parent": "",
        "memberships-TOTAL_FORMS": 1, "memberships-INITIAL_FORMS": 0,
        "memberships-0-user": world.user.pk, "memberships-0-role": "viewer",
        "quotas-TOTAL_FORMS": 1, "quotas-INITIAL_FORMS": 0, "quotas-0-kind": "gpus", "quotas-0-limit": 3,
    }  # fmt: skip
    assert boss.post(reverse("admin:accounts_project_add"), data).status_code == 302
    project = Project.objects.get(key="speech")
    assert Membership.objects.get(project=project).role == "viewer"
    assert project.quotas.get().limit == 3
    assert AuditEntry.objects.filter(action="project.create").exists()


def test_a_new_price_ends_the_one_before(world: World, boss: Client) -> None:
    before = Rate.objects.get()
    address = reverse("admin:accounts_rate_add")
    data = {
        "resource": "gpu",
        "accelerator_type": "k1",
        "price_micro_per_hour": 5,
        "valid_from_0": "2199-01-01",
        "valid_from_1": "00:00:00",
    }
    assert boss.post(address, data).status_code == 302
    before.refresh_from_db()
    assert before.valid_to == Rate.objects.get(valid_to=None).valid_from
    refused = boss.post(address, data | {"valid_from_0": "2025-01-01"})
    assert "which is in the past" in refused.content.decode()
    assert boss.post(address, data | {"valid_from_0": "2198-01-01"}).status_code == 302
    assert [rate.valid_from.year for rate in Rate.objects.order_by("valid_from")][1:] == [2198]
    assert (
        boss.post(
            address, data | {"resource": "cpu", "accelerator_type": "", "valid_from_0": "", "valid_from_1": ""}
        ).status_code
        == 302
    )
    assert Rate.objects.filter(resource="cpu").count() == 1


def test_a_discount_begins_now_or_later(world: World, boss: Client) -> None:
    address = reverse("admin:accounts_discount_add")
    data = {"project": world.project.pk, "percent_hundredths": 2_500, "valid_from_0": "", "valid_from_1": ""}
    assert boss.post(address, data).status_code == 302
    assert Discount.objects.get().percent_hundredths == 2_500
    past = data | {"valid_from_0": "2025-01-01", "valid_from_1": "00:00:00"}
    assert boss.post(address, past).status_code == 200
    assert Discount.objects.count() == 1


def test_a_limit_over_a_period_names_the_period(world: World, boss: Client) -> None:
    address = reverse("admin:accounts_quota_add")
    data = {"project": world.project.pk, "user": "", "kind": "money", "accelerator_type": "", "period": "", "limit": 5}
    assert boss.post(address, data).status_code == 200
    assert boss.post(address, data | {"period": "month"}).status_code == 302
    assert Quota.objects.get().period == "month"
    assert AuditEntry.objects.filter(action="quota.create").exists()


def test_tokens_are_revoked_and_never_shown(world: World, boss: Client) -> None:
    token, text = create_token(user=world.user, name="ci")
    page = boss.get(reverse("admin:accounts_apitoken_change", args=[token.pk])).content.decode()
    assert token.digest not in page
    assert text not in page
    _act(boss, "accounts_apitoken", "revoke", token.pk)
    assert ApiToken.objects.get().revoked_at is not None
    assert find_token(text, timezone.now()) is None


def test_nodes_are_drained_and_resumed(boss: Client) -> None:
    node = Node.objects.get()
    for action, drained in (("drain", True), ("resume", False)):
        _act(boss, "jobs_node", action, node.pk)
        node.refresh_from_db()
        assert node.drained is drained
        assert AuditEntry.objects.filter(target=node.name).count() == (1 if drained else 2)


def test_what_the_engine_drained_is_not_resumed(boss: Client) -> None:
    node = Node.objects.get()
    drain_node(actor=None, node=node, now=timezone.now(), reason=f"{node.cluster.executor}: new fans")
    said = _act(boss, "jobs_node", "resume", node.pk)
    node.refresh_from_db()
    assert node.drained
    assert "(new fans): resume it there" in said


def _policy_form(name: str, parameters: str) -> dict[str, Any]:
    return {
        "name": "test", "policy_name": name, "policy_parameters": parameters,
        "policy_changes-TOTAL_FORMS": 0, "policy_changes-INITIAL_FORMS": 0,
    }  # fmt: skip


def test_the_policy_is_set_validated_audited_and_undone(world: World, boss: Client) -> None:
    address = reverse("admin:jobs_cluster_change", args=[world.cluster.pk])
    refused = boss.post(address, _policy_form("f_scheduling", '{"v_bund": 1}'))
    assert "v_bund" in refused.content.decode()
    assert PolicyChange.objects.count() == 1
    assert boss.post(address, _policy_form("static_partition", '{"n": 2}')).status_code == 302
    assert Cluster.objects.get().policy_parameters == {"n": 2}
    assert AuditEntry.objects.filter(action="policy.set", target="static_partition").exists()
    undo = reverse("admin:jobs_cluster_undo_policy", args=[world.cluster.pk])
    assert boss.get(undo).status_code in (302, 405)
    boss.post(undo)
    assert Cluster.objects.get().policy_name == "f_scheduling"


def test_what_the_parameters_may_be_stands_beside_them(world: World, boss: Client) -> None:
    page = boss.get(reverse("admin:jobs_cluster_change", args=[world.cluster.pk])).content.decode()
    assert 'href="/policy"' in page
    assert "Largest variance of relative throughput" in page
    shown = page[page.index("<details open>") : page.index("</details>")]
    assert page.count("<details open>") == 1
    assert ">f_scheduling</code>" in shown
    row = [" ".join(re.sub("<[^>]+>", " ", row).split()) for row in shown.split("<tr>") if "<code>v_bound<" in row]
    assert row[0].startswith("v_bound a number, from 0, to 1 0.05 Largest variance")
    assert "&quot;absolute&quot; or &quot;relative&quot;" in page
    assert "With the jobs of now" in page
    for name in POLICIES:
        assert f">{name}</code>" in page


def test_saving_a_cluster_leaves_what_rounds_wrote(world: World, boss: Client) -> None:
    address = reverse("admin:jobs_cluster_change", args=[world.cluster.pk])
    page = boss.get(address)
    world.round()
    epoch = Cluster.objects.get().round_epoch
    parameters = page.context["adminform"].form.initial["policy_parameters"]
    import json

    boss.post(address, _policy_form("f_scheduling", json.dumps(parameters)) | {"name": "renamed"})
    cluster = Cluster.objects.get()
    assert (cluster.name, cluster.round_epoch, PolicyChange.objects.count()) == ("renamed", epoch, 1)


def test_a_job_is_cancelled_from_its_list(world: World, boss: Client) -> None:
    job = world.submit()
    _act(boss, "jobs_job", "cancel", job.pk)
    assert world.state(job) is State.CANCELLED


def test_curves_of_a_program_are_checked(boss: Client) -> None:
    program = ModelType.objects.get()
    address = reverse("admin:jobs_modeltype_change", args=[program.pk])
    data = {"name": "digits", "title": "Digits", "argv": "python,x.py", "default_batch_size": 64, "enabled": "on"}
    assert boss.post(address, data | {"curves": '{"k1": [1]}'}).status_code == 200
    assert boss.post(address, data | {"curves": '{"k1": {"steps_per_s": [1.5, 2]}}'}).status_code == 302
    program.refresh_from_db()
    assert program.curves == {"k1": {"steps_per_s": [1.5, 2]}}


def test_the_audit_log_cannot_be_edited(world: World, boss: Client) -> None:
    entry = AuditEntry.objects.first()
    assert entry is not None
    address = reverse("admin:accounts_auditentry_delete", args=[entry.pk])
    assert boss.post(address, {"post": "yes"}).status_code == 403
    assert boss.post(reverse("admin:accounts_auditentry_change", args=[entry.pk]), {"target": "x"}).status_code == 403


def test_guessing_passwords_is_slowed_down(world: World) -> None:
    cache.clear()
    boss = User.objects.create_superuser("root@example.org", "a long enough one")
    client, address = Client(), reverse("admin:login")
    for _ in range(10):
        client.post(address, {"username": boss.email, "password": "wrong"})
    refused = client.post(address, {"username": boss.email, "password": "a long enough one"})
    assert "Too many attempts" in refused.content.decode()
    cache.clear()
    assert client.post(address, {"username": boss.email, "password": "a long enough one"}).status_code == 302


def test_the_last_administrator_and_the_tree_are_guarded_here_too(world: World, boss: Client) -> None:
    root = User.objects.get(email="root@example.org")
    for action in ("deactivate", "revoke_administration"):
        assert "only active administrator" in _act(boss, "accounts_user", action, root.pk)
    assert boss.post(reverse("admin:accounts_user_delete", args=[root.pk]), {"post": "yes"}).status_code == 403
    assert User.objects.filter(pk=root.pk, is_superuser=True, is_active=True).exists()
    faces = Project.objects.create(key="faces", name="Faces", parent=world.project)
    data = {
        "key": "vision", "name": "Vision", "parent": faces.pk,
        "memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0,
        "quotas-TOTAL_FORMS": 0, "quotas-INITIAL_FORMS": 0,
    }  # fmt: skip
    refused = boss.post(reverse("admin:accounts_project_change", args=[world.project.pk]), data)
    assert "itself or below it" in refused.content.decode()


def test_rights_and_activity_of_people_change_by_actions_alone(world: World, boss: Client) -> None:
    _, text = create_token(user=world.user, name="ci")
    browser = Client()
    browser.force_login(world.user)
    address = reverse("admin:accounts_user_change", args=[world.user.pk])
    forced = {"email": world.user.email, "first_name": "Ana", "is_superuser": "on", "is_staff": "on"}
    assert boss.post(address, forced).status_code == 302
    person = User.objects.get(pk=world.user.pk)
    assert (person.first_name, person.is_active, person.is_superuser, person.is_staff) == ("Ana", True, False, False)

    _act(boss, "accounts_user", "grant_administration", person.pk)
    assert AuditEntry.objects.filter(action="user.admin_granted", target=person.email).exists()
    _act(boss, "accounts_user", "revoke_administration", person.pk)
    assert AuditEntry.objects.filter(action="user.admin_revoked", target=person.email).exists()

    _act(boss, "accounts_user", "deactivate", person.pk)
    _act(boss, "accounts_user", "reactivate", person.pk)
    person.refresh_from_db()
    assert (person.is_active, person.deactivated_at, person.is_superuser) == (True, None, False)
    assert find_token(text, timezone.now()) is None
    assert browser.get("/api/v1/jobs").status_code == 401
    actions = ["user.deactivate", "user.reactivate"]
    assert AuditEntry.objects.filter(action__in=actions, target=person.email).count() == 2


def test_sessions_show_no_key_and_are_ended(world: World, boss: Client) -> None:
    other = Client()
    other.force_login(world.user)
    session = UserSession.objects.get(user=world.user)
    page = boss.get(reverse("admin:usersessions_usersession_change", args=[session.pk])).content.decode()
    assert session.session_key not in page
    _act(boss, "usersessions_usersession", "end", session.pk)
    assert other.get("/api/v1/jobs").status_code == 401
