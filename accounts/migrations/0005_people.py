"""Service accounts, roles from the directory, invitations, rotation of tokens."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_audit_chain"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("member", "Member"), ("manager", "Manager")],
                        default="member",
                        max_length=10,
                    ),
                ),
                ("digest", models.CharField(editable=False, max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("accepted_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.RemoveConstraint(
            model_name="membership",
            name="one_membership_per_project",
        ),
        migrations.AddField(
            model_name="apitoken",
            name="rotated_from",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="rotated_to",
                to="accounts.apitoken",
            ),
        ),
        migrations.AddField(
            model_name="membership",
            name="by_directory",
            field=models.BooleanField(
                default=False, editable=False, help_text="Follows the person's groups at each sign-in by OIDC."
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="admin_by_directory",
            field=models.BooleanField(default=False, editable=False),
        ),
        migrations.AddField(
            model_name="user",
            name="deactivated_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="user",
            name="kind",
            field=models.CharField(
                choices=[("person", "Person"), ("service", "Service account")],
                default="person",
                editable=False,
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="user",
            name="project",
            field=models.ForeignKey(
                editable=False,
                help_text="Whose service account it is.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="service_accounts",
                to="accounts.project",
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                fields=("project", "user", "by_directory"), name="one_membership_per_project"
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "person"), ("project", None)),
                    models.Q(("kind", "service"), ("project__isnull", False)),
                    _connector="OR",
                ),
                name="service_accounts_have_a_project",
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind", "person"),
                    models.Q(
                        ("is_staff", False), ("is_superuser", False), ("kind", "service"), ("password__startswith", "!")
                    ),
                    _connector="OR",
                ),
                name="service_accounts_cannot_sign_in",
            ),
        ),
        migrations.AddField(
            model_name="invitation",
            name="accepted_by",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="invitations_accepted",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="invitation",
            name="created_by",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="invitations_sent",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="invitation",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="accounts.project"
            ),
        ),
    ]
