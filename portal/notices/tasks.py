"""Periodic tasks. One process delivers at a time: slow receivers delay neither rounds nor each other."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from portal.core.locks import notice_lock
from portal.jobs.loops import Loop, LoopName, step
from portal.notices import deliveries, outbox, pruning, waiting


@shared_task(name="evenkeel.send_notices", ignore_result=True)
def send_notices() -> None:
    """Turn events into deliveries and send those that are due."""
    with notice_lock() as mine:
        if mine:
            Loop(LoopName.OUTBOX, postpones=False).run(
                step("take events from the outbox"), outbox.take_in, timezone.now()
            )
            deliveries.deliver_due(timezone.now())


@shared_task(name="evenkeel.tell_long_waits", ignore_result=True)
def tell_long_waits() -> None:
    """Create notices about jobs that wait longer than a destination's limit."""
    waiting.tell_long_waits(timezone.now())


@shared_task(name="evenkeel.prune_notices", ignore_result=True)
def prune_notices() -> None:
    """Keep the log of deliveries within its limits."""
    loop = Loop(LoopName.PRUNING)
    loop.run(step("deliveries"), pruning.prune, timezone.now())
    loop.run(step("long waits"), waiting.forget_ended)
