from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("jobs", "0023_views_and_templates"),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="drained_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="drain_deadline_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="drain_reason",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
        migrations.AddField(
            model_name="node",
            name="drained_by",
            field=models.ForeignKey(
                null=True,
                on_delete=models.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="drain_came_due",
            field=models.BooleanField(default=False, editable=False),
        ),
    ]
