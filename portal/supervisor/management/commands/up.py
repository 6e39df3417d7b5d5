import sys
from typing import Any

from django.core.management.base import BaseCommand

from portal.supervisor.control_plane import serve


class Command(BaseCommand):
    help = "Start everything: databases where none are named, web, worker and timer; Ctrl-C stops it."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        sys.exit(serve())
