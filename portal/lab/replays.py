"""Replays of a stored round under its own policy or another, compared with the recorded decision."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded
from django.core.cache import cache
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from accounts.models import User
from portal.core.locks import replay_lock
from portal.core.problems import FieldProblem, Problems
from portal.jobs.models import Cluster, Decision
from portal.lab.rounds import boards, gang_of, in_view, named, round_of, who
from portal.snapshot.decisions import same_plan, snapshot_of
from portal.snapshot.for_policy import missing_needs
from scheduling.domain import Plan, Snapshot
from scheduling.engine.rounds import plan_round
from scheduling.errors import InvalidParameters, SchedulingError
from scheduling.policies import POLICIES, load_policy
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import Needs

logger = logging.getLogger(__name__)
#: Time limit of a plan in seconds, for any policy; lifetime of an answer; delay before a lost message is sent again.
LONGEST_S, _KEPT_S, _ASK_AGAIN_S = 60, 600, 75
_TRY_AGAIN_S, _MOST_TRIES = 0.3, 200


@dataclass(frozen=True)
class Question:
    user_id: int
    cluster_id: int
    round: int
    policy: str
    parameters: Mapping[str, Any]


def ask_replay(*, user: User, decision: Decision, policy: str | None, parameters: dict[str, Any] | None) -> str:
    """The id under which its answer is requested. Raises Problems by field."""
    name = policy or decision.policy_name
    if parameters is None:
        parameters = dict(decision.policy_parameters) if name == decision.policy_name else {}
    if name not in POLICIES:
        raise Problems([FieldProblem("policy", f"is no policy; there are {', '.join(POLICIES)}", "unknown")])
    try:
        load_policy(name, parameters)
    except InvalidParameters as error:
        found = [FieldProblem(f"parameters.{key}", text, "invalid") for key, text in error.problems.items()]
        raise Problems(found) from None
    replay_id = str(uuid4())
    cache.set(_key(replay_id), Question(user.pk, decision.cluster_id, decision.round, name, parameters), _KEPT_S)
    _send(replay_id)
    return replay_id


def answer_of(user: User, replay_id: UUID) -> dict[str, Any] | None:
    """None if the user requested no such replay, or too long ago."""
    question: Question | None = cache.get(_key(replay_id))
    if question is None or question.user_id != user.pk:
        return None
    answer: dict[str, Any] | None = cache.get(f"{_key(replay_id)}/answer")
    if answer is None:
        _send(str(replay_id))
    return answer or {"status": "pending", "error": "", "replay": None}


def _key(replay_id: UUID | str) -> str:
    return f"replay/{replay_id}"


def _send(replay_id: str) -> None:
    """Once; again if the message was lost."""
    try:
        if cache.add(f"{_key(replay_id)}/asked", 1, _ASK_AGAIN_S):
            replay_round.apply_async((replay_id,), expires=_ASK_AGAIN_S, retry=False, ignore_result=True)
    except (RedisError, OperationalError, OSError) as error:
        logger.warning("a replay is not worked out: %s", error)


@shared_task(
    name="evenkeel.replay_round",
    ignore_result=True,
    bind=True,
    max_retries=_MOST_TRIES,
    soft_time_limit=LONGEST_S,
    time_limit=LONGEST_S + 10,
)
def replay_round(self: Any, replay_id: str) -> None:
    """One replay at a time: the other processes are left for rounds."""
    question: Question | None = cache.get(_key(replay_id))
    if question is None:
        return
    with replay_lock() as mine:
        if mine:
            cache.set(f"{_key(replay_id)}/answer", _answer(question), _KEPT_S)
    if not mine:
        raise self.retry(countdown=_TRY_AGAIN_S)


def _answer(question: Question) -> dict[str, Any]:
    try:
        decision = round_of(Cluster.objects.get(pk=question.cluster_id), question.round)
        found = replay_of(decision, question.policy, question.parameters)
    except Decision.DoesNotExist:
        return {"status": "failed", "error": "The round is not kept any more.", "replay": None}
    except SoftTimeLimitExceeded:
        return {"status": "failed", "error": f"Planning took longer than {LONGEST_S} s.", "replay": None}
    except SchedulingError as error:
        return {"status": "failed", "error": str(error), "replay": None}
    return {"status": "done", "error": "", "replay": found}


def replay_of(decision: Decision, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    snapshot, policy = snapshot_of(decision), load_policy(name, dict(parameters))
    if name != decision.policy_name:  # another policy's memory does not apply to this one
        snapshot = replace(snapshot, memory={})
    began_s = time.perf_counter()
    plan = plan_round(snapshot, policy)
    took_s = time.perf_counter() - began_s
    then = {move["job_id"]: move for move in decision.plan["moves"]}
    now = {move.job_id: asdict(move) for move in plan.moves}
    changes = {job.id: _change(job, then, now) for job in snapshot.jobs}
    different = [key for key, change in changes.items() if change != "same"]
    kinds = Counter(move.kind for move in plan.moves)
    return {
        "round": decision.round,
        "policy": name,
        "parameters": policy.parameters.model_dump(mode="json"),
        "seconds": took_s,
        "same_plan": same_plan(plan, decision),
        "same_gpus": not different,
        "notes": _notes(policy, snapshot),
        "rejected": plan.rejected,
        "moves": {kind: kinds[kind] for kind in ("start", "rescale", "preempt")},
        "figures": dict(plan.figures),
        "changes": dict(Counter(changes.values())),
        "nodes": boards(snapshot, now),
        "jobs_total": len(snapshot.jobs),
        "jobs": _jobs(decision, snapshot, plan, changes, different),
    }


def _notes(policy: Policy, snapshot: Snapshot) -> list[str]:
    """Inputs that this policy would have had, but that the recorded snapshot lacks."""
    said, missing = [], missing_needs(snapshot, policy.capabilities.needs)
    if Needs.FAIR_SHARE in missing:
        said.append("Members and past use were not recorded with the round: everybody's fair share counts alike.")
    if Needs.PAIRS in missing:
        said.append("How fast jobs are that share GPUs was not recorded with the round: no two of them share.")
    return said


def _change(job: Any, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Its GPUs by the replay compared with those by the recorded plan."""
    was, will = (moves[job.id]["gpu_ids"] if job.id in moves else job.gpu_ids for moves in (then, now))
    if sorted(was) == sorted(will):
        return "same"
    if len(was) != len(will):
        return "gained" if len(will) > len(was) else "lost"
    return "moved"


def _jobs(
    decision: Decision, snapshot: Snapshot, plan: Plan, changes: Mapping[str, str], different: list[str]
) -> list[dict[str, Any]]:
    then = {move["job_id"]: move for move in decision.plan["moves"]}
    now = {move.job_id: move for move in plan.moves}
    ordered = in_view(snapshot.jobs, different)
    rows = named(job.id for job in ordered)
    found = []
    for job in ordered:
        was, will = decision.plan["reasons"].get(job.id), plan.reasons.get(job.id)
        found.append(
            {
                "job": who(job, rows),
                "change": changes[job.id],
                "before": gang_of(job.gang),
                "recorded": gang_of(then[job.id]["gang"] if job.id in then else job.gang),
                "replayed": gang_of(now[job.id].gang if job.id in now else job.gang),
                "reason_recorded": {"code": was["token"], "text": was["text"]} if was else None,
                "reason_replayed": {"code": will.token, "text": will.text} if will else None,
            }
        )
    return found
