"""The task that brings the live streams up to date."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from portal.core import wake
from portal.live import publish


@shared_task(name="evenkeel.publish_live", ignore_result=True)
def publish_live(calm: bool = False) -> None:
    """Update the live streams that have viewers; at most two diffs a second per stream, and with `calm`, if only steps
    changed, one."""
    wake.clear(wake.CALM_KEY if calm else wake.LIVE_KEY)
    if not publish.is_watched():
        return
    again_s = publish.publish_changes(timezone.now(), calm=calm)
    if again_s is not None:
        (wake.publish_steps if calm else wake.publish)(again_s)
