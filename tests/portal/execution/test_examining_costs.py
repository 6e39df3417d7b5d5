"""What `doctor` says of types of GPUs without a price, and of reports that cross the network as they are."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from evenkeel.cli.cost import set_price

from accounts.models import Rate, Resource
from portal.execution.checks import costs
from portal.execution.checks.costs import examine_api_url, examine_prices
from portal.jobs.clusters import engine_of
from tests.portal.world import World

pytestmark = pytest.mark.django_db


def test_types_without_a_price_are_named() -> None:
    world, now = World(), timezone.now()
    Rate.objects.all().delete()
    found = examine_prices(world.cluster, now)
    kind = world.node_infos()[0].accelerators[0].type
    assert (found.ok, found.warning, kind in found.seen) == (True, True, True)
    assert found.fix == f"evenkeel cost set-price PRICE --type {kind}"
    words = found.fix.replace("PRICE", "0.60").split()[3:]
    assert set_price.make_context("set-price", words).params["accelerator_type"] == kind
    for node in world.node_infos():
        Rate.objects.get_or_create(
            resource=Resource.GPU, accelerator_type=node.accelerators[0].type,
            defaults={"price_micro_per_hour": 1, "valid_from": now - timedelta(hours=1)},
        )  # fmt: skip
    assert not examine_prices(world.cluster, now).warning


@pytest.mark.parametrize(
    ("executor", "url", "warning"),
    [
        ("local", "http://127.0.0.1:8800", None),
        ("slurm", "http://head:8800", True),
        ("slurm", "https://head", False),
        ("ray", "http://head:8800", True),
    ],
)
def test_reports_that_are_not_encrypted_are_named(
    executor: str, url: str, warning: bool | None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    settings.EVENKEEL_API_URL = url
    engine = replace(engine_of(world.cluster.pk), executor=executor)
    monkeypatch.setattr(costs, "engine_of", lambda _: engine)
    assert [one.warning for one in examine_api_url(world.cluster.pk)] == ([] if warning is None else [warning])
