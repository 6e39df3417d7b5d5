"""How addresses were proved, and by whose invitation accounts were made.

Of what is there, accounts that the identity provider connected are proved; all others are not, since links of
invitations were shown to who sent them.
"""

from datetime import timedelta
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import OuterRef, Subquery

#: An account that an invitation made was made in the request that accepted it.
AT_ONCE = timedelta(seconds=30)


def mark_proved(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model("accounts", "User").objects
    vouched_for = apps.get_model("account", "EmailAddress").objects.filter(verified=True)
    for account in apps.get_model("socialaccount", "SocialAccount").objects.order_by("-date_joined"):
        user = users.get(pk=account.user_id)
        if vouched_for.filter(user_id=user.pk, email__iexact=user.email).exists():
            users.filter(pk=user.pk).update(
                address_proved_at=account.date_joined, address_proved_by="identity_provider"
            )


def note_inviters(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model("accounts", "User").objects
    first = apps.get_model("accounts", "Invitation").objects.filter(
        accepted_by=OuterRef("pk"),
        accepted_at__gte=OuterRef("date_joined") - AT_ONCE,
        accepted_at__lte=OuterRef("date_joined") + AT_ONCE,
    )
    first = first.order_by("accepted_at")[:1]
    made = users.annotate(by=Subquery(first.values("created_by")), to=Subquery(first.values("project")))
    for row in made.exclude(by=None).values("pk", "by", "to"):
        users.filter(pk=row["pk"]).update(invited_by=row["by"], invited_into=row["to"])


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0014_clusters"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]

    operations = [
        migrations.AddField("user", "address_proved_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField(
            "user",
            "address_proved_by",
            models.CharField(
                blank=True,
                choices=[("mail", "A message sent to it"), ("identity_provider", "The identity provider")],
                default="",
                editable=False,
                help_text="Empty: never proved.",
                max_length=20,
            ),
        ),
        migrations.AddField(
            "user",
            "invited_by",
            models.ForeignKey(
                editable=False,
                help_text="Whose invitation made it.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            "user",
            "invited_into",
            models.ForeignKey(
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.AddField(
            "invitation",
            "mailed",
            models.BooleanField(
                default=False,
                editable=False,
                help_text="The link was sent to the address and shown to nobody else.",
            ),
        ),
        migrations.RunPython(mark_proved, migrations.RunPython.noop),
        migrations.RunPython(note_inviters, migrations.RunPython.noop),
    ]
