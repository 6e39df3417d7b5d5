"""Code that is older than the database would start, and fail later."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from portal.config.setup_errors import SetupError


def check_not_newer() -> None:
    """Raises SetupError if the database has migrations that this code lacks."""
    loader = MigrationLoader(connection, ignore_no_migrations=True)
    known = set(loader.disk_migrations)
    known.update(*(migration.replaces for migration in loader.disk_migrations.values()))
    ours = {app.label for app in apps.get_app_configs() if app.name.partition(".")[0] in {"accounts", "portal"}}
    unknown = sorted(f"{app}.{name}" for app, name in set(loader.applied_migrations) - known if app in ours)
    if unknown:
        where = "database" if settings.EXTERNAL_DATABASE_URL else f"data directory {settings.EVENKEEL_DATA}"
        raise SetupError(
            f"The {where} was written by a newer version (this one does not know {', '.join(unknown[:3])});"
            " update Evenkeel or choose another EVENKEEL_DATA."
        )
