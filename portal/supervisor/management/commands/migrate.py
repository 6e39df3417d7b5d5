from typing import Any

from django.core.management.commands import migrate

from portal.supervisor.ownership import as_owner, separate


class Command(migrate.Command):
    """Django's own, as the owner of the database; what it made is then given to the role that works with it."""

    def handle(self, *args: Any, **options: Any) -> None:
        with as_owner() as application:
            super().handle(*args, **options)
            if application is not None and not options["plan"]:
                separate(application)
