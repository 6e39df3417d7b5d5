"""Snapshots become differences from shared bases. Decisions of the older form cannot be replayed and are dropped."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_event_partitions")]

    operations = [
        migrations.CreateModel(
            name="DecisionBase",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("text", models.BinaryField()),
                ("size_bytes", models.PositiveIntegerField()),
            ],
        ),
        migrations.RunSQL("DELETE FROM jobs_decision", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="decision",
            name="base",
            field=models.ForeignKey(
                default=None,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="decisions",
                to="jobs.decisionbase",
            ),
            preserve_default=False,
        ),
    ]
