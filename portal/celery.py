"""The Celery application. Tasks are short and idempotent: a lost message costs seconds, never a job."""

import os

from celery import Celery
from celery.signals import beat_init, worker_process_init
from kombu.transport import redis

from scheduling.collector import spare_the_collector

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# `migrate` and `up` run them; in a worker they would import all of the API, half of what its start takes.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("evenkeel")
app.config_from_object("django.conf:settings", namespace="CELERY")

#: What was taken and not begun is given back when a connection ends. A worker that tries it while Redis is away dies of
#: that, as the library opens a new connection for it; timers bring such tasks again anyway.
redis.Channel.do_restore = False


@worker_process_init.connect
def keep_the_garbage_collector_off_what_stays(**_: object) -> None:
    spare_the_collector()


@beat_init.connect
def look_at_once(**_: object) -> None:
    """What is done now and then is done at each start too."""
    app.send_task("evenkeel.note_audit_head", expires=3_600)
    app.send_task("evenkeel.sample_shares", expires=900)
