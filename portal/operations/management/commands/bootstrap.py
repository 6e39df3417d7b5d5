"""First administrator, clusters, catalogue, a project and rates. Safe to run at every start."""

from __future__ import annotations

import json
import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from accounts.models import Membership, Project, Rate, User
from accounts.services import add_member, create_project
from portal.cluster.settings_sync import CannotFollow, follow_settings
from portal.jobs.models import ModelType
from portal.submission.builtin_programs import DEFAULT_RATES, PROGRAMS


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--admin-email", default="admin@evenkeel.local")
        parser.add_argument("--cluster-name", default="local")
        parser.add_argument("--print-json", action="store_true")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        password = None
        admin = User.objects.filter(is_superuser=True).order_by("pk").first()
        if admin is None and not User.objects.exists():
            password = secrets.token_urlsafe(12)
            try:
                admin = User.objects.create_superuser(options["admin_email"], password)
            except ValueError as error:
                raise CommandError(f"The administrator's address (EVENKEEL_ADMIN_EMAIL) {error}.") from error
        try:
            for line in follow_settings(options["cluster_name"]):
                self.stderr.write(line)
        except CannotFollow as error:
            raise CommandError(str(error)) from error
        for program in PROGRAMS:
            ModelType.objects.get_or_create(
                name=program.name,
                defaults={
                    "title": program.title,
                    "description": program.description,
                    "argv": program.argv,
                    "default_batch_size": program.default_batch_size,
                },
            )
        if not Project.objects.exists():
            project = create_project(actor=None, key="default", name="Default")
            if admin is not None:
                add_member(actor=None, project=project, user=admin, role=Membership.Role.MANAGER)
        known = set(Rate.objects.values_list("accelerator_type", flat=True))
        now = timezone.now()
        Rate.objects.bulk_create(
            Rate(accelerator_type=kind, price_micro_per_hour=price, valid_from=now)
            for kind, price in DEFAULT_RATES.items()
            if kind not in known
        )
        if options["print_json"]:
            self.stdout.write(json.dumps({"email": admin.email if admin else None, "password": password}))
