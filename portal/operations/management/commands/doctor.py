"""Whether the executor of each cluster can run jobs: connection, versions, GPUs, clocks, shared storage, the checkpoint
store, data; and what to put right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from portal.config.environment_notes import environment_notes
from portal.config.setup_errors import unreachable
from portal.execution.checks.tasks import examine_cluster
from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.models import Cluster
from scheduling.executors.base import Finding

QUEUES_TIMEOUT_S = 2.0
WORKERS_START_S = 20.0  # after the portal itself is ready


def settings_findings() -> Iterator[Finding]:
    """Of the environment that this command has, which should be the portal's."""
    for note in environment_notes():
        yield Finding("settings", True, note.seen, note.fix, warning=True)


def queue_findings() -> Iterator[Finding]:
    """Queues without a worker, if any worker answers at all; at least one line then."""
    give_up_at = time.monotonic() + WORKERS_START_S
    while (without := queues_without_worker()) and time.monotonic() < give_up_at:
        time.sleep(0.5)
    if without is None:
        return
    missing = ", ".join(sorted(without))
    fix = (
        f"start a worker for it: `celery -A portal.celery worker -Q {missing.replace(', ', ',')}` (docs/operations.md)"
    )
    yield Finding("queues", not missing, f"no worker takes from {missing}" if missing else "each has a worker", fix)


def queues_without_worker() -> set[str] | None:
    """None if no worker answers."""
    answers = current_app.control.inspect(timeout=QUEUES_TIMEOUT_S).active_queues() or {}
    taken = {queue["name"] for queues in answers.values() for queue in queues}
    wanted = {"celery", *(route["queue"] for route in settings.CELERY_TASK_ROUTES.values())}
    return wanted - taken if answers else None


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            clusters = list(active_clusters())
        except DatabaseError as error:
            raise CommandError(unreachable(str(error))) from None
        if not clusters:
            raise CommandError("there is no cluster yet: `manage.py up` makes it")
        for finding in settings_findings():
            self._say(finding)
        wrong = sum(self._examine(cluster, named=len(clusters) > 1) for cluster in clusters)
        wrong += sum(self._say(finding) for finding in queue_findings())
        if wrong:
            raise CommandError(f"{wrong} to put right")

    def _examine(self, cluster: Cluster, *, named: bool) -> int:
        """Returns the number of problems; an unusable engine is one of them."""
        where = f"cluster {cluster.name}: " if named else ""
        self.stdout.write(f"{where}executor {engine_of(cluster.pk).executor}")
        return sum(self._say(finding) for finding in examine_cluster(cluster))

    def _say(self, finding: Finding) -> int:
        """Returns the number of problems."""
        mark = "WRONG" if not finding.ok else "warn " if finding.warning else "ok   "
        self.stdout.write(f"{mark} {finding.subject}: {finding.seen}")
        if finding.warning or not finding.ok:
            self.stdout.write(f"      {finding.fix}")
        return int(not finding.ok)
