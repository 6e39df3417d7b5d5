"""The tree of projects, its ancestry kept by triggers; scopes and bounds of tokens."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models

# Changes of the tree wait for one another: a child that is added while its parent moves would keep the old place.
TREE = """
CREATE FUNCTION accounts_project_place() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    above bigint[] := '{}';
BEGIN
    IF NEW.parent_id IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('accounts_project.ancestry'));
        SELECT ancestry INTO above FROM accounts_project WHERE id = NEW.parent_id;
        IF NEW.parent_id = NEW.id OR above @> ARRAY[NEW.id] THEN
            RAISE EXCEPTION 'a project cannot be below itself' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    NEW.ancestry := coalesce(above, '{}') || NEW.id;
    RETURN NEW;
END $$;

CREATE TRIGGER project_place BEFORE INSERT OR UPDATE OF parent_id ON accounts_project
    FOR EACH ROW EXECUTE FUNCTION accounts_project_place();

CREATE FUNCTION accounts_project_move_below() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts_project SET ancestry = NEW.ancestry || ancestry[cardinality(OLD.ancestry) + 1:]
        WHERE ancestry @> ARRAY[NEW.id] AND id <> NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER project_move_below AFTER UPDATE OF parent_id ON accounts_project
    FOR EACH ROW WHEN (OLD.ancestry <> NEW.ancestry) EXECUTE FUNCTION accounts_project_move_below();

WITH RECURSIVE tree AS (
    SELECT id, ARRAY[id]::bigint[] AS ids FROM accounts_project WHERE parent_id IS NULL
    UNION ALL
    SELECT child.id, tree.ids || child.id FROM accounts_project child JOIN tree ON child.parent_id = tree.id
)
UPDATE accounts_project SET ancestry = tree.ids FROM tree WHERE tree.id = accounts_project.id;
"""
NO_TREE = """
DROP TRIGGER project_move_below ON accounts_project;
DROP TRIGGER project_place ON accounts_project;
DROP FUNCTION accounts_project_move_below();
DROP FUNCTION accounts_project_place();
"""
# Tokens made before there were scopes keep what they could do.
ALL_SCOPES = "UPDATE accounts_apitoken SET scopes = ARRAY['jobs:read', 'jobs:write', 'admin']"


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_ledger_by_end"),
    ]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="last_used_address",
            field=models.GenericIPAddressField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="project",
            field=models.ForeignKey(
                blank=True,
                help_text="It works in this project and below only.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to="accounts.project",
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("jobs:read", "Read jobs and what concerns them"),
                        ("jobs:write", "Submit and change jobs"),
                        ("admin", "Administer: projects, people, tokens, the cluster"),
                    ],
                    max_length=20,
                ),
                default=list,
                editable=False,
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="ancestry",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), blank=True, default=list, editable=False, size=None
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="archived_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="project",
            index=django.contrib.postgres.indexes.GinIndex(fields=["ancestry"], name="project_ancestry"),
        ),
        migrations.AddConstraint(
            model_name="project",
            constraint=models.CheckConstraint(
                condition=models.Q(("ancestry__len__lte", 12)),
                name="project_depth_bounded",
                violation_error_message="A tree of projects has 12 levels at most.",
            ),
        ),
        migrations.RunSQL(TREE, NO_TREE),
        migrations.RunSQL(ALL_SCOPES, migrations.RunSQL.noop),
    ]
