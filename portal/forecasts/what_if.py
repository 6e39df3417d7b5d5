"""What-ifs: a job with other GPUs, or the cluster with one more node. Nothing is stored except in the cache.

Costs and run times come from the estimate, starts from the forecast; there is no other model here. The immediate part
is answered at once, starts and ends follow (portal.forecasts.what_if_tasks).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.ledger import PriceBook
from accounts.models import Project, User
from accounts.selectors import visible_projects
from portal.accounting.admission import Asked, foresee
from portal.core import task_queue
from portal.core.money import CURRENCY
from portal.core.problems import FieldProblem, Problems
from portal.core.times import iso
from portal.forecasts.basis import Basis, basis_of, drafted
from portal.forecasts.choose_cluster import choose
from portal.forecasts.estimates import Known, describe_price, known_of, known_of_job
from portal.jobfile.gpu_text import gang_words
from portal.jobfile.schema import JobFile
from portal.jobs.models import Cluster, Job, Partition
from portal.snapshot.dependencies import Waits
from portal.snapshot.newcomers import newcomers_of
from scheduling import domain
from scheduling.domain import Gang, Snapshot
from scheduling.forecast.what_if import NEW_NODE, with_node
from scheduling.policies import load_policy
from scheduling.policies.capabilities import Needs

logger = logging.getLogger(__name__)
MOST_OPTIONS, MOST_GPUS, MOST_KEPT = 24, 1_024, 10
_KEPT_S, _ASK_AGAIN_S = 600, 45


class HasEnded(Exception):
    """Nothing of the job is left to change."""


@dataclass(frozen=True)
class JobQuestion:
    user_id: int
    cluster_id: int
    job: domain.Job
    snapshot: Snapshot  # what it refers to; without it if it is new
    options: tuple[tuple[Gang, float], ...]  # with their run times in seconds
    sources: tuple[str, ...]  # of each


@dataclass(frozen=True)
class NodeQuestion:
    user_id: int
    cluster_id: int
    type: str
    projects: frozenset[str]


Question = JobQuestion | NodeQuestion


# A job -----------------------------------------------------------------------------------------------


def what_if_draft(user: User, job_file: JobFile, counts: Sequence[int], types: Sequence[str]) -> dict[str, Any]:
    """For an unsubmitted job. Raises Problems by field."""
    now = timezone.now()
    wish = choose(user, job_file)
    cluster: Cluster = wish.placed["cluster"]
    basis, known = basis_of(cluster), _on_any_type(known_of(wish, now).job, now)
    packs = Needs.PAIRS in load_policy(*basis.policy).capabilities.needs
    newcomers, snapshot = drafted(wish, cluster, basis, now, packs=packs)

    def limits(gang: Gang) -> tuple[list[str], list[str]]:
        asked = Asked(gang.count, [gang.type])
        return foresee(user=user, project=wish.project, asked=asked)

    return _answer(user, cluster, basis, known, newcomers[0], snapshot, _options(known, counts, types), limits)


def what_if_job(user: User, job: Job, counts: Sequence[int], types: Sequence[str]) -> dict[str, Any]:
    """For the rest of a waiting or running job. Raises HasEnded and Problems."""
    basis, now = basis_of(job.cluster), timezone.now()
    snapshot = basis.planned.snapshot
    seen = next((one for one in snapshot.jobs if one.id == str(job.pk)), None)
    if seen is None:
        if job.run is None or job.run.ended_at is not None:
            raise HasEnded(f"#{job.number} has ended.")
        (seen,), snapshot = newcomers_of([job], job.cluster, snapshot, Waits(), now, packs=False)
    known = _on_any_type(job, now)
    bounds = [snapshot.limits[key] for key in seen.limits if key in snapshot.limits]

    def limits(gang: Gang) -> tuple[list[str], list[str]]:
        too_small = (one for one in bounds if one.kind == "gpus" and one.type in (None, gang.type))
        return [_over(one) for one in too_small if one.most < gang.count], []

    options = _options(known, counts, types)
    return _answer(user, job.cluster, basis, known, seen, snapshot, options, limits) | {"job": job.number}


def _on_any_type(job: Job, now: datetime) -> Known:
    """Ignoring the types that its file allows."""
    free = copy(job)
    free.accelerator_types = []
    return known_of_job(free, now)


def _over(limit: domain.Limit) -> str:
    kind = f"{limit.type} GPUs" if limit.type else "GPUs"
    return f"{limit.level[:1].upper()}{limit.level[1:]} may hold {limit.most} {kind} at once."


def _options(known: Known, counts: Sequence[int], types: Sequence[str]) -> list[Gang]:
    """Every count on every type of its partition. Raises Problems."""
    unknown = [kind for kind in types if kind not in known.types]
    if unknown:
        there = ", ".join(sorted(known.types)) or "none"
        raise Problems([FieldProblem("types", f"{unknown[0]} is no type here; there are {there}", "unknown")])
    kinds = [kind for kind in sorted(known.types) if not types or kind in types]
    found = [Gang(kind, count) for kind in kinds for count in sorted(set(counts))]
    if len(found) > MOST_OPTIONS:
        said = f"{len(found)} counts and types together; {MOST_OPTIONS} at most"
        raise Problems([FieldProblem("gpus", said, "too_many")])
    return found


def _answer(
    user: User,
    cluster: Cluster,
    basis: Basis,
    known: Known,
    job: domain.Job,
    snapshot: Snapshot,
    gangs: Sequence[Gang],
    limits: Any,
) -> dict[str, Any]:
    described = [_option(known, gang, *limits(gang)) for gang in gangs]
    open_options = [one for one in described if one["duration_s"] is not None and not one["barred"]]
    question = JobQuestion(
        user_id=user.pk,
        cluster_id=cluster.pk,
        job=replace(job, curves={kind: profile.curve for kind, profile in known.profiles.items()}),
        snapshot=Snapshot(
            now=snapshot.now, nodes=(), jobs=(), limits={key: snapshot.limits[key] for key in job.limits}
        ),
        options=tuple((Gang(one["type"], one["gpus"]), one["duration_s"]) for one in open_options),
        sources=tuple(one["source"] for one in open_options),
    )
    return {
        "as_of": iso(basis.at),
        "currency": CURRENCY,
        "job": None,
        "steps": known.steps,
        "running": bool(job.gpu_ids),
        "options": described,
        "what_if": keep(question) if open_options else None,
    }


def _option(known: Known, gang: Gang, refused: list[str], waits_for: list[str]) -> dict[str, Any]:
    """Duration and cost; `barred`: why it could not start with these GPUs."""
    found = known.option(gang.type, gang.count)
    barred = list(refused)
    if gang.count > known.types[gang.type]:
        barred.append(f"There are {gang_words(known.types[gang.type], gang.type, 100)}.")
    partition: Partition | None = known.job.partition
    if partition is not None and partition.max_gpus is not None and gang.count > partition.max_gpus:
        barred.append(f"In partition {partition.name} a job has {partition.max_gpus} GPUs at most.")
    if gang.count > 1 and known.job.gpu_share_percent < 100:
        barred.append("A job that has part of a GPU has one.")
    keys = ("steps_per_s", "source", "duration_s", "price_per_hour", "amount", "low", "high", "basis")
    values = {key: found[key] if found else None for key in keys}
    return {"type": gang.type, "gpus": gang.count, **values, "barred": barred, "waits_for": waits_for}


# A node ----------------------------------------------------------------------------------------------


def what_if_node(user: User, cluster: Cluster, project: Project, kind: str) -> dict[str, Any]:
    """For the project and the parts below it that the user may see. Raises Problems if no node has the type."""
    now = timezone.now()
    basis = basis_of(cluster)
    snapshot = basis.planned.snapshot
    more = with_node(snapshot, kind)
    if more is None:
        there = ", ".join(sorted({node.type for node in snapshot.nodes if not node.lost})) or "none"
        raise Problems([FieldProblem("type", f"no node here has {kind}; there are {there}", "unknown")])
    inside = visible_projects(user).filter(ancestry__contains=[project.pk]).values_list("key", flat=True)
    gpus = next(len(node.gpu_ids) for node in more.nodes if node.name == NEW_NODE)
    price = describe_price(PriceBook(now), project.pk, kind, now, cluster.name)
    nodes = [node for node in snapshot.nodes if node.type == kind]
    question = NodeQuestion(user.pk, cluster.pk, kind, frozenset({project.key, *inside}))
    return {
        "as_of": iso(basis.at),
        "type": kind,
        "gpus": gpus,
        "nodes_now": len(nodes),
        "gpus_now": sum(len(node.gpu_ids) for node in nodes),
        "price": price,
        "currency": CURRENCY,
        "project": project.key,
        "what_if": keep(question),
    }


# Stored questions ---------------------------------------------------------------------------------


def _key(key: UUID | str) -> str:
    return f"what-if/{key}"


def keep(question: Question) -> str | None:
    """The id under which its answer is requested; None if it cannot be kept. The newest of each user are kept."""
    made, mine = str(uuid4()), f"what-ifs-of/{question.user_id}"
    try:
        older: list[str] = cache.get(mine) or []
        cache.set(mine, [*older[1 - MOST_KEPT :], made], _KEPT_S)
        cache.delete_many([_key(old) for old in older[: 1 - MOST_KEPT]])
        cache.set(_key(made), question, _KEPT_S)
    except RedisError as error:
        logger.warning("a what-if has no forecast: %s", error)
        return None
    return made


def question_of(key: str) -> Question | None:
    found: Question | None = cache.get(_key(key))
    return found


def store_answer(key: str, answer: dict[str, Any]) -> None:
    cache.set(f"{_key(key)}/answer", answer, _KEPT_S)


def answer_of(user: User, key: UUID) -> dict[str, Any] | None:
    """The first request starts the computation. None if the user asked no such question, or too long ago."""
    question = question_of(str(key))
    if question is None or question.user_id != user.pk:
        return None
    answer: dict[str, Any] | None = cache.get(f"{_key(key)}/answer")
    if answer is not None:
        return {"status": "done", "options": None, "node": None, **answer}
    task_queue.send_once(
        f"{_key(key)}/asked",
        _ASK_AGAIN_S,
        task_queue.FORESEE_WHAT_IF,
        str(key),
        expires_s=_ASK_AGAIN_S,
        failed="a what-if is not worked out",
    )
    return {"status": "pending", "options": None, "node": None}
