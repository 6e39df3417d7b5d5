"""A submission's requests besides GPUs: checked before the job exists, recorded with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import timezone

from accounts.models import Project
from portal.core.problems import FieldProblem, Problems
from portal.jobfile.schema import JobFile
from portal.jobs.models import Job, Run
from portal.material import checkpoints, environments, quotas, secrets
from portal.material.models import Bundle, RunMaterial


def needs_preparation(spec: dict[str, Any]) -> bool:
    code = spec.get("code", {})
    return bool(code.get("git") or code.get("bundle") or _built(spec))


def _built(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The packages of a job file; None if it names none."""
    rule: dict[str, Any] = spec.get("environment") or {}
    return rule if rule.get("requirements") or rule.get("digest") else None


def find_problems(project: Project, job_file: JobFile) -> list[FieldProblem]:
    """Requests that the project cannot satisfy or may not make."""
    problems = _code_problems(project, job_file)
    named = [(f"secrets.{number}.name", use.name) for number, use in enumerate(job_file.secrets)]
    named += [(f"data.{number}.secret", use.secret) for number, use in enumerate(job_file.data) if use.secret]
    missing = secrets.missing(project, [name for _, name in named])
    for place, name in named:
        if name in missing:
            problems.append(FieldProblem(place, f"{project.name} has no secret {name!r}.", "invalid"))
    if job_file.environment and job_file.environment.is_built:
        try:
            environments.find(project, job_file.environment.model_dump())
        except Problems as found:
            problems += found.problems
    return problems + _storage_problems(project)


def _code_problems(project: Project, job_file: JobFile) -> list[FieldProblem]:
    code = job_file.code
    if code.bundle and not Bundle.objects.filter(project=project, sha256=code.bundle).exists():
        said = f"{project.name} has no such bundle; upload it first."
        return [FieldProblem("code.bundle", said, "invalid")]
    if not code.git:
        return []
    problems = []
    if refused := _address_problem(code.git):
        problems.append(FieldProblem("code.git", refused, "address"))
    if code.token_secret and secrets.missing(project, [code.token_secret]):
        said = f"{project.name} has no secret {code.token_secret!r}."
        problems.append(FieldProblem("code.token_secret", said, "invalid"))
    return problems


def _address_problem(url: str) -> str | None:
    limits, parts = settings.EVENKEEL_MATERIAL, urlsplit(url)
    if parts.scheme == "file":
        return None if limits.git_allow_file else "must be an https address"
    if parts.scheme == "http" and parts.hostname not in limits.git_allowed_hosts:
        return "must be an https address; http is for hosts that an administrator has listed"
    return None


def _storage_problems(project: Project) -> list[FieldProblem]:
    hard = quotas.checkpoint_hard_bytes(project)
    used = checkpoints.is_full(project, hard) if hard else None
    if used is None:
        return []
    said = (
        f"Checkpoints of {project.name} have {used:,} bytes, its limit is {hard:,}. Those of ended jobs are removed "
        "within minutes, oldest first; end jobs, let them keep fewer (checkpoint.keep), or have the limit raised."
    )
    return [FieldProblem("project", said, "storage_quota")]


def belongs_to_project(spec: dict[str, Any]) -> str | None:
    """Which of the job's inputs another project lacks, in a word for people."""
    of_data = any(use.get("secret") for use in spec.get("data", []))
    if of_data or spec.get("secrets") or spec.get("code", {}).get("token_secret"):
        return "secrets"
    if spec.get("code", {}).get("git") or spec.get("code", {}).get("bundle"):
        return "code"
    return "environment" if _built(spec) else None


def note_runs(job: Job, runs: Iterable[Run]) -> None:
    """Record the material of new runs of the job, or of other jobs with the same file; in the transaction that creates
    them."""
    if not needs_preparation(job.spec):
        return
    rule, bundle = _built(job.spec), job.spec.get("code", {}).get("bundle")
    environment = environments.ask_for(job.project, job.cluster, rule) if rule else None
    if bundle:
        Bundle.objects.filter(project=job.project, sha256=bundle).update(last_used_at=timezone.now())
    RunMaterial.objects.bulk_create(RunMaterial(run=run, environment=environment) for run in runs)
