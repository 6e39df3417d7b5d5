"""Until now `restartable: true` was what a job file said that said nothing: it is nobody's word."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0038_run_metric_names"),
    ]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="restartable",
            field=models.BooleanField(null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="retry_of",
            field=models.PositiveSmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="retry_why",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
        migrations.RunSQL(
            "UPDATE jobs_job SET restartable = NULL, spec = spec - 'restartable' WHERE restartable",
            "UPDATE jobs_job SET restartable = true WHERE restartable IS NULL",
        ),
    ]
