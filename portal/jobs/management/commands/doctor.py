"""Whether the executor of each cluster can run jobs: connection, versions, GPUs, clocks, shared storage, the checkpoint
store, data; and what to put right."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from portal.jobs.clusters import active_clusters, engine_of
from portal.jobs.examination_tasks import examine_cluster
from portal.jobs.models import Cluster
from scheduling.executors.base import Finding


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            clusters = list(active_clusters())
        except DatabaseError as error:
            why = str(error).partition("\n")[0]
            raise CommandError(f"the database cannot be read; start the portal first ({why})") from None
        if not clusters:
            raise CommandError("there is no cluster yet: `manage.py up` makes it")
        wrong = sum(self._examine(cluster, named=len(clusters) > 1) for cluster in clusters)
        if wrong:
            raise CommandError(f"{wrong} to put right")

    def _examine(self, cluster: Cluster, *, named: bool) -> int:
        """How many things are wrong with it; one that cannot be used at all is one of them."""
        where = f"cluster {cluster.name}: " if named else ""
        self.stdout.write(f"{where}executor {engine_of(cluster.pk).executor}")
        return sum(self._say(finding) for finding in examine_cluster(cluster))

    def _say(self, finding: Finding) -> int:
        """How many things are wrong with it."""
        mark = "WRONG" if not finding.ok else "warn " if finding.warning else "ok   "
        self.stdout.write(f"{mark} {finding.subject}: {finding.seen}")
        if finding.warning or not finding.ok:
            self.stdout.write(f"      {finding.fix}")
        return int(not finding.ok)
