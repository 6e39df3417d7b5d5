"""Code and environments before the first GPU: what must be prepared, its progress and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts.text import shown
from portal.execution import datasets
from portal.jobs.identity import account_of
from portal.jobs.loops import Loop, LoopName
from portal.jobs.models import Job, Run
from portal.lifecycle import end_run
from portal.lifecycle.transitions import Why
from portal.material import bundles, environments, secrets
from portal.material.claims import needs_preparation
from portal.material.models import Environment, RunMaterial
from portal.material.requirements import base_packages
from scheduling.domain.reason_codes import ReasonCode
from scheduling.executors.base import Executor, ExitInfo, Preparation, Progress
from scheduling.executors.preparation_results import checked_detail
from scheduling.lifecycle import LIVE, State

LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """One preparation of a run that is not done."""

    preparation: Preparation
    environment: Environment | None = None


def why_not(run: Run, executor: Executor) -> Why | None:
    """Why the executor does not accept the run yet."""
    if executor.isolation_problem:
        return Why(ReasonCode.NOT_ACCEPTED, executor.isolation_problem)
    if run.job.gpu_share_percent < 100 and not executor.supports_sharing:
        return Why(ReasonCode.NOT_ACCEPTED, "This cluster gives whole GPUs only.")
    if (unsupported := _unsupported(run.job, executor)) is not None:
        return Why(ReasonCode.NOT_ACCEPTED, f"This cluster cannot give a job {unsupported}.")
    if not needs_preparation(run.job.spec):
        return None
    material = _material(run)
    if _wants_code(run.job.spec) and not material.code_ready:
        return Why(ReasonCode.PREPARING, "Its code is being fetched; no GPU is occupied meanwhile.")
    if material.environment and material.environment.state != Environment.State.READY:
        return Why(ReasonCode.PREPARING, "Its environment is being built; no GPU is occupied meanwhile.")
    return None


def _unsupported(job: Job, executor: Executor) -> str | None:
    spec, cache = job.spec, datasets.configured(job.cluster_id).cache_dir
    code, environment = spec.get("code", {}), spec.get("environment", {})
    packages = environment.get("requirements") or environment.get("digest")
    wanted = (
        (code.get("git"), executor.supports_git, "code from git"),
        (code.get("bundle"), executor.supports_bundles, "uploaded code"),
        (packages, executor.supports_environments, "an environment of its own"),
        (environment.get("modules"), executor.supports_modules, "modules (EVENKEEL_MODULES is not set)"),
        (environment.get("image"), executor.supports_containers, "an image (EVENKEEL_CONTAINER_TOOL is not set)"),
        (spec.get("secrets"), executor.supports_secrets, "secrets"),
        (_fetches_data(spec), cache, "data by URL (EVENKEEL_DATA_CACHE_DIR is not set)"),
    )
    return next((words for asked, supported, words in wanted if asked and not supported), None)


def _fetches_data(spec: dict[str, Any]) -> bool:
    return any(use.get("url") for use in spec.get("data", []))


def _wants_code(spec: dict[str, Any]) -> bool:
    return bool(spec.get("code", {}).get("git") or spec.get("code", {}).get("bundle"))


def _material(run: Run) -> RunMaterial:
    found = RunMaterial.objects.select_related("environment__project").filter(run=run).first()
    return found or RunMaterial.objects.get_or_create(run=run)[0]


def due(cluster_id: int, now: datetime) -> list[UUID]:
    """Runs whose preparation should be started or polled."""
    waiting = RunMaterial.objects.filter(
        run__job__cluster_id=cluster_id, run__state=State.WAITING_FOR_INITIAL_CONTACT, next_look_at__lte=now
    )
    failing = [UUID(key) for key in Loop(LoopName.PREPARE, cluster_id).postponed_ids()]
    return list(waiting.exclude(run__in=failing).order_by("next_look_at").values_list("run_id", flat=True)[:200])


def claim(run_id: UUID, now: datetime) -> Run | None:
    """The run, for one worker at a time; None if another worker has just polled it, or it no longer waits."""
    mine = RunMaterial.objects.filter(run=run_id, run__state=State.WAITING_FOR_INITIAL_CONTACT, next_look_at__lte=now)
    if not mine.update(next_look_at=now + timedelta(seconds=LOOK_AGAIN_S)):
        return None
    return Run.objects.select_related("job__project", "job__cluster").get(pk=run_id)


def wishes(run: Run) -> list[Wish]:
    """What must be prepared, done or not: a directory may have been removed since. Raises ExecutorError."""
    spec, found = run.job.spec, []
    if _wants_code(spec):
        found.append(Wish(_code(run)))
    if environment := _material(run).environment:
        found.append(Wish(_environment(run, environment), environment))
    return found


def _code(run: Run) -> Preparation:
    job, limits = run.job, settings.EVENKEEL_MATERIAL
    code, number = job.spec["code"], str(job.pk)
    if code.get("bundle"):
        source, most = str(bundles.path_of(code["bundle"])), limits.bundle_unpacked_max_bytes
        options: dict[str, Any] = {"max_files": limits.bundle_max_files}
        return Preparation(
            "bundle", number, 1, job.project.key, number, options, limits.git_timeout_s, most, source=source,
            account=account_of(job),
        )  # fmt: skip
    options = {"url": code["git"], "allowed_hosts": list(limits.git_allowed_hosts)}
    options |= {name: code.get(name) for name in ("ref", "subdir")}
    token = code.get("token_secret")
    secret = secrets.value_of(job.project, token) if token else ""
    most = limits.git_max_bytes
    return Preparation(
        "git", number, 1, job.project.key, number, options, limits.git_timeout_s, most, secret=secret,
        account=account_of(job),
    )  # fmt: skip


def _environment(run: Run, environment: Environment) -> Preparation:
    limits = settings.EVENKEEL_MATERIAL
    options = {
        "requirements": environment.requirements,
        "constraints": list(base_packages()),
        "index_url": limits.pip_index_url,
        # Building a package runs its code: in an environment for all projects, under their common account.
        "wheels_only": limits.environments_shared,
    }
    return Preparation(
        "environment",
        environment.digest,
        environment.attempt,
        environments.owner_of(environment),
        str(run.job_id),
        options,
        limits.environment_timeout_s,
        limits.environment_max_bytes,
    )


@transaction.atomic
def record(*, run: Run, wish: Wish, progress: Progress, now: datetime) -> None:
    """Record the progress of a preparation. If it failed, the run fails permanently."""
    progress = _believed(wish.preparation, progress)
    if wish.environment is not None:
        _record_environment(wish.environment, progress, now)
    elif progress.state == "done":
        columns = {"code_ready": True, "commit": progress.detail["commit"], "code_bytes": progress.detail["bytes"]}
        RunMaterial.objects.filter(run=run).update(**columns)
    if progress.state == "failed":
        fail(run=run, message=_in_words(wish, progress), now=now)


def _believed(preparation: Preparation, progress: Progress) -> Progress:
    """The project's account wrote the result, so it is validated."""
    if progress.state != "done":
        return progress
    try:
        return Progress("done", progress.message, checked_detail(preparation, progress.detail))
    except ValueError as error:
        return Progress("failed", f"Its result makes no sense: {error}")


def _record_environment(environment: Environment, progress: Progress, now: datetime) -> None:
    if progress.state == "working":
        columns: dict[str, Any] = {"state": Environment.State.BUILDING}
    elif progress.state == "done":
        columns = {"state": Environment.State.READY, "size_bytes": progress.detail["bytes"], "error": ""}
    else:
        columns = {"state": Environment.State.FAILED, "error": shown(progress.message, 2_000)}
    changed = Environment.objects.filter(pk=environment.pk, attempt=environment.attempt).exclude(state=columns["state"])
    changed.update(**columns, finished_at=None if progress.state == "working" else now)


def _in_words(wish: Wish, progress: Progress) -> str:
    if wish.environment is None:
        return f"Its code cannot be had: {progress.message}"
    return f"Its environment cannot be built: {progress.message}"


@transaction.atomic
def fail(*, run: Run, message: str, now: datetime) -> None:
    locked = Run.objects.select_for_update(of=("self",)).select_related("job").get(pk=run.pk)
    if State(locked.state) in LIVE and locked.epoch == run.epoch:
        end_run.fail(locked, ExitInfo("not_prepared", message=message[:1_500]), now)
