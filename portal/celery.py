"""The Celery application. Tasks are short and idempotent: a lost message costs seconds, never a job."""

import os

from celery import Celery
from celery.signals import beat_init, worker_process_init
from kombu.transport import redis

from scheduling.collector import freeze_loaded_objects

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# `migrate` and `up` run these checks; in a worker they would import all of the API, half of its start time
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("evenkeel")
app.config_from_object("django.conf:settings", namespace="CELERY")

#: Tasks that were received and not started are returned when a connection ends. A worker that tries this while Redis is
#: unreachable dies, as the library opens a new connection for it; timers send such tasks again anyway.
redis.Channel.do_restore = False


@worker_process_init.connect
def freeze_collector(**_: object) -> None:
    freeze_loaded_objects()


@beat_init.connect
def run_at_start(**_: object) -> None:
    """Periodic tasks also run once at each start."""
    app.send_task("evenkeel.note_audit_head", expires=3_600)
    app.send_task("evenkeel.sample_shares", expires=900)
