"""What a node held in a stretch of time is read by when it ended."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0028_training_and_waiting"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="hold",
            index=models.Index(models.F("accelerator"), models.F("during__endswith"), name="hold_ended"),
        ),
    ]
