import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from portal.supervisor.control_plane import serve
from portal.supervisor.demo import Options, demonstrate, fitting_speedup
from portal.supervisor.supervisor import Supervisor, in_background


class Command(BaseCommand):
    help = "What `up` does, and the F-scheduling paper's workload on six emulated accelerators."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--policy", default="", metavar="NAME[:key=value,...]", help="instead of the one in force")
        parser.add_argument("--steps", type=int, default=0, help="of each job; by default what fits the speed-up")
        parser.add_argument("--json", type=Path, help="write the jobs as they ended here")

    def handle(self, *args: Any, **options: Any) -> None:
        defaults = {
            "EVENKEEL_DATA": str(settings.BASE_DIR / "data" / "demo"),
            "EVENKEEL_VIRTUAL_ACCELERATORS": "titan_xp:6",
            "EVENKEEL_SPEEDUP": f"{fitting_speedup(len(os.sched_getaffinity(0))):g}",
            "EVENKEEL_REPORT_INTERVAL_S": "2",
            "EVENKEEL_SAMPLE_INTERVAL_S": "2",
            "EVENKEEL_ROUND_INTERVAL_S": "2",
        }
        missing = {name: value for name, value in defaults.items() if not os.environ.get(name)}
        if missing:  # settings are read once, at the start of a process
            sys.stdout.flush()
            os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **missing})
        exits = os.environ.get("DEMO_EXIT", "") not in {"", "0"}

        how = Options(options["policy"], options["steps"], options["json"])

        def when_ready(supervisor: Supervisor) -> None:
            in_background(lambda: demonstrate(supervisor.finish if exits else None, how))

        sys.exit(serve(when_ready, interrupted=130 if exits else 0))
