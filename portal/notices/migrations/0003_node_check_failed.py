"""Administrators may be told that a node failed its check."""

import django.contrib.postgres.fields
from django.db import migrations, models

TELLING = (
    "'GPUS_FREE', 'REALLOCATED', 'STEPS_DONE', 'FAIL', 'CANCEL', 'retry', 'held', 'idle', 'budget', 'node_lost', "
    "'policy_rolled_back'"
)


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
    dependencies = [("notices", "0002_policy_rolled_back")]

    operations = [
        migrations.RunSQL(function(f"{TELLING}, 'node_check_failed'"), function(TELLING)),
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
                        ("node.check_failed", "node failed its check"),
                        ("policy.rolled_back", "policy rolled back"),
                    ],
                    max_length=40,
                ),
                size=None,
            ),
        ),
    ]
