"""Several clusters: their order, which are retired, and what was of the only one so far."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from accounts.models import KEY


def give_to_the_first(apps: Any, schema_editor: Any) -> None:
    first = apps.get_model("jobs", "Cluster").objects.order_by("pk").first()
    for name in ("Partition", "NodeWindow"):
        apps.get_model("jobs", name).objects.update(cluster=first)
    # Before the columns are altered: changed rows have checks that wait for the end of the transaction.
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def of_cluster(name: str, *, null: bool) -> Any:
    return models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name=name, null=null)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0031_data_fetching")]

    operations = [
        migrations.AlterModelOptions(name="cluster", options={"ordering": ["position", "pk"]}),
        migrations.AddField("cluster", "position", models.PositiveSmallIntegerField(default=0, editable=False)),
        migrations.AddField("cluster", "retired_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField(
            "cluster",
            "job_files",
            models.CharField(blank=True, default="", editable=False, max_length=4096),
        ),
        migrations.AddField("partition", "cluster", of_cluster("partitions", null=True)),
        migrations.AddField("nodewindow", "cluster", of_cluster("windows", null=True)),
        migrations.RunPython(give_to_the_first, migrations.RunPython.noop),
        migrations.AlterField("partition", "cluster", of_cluster("partitions", null=False)),
        migrations.AlterField("nodewindow", "cluster", of_cluster("windows", null=False)),
        migrations.AlterField("partition", "name", models.CharField(max_length=40, validators=[KEY])),
        migrations.AddConstraint(
            "partition", models.UniqueConstraint(fields=("cluster", "name"), name="one_partition_per_name")
        ),
    ]
