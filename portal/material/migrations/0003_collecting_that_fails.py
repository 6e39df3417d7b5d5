"""Collecting what a run left is given up after a while; sizes that no environment has count as unknown."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import Q


def forget_impossible_sizes(apps: Any, schema_editor: Any) -> None:
    impossible = Q(size_bytes__lt=0) | Q(size_bytes__gte=2**60)
    apps.get_model("material", "Environment").objects.filter(impossible).update(size_bytes=0)


class Migration(migrations.Migration):
    dependencies = [("material", "0002_environments_by_cluster")]

    operations = [
        migrations.AddField("runmaterial", "failed_looks", models.PositiveSmallIntegerField(default=0)),
        migrations.RunPython(forget_impossible_sizes, migrations.RunPython.noop),
    ]
