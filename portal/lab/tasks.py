"""Simulations run on a separate queue, which no round waits for."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings
from django.db.models import Sum

from portal.jobs.loops import Item, Loop, LoopName, step
from portal.lab import running
from portal.lab.models import UNFINISHED, Simulation


@shared_task(name="evenkeel.run_simulations", ignore_result=True, time_limit=3_900)
def run_simulations() -> None:
    """Run the oldest waiting simulation; then send the message again, so that other work on the queue gets a turn."""
    Loop(LoopName.SIMULATIONS).run(step("simulations whose worker died"), running.requeue_abandoned)
    row = running.claim_next()
    if row is not None:
        running.run(row)


@shared_task(name="evenkeel.prune_simulations", ignore_result=True)
def prune_simulations() -> None:
    """Remove the oldest ended ones until the rest fits."""
    ended = Simulation.objects.exclude(state__in=UNFINISHED)
    total = ended.aggregate(n=Sum("size_bytes"))["n"] or 0
    loop = Loop(LoopName.PRUNING)
    for pk, size in ended.order_by("number").values_list("pk", "size_bytes").iterator():
        if total <= settings.EVENKEEL_KEEP.simulations_bytes:
            break
        if loop.attempt(Item(f"simulation:{pk}", f"simulation {pk}"), Simulation.objects.filter(pk=pk).delete)[0]:
            total -= size
