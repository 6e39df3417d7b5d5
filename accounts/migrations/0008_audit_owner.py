"""Sealing at commit is the owner's act: whoever writes an entry needs no right to update the audit log."""

from django.db import migrations

# Functions of the owner's name nothing that another role could put before it: a search path with the system alone.
SEAL = """
CREATE OR REPLACE FUNCTION accounts_audit_seal() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE public.accounts_auditentry SET position = 0 WHERE id = NEW.id AND position IS NULL;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION accounts_audit_guard() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sealed public.accounts_auditentry;
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.position := NULL;
        NEW.previous_hash := '';
        NEW.hash := '';
        RETURN NEW;
    END IF;
    IF TG_OP <> 'UPDATE' THEN
        RAISE EXCEPTION 'the audit log is append-only: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
    ELSIF OLD.position IS NOT NULL THEN
        RAISE EXCEPTION 'the audit log is append-only: UPDATE refused' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('accounts_auditentry.chain'));
    sealed := OLD;
    SELECT position + 1, hash INTO sealed.position, sealed.previous_hash FROM public.accounts_auditentry
        WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1;
    IF sealed.position IS NULL THEN
        sealed.position := 1;
        sealed.previous_hash := repeat('0', 64);
    END IF;
    sealed.hash := encode(sha256(convert_to(public.accounts_audit_text(sealed), 'UTF8')), 'hex');
    RETURN sealed;
END $$;

ALTER FUNCTION accounts_audit_text(accounts_auditentry) SET search_path = pg_catalog, pg_temp;
"""
OPEN = """
ALTER FUNCTION accounts_audit_seal() SECURITY INVOKER RESET ALL;
ALTER FUNCTION accounts_audit_guard() RESET ALL;
ALTER FUNCTION accounts_audit_text(accounts_auditentry) RESET ALL;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_shares")]

    operations = [migrations.RunSQL(SEAL, OPEN)]
