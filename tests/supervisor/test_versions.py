"""Older code refuses a newer database before it changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from portal.config.layout import Layout
from portal.config.setup_errors import SetupError
from portal.supervisor.control_plane import ControlPlane

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def newer() -> Iterator[MigrationRecorder]:
    recorder = MigrationRecorder(connection)
    recorder.record_applied("jobs", "9999_of_tomorrow")
    yield recorder
    recorder.record_unapplied("jobs", "9999_of_tomorrow")


def test_a_newer_database_is_refused(newer: MigrationRecorder, tmp_path: Path) -> None:
    sentence = r"was written by a newer version \(this one does not know jobs.9999_of_tomorrow\); update Evenkeel"
    with pytest.raises(CommandError, match=sentence):
        call_command("migrate", verbosity=0)
    with pytest.raises(SetupError, match=sentence):
        ControlPlane(Layout(tmp_path))._prepare_database()


def test_migrations_of_other_packages_are_theirs(newer: MigrationRecorder) -> None:
    newer.record_unapplied("jobs", "9999_of_tomorrow")
    newer.record_applied("sessions", "9999_of_tomorrow")
    call_command("migrate", verbosity=0)
    newer.record_unapplied("sessions", "9999_of_tomorrow")
