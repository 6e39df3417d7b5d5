"""The policy of a cluster and its parameters."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel

from accounts import fair_share
from accounts.audit import record_audit
from accounts.models import User
from portal.core import wake
from portal.jobs import events
from portal.jobs.models import Cluster, Node, PolicyChange
from scheduling.errors import InvalidParameters
from scheduling.policies import load_policy
from scheduling.policies.base import FairShareParameters, Policy
from scheduling.policies.capabilities import Needs


class NothingToUndo(Exception):
    """Only one policy was ever chosen."""


def _check_types(parameters: BaseModel) -> None:
    """The weight of an unknown type would be ignored silently; lost nodes may come back."""
    if not isinstance(parameters, FairShareParameters):
        return
    known = set(Node.objects.values_list("accelerator_type", flat=True))
    there = ", ".join(sorted(known)) or "none"
    wrong = {}
    weights = (
        ("billing_weights", parameters.billing_weights, ()),
        ("weight_resources", parameters.weight_resources, ("gpu",)),
    )
    for name, given, more in weights:
        if unknown := sorted(set(given) - known - set(more)):
            wrong[name] = f"no accelerator type {', '.join(unknown)} is in the cluster; there are {there}"
            wrong[name] += f"; {more[0]} is all of them" if more else ""
    if wrong:
        raise InvalidParameters(wrong)


def checked_policy(name: str, parameters: dict[str, Any]) -> Policy:
    """Validates a choice. Raises KeyError (no such policy) and InvalidParameters."""
    policy = load_policy(name, parameters)
    _check_types(policy.parameters)
    return policy


@transaction.atomic
def set_policy(
    *, actor: User | None, cluster: Cluster, name: str, parameters: dict[str, Any], undo_of: PolicyChange | None = None
) -> PolicyChange:
    """Use `name` from the next round on. Raises KeyError (no such policy) and InvalidParameters."""
    policy = checked_policy(name, parameters) if undo_of is None else load_policy(name, parameters)
    values = policy.parameters.model_dump(mode="json")
    if Needs.FAIR_SHARE in policy.capabilities.needs:
        days, reset = values["half_life_days"], values["usage_reset"]
        half_life_s = None if days is None else days * 86_400.0
        fair_share.configure(half_life_s=half_life_s, reset=reset, now=timezone.now())
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    before = {"name": cluster.policy_name, "parameters": cluster.policy_parameters}
    change = PolicyChange.objects.create(
        cluster=cluster,
        name=name,
        parameters=values,
        changed_by=actor,
        effective_round=cluster.round_epoch + 1,
    )
    Cluster.objects.filter(pk=cluster.pk).update(
        policy_name=name,
        policy_parameters=values,
        policy_memory={} if name != cluster.policy_name else cluster.policy_memory,
    )
    action = "policy.undo" if undo_of else "policy.set"
    record_audit(
        actor=actor,
        action=action,
        target=name,
        detail={"before": before, "after": {"name": name, "parameters": values}},
    )
    by = f" by {actor}" if actor else ""
    text = f"Policy {name} is in force from round {cluster.round_epoch + 1}{by}"
    detail = {"name": name, "parameters": values, "cluster": cluster.name}
    events.append(kind="policy_changed", text=text, at=change.changed_at, detail=detail)
    transaction.on_commit(wake.schedule_round)
    return change


@transaction.atomic
def undo_policy(*, actor: User | None, cluster: Cluster) -> PolicyChange:
    """Restore the choice before the newest valid one; audited like any other."""
    standing = list(PolicyChange.objects.select_for_update().filter(cluster=cluster, undone=False)[:2])
    if len(standing) < 2:
        raise NothingToUndo("There is no earlier policy to go back to.")
    newest, previous = standing
    change = set_policy(
        actor=actor, cluster=cluster, name=previous.name, parameters=previous.parameters, undo_of=newest
    )
    PolicyChange.objects.filter(pk__in=[newest.pk, change.pk]).update(undone=True)
    return change
