"""manage.py export_trace: finished jobs of the portal as a trace for the simulator."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.jobs.models import Cluster
from portal.readmodels.jobs.trace_export import export_jobs
from scheduling.simulator.readers.own import write


class Command(BaseCommand):
    help = "Write the jobs submitted between two times that finished as a trace; names and owners stay here."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="start", required=True, help="ISO 8601, as 2026-11-01 or 2026-11-01T08:00Z")
        parser.add_argument("--to", dest="end", help="by default now")
        parser.add_argument("--cluster", help="name; needed where there are several")
        parser.add_argument("--out", type=Path, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        start = _time(options["start"], "--from")
        end = _time(options["end"], "--to") if options["end"] else datetime.now(UTC)
        clusters = Cluster.objects.order_by("name")
        found = list(clusters.filter(name=options["cluster"]) if options["cluster"] else clusters[:2])
        if len(found) != 1:
            names = ", ".join(clusters.values_list("name", flat=True)) or "none yet"
            raise CommandError(f"--cluster must name one cluster; there are: {names}.")
        jobs = list(export_jobs(cluster=found[0], start=start, end=end))
        write(jobs, options["out"])
        self.stdout.write(f"{len(jobs)} jobs: {options['out']}")


def _time(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{option}: {text!r} is no ISO 8601 time, as 2026-11-01 or 2026-11-01T08:00Z.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
