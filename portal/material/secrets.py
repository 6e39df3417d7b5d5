"""Secrets of projects: set by managers, used by members' jobs, read by nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone
from evenkeel.runner.redaction import MIN_BYTES as SHORTEST_BYTES

from accounts.models import Project, User
from accounts.services import record_audit
from portal.jobs.models import LIVE_VALUES, Job
from portal.jobs.schema import FieldProblem, Problems
from portal.material.encryption import CannotDecrypt, decrypt, encrypt
from portal.material.models import Secret
from scheduling.errors import ExecutorError
from scheduling.executors.base import Secret as GivenSecret

MIN_BYTES = SHORTEST_BYTES
MAX_BYTES = 48 << 10  # an environment variable may have 128 KiB, name and all
MAX_SECRETS = 200


@transaction.atomic
def set_secret(*, actor: User, project: Project, name: str, value: str, description: str | None) -> tuple[Secret, bool]:
    """A new secret or a new value: (secret, created). Raises Problems."""
    if not MIN_BYTES <= len(value.encode()) <= MAX_BYTES:
        said = f"must have {MIN_BYTES} to {MAX_BYTES:,} bytes: shorter ones cannot be kept out of logs"
        raise Problems([FieldProblem("value", said, "length")])
    if "\0" in value:
        raise Problems([FieldProblem("value", "must not contain a null character", "invalid")])
    Project.objects.select_for_update().get(pk=project.pk)
    secret = Secret.objects.filter(project=project, name=name).first()
    if secret is None and Secret.objects.filter(project=project).count() >= MAX_SECRETS:
        raise Problems([FieldProblem("name", f"a project has {MAX_SECRETS} secrets at most", "quota")])
    created = secret is None
    secret = secret or Secret(project=project, name=name)
    secret.ciphertext, secret.changed_at, secret.changed_by = encrypt(value), timezone.now(), actor
    if description is not None:
        secret.description = description
    secret.save()
    action = "secret.create" if created else "secret.change"
    record_audit(actor=actor, action=action, target=f"{project.key}/{name}", detail={"described": bool(description)})
    return secret, created


@transaction.atomic
def delete_secret(*, actor: User, secret: Secret) -> None:
    """At once, whoever uses it: a launch that needs it fails and says so."""
    record_audit(actor=actor, action="secret.delete", target=f"{secret.project.key}/{secret.name}")
    secret.delete()


def names_used_by(spec: dict[str, Any]) -> set[str]:
    """Names of the secrets that a job file asks for."""
    token = spec.get("code", {}).get("token_secret")
    return {use["name"] for use in spec.get("secrets", [])} | ({token} if token else set())


def used_by(project: Project) -> dict[str, list[int]]:
    """Secret name -> numbers of the live jobs that ask for it."""
    users: dict[str, list[int]] = {}
    jobs = Job.objects.filter(project=project, run__state__in=LIVE_VALUES)
    for number, spec in jobs.order_by("number").values_list("number", "spec"):
        for name in names_used_by(spec):
            users.setdefault(name, []).append(number)
    return users


def missing(project: Project, names: Sequence[str]) -> list[str]:
    known = set(Secret.objects.filter(project=project, name__in=names).values_list("name", flat=True))
    return [name for name in names if name not in known]


def value_of(project: Project, name: str) -> str:
    """For a launch alone. ExecutorError, permanent, where it is gone or cannot be opened."""
    secret = Secret.objects.filter(project=project, name=name).first()
    if secret is None:
        raise ExecutorError(f"The project has no secret {name!r} any more.", permanent=True)
    try:
        return decrypt(secret.ciphertext)
    except CannotDecrypt as error:
        raise ExecutorError(f"Secret {name!r}: {error}", permanent=True) from None


def given_to(job: Job) -> tuple[GivenSecret, ...]:
    """The secrets of a launch, with their values."""
    return tuple(
        GivenSecret(use["name"], use.get("env"), use.get("file"), value_of(job.project, use["name"]))
        for use in job.spec.get("secrets", [])
    )
