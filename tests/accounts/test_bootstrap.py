"""Only the first user of an installation is made its administrator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from accounts.models import User

pytestmark = pytest.mark.django_db


def test_the_first_user_administers_and_no_other(capsys: Any) -> None:
    call_command("bootstrap", print_json=True)
    assert json.loads(capsys.readouterr().out)["password"]
    assert User.objects.get().is_superuser
    User.objects.create_user("ana@example.org", "x")
    call_command("bootstrap", print_json=True)
    assert json.loads(capsys.readouterr().out)["password"] is None
    assert User.objects.filter(is_superuser=True).count() == 1


def test_where_there_are_people_nobody_is_promoted(capsys: Any) -> None:
    User.objects.create_user("ana@example.org", "x")
    call_command("bootstrap", print_json=True)
    assert json.loads(capsys.readouterr().out) == {"email": None, "password": None}
    assert not User.objects.filter(is_superuser=True).exists()
