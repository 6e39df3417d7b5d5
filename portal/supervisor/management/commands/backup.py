import os
import subprocess
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from accounts.audit import chain_head
from portal.supervisor.ownership import application_role, owner_database, separation
from portal.supervisor.postgres import installed

#: pg_restore's own --clean cannot drop what a partition inherits. Tables are dropped first, with everything that
#: depends on them. The portal may be running: sessions with open tables are ended until all tables are locked at once,
#: since two sessions that wait for each other's tables would deadlock, and PostgreSQL might choose this one to abort.
EMPTY = """
DO $$
DECLARE name text; tables text; turn int := 0;
BEGIN
  LOOP
    BEGIN
      PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pg_has_role(usesysid, 'USAGE') AND pid <> pg_backend_pid();
      SELECT string_agg(oid::regclass::text, ', ') INTO tables FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition;
      EXECUTE COALESCE('LOCK TABLE ' || tables, 'SELECT');
      EXIT;
    EXCEPTION WHEN deadlock_detected THEN
      turn := turn + 1;
      IF turn = 20 THEN RAISE; END IF;
    END;
  END LOOP;
  FOR name IN SELECT oid::regclass FROM pg_class
      WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition LOOP
    EXECUTE 'DROP TABLE ' || name || ' CASCADE';
  END LOOP;
  FOR name IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' LOOP
    EXECUTE 'DROP SEQUENCE ' || name || ' CASCADE';
  END LOOP;
  FOR name IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'public'::regnamespace LOOP
    EXECUTE 'DROP ROUTINE ' || name || ' CASCADE';
  END LOOP;
END $$
"""


#: The file cannot contain leases that were renewed after it was written. Foreign keys are checked when rows of this
#: transaction change; with deferred checks pending no table could change its owner.
RENEW = """
UPDATE public.jobs_run SET last_report_at = clock_timestamp()
  WHERE last_report_at IS NOT NULL AND id IN (SELECT run_id FROM public.jobs_hold WHERE upper_inf(during));
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Command(BaseCommand):
    help = "Write the database into FILE while the portal runs (pg_dump's custom format)."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--restore", action="store_true", help="the other way: replace the database by FILE")

    def handle(self, *args: Any, **options: Any) -> None:
        database, file = owner_database() or settings.DATABASES["default"], options["file"]
        target = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGDATABASE": "NAME"}
        env = {**os.environ, **{name: str(database[key]) for name, key in target.items() if database[key]}}
        if options["restore"]:
            _restore(file, env)
        head = chain_head()  # before the dump, so that the dump contains it in any case
        if not options["restore"]:
            _dump(Path(file), env)
        self.stdout.write(f"Audit log up to {head}")
        if options["restore"]:
            self.stdout.write("Restored. Stop the portal now and start it again.")


def _dump(file: Path, env: dict[str, str]) -> None:
    """Into a file that only its owner can read from the first byte on, and that replaces FILE once it is complete: it
    contains password hashes, job files and encrypted secrets, and jobs may run on this machine."""
    target = file.resolve()
    if target.exists() and not target.is_file():  # a pipe, for example to a program that encrypts
        with target.open("wb") as pipe:
            _run(["pg_dump", "--format", "custom"], env, output=pipe)
        return
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # with mode 0600
        os.close(handle)
        _run(["pg_dump", "--format", "custom", "--file", name], env)
        Path(name).replace(target)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error
    finally:
        if name:
            Path(name).unlink(missing_ok=True)


def _restore(file: str, env: dict[str, str]) -> None:
    """All or nothing: emptied and filled in one transaction, after the whole file was checked to be readable."""
    quiet = env | {"PGOPTIONS": "-c client_min_messages=warning"}
    with tempfile.NamedTemporaryFile(dir=Path(file).absolute().parent, suffix=".sql") as script:
        _run(["pg_restore", "--no-owner", "--no-privileges", "--file", script.name, file], env)
        fill = ["psql", "--no-psqlrc", "--quiet", "--output", os.devnull, "--set", "ON_ERROR_STOP=1"]
        application = application_role()
        separated = ["--command", separation(application)] if application else []
        content = ["--command", EMPTY, "--file", script.name, "--command", RENEW]
        _run([*fill, "--single-transaction", *content, *separated], quiet)


def _run(command: list[str], env: dict[str, str], output: BinaryIO | None = None) -> None:
    finished = subprocess.run([str(installed() / command[0]), *command[1:]], env=env, stdout=output, check=False)
    if finished.returncode != 0:
        raise CommandError(f"{command[0]} ended with status {finished.returncode}.")
