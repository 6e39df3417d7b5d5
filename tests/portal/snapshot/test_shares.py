"""What the database itself refuses: an accelerator held twice, in whole or in shares."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from psycopg2.extras import DateTimeTZRange

from portal.jobs.models import Accelerator, Assignment, Hold
from portal.lifecycle.allocations import ending_at
from tests.portal.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return World({"a": 1})


def hold(
    world: World, share_percent: int, model: type[Hold] | type[Assignment] = Hold, memory_mib: int = 0
) -> Hold | Assignment:
    run = world.run(world.submit())
    gpu = Accelerator.objects.get()
    with transaction.atomic():
        return model.objects.create(
            run=run,
            accelerator=gpu,
            epoch=1,
            share_percent=share_percent,
            memory_mib=memory_mib,
            during=DateTimeTZRange(timezone.now(), None),
        )


@pytest.mark.parametrize("model", [Hold, Assignment])
@pytest.mark.parametrize(
    ("shares", "refused", "refusal"),
    [
        ([100], 100, "once"),
        ([100], 1, "accelerator_not_overfull"),
        ([1], 100, "accelerator_not_overfull"),
        ([50, 30], 21, "accelerator_not_overfull"),
    ],
)
def test_more_than_the_whole_accelerator_is_refused(
    world: World, model: type[Hold] | type[Assignment], shares: list[int], refused: int, refusal: str
) -> None:
    for share in shares:
        hold(world, share, model)
    with pytest.raises(IntegrityError, match=refusal):
        hold(world, refused, model)


def test_what_has_ended_gives_its_share_back(world: World) -> None:
    first, second = hold(world, 60), hold(world, 40)
    Hold.objects.filter(pk=first.pk).update(during=ending_at(timezone.now() + timedelta(seconds=1)))
    assert Accelerator.objects.get().free_share_percent == 60
    second.delete()
    assert Accelerator.objects.get().free_share_percent == 100
    Hold.objects.filter(pk=first.pk).update(share_percent=10)
    assert Accelerator.objects.get().free_share_percent == 100


@pytest.mark.parametrize("share", [0, 101])
def test_a_share_lies_between_one_and_a_hundred_percent(world: World, share: int) -> None:
    with pytest.raises(IntegrityError, match="share_in_percent"):
        hold(world, share)


@pytest.mark.parametrize("model", [Hold, Assignment])
def test_more_than_all_of_its_memory_is_refused(world: World, model: type[Hold] | type[Assignment]) -> None:
    hold(world, 10, model, 600)
    hold(world, 10, model, 400)
    with pytest.raises(IntegrityError, match="would be taken"):
        hold(world, 10, model, 1)


def test_memory_that_turns_out_smaller_stops_nobody_who_leaves(world: World) -> None:
    first = hold(world, 10, memory_mib=600)
    hold(world, 10, memory_mib=400)
    Accelerator.objects.update(memory_mib=500)
    first.delete()
    assert Accelerator.objects.get().held_memory_mib == 400
