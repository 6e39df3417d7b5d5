"""What a promoted policy is held against: GPUs that train, and jobs that could start."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0027_resources_and_pairs"),
    ]

    operations = [
        migrations.AddField(
            model_name="clustersample",
            name="gpus_training",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="clustersample",
            name="waiting",
            field=models.PositiveIntegerField(null=True),
        ),
    ]
