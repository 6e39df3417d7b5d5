"""Requests, cancellation, repetition and removal of simulations; uploaded traces."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Prefetch, Sum
from django.utils import timezone

from accounts.audit import record_audit
from accounts.models import User
from portal.core import task_queue
from portal.core.problems import FieldProblem, Problems
from portal.jobs.clusters import active_clusters
from portal.jobs.models import Cluster, Job, PolicyChange
from portal.lab.models import UNFINISHED, Simulation, State, Trace, Trial
from portal.lab.selectors import access_trace
from portal.lab.spec import MOST_JOBS, HistoryWorkload, Spec, TraceWorkload, check_hardware, unfold
from portal.submission.saved import check_unbound
from scheduling import lifecycle
from scheduling.simulator.output.report import label

MOST_OF_ONE, MOST_OF_ALL = 3, 20
#: Without columns that only results need.
TRIALS = Prefetch("trials", Trial.objects.defer("packed"))


class LabConflict(Exception):
    """Too many at once, or too late; the message says which."""


@transaction.atomic
def create_simulation(*, actor: User, spec: Spec, again: Simulation | None = None) -> Simulation:
    """Raises Problems by field, PermissionError, LabConflict. `again`: the simulation whose jobs and hardware are
    reused."""
    check_unbound(actor, "a simulation")
    cluster = _cluster(spec)
    policies = unfold(spec)
    check_hardware(spec)
    _check_workload(actor, cluster, spec, kept=bool(again and again.inputs))
    _check_room(actor)
    made = Simulation.objects.create(
        name=spec.name,
        cluster=cluster,
        created_by=actor,
        spec=spec.model_copy(update={"cluster": cluster.name}).model_dump(mode="json"),
        inputs=again.inputs if again else None,
        summary=again.summary if again else None,
    )
    trials = [
        _trial(made, *policy, seed=spec.seed + repetition)
        for policy in policies
        for repetition in range(spec.repetitions)
    ]
    if isinstance(spec.workload, HistoryWorkload):
        name, parameters, _ = policy_then(cluster, spec.workload.from_at, spec.workload.to_at)
        trials.append(_trial(made, name, parameters, parameters, seed=spec.seed, role="as_it_was"))
    for index, trial in enumerate(trials):
        trial.index = index
    Trial.objects.bulk_create(trials)
    _audit(actor, "create", made)
    transaction.on_commit(nudge)
    return made


def _trial(made: Simulation, policy: str, parameters: Any, given: Any, *, seed: int, role: str = "candidate") -> Trial:
    said = policy if role == "as_it_was" else label({"policy": policy, "given": given})[:300]
    values = {"policy": policy, "parameters": parameters, "given": given, "label": said, "role": role}
    return Trial(simulation=made, seed=seed, **values)


def _cluster(spec: Spec) -> Cluster:
    found = active_clusters().filter(**({"name": spec.cluster} if spec.cluster else {})).first()
    if found is None:
        raise Problems([FieldProblem("cluster", "is no cluster", "unknown")])
    return found


def _check_workload(actor: User, cluster: Cluster, spec: Spec, *, kept: bool) -> None:
    """`kept`: the jobs are stored, even if the trace is gone."""
    workload = spec.workload
    if isinstance(workload, TraceWorkload) and not kept:
        try:
            access_trace(actor, workload.trace_id)
        except Trace.DoesNotExist:
            raise Problems([FieldProblem("workload.trace_id", "is no trace of yours", "unknown")]) from None
    if not isinstance(workload, HistoryWorkload):
        return
    if not actor.is_superuser:
        raise PermissionError("Only administrators simulate the cluster's own history.")
    if workload.to_at <= workload.from_at:
        raise Problems([FieldProblem("workload.to_at", "must be after from_at", "invalid")])
    jobs = Job.objects.filter(cluster=cluster, submitted_at__gte=workload.from_at, submitted_at__lt=workload.to_at)
    count = jobs.filter(run__state=lifecycle.State.FINISHED).count()
    if count > MOST_JOBS:
        raise Problems([FieldProblem("workload.from_at", f"takes in {count} jobs; {MOST_JOBS} at most", "invalid")])


def _check_room(actor: User) -> None:
    rows = Simulation.objects.filter(state__in=UNFINISHED)
    if rows.filter(created_by=actor.pk).count() >= MOST_OF_ONE:
        raise LabConflict(f"You have {MOST_OF_ONE} simulations that have not finished; wait, or cancel one.")
    if rows.count() >= MOST_OF_ALL:
        raise LabConflict(f"{MOST_OF_ALL} simulations have not finished; try again later.")


def policy_then(cluster: Cluster, start: datetime, end: datetime) -> tuple[str, dict[str, Any], int]:
    """The policy that was in force the longest between two times, and the number of policies."""
    changes = list(cluster.policy_changes.filter(changed_at__lt=end).order_by("changed_at", "pk"))
    before = [change for change in changes if change.changed_at <= start]
    within = [change for change in changes if change.changed_at > start]
    spans: list[tuple[float, PolicyChange]] = []
    standing = [*before[-1:], *within]
    ends = [*(change.changed_at for change in standing[1:]), end]
    for change, until in zip(standing, ends[-len(standing) :] if standing else [], strict=True):
        spans.append(((until - max(start, change.changed_at)).total_seconds(), change))
    if not spans:
        return cluster.policy_name, dict(cluster.policy_parameters), 1
    longest = max(spans, key=lambda span: span[0])[1]
    return longest.name, dict(longest.parameters), len(spans)


@transaction.atomic
def cancel_simulation(*, actor: User, simulation: Simulation) -> None:
    """At once if it waits, within a second if it runs. Raises LabConflict if it has ended."""
    row = Simulation.objects.select_for_update().only("pk", "state").get(pk=simulation.pk)
    if row.state not in UNFINISHED:
        raise LabConflict("It has already ended.")
    Simulation.objects.filter(pk=row.pk).update(cancel_asked=True)
    if row.state == State.QUEUED:
        finish(Simulation.objects.filter(pk=row.pk), State.CANCELLED, "Cancelled before it began.")
    _audit(actor, "cancel", simulation)


def finish(rows: Any, state: State, reason: str) -> None:
    """End a simulation, and those of its trials that have not ended."""
    keys = list(rows.values_list("pk", flat=True))
    rows.update(state=state, reason=reason[:500], finished_at=timezone.now(), claim=None)
    open_trials = Trial.objects.filter(simulation__in=keys, state__in=UNFINISHED)
    open_trials.update(state=State.CANCELLED if state == State.SUCCEEDED else state)
    for key in keys:
        size = Trial.objects.filter(simulation=key).aggregate(n=Sum("size_bytes"))["n"] or 0
        packed = Simulation.objects.only("inputs").get(pk=key).inputs
        Simulation.objects.filter(pk=key).update(size_bytes=size + len(packed or b""))


def rerun_simulation(*, actor: User, simulation: Simulation) -> Simulation:
    """A new one with the same specification, jobs and hardware, and so the same result."""
    return create_simulation(actor=actor, spec=Spec.model_validate(simulation.spec), again=simulation)


@transaction.atomic
def delete_simulation(*, actor: User, simulation: Simulation) -> None:
    """A running worker notices within a second."""
    _audit(actor, "delete", simulation)
    Simulation.objects.filter(pk=simulation.pk).delete()


def _audit(actor: User, act: str, simulation: Simulation) -> None:
    target = f"simulation {simulation.number}"
    record_audit(actor=actor, action=f"simulation.{act}", target=target, detail={"id": str(simulation.id)})


def nudge() -> None:
    """A lost message costs a few seconds: beat sends it anyway."""
    try:
        task_queue.send(task_queue.RUN_SIMULATIONS, expires=3_600)
    except task_queue.UNREACHABLE:
        return
