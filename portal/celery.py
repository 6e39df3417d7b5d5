"""The Celery application. Tasks are short and idempotent: a lost message costs seconds, never a job."""

import gc
import os

from celery import Celery
from celery.signals import beat_init, worker_process_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("evenkeel")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(related_name="housekeeping")


@worker_process_init.connect
def keep_the_garbage_collector_off_what_stays(**_: object) -> None:
    """Modules and settings last as long as the process: looking through them held up rounds by a tenth of a second."""
    gc.collect()
    gc.freeze()


@beat_init.connect
def note_the_head_of_the_audit_log(**_: object) -> None:
    """At each start too, not only once an hour."""
    app.send_task("evenkeel.note_audit_head", expires=3_600)
