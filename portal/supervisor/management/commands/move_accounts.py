"""Gives the jobs of this data directory separate accounts if another data directory of this machine uses the accounts
that it names: it is a copy, or both were created before accounts were registered. Stop its portal and its jobs
first."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.config.layout import Layout
from portal.config.setup_errors import SetupError
from portal.jobs.clusters import environment_engine
from portal.supervisor.lock import DirectoryLock
from scheduling.errors import ExecutorError
from scheduling.executors.account_blocks import BLOCK_UIDS, move


class Command(BaseCommand):
    help = __doc__
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        if os.geteuid() != 0:
            raise CommandError("Only a portal that runs as root has accounts for its projects.")
        layout = Layout(settings.EVENKEEL_DATA)
        lock = DirectoryLock(layout.run / "supervisor.lock")
        try:
            layout.prepare()
            lock.acquire()
            before, after = self._move(layout)
        except (SetupError, ExecutorError) as error:
            raise CommandError(str(error)) from error
        finally:
            lock.release()
        self.stdout.write(f"Accounts {before + 1} to {before + BLOCK_UIDS - 1} became {after + 1} and up.")

    def _move(self, layout: Layout) -> tuple[int, int]:
        every = list(settings.EVENKEEL_CLUSTERS.values()) or [environment_engine()]
        engines = [engine for engine in every if engine.executor == "local"]
        places = [Path(engine.options["data_dir"]).resolve() for engine in engines]
        caches = [Path(engine.datasets.cache_dir.replace("%n", socket.gethostname())) for engine in engines]
        trees = [place / name for place in places for name in ("jobs", "environments")]
        return move(layout.run / "accounts.json", settings.EVENKEEL_ACCOUNTS_REGISTRY, places, [*trees, *caches])
