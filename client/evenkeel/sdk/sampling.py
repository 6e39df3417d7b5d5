"""Which samples a step trains on: fixed by seed and step, whatever the number of ranks."""

from __future__ import annotations

import random
from array import array
from functools import lru_cache


@lru_cache(maxsize=4)
def _permutation(seed: int, pass_number: int, size: int) -> array[int]:
    order = list(range(size))
    random.Random(f"evenkeel:{seed}:{pass_number}").shuffle(order)  # noqa: S311  # nosec B311
    return array("q", order)


def batch_indices(step: int, dataset_size: int, batch_size: int, seed: int) -> list[int]:
    """Indices of the global batch of `step`: one endless stream of shuffled passes over the data set,
    cut into batches; a batch may reach from one pass into the next."""
    if dataset_size < 1:
        raise ValueError("the data set is empty")
    start = step * batch_size
    return [
        _permutation(seed, position // dataset_size, dataset_size)[position % dataset_size]
        for position in range(start, start + batch_size)
    ]


def share(batch_size: int, rank: int, world_size: int) -> tuple[int, int]:
    """Start and end of this rank's part of a batch; the first ranks take the remainder."""
    base, extra = divmod(batch_size, world_size)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)
