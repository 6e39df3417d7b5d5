"""Limits of partitions, and the time that launches are sent with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import CheckpointStore, Data, DataEntry, EngineLimits
from scheduling.executors.slurm.cluster.inventory import parse_nodes
from scheduling.executors.slurm.cluster.partitions import NO_LIMITS, Partition, chosen, parse_partitions, within
from scheduling.executors.slurm.launch.launching import arguments, parts_of
from scheduling.executors.slurm.launch.times import engine_limits, requested_seconds, time_word
from scheduling.executors.slurm.options import Options
from tests.executors.test_sharing import make_request
from tests.executors.test_slurm_words import NODE

#: As 22.05.8 printed it.
LISTED = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default={default} QoS=N/A "
    "DefaultTime={default_time} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes={nodes} "
    "MaxTime={time} MinNodes=0 LLN=NO MaxCPUsPerNode={cpus} Nodes=gpu[1-2] PriorityJobFactor=1 PriorityTier=1 "
    "State=UP TotalCPUs=32 TotalNodes=2 JobDefaults=(null) DefMemPerNode=UNLIMITED {memory} TRES=cpu=32,mem=125G"
)
OPEN = {
    "name": "main", "default": "YES", "default_time": "NONE", "nodes": "UNLIMITED", "time": "UNLIMITED",
    "cpus": "UNLIMITED", "memory": "MaxMemPerNode=UNLIMITED",
}  # fmt: skip
SHORT = OPEN | {
    "name": "short", "default": "NO", "default_time": "00:30:00", "nodes": "2", "time": "1-02:00:00", "cpus": "12",
    "memory": "MaxMemPerNode=32000",
}  # fmt: skip
CONFIG = "MaxMemPerCPU            = 4000\nMaxMemPerNode           = UNLIMITED\n"


def listed(*partitions: dict[str, str]) -> str:
    return "\n".join(LISTED.format(**one) for one in partitions)


def test_limits_of_partitions_are_read() -> None:
    main, short = parse_partitions(listed(OPEN, SHORT), "MaxMemPerNode           = UNLIMITED\n")
    assert main == Partition("main", is_default=True)
    assert short == Partition("short", False, 93_600.0, 1_800.0, 2, 12, 32_000, None)


def test_memory_of_the_whole_cluster_holds_where_a_partition_says_nothing() -> None:
    main, short = parse_partitions(listed(OPEN, SHORT), CONFIG)
    assert (main.memory_per_cpu_mib, main.memory_per_node_mib) == (4_000, None)
    assert (short.memory_per_cpu_mib, short.memory_per_node_mib) == (None, 32_000)


def test_of_several_partitions_whatever_one_of_them_allows() -> None:
    known = parse_partitions(listed(OPEN, SHORT, SHORT | {"name": "tiny", "nodes": "1", "time": "10:00"}))
    assert chosen(known, "").name == "main"
    assert chosen(known, "short").max_nodes == 2
    both = chosen(known, "short,tiny")
    assert (both.max_nodes, both.max_time_s) == (2, 93_600.0)
    assert chosen(known, "main,tiny").max_nodes is None
    assert chosen(known, "nowhere") == NO_LIMITS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 3_600), ("1:30", 90), ("2:03:04", 7_384), ("1-2", 93_600), ("1-02:30", 95_400), ("1-02:03:04", 93_784)],
)
def test_times_are_read_as_sbatch_reads_them(text: str, seconds: int) -> None:
    assert requested_seconds(text) == seconds


def word(site: str = "", partition: Partition = NO_LIMITS, **keys: Any) -> str:
    return time_word(dataclasses.replace(make_request(), **keys), Options(time_limit=site, end_signal_s=60), partition)


DAY = Partition("day", max_time_s=86_400.0)
SOON = dataclasses.replace(DAY, default_time_s=1_800.0)
STORE = CheckpointStore("s3://b", "p", 3, fetch_s=480.0, end_s=60.0)
DATA = Data((DataEntry("d", url="s3://b/d"),), "vision", fetch_s=3_600.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ""),  # as Slurm has it
        ({"max_duration_s": 3_600.0}, "76"),  # an hour, and a quarter of one and a minute beside it
        ({"max_duration_s": 3_600.0, "checkpoint_store": STORE}, "85"),
        ({"max_duration_s": 3_600.0, "data": DATA}, "136"),
        ({"expected_s": 7_200.0}, "136"),
        ({"expected_s": 5.0}, "76"),  # never less than an hour
        ({"expected_s": 9_000.0, "max_duration_s": 3_600.0}, "76"),
        ({"partition": DAY}, ""),
        ({"partition": DAY, "max_duration_s": 10.0**6}, ""),  # never above the partition's
        ({"partition": DAY, "expected_s": 10.0**6, "site": "60"}, "60"),
        ({"partition": DAY, "site": "7-0"}, "1440"),  # which Slurm would refuse
        ({"partition": SOON}, "1440"),  # not the short default: it may not be able to resume
        ({"partition": SOON, "max_duration_s": 3_600.0}, "76"),
        ({"partition": dataclasses.replace(SOON, max_time_s=None)}, "UNLIMITED"),
        ({"site": "2"}, "2"),
        ({"site": "1:30"}, "1"),
    ],
)
def test_a_launch_is_sent_with_the_time_that_it_needs(given: dict[str, Any], said: str) -> None:
    assert word(**given) == said


def test_a_launch_may_have_what_its_partition_allows() -> None:
    text = "\n".join([NODE.strip(), NODE.replace("NodeName=gpu1", "NodeName=gpu2")])
    nodes = {node.info.name: node for node in parse_nodes(text)}
    gpus = len(nodes["gpu1"].gpu_types)
    request = dataclasses.replace(make_request(), placement={"gpu1": tuple(range(gpus))}, cpus=None, memory_mib=None)
    one = Partition("one", max_nodes=1, cpus_per_node=12, memory_per_cpu_mib=1_000)
    [[part]] = parts_of(request, nodes, one)
    assert (part.cpus(request), part.memory_mib(request)) == (12, 12_000)
    assert "--mem=12000M" in arguments(request, [[part]], Options(), Path("/e"), one)
    assert within(nodes["gpu1"].info, one).cpus == 12
    assert within(nodes["gpu1"].info, NO_LIMITS) == nodes["gpu1"].info
    [[part]] = parts_of(request, nodes, Partition("one", memory_per_node_mib=5_000))
    assert part.memory_mib(request) == 5_000
    assert part.memory_mib(dataclasses.replace(request, memory_mib=6_000)) == 6_000  # as it asks: Slurm answers
    wide = dataclasses.replace(request, placement={"gpu1": (0,), "gpu2": (0,)})
    with pytest.raises(ExecutorError, match="on 2 nodes, and Slurm's partition one gives a job 1") as refusal:
        parts_of(wide, nodes, one)
    assert refusal.value.permanent


def test_the_portal_is_told_what_a_launch_may_have() -> None:
    found = engine_limits(Options(end_signal_s=60), dataclasses.replace(DAY, max_nodes=2, memory_per_node_mib=5_000))
    assert found == EngineLimits("Slurm's partition day", 86_340.0, 2, 5_000)
    assert engine_limits(Options(), NO_LIMITS) == EngineLimits("Slurm")
    assert engine_limits(Options(time_limit="60", end_signal_s=60), DAY).max_duration_s == 3_540.0
