"""As which UNIX account jobs of a person run: of nobody until it is set."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("accounts", "0017_project_in_slurm")]

    operations = [
        migrations.AddField(
            "user",
            "unix_account",
            models.CharField(
                blank=True,
                default="",
                editable=False,
                help_text="As whom jobs run, where they run as people.",
                max_length=32,
            ),
        ),
        migrations.AddField(
            "user",
            "unix_account_by",
            models.CharField(
                blank=True,
                choices=[
                    ("administrator", "An administrator"),
                    ("same_name", "The local part of the address, confirmed by an administrator"),
                    ("identity_provider", "The identity provider"),
                ],
                default="",
                editable=False,
                help_text="Empty: there is none.",
                max_length=20,
            ),
        ),
        migrations.AddConstraint(
            "user",
            models.UniqueConstraint(
                condition=~Q(unix_account=""), fields=("unix_account",), name="one_person_per_unix_account"
            ),
        ),
    ]
