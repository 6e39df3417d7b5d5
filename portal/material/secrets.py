"""Secrets of projects: set by managers, used by members' jobs, never readable."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, transaction
from django.utils import timezone
from evenkeel.runner.redaction import MIN_BYTES as SHORTEST_BYTES

from accounts.models import Project, User
from accounts.services import record_audit
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import LIVE_VALUES, Job, Run
from portal.material.encryption import CannotDecrypt, decrypt, encrypt
from portal.material.models import Secret
from scheduling.errors import ExecutorError
from scheduling.executors.base import Secret as GivenSecret

MIN_BYTES = SHORTEST_BYTES
MAX_BYTES = 48 << 10  # an environment variable may have 128 KiB, including its name
MAX_SECRETS = 200
MAX_USERS = 20
#: Names in job files: of injected secrets, of options for data, and of the token for the code. The inserted parts are
#: names of tables.
_USERS = f"""
    SELECT used.name, (array_agg(job.number ORDER BY job.number))[1:%s]
    FROM {Job._meta.db_table} job JOIN {Run._meta.db_table} run ON run.id = job.run_id,
    LATERAL (
        SELECT jsonb_path_query(job.spec, '$.secrets[*].name') #>> '{{}}' AS name
        UNION SELECT jsonb_path_query(job.spec, '$.data[*].secret') #>> '{{}}'
        UNION SELECT job.spec #>> '{{code,token_secret}}'
    ) used
    WHERE job.project_id = %s AND run.state = ANY(%s) AND used.name = ANY(%s)
    GROUP BY used.name
"""  # noqa: S608  # nosec B608


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
    """Immediately, even if jobs use it: a launch that needs it fails with a message."""
    record_audit(actor=actor, action="secret.delete", target=f"{secret.project.key}/{secret.name}")
    secret.delete()


def used_by(project: Project, names: Sequence[str]) -> dict[str, list[int]]:
    """Secret name -> numbers of live jobs that use it, at most MAX_USERS. Job files stay in the database."""
    with connection.cursor() as cursor:
        cursor.execute(_USERS, [MAX_USERS, project.pk, list(LIVE_VALUES), list(names)])
        return dict(cursor.fetchall())


def missing(project: Project, names: Sequence[str]) -> list[str]:
    known = set(Secret.objects.filter(project=project, name__in=names).values_list("name", flat=True))
    return [name for name in names if name not in known]


def value_of(project: Project, name: str) -> str:
    """Only for launches. Permanent ExecutorError if it is gone or cannot be decrypted."""
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
