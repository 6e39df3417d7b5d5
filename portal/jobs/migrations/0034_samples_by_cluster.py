"""Points of shares and fairness are of a cluster."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

SAMPLES = ("FairnessSample", "ShareSample")


def give_to_the_first(apps: Any, schema_editor: Any) -> None:
    first = apps.get_model("jobs", "Cluster").objects.order_by("position", "pk").first()
    for name in SAMPLES:
        apps.get_model("jobs", name).objects.update(cluster=first)
    # Before the columns are altered: changed rows have checks that wait for the end of the transaction.
    schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def of_cluster(name: str, *, null: bool) -> Any:
    return models.ForeignKey("jobs.Cluster", on_delete=models.CASCADE, related_name=name, null=null)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0033_cluster_choice")]

    operations = [
        migrations.AddField("fairnesssample", "cluster", of_cluster("fairness_samples", null=True)),
        migrations.AddField("sharesample", "cluster", of_cluster("share_samples", null=True)),
        migrations.RunPython(give_to_the_first, migrations.RunPython.noop),
        migrations.AlterField("fairnesssample", "cluster", of_cluster("fairness_samples", null=False)),
        migrations.AlterField("sharesample", "cluster", of_cluster("share_samples", null=False)),
        migrations.RemoveConstraint("fairnesssample", "one_fairness_sample_per_time"),
        migrations.AddConstraint(
            "fairnesssample",
            models.UniqueConstraint(
                fields=("cluster", "project", "user", "at", "step_s"),
                nulls_distinct=False,
                name="one_fairness_sample_per_time",
            ),
        ),
        migrations.RemoveConstraint("sharesample", "one_share_sample_per_time"),
        migrations.AddConstraint(
            "sharesample",
            models.UniqueConstraint(fields=("cluster", "project", "at"), name="one_share_sample_per_time"),
        ),
    ]
