"""The policy in force, the other policies, and the effect of its parameters on the present jobs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from portal.core.times import iso
from portal.jobs.models import Cluster, PolicyChange
from portal.snapshot.take import take_snapshot
from scheduling.policies import POLICIES, policy_class
from scheduling.policies.base import Policy
from scheduling.policies.capabilities import HasPresets
from scheduling.policies.elastic.f_scheduling import Parameters as BoundParameters
from scheduling.policies.elastic.f_scheduling import bound_hint


def describe_policies() -> list[dict[str, Any]]:
    described = []
    for name in POLICIES:
        policy = policy_class(name)
        presets: Mapping[str, Mapping[str, Any]] = policy.presets if isinstance(policy, HasPresets) else {}
        described.append(
            {
                "name": name,
                "title": policy.title,
                "description": _summary(policy),
                "schema": _schema(policy),
                "elastic": policy.capabilities.elastic,
                "presets": [{"name": preset, "parameters": dict(values)} for preset, values in presets.items()],
            }
        )
    return described


@functools.cache
def _schema(policy: type[Policy]) -> dict[str, Any]:
    """Computed once: it takes longer than the rest of an answer."""
    return policy.Parameters.model_json_schema()


def _summary(policy: type[Policy]) -> str:
    """The first paragraph of the docstring of the policy's class, or else of its module; not of a base class."""
    text = policy.__doc__ or sys.modules[policy.__module__].__doc__ or ""
    return " ".join(inspect.cleandoc(text).split("\n\n", 1)[0].split())


def describe_policy(cluster: Cluster) -> dict[str, Any]:
    standing = list(cluster.policy_changes.filter(undone=False).select_related("changed_by")[:2])
    newest = cluster.policy_changes.select_related("changed_by").first()
    return {
        "name": cluster.policy_name,
        "parameters": cluster.policy_parameters,
        "changed_at": iso(newest.changed_at) if newest else None,
        "changed_by": str(newest.changed_by) if newest and newest.changed_by else None,
        "effective_round": newest.effective_round if newest else None,
        "can_undo": len(standing) > 1,
        "notes": notes(cluster),
    }


def describe_change(change: PolicyChange) -> dict[str, Any]:
    return {
        "id": change.pk,
        "name": change.name,
        "parameters": change.parameters,
        "changed_at": iso(change.changed_at),
        "changed_by": str(change.changed_by) if change.changed_by else None,
        "effective_round": change.effective_round,
        "undone": change.undone,
    }


def notes(cluster: Cluster) -> list[str]:
    """The effect of the policy in force and its parameters on the present jobs."""
    return [*_bound_notes(cluster), *_exact_notes(cluster)]


def _bound_notes(cluster: Cluster) -> list[str]:
    """The effect of the policy's bound, if it has one: whether it ever matters, and from which value on it does now."""
    bound = cluster.policy_parameters.get("v_bound")
    if bound is None:
        return []
    said = []
    known = {k: v for k, v in cluster.policy_parameters.items() if k in BoundParameters.model_fields}
    snapshot = take_snapshot(cluster, timezone.now()).snapshot
    hint = bound_hint(snapshot, BoundParameters.model_validate(known))
    if bound > hint.never_binds_above:
        said.append(f"v_bound {bound:g} never binds: the variance is at most {hint.never_binds_above:g}.")
    if not snapshot.jobs:
        return said
    if hint.affected_up_to > 0:
        said.append(
            f"With the jobs of now, a v_bound of {hint.affected_up_to:.4f} or less changes the plan; "
            f"without a bound the variance is {hint.unbounded_variance:.4f}."
        )
    else:
        said.append(f"With the jobs of now no v_bound changes the plan: the variance is {hint.unbounded_variance:.4f}.")
    return said


def _exact_notes(cluster: Cluster) -> list[str]:
    """The gap between the greedy and the exact plan in the last round, if both were made."""
    exact, gap = cluster.figures.get("exact"), cluster.figures.get("gap")
    if cluster.policy_name != "f_scheduling_exact" or exact is None:
        return []
    if not exact:
        return ["In the last round the greedy plan was used; the reasons of the jobs say why."]
    if gap is None:
        return ["In the last round the greedy plan would not have kept the bound; the exact one does."]
    below = max(0.0, gap / (1.0 + gap))
    return [
        "In the last round the greedy plan was as good as the exact one."
        if below < 0.0005
        else f"In the last round the greedy plan was {below:.1%} below the exact one."
    ]
