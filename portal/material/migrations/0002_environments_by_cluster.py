"""An environment is built on each cluster that needs it."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def give_to_the_first(apps: Any, schema_editor: Any) -> None:
    first = apps.get_model("jobs", "Cluster").objects.order_by("position", "pk").first()
    apps.get_model("material", "Environment").objects.update(cluster=first)
    # Before the column is altered: changed rows have checks that wait for the end of the transaction.
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def of_cluster(*, null: bool) -> Any:
    return models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name="environments", null=null)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0032_clusters"), ("material", "0001_material")]

    operations = [
        migrations.AddField("environment", "cluster", of_cluster(null=True)),
        migrations.RunPython(give_to_the_first, migrations.RunPython.noop),
        migrations.AlterField("environment", "cluster", of_cluster(null=False)),
        migrations.RemoveConstraint("environment", "one_environment_per_digest"),
        migrations.AddConstraint(
            "environment",
            models.UniqueConstraint(fields=("project", "cluster", "digest"), name="one_environment_per_digest"),
        ),
    ]
