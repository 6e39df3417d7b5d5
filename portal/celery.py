"""The Celery application. Tasks are short and idempotent: a lost message costs seconds, never a job."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("evenkeel")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
