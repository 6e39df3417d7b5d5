from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0042_engine_waits"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="engine_limits",
            field=models.JSONField(blank=True, default=dict, editable=False),
        ),
    ]
