"""Destinations of notices, notices to send, and their outcomes."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project
from portal.jobs.models import Job
from portal.notices.kinds import KINDS, WORDS

DEFAULT_WAITING_MINUTES = 60


class Destination(models.Model):
    """A person's destination: an address, and which notices it gets. Addresses and secrets are encrypted."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"
        EMAIL = "email", "E-mail"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="destinations")
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=10, choices=Kind)
    address_ciphertext = models.TextField(blank=True, default="", editable=False)
    #: The part of the address that a list may show.
    shown_address = models.CharField(max_length=300, blank=True, default="", editable=False)
    secret_ciphertext = models.TextField(blank=True, default="", editable=False)
    #: The previous secret also signs for a while.
    old_secret_ciphertext = models.TextField(blank=True, default="", editable=False)
    old_secret_until = models.DateTimeField(null=True, editable=False)
    events = ArrayField(models.CharField(max_length=40, choices=[(kind, WORDS[kind]) for kind in KINDS]))
    own_jobs = models.BooleanField(default=True)
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="destinations")
    waiting_minutes = models.PositiveIntegerField(default=DEFAULT_WAITING_MINUTES)
    portal_url = models.CharField(max_length=300, help_text="Where its owner reaches the portal: links begin with it.")
    enabled = models.BooleanField(default=True)
    disabled_why = models.CharField(max_length=400, blank=True, default="", help_text="Why the portal turned it off.")
    failing_since = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0, help_text="Since something was delivered.")
    rests_until = models.DateTimeField(null=True, help_text="After a failure nothing is tried for a while.")
    delivered_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["id"], condition=Q(enabled=True), name="enabled_destination")]
        constraints = [
            models.CheckConstraint(
                condition=Q(own_jobs=True) | Q(project__isnull=False), name="all_jobs_are_of_one_project"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


class Outbox(models.Model):
    """An event that may cause a notice, written by a trigger in the event's own transaction."""

    event_id = models.BigIntegerField()
    event_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "outbox"

    def __str__(self) -> str:
        return f"event {self.event_id}"


class Delivery(models.Model):
    """One notice to one destination."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        GIVEN_UP = "given_up"

    destination = models.ForeignKey(Destination, on_delete=models.CASCADE, related_name="deliveries")
    message = models.UUIDField(default=uuid.uuid4, help_text="The same at each attempt.")
    event = models.CharField(max_length=40)
    payload = models.JSONField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    next_attempt_at = models.DateTimeField(null=True)
    claimed_until = models.DateTimeField(null=True, help_text="Somebody is sending it.")
    finished_at = models.DateTimeField(null=True)
    answer_code = models.PositiveIntegerField(null=True)
    answer = models.CharField(max_length=200, blank=True, default="")
    error = models.CharField(max_length=400, blank=True, default="")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["destination", "-id"], name="deliveries_of_a_destination"),
            models.Index(fields=["next_attempt_at"], condition=Q(status="waiting"), name="delivery_due"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.destination_id}"


class WaitingTold(models.Model):
    """A long wait of a job is reported once to each destination."""

    destination = models.ForeignKey(Destination, on_delete=models.CASCADE)
    job = models.ForeignKey(Job, on_delete=models.CASCADE)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["destination", "job"], name="waiting_is_told_once")]
        verbose_name_plural = "told of waiting"

    def __str__(self) -> str:
        return f"{self.job_id} to {self.destination_id}"
