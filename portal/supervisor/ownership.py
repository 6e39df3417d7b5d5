"""Two roles of the database: the portal's processes use the application's role, which owns everything except the audit
log and can only append to that; the owner's role migrates, backs up and restores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection
from psycopg2.extensions import adapt

from portal.config import env
from portal.config.layout import Layout

#: Tables of a migration or a restore belong to the owner, who gives them away except for the audit log. Repeatable. The
#: owner of the schema may drop anything in it, so the application must not own it.
_SEPARATE = """
DO $separate$
DECLARE
  application constant name := {application};
  audit constant regclass := to_regclass('public.accounts_auditentry');
  statement text;
BEGIN
  IF pg_has_role(application, current_user, 'MEMBER')
      OR pg_has_role(application, (SELECT nspowner FROM pg_namespace WHERE nspname = 'public'), 'MEMBER') THEN
    RAISE EXCEPTION 'the role % of DATABASE_URL is a superuser, owns the schema or may act as the owner', application;
  END IF;
  IF NOT has_schema_privilege(application, 'public', 'CREATE') THEN
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA public TO %I', application);
  END IF;
  FOR statement IN
    SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, application) FROM pg_class c
      WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
        AND pg_get_userbyid(relowner) = current_user AND c.oid IS DISTINCT FROM audit
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
          AND (deptype = 'e' OR relkind = 'S' AND deptype IN ('a', 'i')))
    UNION ALL
    SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, application) FROM pg_proc p
      WHERE pronamespace = 'public'::regnamespace AND NOT starts_with(proname, 'accounts_audit_')
        AND pg_get_userbyid(proowner) = current_user
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
          AND deptype = 'e')
    UNION ALL
    SELECT format('ALTER TABLE %s OWNER TO CURRENT_USER', c.oid::regclass) FROM pg_class c
      WHERE c.oid = audit AND pg_get_userbyid(relowner) <> current_user
    UNION ALL
    SELECT format('ALTER ROUTINE %s OWNER TO CURRENT_USER', p.oid::regprocedure) FROM pg_proc p
      WHERE pronamespace = 'public'::regnamespace AND starts_with(proname, 'accounts_audit_')
        AND pg_get_userbyid(proowner) <> current_user
  LOOP
    EXECUTE statement;
  END LOOP;
  IF audit IS NOT NULL THEN
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, %I', audit, application);
    EXECUTE format('GRANT SELECT, INSERT ON %s TO %I', audit, application);
    statement := pg_get_serial_sequence(audit::text, 'id');
    EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM PUBLIC, %I', statement, application);
    EXECUTE format('GRANT USAGE ON SEQUENCE %s TO %I', statement, application);
  END IF;
END $separate$
"""
_ADDRESS = ("USER", "PASSWORD", "HOST", "PORT", "NAME", "OPTIONS")


def owner_database() -> dict[str, Any] | None:
    """The owner's connection; None if DATABASE_URL names the only role."""
    if not settings.EXTERNAL_DATABASE_URL:
        return env.database("EVENKEEL_DATA", Layout(settings.EVENKEEL_DATA).owner_database_url)
    url = settings.EXTERNAL_OWNER_DATABASE_URL
    return env.database("EVENKEEL_OWNER_DATABASE_URL", url) if url else None


def application_role() -> str | None:
    """The application's role; None if there is only one role."""
    owner, role = owner_database(), str(settings.DATABASES["default"]["USER"])
    return role if owner is not None and owner["USER"] != role else None


def separation(application: str) -> str:
    """SQL for the owner, after it has created something."""
    return _SEPARATE.format(application=adapt(application).getquoted().decode())


@contextmanager
def as_owner() -> Iterator[str | None]:
    """Inside, this process is connected as the owner, while application_role() still returns the application's role."""
    owner, application = owner_database(), application_role()
    if owner is None or application is None:
        yield None
        return
    address = connection.settings_dict  # the dictionary of the settings itself
    kept = {key: address[key] for key in _ADDRESS}
    connection.close()
    address.update({key: owner[key] for key in _ADDRESS})
    try:
        yield application
    finally:
        connection.close()
        address.update(kept)


def separate(application: str) -> None:
    """Give the application's role what it must own, and no more; run as the owner."""
    with connection.cursor() as cursor:
        cursor.execute(separation(application))
