"""Examining a cluster over the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.core.cache import cache
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone

from portal.execution import executors
from portal.execution.checks import stored, tasks
from portal.jobs.models import Cluster
from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding, Kept
from tests.portal.api_calls import Api
from tests.portal.world import World

pytestmark = pytest.mark.django_db


class Engine:
    """Whose examination says or raises this."""

    def __init__(self, said: list[Finding] | Exception) -> None:
        self._said = said

    def examine(self, api_url: str, kept: Kept) -> list[Finding]:
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    found: list[Any] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, arguments, **_: found.append((name, *arguments)))
    cache.clear()
    yield found
    cache.clear()


@pytest.fixture
def admin(sent: list[Any]) -> Api:
    world = World()
    world.user.is_staff = world.user.is_superuser = True
    world.user.save()
    return Api(world.user)


def examine(monkeypatch: pytest.MonkeyPatch, sent: list[Any], said: list[Finding] | Exception) -> None:
    monkeypatch.setattr(executors, "executor_for", lambda cluster: Engine(said))
    name, cluster_id, began_at = sent[-1]
    assert name == tasks.examine.name
    tasks.examine(cluster_id, began_at)


def test_what_a_worker_found_is_told(admin: Api, sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert admin.get("examination").json["began_at"] is None
    begun = admin.post("examination")
    assert (begun.status, begun.json["cluster"], begun.json["ended_at"]) == (202, "test", None)
    assert admin.get("examination").json == begun.json
    said = [
        Finding("clocks", True, "3 ms apart"),
        Finding("GRES", False, "none", "add Gres="),
        Finding("x", True, "", "", False),
    ]
    examine(monkeypatch, sent, said)
    found = admin.get("examination").json
    assert found["ended_at"] >= found["began_at"]
    assert found["findings"][:3] == [
        {"subject": "clocks", "result": "passed", "seen": "3 ms apart", "fix": ""},
        {"subject": "GRES", "result": "failed", "seen": "none", "fix": "add Gres="},
        {"subject": "x", "result": "unknown", "seen": "", "fix": ""},
    ]
    assert {"job files", "checkpoints", "data by path"} <= {one["subject"] for one in found["findings"]}


@pytest.mark.parametrize("error", [ExecutorError("slurmctld is away", permanent=False), RuntimeError("oh")])
def test_an_engine_that_cannot_be_examined_is_a_finding(
    admin: Api, sent: list[Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    admin.post("examination")
    examine(monkeypatch, sent, error)
    first = admin.get("examination").json["findings"][0]
    assert first["result"] == "failed"
    assert str(error) in first["seen"]


def test_one_is_under_way_at_a_time_unless_its_worker_was_lost(admin: Api, sent: list[Any]) -> None:
    for _ in range(3):
        assert admin.post("examination").status == 202
    assert len(sent) == 1
    cluster = Cluster.objects.get()
    later = timezone.now() + stored.LONGEST + timedelta(seconds=1)
    assert stored.begin_examination(cluster, later)["began_at"] == later
    assert len(sent) == 2


def test_a_late_worker_says_nothing_of_a_newer_one(
    admin: Api, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.post("examination")
    cluster = Cluster.objects.get()
    stored.begin_examination(cluster, timezone.now() + stored.LONGEST + timedelta(seconds=1))
    sent.pop()
    examine(monkeypatch, sent, [Finding("old", True, "")])
    assert admin.get("examination").json["ended_at"] is None


def test_an_unknown_cluster_is_named(admin: Api) -> None:
    refused = admin.post("examination?cluster=nowhere")
    assert (refused.status, refused.json["errors"][0]["field"]) == (400, "cluster")


def test_before_the_first_start_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OperationalError("connection to server on socket failed: No such file or directory\n\tIs it running?")

    monkeypatch.setattr("portal.operations.management.commands.doctor.active_clusters", refused)
    with pytest.raises(
        CommandError, match=r"start the portal first; the data directory is .*\(connection .* directory\)$"
    ):
        call_command("doctor")
