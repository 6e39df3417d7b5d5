"""Administrators may be told that a promoted policy was rolled back."""

import django.contrib.postgres.fields
from django.db import migrations, models

TELLING = "'GPUS_FREE', 'REALLOCATED', 'STEPS_DONE', 'FAIL', 'CANCEL', 'retry', 'held', 'idle', 'budget', 'node_lost'"


def function(kinds: str) -> str:
    return f"""
CREATE OR REPLACE FUNCTION notices_note_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM notices_destination WHERE enabled) THEN
        INSERT INTO notices_outbox (event_id, event_at) SELECT id, at FROM said WHERE kind IN ({kinds}) ORDER BY id;
    END IF;
    RETURN NULL;
END $$;
"""  # noqa: S608  # nosec B608


class Migration(migrations.Migration):
    dependencies = [("notices", "0001_initial")]

    operations = [
        migrations.RunSQL(function(f"{TELLING}, 'policy_rolled_back'"), function(TELLING)),
        migrations.AlterField(
            model_name="destination",
            name="events",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[
                        ("job.started", "started"),
                        ("job.succeeded", "succeeded"),
                        ("job.failed", "failed"),
                        ("job.cancelled", "cancelled"),
                        ("job.retried", "failed and is tried again"),
                        ("job.preempted", "gave up GPUs"),
                        ("job.held", "held"),
                        ("job.idle", "idle"),
                        ("job.waiting", "waiting"),
                        ("budget.reached", "budget"),
                        ("node.lost", "node lost"),
                        ("policy.rolled_back", "policy rolled back"),
                    ],
                    max_length=40,
                ),
                size=None,
            ),
        ),
    ]
