"""The project Vision; and with one of everything in it, made once a module; what a test changes is undone after it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction

from accounts.models import User
from tests.portal.api_calls import Api
from tests.portal.things import Things
from tests.portal.world import World


@pytest.fixture
def world(db: None) -> World:
    return World()


@pytest.fixture
def api(world: World) -> Api:
    return Api(world.user)


@pytest.fixture
def root(world: World) -> Api:
    """An administrator."""
    return Api(User.objects.create_superuser("root@example.org", "x"))


@pytest.fixture(scope="module")
def made_once(django_db_setup: None, django_db_blocker: Any) -> Iterator[Things]:
    with django_db_blocker.unblock(), transaction.atomic():
        cache.clear()
        yield Things()
        transaction.set_rollback(True)


@pytest.fixture
def things(made_once: Things, db: None) -> Things:
    cache.clear()
    return copy.copy(made_once)
