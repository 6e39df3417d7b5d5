"""A job's longest training as a column: its own, or its partition's, which its job file no longer names."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0019_share_history")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="max_duration_s",
            field=models.FloatField(null=True),
        ),
        migrations.RunSQL(
            "UPDATE jobs_job SET max_duration_s = (spec ->> 'max_duration')::float8 WHERE spec ? 'max_duration'",
            migrations.RunSQL.noop,
        ),
    ]
