from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0032_clusters")]

    operations = [
        migrations.AddField("job", "cluster_choice", models.CharField(blank=True, default="", max_length=500)),
    ]
