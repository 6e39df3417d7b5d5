"""The time limit of a launch: the shorter it is, the sooner Slurm's backfill finds room for it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from scheduling.executors.base import EngineLimits, LaunchRequest
from scheduling.executors.slurm.cluster.partitions import Partition
from scheduling.executors.slurm.options import Options

#: Time for start, loading, checkpoints, end, and a reserve.
SLACK_S = 900.0
#: Shorter forecasts are not trusted.
LEAST_S = 3_600.0
_ASKED = re.compile(r"(?:(?P<days>[0-9]+)-)?(?P<first>[0-9]+)(?::(?P<second>[0-9]+))?(?::(?P<third>[0-9]+))?")


def requested_seconds(text: str) -> float | None:
    """In sbatch's format of --time: `60` are minutes, `1:30` minutes and seconds, `1-2` and `1-2:30` a day and
    hours."""
    found = _ASKED.fullmatch(text)
    if found is None:
        return None
    first, second, third = (int(found[part] or 0) for part in ("first", "second", "third"))
    if found["days"]:
        return 86_400.0 * int(found["days"]) + 3_600 * first + 60 * second + third
    if found["third"]:
        return 3_600.0 * first + 60 * second + third
    return 60.0 * first + second


def time_word(request: LaunchRequest, options: Options, partition: Partition) -> str:
    """The value of --time; empty: none. At most what the site and the partition allow; less if the job states its end,
    or if it is expected to end and can resume after less."""
    most_s = _most_s(options, partition)
    wanted_s = _wanted_s(request, options)
    if wanted_s < most_s:
        return str(math.ceil(wanted_s / 60))
    if not math.isinf(most_s) and (options.time_limit or partition.default_time_s is not None):
        return str(max(1, math.floor(most_s / 60)))
    return "UNLIMITED" if partition.default_time_s is not None else ""


def engine_limits(
    options: Options, partition: Partition, table: Mapping[str, Any] = MappingProxyType({})
) -> EngineLimits:
    where = f"Slurm's partition {partition.name}" if partition.name else "Slurm"
    most_s = _most_s(options, partition)
    longest_s = None if math.isinf(most_s) else max(0.0, most_s - options.end_signal_s)
    return EngineLimits(where, longest_s, partition.max_nodes, partition.memory_per_node_mib, dict(table))


def _most_s(options: Options, partition: Partition) -> float:
    site = requested_seconds(options.time_limit) if options.time_limit else None
    return min((one for one in (site, partition.max_time_s) if one is not None), default=math.inf)


def _wanted_s(request: LaunchRequest, options: Options) -> float:
    slack_s = SLACK_S + options.end_signal_s
    if request.checkpoint_store is not None:
        slack_s += request.checkpoint_store.fetch_s + request.checkpoint_store.end_s
    if request.data is not None and any(entry.url for entry in request.data.entries):
        slack_s += request.data.fetch_s
    ends = [math.inf if request.max_duration_s is None else request.max_duration_s]
    if request.expected_s is not None:
        ends.append(max(LEAST_S, request.expected_s))
    return min(ends) + slack_s
