"""A simulation from its inputs to its results, in this process and two children."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from celery.worker import state as worker
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from portal.core.packed_json import pack, unpack
from portal.jobs.loops import Item, Loop, LoopName
from portal.lab.inputs import Inputs, build
from portal.lab.models import Simulation, State, Trial
from portal.lab.services import finish
from scheduling.errors import InvalidInput
from scheduling.policies import policy_class
from scheduling.policies.capabilities import Needs
from scheduling.simulator import sweeps
from scheduling.simulator.outcome import Options

logger = logging.getLogger(__name__)
PROCESSES, MOST_ATTEMPTS, LONGEST_S = 2, 3, 3_600.0
#: Least time between rounds of elastic policies: thousands of jobs would take minutes with a round for each arrival and
#: end.
COALESCE_S = 60.0
_REPORT_EVERY_S = 0.5
#: A worker reports every half second, except while it reads the history.
SILENT_S = 120


def of_simulation(pk: object) -> Item:
    return Item(str(pk), f"simulation {pk}")


def requeue_abandoned() -> None:
    """Simulations whose worker died are queued again, and given up after several times."""
    silent = timezone.now() - timedelta(seconds=SILENT_S)
    dead = Simulation.objects.filter(state=State.RUNNING, heard_at__lt=silent)
    loop = Loop(LoopName.SIMULATIONS)
    for pk in list(dead.filter(attempts__gte=MOST_ATTEMPTS).values_list("pk", flat=True)):
        reason = f"Its worker died {MOST_ATTEMPTS} times."
        mine = Simulation.objects.filter(pk=pk, state=State.RUNNING)
        loop.run(of_simulation(pk), finish, mine, State.FAILED, reason)
    dead.filter(attempts__lt=MOST_ATTEMPTS).update(state=State.QUEUED, claim=None)


@transaction.atomic
def claim_next() -> Simulation | None:
    queued = Simulation.objects.select_for_update(skip_locked=True).filter(state=State.QUEUED)
    row = queued.exclude(pk__in=Loop(LoopName.SIMULATIONS).postponed_ids()).order_by("number").first()
    if row is None:
        return None
    row.claim, row.state, row.heard_at = uuid4(), State.RUNNING, timezone.now()
    row.started_at = row.started_at or row.heard_at
    row.attempts += 1
    row.save(update_fields=["claim", "state", "heard_at", "started_at", "attempts"])
    return row


def run(row: Simulation) -> None:
    """Never raises errors of a simulation; a worker that lost its claim stops and writes nothing more."""
    Loop(LoopName.SIMULATIONS).run(of_simulation(row.pk), _run, row)


def _run(row: Simulation) -> None:
    running = _Running(row)
    try:
        if row.cancel_asked:
            running.end(State.CANCELLED, "Cancelled.")
        else:
            running.go()
    except InvalidInput as error:
        running.end(State.FAILED, str(error))
    except Exception:
        logger.exception("simulation %d failed", row.pk)
        running.end(State.FAILED, "Something unexpected happened; the portal's log has the details.")


class _Running:
    def __init__(self, row: Simulation) -> None:
        self.row = row
        self.mine = Simulation.objects.filter(pk=row.pk, claim=row.claim)
        self.until = time.monotonic() + LONGEST_S
        self.reported_at = 0.0
        self.before = 0  # jobs of trials that an earlier attempt finished
        self.why = ""

    def go(self) -> None:
        inputs = self._inputs()
        rows = {str(trial.pk): trial for trial in self.row.trials.defer("packed")}
        left = [trial for trial in rows.values() if trial.state in (State.QUEUED, State.RUNNING)]
        left.sort(key=lambda trial: (-_weight(trial.policy), trial.index))
        jobs = self.row.summary["jobs"] if self.row.summary else 0
        self.before = jobs * (len(rows) - len(left))
        Trial.objects.filter(pk__in=[trial.pk for trial in left]).update(state=State.RUNNING)
        todo = [trial_of(trial, inputs, self.row.spec["noise"]) for trial in left]
        watts = {node["type"]: node.get("watts") for node in inputs.document["cluster"]["nodes"]}
        ended = sweeps.run_trials(todo, PROCESSES, lambda done: self._store(done, rows, watts), self._poll)
        if ended:
            failed = list(self.row.trials.filter(state=State.FAILED).values_list("label", "error")[:1])
            why = f"{failed[0][0]}: {failed[0][1]}" if failed else ""
            self.end(State.FAILED if failed else State.SUCCEEDED, why)
        elif self.why == "cancel":
            self.end(State.CANCELLED, "Cancelled.")
        elif self.why == "late":
            self.end(State.FAILED, f"It took longer than {LONGEST_S:.0f} s.")
        elif self.why == "stopping":  # an orderly shutdown of the worker is not a crash
            self.mine.update(state=State.QUEUED, claim=None, attempts=F("attempts") - 1)

    def end(self, state: State, reason: str) -> None:
        with transaction.atomic():
            finish(self.mine, state, reason)

    def _inputs(self) -> Inputs:
        if self.row.inputs is None:
            inputs, summary = build(self.row)
            self.row.summary, self.row.inputs = summary, pack(inputs.document)
            self.mine.update(inputs=self.row.inputs, summary=summary)
            return inputs
        return Inputs(unpack(self.row.inputs))

    def _poll(self, jobs_done: int) -> bool:
        """Reports the progress, twice a second, and whether to stop."""
        now = time.monotonic()
        if now - self.reported_at < _REPORT_EVERY_S:
            return False
        self.reported_at = now
        if not self.mine.update(jobs_done=self.before + jobs_done, heard_at=timezone.now()):
            self.why = "lost"
        elif self.mine.filter(cancel_asked=True).exists():
            self.why = "cancel"
        elif now > self.until:
            self.why = "late"
        elif _is_shutting_down():
            self.why = "stopping"
        return bool(self.why)

    def _store(self, done: sweeps.Done, rows: dict[str, Trial], watts: dict[str, float | None]) -> None:
        if not self.mine.exists():
            return
        trial = rows[done.key]
        if done.error:
            Trial.objects.filter(pk=trial.pk).update(state=State.FAILED, error=done.error)
            return
        packed = pack(done.detail)
        Trial.objects.filter(pk=trial.pk).update(
            state=State.SUCCEEDED, metrics=metrics_of(done, watts), packed=packed, size_bytes=len(packed)
        )


def _is_shutting_down() -> bool:
    """Celery's own record of a signal: an exit status, which may be 0, or nothing."""
    return any(
        getattr(worker, name, None) is not None and getattr(worker, name) is not False
        for name in ("should_stop", "should_terminate")
    )


def trial_of(trial: Trial, inputs: Inputs, noise: float) -> sweeps.Trial:
    cluster = inputs.own_cluster if trial.role == "as_it_was" else inputs.cluster
    coalesce_s = 0.0 if trial.role == "as_it_was" else COALESCE_S
    options = Options(trial.seed, noise, keep_holds=True, coalesce_s=coalesce_s)
    return sweeps.Trial(str(trial.pk), inputs.jobs(trial.seed), cluster, trial.policy, trial.given, options)


def _weight(policy: str) -> int:
    """Slowest first: policies that consider every job each time, then those that solve a problem in each round."""
    can = policy_class(policy).capabilities
    if can.strict_order:
        return 0
    return 3 if can.elastic or Needs.FAIR_SHARE in can.needs else 2 if can.shares_time else 1


_KEYS = (
    "jobs", "finished", "makespan_s", "jct_s", "wait_s", "utilisation", "slowdown", "finish_time_fairness",
    "restarts", "rounds", "fallbacks", "wall_s",
)  # fmt: skip


def metrics_of(done: sweeps.Done, watts: dict[str, float | None]) -> dict[str, Any]:
    held = done.detail["held_gpu_s"]
    known = [seconds * value for kind, seconds in held.items() if (value := watts.get(kind)) is not None]
    energy = sum(known) / 3.6e6 if held and len(known) == len(held) else None
    return {**{key: done.result[key] for key in _KEYS}, "cost": f"{done.result['cost']:.6f}", "energy_kwh": energy}
