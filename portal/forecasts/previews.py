"""Previews of an unsubmitted job among the present ones: what the next round would do with it, and when it would start.

Nothing is stored except in the cache; the queue is not affected.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.models import User
from accounts.selectors import visible_projects
from portal.cluster.policy import checked_policy
from portal.core import task_queue
from portal.core.times import iso
from portal.forecasts.basis import basis_of, drafted
from portal.forecasts.choose_cluster import choose
from portal.forecasts.estimates import Known, estimate, known_of, too_long
from portal.jobfile.launchers import launcher_warnings
from portal.jobfile.schema import JobFile
from portal.jobs.models import Accelerator, Cluster, Job
from portal.readmodels.cluster.catalogue import describe_curve, redact_foreign_job
from portal.readmodels.jobs.why_waiting import way_out
from portal.snapshot.for_policy import complete
from portal.snapshot.take import take_snapshot
from scheduling import domain
from scheduling.domain.reason_codes import ReasonCode
from scheduling.engine.rounds import plan_round
from scheduling.forecast.next_round import Change, Effect, Planned, Preview, compare, preview
from scheduling.policies import load_policy
from scheduling.policies.base import Policy, variance_bound
from scheduling.policies.capabilities import Needs

logger = logging.getLogger(__name__)
_KEPT_S, _ASK_AGAIN_S = 600, 20
MOST_KEPT = 20
#: The number of affected jobs in an answer.
MOST_EFFECTS = 20
#: Costs are computed up to this many GPUs, so that the forecast can give the cost on the job's GPUs.
_LARGEST_GANG = 64
#: Connections to an unreachable broker fail at once instead of blocking a request.


@dataclass(frozen=True)
class Question:
    """What the forecast of a preview needs of the job."""

    user_id: int
    cluster_id: int
    newcomers: tuple[domain.Job, ...]
    starts_now: bool
    gang: domain.Gang | None  # where it starts now
    limits: Mapping[str, domain.Limit]
    pairs: Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]]
    costs: Mapping[tuple[str, int], Mapping[str, Any]]  # by type and count: duration_s, low, amount, high, source
    boot_s: float = 0.0  # time until its nodes are up, if it starts now


def preview_job(user: User, job_file: JobFile) -> dict[str, Any]:
    """Raises Problems by field, like submitting."""
    now = timezone.now()
    wish = choose(user, job_file)
    cluster: Cluster = wish.placed["cluster"]
    basis, known = basis_of(cluster), known_of(wish, now)
    policy = load_policy(*basis.policy)
    newcomers, snapshot = drafted(wish, cluster, basis, now, packs=Needs.PAIRS in policy.capabilities.needs)
    costs = estimate(wish, known)
    said = preview(basis.planned, snapshot, policy, newcomers)
    if costs["refused_by"]:
        said = _refused(said, costs["refused_by"])
    asleep = _asleep(snapshot, said.gpu_ids)
    question = Question(
        user_id=user.pk,
        cluster_id=cluster.pk,
        newcomers=newcomers,
        starts_now=said.verdict == "now",
        gang=said.gang,
        limits=snapshot.limits,
        pairs=snapshot.pairs,
        boot_s=max((node.boot_s for node in asleep), default=0.0),
        costs=_costs(known),
    )
    return {
        "cluster": {"name": cluster.name, "choice": wish.placed["cluster_choice"] or None},
        "verdict": said.verdict,
        "reason": {"code": said.reason.token, "text": said.reason.text},
        "would_change": _would_change(cluster, said),
        "as_of": iso(basis.at),
        "allocation": _allocation(said, newcomers[0]),
        "warnings": [*launcher_warnings(wish.job_file.command), *too_long(known), *_wake_ups(asleep)],
        "prepares": _prepares(wish.job_file),
        "jobs": costs["jobs"],
        "starting": said.starting,
        "position": said.position,
        **_describe_change(user, said.change, policy),
        "estimate": costs,
        "throughput": {
            kind: describe_curve(profile, now)
            for kind, profile in known.profiles.items()
            if profile.curve.source != "trial"
        },
        "forecast": None if said.verdict == "never" else keep_question(question),
    }


def preview_policy(user: User, cluster: Cluster, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """What the next round would do under another policy. Raises KeyError (no such policy) and InvalidParameters."""
    now, then = timezone.now(), copy(cluster)
    other = checked_policy(name, parameters)
    then.policy_name, then.policy_parameters = name, other.parameters.model_dump(mode="json")
    then.policy_memory = cluster.policy_memory if name == cluster.policy_name else {}
    snapshot = take_snapshot(cluster, now).snapshot
    shown = complete(replace(snapshot, memory=then.policy_memory), then, other.capabilities.needs)
    as_it_is = plan_round(snapshot, load_policy(cluster.policy_name, cluster.policy_parameters))
    change = compare(Planned.of(snapshot, as_it_is), plan_round(shown, other))
    kinds = Counter(map(_kind, change.effects))
    return {
        "as_of": iso(now),
        **{name: kinds[name] for name in ("starting", "waiting", "preempted", "grown", "shrunk", "moved")},
        **_describe_change(user, change, other),
    }


def _kind(effect: Effect) -> str:
    """The effect on a job that has other GPUs under the other plan."""
    if effect.after is None:
        return "preempted" if effect.holds else "waiting"
    if effect.before is None:
        return "starting"
    if effect.before.type != effect.after.type or effect.before.count == effect.after.count:
        return "moved"
    return "grown" if effect.after.count > effect.before.count else "shrunk"


# The answer ----------------------------------------------------------------------------------------


def _asleep(snapshot: domain.Snapshot, gpus: Sequence[int]) -> list[domain.Node]:
    """Powered-down nodes of these GPUs."""
    wanted = set(gpus)
    return [node for node in snapshot.nodes if node.boot_s and not wanted.isdisjoint(node.gpu_ids)]


def _wake_ups(nodes: Sequence[domain.Node]) -> list[str]:
    if not nodes:
        return []
    names, seconds = ", ".join(node.name for node in nodes[:5]), max(node.boot_s for node in nodes)
    named = names if len(nodes) <= 5 else f"{names} and {len(nodes) - 5} more"
    are = "is" if len(nodes) == 1 else "are"
    return [
        f"{named} {are} powered down: its start waits about {seconds:.0f} s until Slurm has powered up what it needs."
    ]


def _prepares(job_file: JobFile) -> bool:
    built = job_file.environment is not None and job_file.environment.is_built
    return bool(built or job_file.code.git or job_file.code.bundle)


def _refused(said: Preview, limits: Sequence[str]) -> Preview:
    """A refused job starts nowhere and changes nothing."""
    before = said.change.variance_before
    return Preview(
        verdict="never",
        reason=domain.Reason(ReasonCode.REFUSED, " ".join(limits)),
        gang=None,
        gpu_ids=(),
        from_others=False,
        starting=0,
        position=None,
        change=Change((), before, before),
    )


def _would_change(cluster: Cluster, said: Preview) -> str | None:
    return None if said.verdict == "now" else way_out(cluster, said.reason.token, said.reason.detail)


def _allocation(said: Preview, first: domain.Job) -> dict[str, Any] | None:
    if said.gang is None:
        return None
    gpus = Accelerator.objects.filter(pk__in=said.gpu_ids).order_by("node__name", "index")
    places = [{"node": node, "index": index} for node, index in gpus.values_list("node__name", "index")]
    return {
        "type": said.gang.type,
        "count": said.gang.count,
        "share_percent": first.gpu_milli // 10,
        "gpus": places,
        "from_others": said.from_others,
    }


def _describe_change(user: User, change: Change, policy: Policy) -> dict[str, Any]:
    effects = change.effects[:MOST_EFFECTS]
    jobs = _jobs([effect.job for effect in effects])
    mine = set(visible_projects(user).values_list("pk", flat=True)) if jobs else set()
    return {
        "effects": [
            {
                "job": redact_foreign_job(jobs[effect.job], mine),
                "running": effect.holds,
                "before": describe_gang(effect.before, jobs[effect.job].gpu_share_percent),
                "after": describe_gang(effect.after, jobs[effect.job].gpu_share_percent),
                "slowdown_before": _rounded(effect.slowdown_before),
                "slowdown_after": _rounded(effect.slowdown_after),
                "later_s": _rounded(effect.later_s, 1),
            }
            for effect in effects
            if effect.job in jobs
        ],
        "affected": len(change.effects),
        "variance": {
            "before": _rounded(change.variance_before, 6),
            "after": _rounded(change.variance_after, 6),
            "bound": variance_bound(policy.parameters),
        },
    }


def _jobs(ids: Sequence[str]) -> dict[str, Job]:
    rows = Job.objects.filter(pk__in=[UUID(key) for key in ids]).select_related("project") if ids else []
    return {str(job.pk): job for job in rows}


def describe_gang(gang: domain.Gang | None, share_percent: int) -> dict[str, Any] | None:
    return {"type": gang.type, "count": gang.count, "share_percent": share_percent} if gang else None


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


# The forecast --------------------------------------------------------------------------------------


def _costs(known: Known) -> dict[tuple[str, int], Mapping[str, Any]]:
    keys = ("duration_s", "low", "amount", "high", "source")
    least, most = known.job.min_gpus, known.job.max_gpus or _LARGEST_GANG
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for kind, total in known.types.items():
        for count in range(least, min(total, most, _LARGEST_GANG) + 1):
            if option := known.option(kind, count):
                found[kind, count] = {key: option[key] for key in keys}
    return found


def _question_key(preview_id: UUID | str) -> str:
    return f"preview/{preview_id}"


def keep_question(question: Question) -> str | None:
    """The id under which its forecast is requested; None if it cannot be kept. The newest of each user are kept."""
    preview_id, mine = str(uuid4()), f"previews-of/{question.user_id}"
    try:
        older: list[str] = cache.get(mine) or []
        cache.set(mine, [*older[1 - MOST_KEPT :], preview_id], _KEPT_S)
        cache.delete_many([_question_key(old) for old in older[: 1 - MOST_KEPT]])
        cache.set(_question_key(preview_id), question, _KEPT_S)
    except RedisError as error:
        logger.warning("a preview has no forecast: %s", error)
        return None
    return preview_id


def question_of(preview_id: str) -> Question | None:
    found: Question | None = cache.get(_question_key(preview_id))
    return found


def store_forecast(preview_id: str, answer: Mapping[str, Any]) -> None:
    cache.set(f"{_question_key(preview_id)}/forecast", answer, _KEPT_S)


def _have_foreseen(preview_id: str) -> None:
    """Once; again if the message was lost."""
    task_queue.send_once(
        f"{_question_key(preview_id)}/asked",
        _ASK_AGAIN_S,
        task_queue.FORESEE_PREVIEW,
        preview_id,
        expires_s=_ASK_AGAIN_S,
        failed="the forecast of a preview is not worked out",
    )


def forecast_of(user: User, preview_id: UUID) -> dict[str, Any] | None:
    """Its answer, once it is available; the first request starts its computation. None if the user requested no such
    preview, or too long ago."""
    question = question_of(str(preview_id))
    if question is None or question.user_id != user.pk:
        return None
    answer = cache.get(f"{_question_key(preview_id)}/forecast")
    if answer is None:
        _have_foreseen(str(preview_id))
        return {"status": "pending", "forecast": None}
    mine = set(visible_projects(user).values_list("pk", flat=True))
    jobs = _jobs([one["job"] for one in answer["delayed"]])
    delayed = [
        one | {"job": redact_foreign_job(jobs[one["job"]], mine)} for one in answer["delayed"] if one["job"] in jobs
    ]
    return {"status": "done", "forecast": answer | {"delayed": delayed}}
