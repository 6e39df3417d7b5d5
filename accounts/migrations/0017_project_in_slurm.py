from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0016_addresses_in_lower_case"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="slurm",
            field=models.JSONField(blank=True, default=dict, editable=False),
        ),
    ]
