"""manage.py train-placement: train the network of a learned co-placement policy, without server and database."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from portal.operations.extras import require_extra
from scheduling.errors import SchedulingError
from scheduling.policies.learned.images import CONSIDERED, Profile
from scheduling.policies.learned.network import MOST_CHOICES

#: What each sees of a job's history.
PROFILES: dict[str, Profile] = {"dqn_gpu": "series", "deeprm_max": "max", "deeprm_mean": "mean"}
#: Settings, with their bounds.
NUMBERS = {
    "iterations": (40, 1, 100_000),
    "batch": (5, 1, 100),
    "tried": (8, 2, CONSIDERED),
    "sets": (50, 1, 10_000),
    "jobs": (30, 2, 1_000),
    "slots": (24, 1, MOST_CHOICES["slots"]),
    "together": (2, 1, MOST_CHOICES["together"]),
    "seed": (0, 0, 2**31 - 1),
}


class Command(BaseCommand):
    help = (
        "Train the network of a learned co-placement policy on the CPU. Stopped, it goes on where it was when it is "
        "called again. Needs neither server nor database."
    )
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("policy", choices=sorted(PROFILES))
        parser.add_argument("--out", type=Path, required=True, help="the model file; OUT.partial is kept on the way")
        for name, (default, _, _) in NUMBERS.items():
            parser.add_argument(f"--{name}", type=int, default=default, help=f"{default} where it is not given")

    def handle(self, *args: Any, **options: Any) -> None:
        for name, (_, least, most) in NUMBERS.items():
            if not least <= options[name] <= most:
                raise CommandError(f"--{name} must be from {least} to {most}.")
        out: Path = options["out"]
        if out.suffix != ".npz" or not out.parent.is_dir():
            raise CommandError("--out must be a file NAME.npz in a folder that is there.")
        try:
            self._train(options["policy"], out, {name: options[name] for name in NUMBERS})
        except SchedulingError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("Interrupted: call it again to continue.", returncode=130) from None

    def _train(self, policy: str, out: Path, numbers: dict[str, Any]) -> None:
        require_extra("torch", "local", "Training a model")
        from scheduling.learning.training import Progress, Settings, train  # PyTorch takes seconds to import

        settings = replace(Settings(policy, PROFILES[policy]), **numbers)
        quiet = not sys.stderr.isatty()
        with click.progressbar(length=settings.iterations, label=policy, file=sys.stderr, hidden=quiet) as bar:

            def tell(progress: Progress) -> None:
                bar.update(progress.iteration - bar.pos)
                if quiet and progress.validation is not None:
                    text = (
                        f"{progress.iteration} of {progress.of}: {progress.validation:.3f}, {progress.cpu_s:.0f} CPU s"
                    )
                    self.stderr.write(text)

            model = train(settings, out, tell)
        self.stdout.write(
            f"{out}: {out.stat().st_size} bytes, best at iteration {model.header['iteration']} "
            f"({model.header['validation']:.3f}), training set {model.header['training_set_sha256']}"
        )
