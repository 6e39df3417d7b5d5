"""What a project may use at once."""

from __future__ import annotations

from accounts.models import Project, Quota


class QuotaExceeded(Exception):
    """A hard limit refuses the request; `limit` and `wanted` are in the quota's unit."""

    def __init__(self, quota: Quota, wanted: int) -> None:
        super().__init__(
            f"{quota.project.name} may hold {quota.limit} GPUs at once; this job needs at least {wanted}. "
            "Ask for fewer GPUs or have an administrator raise the quota."
        )
        self.limit, self.wanted = quota.limit, wanted


def gpu_limits() -> dict[int, int]:
    """GPUs at once by project id."""
    return dict(Quota.objects.filter(kind=Quota.Kind.GPUS).values_list("project_id", "limit"))


def check_submission(*, project: Project, min_gpus: int) -> None:
    """Refuse what could never run: a job whose least GPU count exceeds the project's quota."""
    quota = Quota.objects.filter(project=project, kind=Quota.Kind.GPUS).first()
    if quota and min_gpus > quota.limit:
        raise QuotaExceeded(quota, min_gpus)
