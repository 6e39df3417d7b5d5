"""Environments: their identity, and the rows of requested ones."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from accounts.models import Project, User
from accounts.services import record_audit
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import LIVE_VALUES, Cluster
from portal.material.models import Environment, RunMaterial
from portal.material.requirements import base_packages, normalise

SHARED_OWNER = "_shared"


class InUse(Exception):
    """It cannot be removed while live jobs need it."""


def base() -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    return " ".join([f"python=={python}", platform.machine(), *base_packages()])


def digest_of(requirements: str) -> str:
    """`requirements` in the form of `normalise`."""
    parts = [requirements, base(), settings.EVENKEEL_MATERIAL.pip_index_url]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def find(project: Project, rule: dict[str, Any]) -> str:
    """The digest of a job file's request. Raises Problems."""
    if rule.get("digest"):
        if not Environment.objects.filter(project=project, digest=rule["digest"]).exists():
            said = "The project has no such environment; give its requirements."
            raise Problems([FieldProblem("environment.digest", said, "invalid")])
        return str(rule["digest"])
    return digest_of(normalise(rule["requirements"]))


def ask_for(project: Project, cluster: Cluster, rule: dict[str, Any]) -> Environment:
    """The row, new or existing; a failed one is retried for a new job."""
    digest, now = find(project, rule), timezone.now()
    defaults = {"base": base(), "last_used_at": now}
    if rule.get("requirements"):
        defaults["requirements"] = normalise(rule["requirements"])
    elif elsewhere := Environment.objects.filter(project=project, digest=digest).first():
        defaults["requirements"] = elsewhere.requirements
    environment, _ = Environment.objects.get_or_create(
        project=project, cluster=cluster, digest=digest, defaults=defaults
    )
    again = {"state": Environment.State.BUILDING, "attempt": F("attempt") + 1, "error": "", "finished_at": None}
    Environment.objects.filter(pk=environment.pk, state=Environment.State.FAILED).update(**again)
    Environment.objects.filter(pk=environment.pk).update(last_used_at=now)
    environment.refresh_from_db()
    return environment


def owner_of(environment: Environment) -> str:
    return SHARED_OWNER if settings.EVENKEEL_MATERIAL.environments_shared else environment.project.key


def on_all_clusters(environment: Environment) -> QuerySet[Environment]:
    """The environment, and those with its digest on the project's other clusters."""
    rows = Environment.objects.select_related("project")
    return rows.filter(project=environment.project_id, digest=environment.digest)


def in_use(environment: Environment) -> bool:
    return RunMaterial.objects.filter(environment=environment, run__state__in=LIVE_VALUES).exists()


@transaction.atomic
def forget(*, actor: User | None, environment: Environment) -> list[str]:
    """Remove the row; returns the paths to discard. Raises InUse."""
    Environment.objects.select_for_update().get(pk=environment.pk)
    if in_use(environment):
        raise InUse(f"Environment {environment.digest[:12]} is used by jobs that have not ended.")
    owner, digest = owner_of(environment), environment.digest
    if actor is not None:
        record_audit(actor=actor, action="environment.delete", target=f"{environment.project.key}/{digest[:12]}")
    environment.delete()
    others = Environment.objects.filter(cluster=environment.cluster_id, digest=digest)
    shared = owner == SHARED_OWNER and others.exists()
    return [] if shared else [f"environments/{owner}/{digest}"]


def over_budget(budget_bytes: int) -> list[Environment]:
    """The least recently used ones without jobs, until the rest fits; and those that failed long ago."""
    total = Environment.objects.aggregate(n=Sum("size_bytes"))["n"] or 0
    going = []
    for environment in Environment.objects.exclude(state="building").select_related("project").order_by("last_used_at"):
        if total <= budget_bytes:
            break
        if not in_use(environment):
            going.append(environment)
            total -= environment.size_bytes
    return going
