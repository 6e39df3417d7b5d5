from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate

from portal.config.setup_errors import SetupError
from portal.supervisor.ownership import as_owner, separate
from portal.supervisor.versions import check_not_newer


class Command(migrate.Command):
    """Django's own, run as the owner of the database; new tables are then given to the application's role."""

    def handle(self, *args: Any, **options: Any) -> None:
        with as_owner() as application:
            try:
                check_not_newer()
            except SetupError as error:
                raise CommandError(str(error)) from None
            super().handle(*args, **options)
            if application is not None and not options["plan"]:
                separate(application)
