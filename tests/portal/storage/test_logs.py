"""Lines of the log as objects: what they say, and which job, run and request they are about."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.test import Client
from django.utils import timezone

from portal.config import env
from portal.core import job_log
from portal.execution import commands, executors
from portal.jobs.models import Command
from scheduling.errors import ExecutorError
from tests.portal.world import World


class Lines:
    """What the console gets under EVENKEEL_LOG_FORMAT=json."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(job_log.json_lines())
        self.handler.addFilter(job_log.Context())

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def one(self, logger: str) -> dict[str, Any]:
        [found] = [line for line in self.all() if line["logger"] == logger]
        return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    written = Lines()
    root = logging.getLogger()
    root.addHandler(written.handler)
    yield written
    root.removeHandler(written.handler)


def test_a_line_says_when_how_bad_who_and_what(lines: Lines) -> None:
    logging.getLogger("portal.some").warning("two of %s", "three")
    line = lines.one("portal.some")
    assert line | {"at": ""} == {"at": "", "level": "WARNING", "logger": "portal.some", "message": "two of three"}
    assert line["at"].endswith("+00:00")


def test_an_exception_is_part_of_its_line(lines: Lines) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("portal.some").exception("it failed")
    [line] = lines.all()
    assert "ValueError: first\nsecond" in line["exception"]
    assert line["message"] == "it failed"


def test_what_is_bound_ends_with_its_block(lines: Lines) -> None:
    log = logging.getLogger("portal.some")
    with job_log.about({"job": 12}), job_log.about({"run_id": "r"}):
        log.warning("inside")
        log.warning("of another", extra={"job": 13})
    log.warning("outside")
    inside, other, outside = lines.all()
    assert (inside["job"], inside["run_id"]) == (12, "r")
    assert (other["job"], other["run_id"]) == (13, "r")
    assert "job" not in outside


def test_outside_of_a_request_nothing_is_noted() -> None:
    job_log.note({"job": 12})
    assert "job" not in job_log.bound()


@pytest.mark.django_db
def test_a_request_names_itself_and_the_job_it_is_about(lines: Lines) -> None:
    world = World()
    job = world.submit()
    browser = Client()
    browser.force_login(world.user)
    with mock.patch("portal.api.jobs.jobs.describe_detail", side_effect=RuntimeError("on purpose")):
        answer = browser.get(f"/api/v1/jobs/{job.number}")
    assert answer.status_code == 500
    line = lines.one("portal.api.http.errors")
    assert (line["job"], line["job_id"]) == (job.number, str(job.pk))
    assert line["request_id"] == answer.headers["X-Request-ID"]
    assert "on purpose" in line["exception"]


@pytest.mark.django_db
def test_a_command_that_fails_names_its_job_and_launch(lines: Lines) -> None:
    world = World()
    run = world.submit().run
    assert run is not None
    command = Command.objects.create(run=run, epoch=3, verb=Command.Verb.KILL, next_attempt_at=timezone.now())
    executor = mock.Mock(**{"kill.side_effect": ExecutorError("no answer", permanent=False)})
    with mock.patch.object(executors, "executor_for", return_value=executor):
        commands.send_command(command.pk)
    line = lines.one("portal.execution.commands")
    assert (line["job"], line["run_id"], line["epoch"]) == (run.job.number, str(run.pk), 3)
    assert line["task"] == "evenkeel.send_command"


def test_a_format_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_LOG_FORMAT", "xml")
    with pytest.raises(env.BadSetting, match="must be text or json, not 'xml'"):
        env.choice("EVENKEEL_LOG_FORMAT")
