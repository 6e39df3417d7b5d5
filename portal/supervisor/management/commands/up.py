import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from portal.supervisor.control_plane import ControlPlane, speak_up
from portal.supervisor.errors import SetupError
from portal.supervisor.layout import Layout
from portal.supervisor.supervisor import Supervisor


class Command(BaseCommand):
    help = "Start everything: databases where none are named, web, worker and timer; Ctrl-C stops it."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        layout = Layout(settings.EVENKEEL_DATA)
        try:
            layout.prepare()
            speak_up(layout)
            sys.exit(Supervisor(layout).run(ControlPlane(layout).start))
        except SetupError as error:
            print(error, file=sys.stderr)
            sys.exit(1)
