"""A run's launch request: program, placement, pace, token."""

from __future__ import annotations

from collections import defaultdict

from django.conf import settings

from accounts import slurm_names
from portal.execution import datasets
from portal.jobfile.slurm_options import sbatch_options
from portal.jobs.identity import account_of
from portal.jobs.models import Accelerator, Hold, Job, Run
from portal.lifecycle import report_interval
from portal.lifecycle.job_limits import time_left_s
from portal.material import environments, secrets
from portal.material.models import RunMaterial
from portal.reporting import run_tokens
from portal.storage import checkpoints
from portal.throughput import profiles
from portal.throughput.launch_times import expected_s
from scheduling.executors.base import LaunchRequest


def _earlier_run_ids(run: Run) -> tuple[str, ...]:
    earlier = Run.objects.filter(job_id=run.job_id, attempt__lt=run.attempt, epoch__gt=0).order_by("-attempt")
    return tuple(str(pk) for pk in earlier.values_list("pk", flat=True))


def launch_request(run: Run, epoch: int) -> LaunchRequest:
    """The request for (run, epoch), built from the run's occupancy; ValueError if there is none."""
    job = run.job
    gpus = list(
        Accelerator.objects.filter(holds__in=Hold.objects.filter(run=run, epoch=epoch, during__upper_inf=True))
        .select_related("node")
        .order_by("node__name", "index")
    )
    if not gpus:
        raise ValueError(f"run {run.pk} holds nothing in epoch {epoch}")
    placement: dict[str, list[int]] = defaultdict(list)
    for gpu in gpus:
        placement[gpu.node.name].append(gpu.index)
    spec = job.spec
    material = RunMaterial.objects.select_related("environment__project").filter(run=run).first()
    environment = material.environment if material else None
    code = spec.get("code", {})
    checkpoint = spec.get("checkpoint", {})
    return LaunchRequest(
        job_id=str(job.pk),
        job_number=job.number,
        job_name=job.name,
        expected_s=expected_s(run, gpus[0].node.accelerator_type, len(gpus)) if runs_in_slurm(job) else None,
        sbatch=_sbatch(job),
        run_id=str(run.pk),
        epoch=epoch,
        project_key=job.project.key,
        argv=tuple(job.model_type.argv) if job.model_type else (str(spec["command"]),),
        shell=job.model_type is None,  # nosec B604
        workdir=code.get("path"),
        placement={node: tuple(indexes) for node, indexes in placement.items()},
        env={**spec.get("env", {}), **_place_in_array(job)},
        total_steps=job.total_steps,
        batch_size=job.batch_size,
        checkpoint_every_steps=checkpoint.get("every_steps", 200),
        checkpoint_keep=checkpoint.get("keep", 3),
        max_duration_s=time_left_s(run),
        memory_mib=spec.get("memory"),
        cpus=spec.get("cpus"),
        api_url=settings.EVENKEEL_API_URL,
        token=run_tokens.run_token(run.pk, epoch),
        report_interval_s=report_interval.interval_s(),
        sample_interval_s=settings.EVENKEEL_SAMPLE_INTERVAL_S,
        earlier_run_ids=_earlier_run_ids(run),
        resume_job_id=str(job.resume_job_id) if job.resume_job_id else None,
        resume_step=job.resume_step,
        code_subdir=code.get("subdir") or "" if code.get("git") or code.get("bundle") else None,
        environment=environment.digest if environment else None,
        environment_owner=environments.owner_of(environment) if environment else None,
        modules=tuple(spec.get("environment", {}).get("modules", ())),
        image=spec.get("environment", {}).get("image"),
        secrets=(*secrets.given_to(job), *checkpoints.secrets(job.cluster_id), *datasets.secrets(job)),
        checkpoint_store=checkpoints.of_run(run),
        data=datasets.of_job(job),
        pace_steps_per_s=pace_of(run, gpus[0].node.accelerator_type, len(gpus)),
        gpu_share_percent=job.gpu_share_percent,
        gpu_memory_mib=job.gpu_memory_mib or None,
        account=account_of(job),
    )


def runs_in_slurm(job: Job) -> bool:
    return job.cluster.executor == "slurm"


def _sbatch(job: Job) -> dict[str, str]:
    """The job's options take precedence over its project's."""
    if not runs_in_slurm(job):
        return {}
    return slurm_names.effective(job.project) | sbatch_options(job.spec.get("slurm"))


def _place_in_array(job: Job) -> dict[str, str]:
    array = job.array
    if array is None:
        return {}
    names = {"ID": array.number, "INDEX": job.array_index, "SIZE": array.size}
    return {f"EVENKEEL_ARRAY_{name}": str(value) for name, value in names.items()}


def pace_of(run: Run, accelerator_type: str, count: int) -> float | None:
    """The maximum speed of an emulated run: what its curve gives there; None on real devices."""
    if not run.emulated:
        return None
    known = profiles.profiles_of(run.job, {accelerator_type: count}, {})
    profile = known.get(accelerator_type)
    if profile is None or profile.curve.source == "trial":
        return None
    return profile.curve.at(count) or None
