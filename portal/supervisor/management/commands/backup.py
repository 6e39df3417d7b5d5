import os
import subprocess
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.supervisor.postgres import installed


class Command(BaseCommand):
    help = "Write the database into FILE while the portal runs (pg_dump's custom format)."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--restore", action="store_true", help="the other way: replace the database by FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        database = settings.DATABASES["default"]
        target = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD"}
        env = {**os.environ, **{name: str(database[key]) for name, key in target.items() if database[key]}}
        if options["restore"]:
            command = ["pg_restore", "--clean", "--if-exists", "--single-transaction", "--no-owner"]
            command += ["--dbname", str(database["NAME"]), options["file"]]
        else:
            command = ["pg_dump", "--format", "custom", "--file", options["file"], str(database["NAME"])]
        finished = subprocess.run([str(installed() / command[0]), *command[1:]], env=env, check=False)
        if finished.returncode != 0:
            raise CommandError(f"{command[0]} ended with status {finished.returncode}.")
