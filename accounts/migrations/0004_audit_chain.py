"""The audit log can only grow, and each entry seals the one before."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# One trigger guards every change of a row: what is new gets no seal of its own making; an entry without a seal may be
# updated once, and whatever the update says, the only thing that it does is to seal. Sealing happens at commit, one
# transaction after the other.
CHAIN = """
CREATE FUNCTION accounts_audit_text(e accounts_auditentry) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_array(
        e.position::text,
        to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        coalesce(e.actor_id::text, ''), e.actor_email, e.action, e.target, e.detail::text,
        e.address, e.credential, e.request_id, e.previous_hash
    )::text
$$;

CREATE FUNCTION accounts_audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sealed accounts_auditentry;
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
    SELECT position + 1, hash INTO sealed.position, sealed.previous_hash FROM accounts_auditentry
        WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1;
    IF sealed.position IS NULL THEN
        sealed.position := 1;
        sealed.previous_hash := repeat('0', 64);
    END IF;
    sealed.hash := encode(sha256(convert_to(accounts_audit_text(sealed), 'UTF8')), 'hex');
    RETURN sealed;
END $$;

CREATE FUNCTION accounts_audit_seal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts_auditentry SET position = 0 WHERE id = NEW.id AND position IS NULL;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_guard BEFORE INSERT OR UPDATE OR DELETE ON accounts_auditentry
    FOR EACH ROW EXECUTE FUNCTION accounts_audit_guard();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON accounts_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION accounts_audit_guard();
CREATE CONSTRAINT TRIGGER audit_seal AFTER INSERT ON accounts_auditentry DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION accounts_audit_seal();

DO $$
DECLARE
    entry record;
BEGIN
    FOR entry IN SELECT id FROM accounts_auditentry ORDER BY id LOOP
        UPDATE accounts_auditentry SET position = 0 WHERE id = entry.id;
    END LOOP;
END $$;
"""
NO_CHAIN = """
DROP TRIGGER audit_seal ON accounts_auditentry;
DROP TRIGGER audit_no_truncate ON accounts_auditentry;
DROP TRIGGER audit_guard ON accounts_auditentry;
DROP FUNCTION accounts_audit_seal();
DROP FUNCTION accounts_audit_guard();
DROP FUNCTION accounts_audit_text(accounts_auditentry);
"""
ACTORS = """
UPDATE accounts_auditentry SET actor_email = email FROM accounts_user WHERE accounts_user.id = actor_id
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_project_tree"),
    ]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="actor_email",
            field=models.CharField(blank=True, default="", max_length=254),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="address",
            field=models.CharField(blank=True, default="", max_length=45),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="credential",
            field=models.CharField(blank=True, default="", help_text="Which token or session.", max_length=40),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="hash",
            field=models.CharField(default="", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="position",
            field=models.BigIntegerField(editable=False, null=True, unique=True),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="previous_hash",
            field=models.CharField(default="", editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="request_id",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
        migrations.AlterField(
            model_name="auditentry",
            name="action",
            field=models.CharField(db_index=True, max_length=60),
        ),
        migrations.AlterField(
            model_name="auditentry",
            name="actor",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunSQL(ACTORS, migrations.RunSQL.noop),
        migrations.RunSQL(CHAIN, NO_CHAIN),
    ]
