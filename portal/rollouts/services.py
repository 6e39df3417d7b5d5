"""The steps of a rollout: shadow, promotion, and its end. Each step is audited; the policy changes as usual."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts.audit import record_audit
from accounts.models import User
from portal.cluster.policy import set_policy
from portal.jobs import events
from portal.jobs.models import Cluster, PolicyChange
from portal.lab.models import Trial
from portal.rollouts.bounds import Bounds, Guard, check_resolved, resolve
from portal.rollouts.indicators import Indicators, measure, of_json, predict
from portal.rollouts.models import UNFINISHED, Phase, Rollout
from portal.rollouts.spec import Promotion, RolloutWish, access_trial, policy_of, simulation_of
from portal.submission.saved import check_unbound


class RolloutConflict(Exception):
    """Another rollout is under way, or it is too late; the message says which."""


def start_rollout(*, actor: User, cluster: Cluster, wish: RolloutWish) -> Rollout:
    """In the shadow, or in force at once. Raises Problems by field, PermissionError, RolloutConflict."""
    check_unbound(actor, "a rollout")
    trial = access_trial(actor, wish.trial) if wish.trial else None
    name, parameters, said = policy_of(wish, trial)
    # before the locks, for which rounds would wait
    prediction = predict(trial, wish.guard_s) if trial else None
    before = _as_long_before(cluster, wish.guard_s) if wish.mode == "live" else None
    with transaction.atomic():
        cluster = _locked_cluster(cluster.pk)
        if under_way := Rollout.objects.filter(cluster=cluster, phase__in=UNFINISHED).first():
            raise RolloutConflict(f"Rollout {under_way.number} ({under_way.label}) is under way; end it first.")
        row = Rollout(
            cluster=cluster,
            simulation=simulation_of(trial),
            policy=name,
            parameters=parameters,
            label=said,
            phase=Phase.SHADOW,
            created_by=actor,
            prediction=prediction.as_json() if prediction else None,
            **_guard(wish),
        )
        if before is not None:
            _put_in_force(actor, cluster, row, before)
        else:
            row.save()
            _audit(actor, "shadow", row, policy=name, parameters=parameters)
    return row


def promote_rollout(*, actor: User, rollout: Rollout, wish: Promotion) -> Rollout:
    """From the shadow into force. Raises Problems, PermissionError, RolloutConflict."""
    check_unbound(actor, "a rollout")
    prediction = prediction_of(rollout, wish.guard_s)
    before = _as_long_before(rollout.cluster, wish.guard_s)
    with transaction.atomic():
        cluster, row = _locked(rollout)
        if row.phase != Phase.SHADOW:
            raise RolloutConflict("Only one that is in the shadow can be promoted.")
        for key, value in _guard(wish).items():
            setattr(row, key, value)
        row.prediction = prediction.as_json() if prediction else None
        _put_in_force(actor, cluster, row, before)
    return row


def prediction_of(row: Rollout, guard_s: float) -> Indicators | None:
    """For that guard time, if the simulation is still stored; else as it was made."""
    alike = Trial.objects.filter(simulation=row.simulation_id, role="candidate", label=row.label, packed__isnull=False)
    trial = alike.first() if row.simulation_id else None
    return predict(trial, guard_s) if trial else of_json(row.prediction)


def _as_long_before(cluster: Cluster, guard_s: int) -> Indicators:
    now = timezone.now()
    return measure(cluster, now - timedelta(seconds=guard_s), now)


def _put_in_force(actor: User, cluster: Cluster, row: Rollout, before: Indicators) -> None:
    now = timezone.now()
    if (row.policy, row.parameters) == (cluster.policy_name, cluster.policy_parameters):
        raise RolloutConflict(f"{row.label} is in force already.")
    row.limits = resolve(Bounds.model_validate(row.bounds), of_json(row.prediction), before)
    check_resolved(row.limits)
    row.before = before.as_json()
    row.previous_policy, row.previous_parameters = cluster.policy_name, cluster.policy_parameters
    row.change = set_policy(actor=actor, cluster=cluster, name=row.policy, parameters=row.parameters)
    row.phase, row.promoted_by, row.promoted_at = Phase.LIVE, actor, now
    row.guard_until = now + timedelta(seconds=row.guard_s)
    row.save()
    _audit(actor, "promote", row, limits=row.limits, guard_until=row.guard_until.isoformat())


def keep_rollout(*, actor: User, rollout: Rollout) -> Rollout:
    """It stays in force, and is no longer watched. Raises RolloutConflict."""
    with transaction.atomic():
        _, row = _locked(rollout, live=True)
        return _end(row, Phase.KEPT, "Kept before the guard time was over.", actor)


def roll_back_rollout(*, actor: User, rollout: Rollout) -> Rollout:
    """Return to the previous policy now. Raises RolloutConflict."""
    with transaction.atomic():
        cluster, row = _locked(rollout, live=True)
        return roll_back(cluster, row, "Rolled back by hand.", actor)


def cancel_rollout(*, actor: User, rollout: Rollout) -> Rollout:
    """End the shadow evaluation of a candidate that was never in force. Raises RolloutConflict."""
    with transaction.atomic():
        _, row = _locked(rollout)
        if row.phase != Phase.SHADOW:
            raise RolloutConflict("Only one that is in the shadow can be cancelled.")
        return _end(row, Phase.CANCELLED, "Taken out of the shadow.", actor)


# Steps that the guard also takes; called under the locks -----------------------------------------


def roll_back(cluster: Cluster, row: Rollout, why: str, actor: User | None, seen: Indicators | None = None) -> Rollout:
    """Restore the previous policy with its parameters, as an ordinary change of policy."""
    change = set_policy(
        actor=actor,
        cluster=cluster,
        name=row.previous_policy,
        parameters=row.previous_parameters,
        undo_of=row.change,
    )
    PolicyChange.objects.filter(pk__in=[row.change_id, change.pk]).update(undone=True)
    if actor is None:
        text = f"{row.label} was rolled back to {row.previous_policy}: {why}"
        events.append(kind="policy_rolled_back", text=text, at=change.changed_at, detail={"rollout": str(row.id)})
    return _end(row, Phase.ROLLED_BACK, why, actor, measured=seen.as_json() if seen else None, limits=row.limits)


def keep(row: Rollout, why: str) -> Rollout:
    return _end(row, Phase.KEPT, why, None)


def supersede(cluster: Cluster, row: Rollout) -> Rollout:
    """Another person has changed the policy since: the new one stays."""
    newest = cluster.policy_changes.select_related("changed_by").order_by("-pk").first()
    by = f" by {newest.changed_by}" if newest and newest.changed_by else ""
    name = newest.name if newest else cluster.policy_name
    return _end(row, Phase.SUPERSEDED, f"The policy was changed meanwhile{by}, to {name}.", None)


def is_superseded(cluster: Cluster, row: Rollout) -> bool:
    newest = cluster.policy_changes.order_by("-pk").values_list("pk", flat=True).first()
    return row.change_id is None or newest != row.change_id


def _end(row: Rollout, phase: Phase, why: str, actor: User | None, **detail: Any) -> Rollout:
    row.phase, row.outcome, row.ended_by, row.ended_at = phase, why[:500], actor, timezone.now()
    row.problem = ""
    row.save()
    words = {Phase.KEPT: "keep", Phase.ROLLED_BACK: "roll_back", Phase.CANCELLED: "cancel"}
    known = {key: value for key, value in detail.items() if value is not None}
    _audit(actor, words.get(phase, "supersede"), row, why=row.outcome, **known)
    return row


def _locked_cluster(pk: int) -> Cluster:
    """No other change of policy can come between: it takes the same lock."""
    return Cluster.objects.select_for_update(of=("self",)).get(pk=pk)


def lock(pk: int, cluster_id: int) -> tuple[Cluster, Rollout]:
    cluster = _locked_cluster(cluster_id)
    return cluster, Rollout.objects.select_for_update(of=("self",)).get(pk=pk)


def _locked(rollout: Rollout, *, live: bool = False) -> tuple[Cluster, Rollout]:
    cluster, row = lock(rollout.pk, rollout.cluster_id)
    if not live:
        return cluster, row
    if row.phase == Phase.LIVE and not is_superseded(cluster, row):
        return cluster, row
    if row.phase == Phase.LIVE:
        raise RolloutConflict("The policy was changed meanwhile: this one is no longer in force.")
    raise RolloutConflict("Only one that is in force under guard can be kept or rolled back.")


def _guard(wish: Guard) -> dict[str, Any]:
    bounds = wish.bounds.model_dump(mode="json")
    return {"bounds": bounds, "guard_s": wish.guard_s, "least_jobs": wish.least_jobs, "least_s": wish.from_s}


def _audit(actor: User | None, act: str, row: Rollout, **detail: Any) -> None:
    target = f"rollout {row.number}"
    record_audit(actor=actor, action=f"rollout.{act}", target=target, detail={"id": str(row.id), **detail})


def propose(
    *, actor: User, cluster: Cluster, trial: UUID | None, rollout: Rollout | None, guard_s: int
) -> dict[str, Any]:
    """The default bounds of a rollout, and the data behind them. Changes nothing."""
    found = access_trial(actor, trial) if trial else None
    before = _as_long_before(cluster, guard_s)
    prediction = predict(found, guard_s) if found else prediction_of(rollout, guard_s) if rollout else None
    return {
        "policy": cluster.policy_name,
        "parameters": cluster.policy_parameters,
        "prediction": prediction.as_json() if prediction else None,
        "before": before.as_json(),
        "limits": resolve(Bounds(), prediction, before),
    }
