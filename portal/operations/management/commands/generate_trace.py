"""manage.py generate_trace: a synthetic trace with the heterogeneity paper's distributions."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.operations.management.outputs import STANDARD_OUTPUT, check_file, check_value, unwritable
from scheduling.errors import SchedulingError
from scheduling.simulator.inputs.generate import Recipe, generate
from scheduling.simulator.inputs.trace import read_throughputs
from scheduling.simulator.readers.own import write


class Command(BaseCommand):
    help = "Write a synthetic trace: Poisson arrivals, models, durations and gangs as in the heterogeneity paper."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--jobs", type=int, required=True)
        parser.add_argument("--jobs-per-hour", type=float, help="rate of arrivals; without it all arrive at once")
        parser.add_argument("--throughputs", type=Path, required=True, help="steps/s by model and type")
        parser.add_argument("--multi-gpu", action="store_true", help="gangs of 1, 2, 4 and 8 as in Philly")
        parser.add_argument("--reference-type", default="v100", help="durations are drawn on this type")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--out", type=Path, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        count, rate, out = options["jobs"], options["jobs_per_hour"], options["out"]
        check_value("--jobs", count, 1 <= count <= 5_000_000, "between 1 and 5,000,000")
        if rate is not None:
            check_value("--jobs-per-hour", rate, 0.0 < rate < math.inf, "above 0 and finite")
        if out == STANDARD_OUTPUT:
            raise CommandError("--out must be a file; - is not taken for standard output here.")
        check_file("--out", out)
        recipe = Recipe(count, rate, options["multi_gpu"], options["reference_type"], options["seed"])
        try:
            jobs = generate(recipe, read_throughputs(options["throughputs"]))
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        try:
            write(jobs, out)
        except OSError as error:
            raise CommandError(unwritable("--out", out, error)) from None
        self.stdout.write(f"{len(jobs)} jobs, arriving over {jobs[-1]['arrival_s'] / 3600.0:,.1f} h: {out}")
