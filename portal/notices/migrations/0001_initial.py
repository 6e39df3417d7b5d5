"""Destinations, deliveries, and the outbox that a trigger on events fills."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

# Once for each statement that inserts events, in its transaction. While nobody wants to be told it reads one row.
TRIGGER = """
CREATE FUNCTION notices_note_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM notices_destination WHERE enabled) THEN
        INSERT INTO notices_outbox (event_id, event_at)
        SELECT id, at FROM said WHERE kind IN (
            'GPUS_FREE', 'REALLOCATED', 'STEPS_DONE', 'FAIL', 'CANCEL', 'retry', 'held', 'idle', 'budget', 'node_lost'
        ) ORDER BY id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER notices_note_events AFTER INSERT ON jobs_jobevent REFERENCING NEW TABLE AS said
    FOR EACH STATEMENT EXECUTE FUNCTION notices_note_events();
"""
NO_TRIGGER = """
DROP TRIGGER notices_note_events ON jobs_jobevent;
DROP FUNCTION notices_note_events();
"""
KINDS = [
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
]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0013_project_priority"),
        ("jobs", "0021_rounds_counted"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Destination",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[("webhook", "Webhook"), ("slack", "Slack"), ("email", "E-mail")], max_length=10
                    ),
                ),
                ("address_ciphertext", models.TextField(blank=True, default="", editable=False)),
                ("shown_address", models.CharField(blank=True, default="", editable=False, max_length=300)),
                ("secret_ciphertext", models.TextField(blank=True, default="", editable=False)),
                ("old_secret_ciphertext", models.TextField(blank=True, default="", editable=False)),
                ("old_secret_until", models.DateTimeField(editable=False, null=True)),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(choices=KINDS, max_length=40), size=None
                    ),
                ),
                ("own_jobs", models.BooleanField(default=True)),
                ("waiting_minutes", models.PositiveIntegerField(default=60)),
                (
                    "portal_url",
                    models.CharField(
                        help_text="Where its owner reaches the portal: links begin with it.", max_length=300
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                (
                    "disabled_why",
                    models.CharField(blank=True, default="", help_text="Why the portal turned it off.", max_length=400),
                ),
                ("failing_since", models.DateTimeField(null=True)),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="Since something was delivered."),
                ),
                (
                    "rests_until",
                    models.DateTimeField(help_text="After a failure nothing is tried for a while.", null=True),
                ),
                ("delivered_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="destinations",
                        to="accounts.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="destinations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.CreateModel(
            name="Outbox",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event_id", models.BigIntegerField()),
                ("event_at", models.DateTimeField()),
            ],
            options={"verbose_name_plural": "outbox", "ordering": ["id"]},
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("message", models.UUIDField(default=uuid.uuid4, help_text="The same at each attempt.")),
                ("event", models.CharField(max_length=40)),
                ("payload", models.JSONField()),
                (
                    "status",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("delivered", "Delivered"), ("given_up", "Given Up")],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("next_attempt_at", models.DateTimeField(null=True)),
                ("claimed_until", models.DateTimeField(help_text="Somebody is sending it.", null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("answer_code", models.PositiveIntegerField(null=True)),
                ("answer", models.CharField(blank=True, default="", max_length=200)),
                ("error", models.CharField(blank=True, default="", max_length=400)),
                (
                    "destination",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="notices.destination",
                    ),
                ),
            ],
            options={"verbose_name_plural": "deliveries", "ordering": ["-id"]},
        ),
        migrations.CreateModel(
            name="WaitingTold",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "destination",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="notices.destination"),
                ),
                ("job", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="jobs.job")),
            ],
            options={"verbose_name_plural": "told of waiting"},
        ),
        migrations.AddIndex(
            model_name="destination",
            index=models.Index(condition=models.Q(("enabled", True)), fields=["id"], name="enabled_destination"),
        ),
        migrations.AddConstraint(
            model_name="destination",
            constraint=models.CheckConstraint(
                condition=models.Q(("own_jobs", True), ("project__isnull", False), _connector="OR"),
                name="all_jobs_are_of_one_project",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["destination", "-id"], name="deliveries_of_a_destination"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status", "waiting")), fields=["next_attempt_at"], name="delivery_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="waitingtold",
            constraint=models.UniqueConstraint(fields=("destination", "job"), name="waiting_is_told_once"),
        ),
        migrations.RunSQL(TRIGGER, NO_TRIGGER),
    ]
