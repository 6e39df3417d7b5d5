"""Whether the executor can run jobs: connection, versions, GPUs, clocks, shared storage, the checkpoint store, data;
and what to put right."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.jobs.examining import examine_data, examine_stores
from portal.jobs.tasks import executor_for
from scheduling.errors import ExecutorError
from scheduling.executors.base import Finding


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        name, wrong = settings.EVENKEEL_EXECUTOR, 0
        self.stdout.write(f"executor {name}")
        try:
            for finding in executor_for(name).examine(settings.EVENKEEL_API_URL):
                wrong += self._say(finding)
        except ExecutorError as error:
            raise CommandError(f"the executor cannot be used: {error}") from error
        for finding in (*examine_stores(), *examine_data()):
            wrong += self._say(finding)
        if wrong:
            raise CommandError(f"{wrong} to put right")

    def _say(self, finding: Finding) -> int:
        """How many things are wrong with it."""
        self.stdout.write(f"{'ok   ' if finding.ok else 'WRONG'} {finding.subject}: {finding.seen}")
        if not finding.ok:
            self.stdout.write(f"      {finding.fix}")
        return int(not finding.ok)
