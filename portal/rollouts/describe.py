"""Rollouts as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accounts.models import AuditEntry
from portal.core.packed_json import unpack
from portal.core.times import iso
from portal.jobs.models import Job
from portal.rollouts.models import GuardCheck, Rollout, ShadowDecision

MOST_STEPS = 50


def describe_rollout(row: Rollout) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "number": row.number,
        "phase": row.phase,
        "policy": row.policy,
        "parameters": row.parameters,
        "label": row.label,
        "simulation": _simulation(row),
        "created_by": _name(row.created_by),
        "created_at": iso(row.created_at),
        "bounds": row.bounds,
        "guard_s": row.guard_s,
        "least_jobs": row.least_jobs,
        "least_s": row.least_s,
        "prediction": row.prediction,
        "before": row.before,
        "limits": row.limits or None,
        "promoted_by": _name(row.promoted_by),
        "promoted_at": iso(row.promoted_at),
        "guard_until": iso(row.guard_until),
        "previous": {"policy": row.previous_policy, "parameters": row.previous_parameters} if row.promoted_at else None,
        "problem": row.problem,
        "ended_by": _name(row.ended_by),
        "ended_at": iso(row.ended_at),
        "outcome": row.outcome,
        "shadow": _shadow(row),
    }


def describe_with_steps(row: Rollout) -> dict[str, Any]:
    steps = AuditEntry.objects.filter(target=f"rollout {row.number}", action__startswith="rollout.").order_by("pk")
    return describe_rollout(row) | {
        "steps": [
            {"at": iso(step.at), "action": step.action, "by": step.actor_email or None, "why": step.detail.get("why")}
            for step in steps[:MOST_STEPS]
        ]
    }


def _simulation(row: Rollout) -> dict[str, Any] | None:
    found = row.simulation
    return {"id": str(found.id), "number": found.number, "name": found.name} if found else None


def _name(user: Any) -> str | None:
    return str(user) if user else None


def _shadow(row: Rollout) -> dict[str, Any]:
    """Sums over all shadow evaluations, stored or not."""
    totals = row.totals
    rounds, variances = totals.get("rounds", 0), totals.get("variances", 0)

    def mean(key: str, count: float) -> float | None:
        return round(totals[key] / count, 6) if count else None

    return {
        "rounds": int(rounds),
        "same": int(totals.get("same", 0)),
        "skipped": int(totals.get("skipped", 0)),
        "failed": int(totals.get("failed", 0)),
        "error": row.shadow_error,
        "last_round": row.shadow_round,
        "different_jobs": mean("different", rounds),
        "seconds": mean("seconds", rounds),
        **{
            side: {
                "gpus": mean(f"gpus_{side}", rounds),
                "variance": mean(f"variance_{side}", variances),
                "starting": int(totals.get(f"starting_{side}", 0)),
                "preempted": int(totals.get(f"put_out_{side}", 0)),
            }
            for side in ("live", "candidate")
        },
    }


def describe_decisions(rows: Sequence[ShadowDecision]) -> list[dict[str, Any]]:
    """With the present names of jobs."""
    unpacked = [unpack(row.packed) for row in rows]
    numbers = {job["number"] for one in unpacked for job in one["jobs"]}
    names = dict(Job.objects.filter(number__in=numbers).values_list("number", "name"))
    return [
        {
            "id": row.pk,
            "round": row.round,
            "at": iso(row.at),
            "last_round": row.last_round,
            "last_at": iso(row.last_at),
            "rounds": row.rounds,
            "seconds": row.seconds,
            "different": row.different,
            "elsewhere": row.elsewhere,
            "live": row.live,
            "candidate": row.candidate,
            "jobs": [job | {"name": names.get(job["number"], "")} for job in one["jobs"]],
            "moves": one["moves"],
        }
        for row, one in zip(rows, unpacked, strict=True)
    ]


def describe_check(row: GuardCheck) -> dict[str, Any]:
    return {"at": iso(row.at), **row.values, "broken": row.broken}
