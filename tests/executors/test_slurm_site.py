"""What a Slurm site's partition and nodes mean for jobs, and what is the same of many nodes in one line."""

from __future__ import annotations

import pytest

from scheduling.executors.base import Finding
from scheduling.executors.folding import fold_findings, fold_names
from scheduling.executors.slurm.checks.site import examine_partition
from scheduling.executors.slurm.options import Options
from tests.executors.test_slurm_words import NODE

#: As 24.11.5 printed it, shortened.
MAIN = (
    "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=1-00:00:00 OverSubscribe=NO State=UP"
)


def examined(shown: str = MAIN, nodes: str = NODE, **options: str) -> dict[str, Finding]:
    return {one.subject: one for one in examine_partition(shown, nodes, Options(**options))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "nodes", "words"),
    [
        (MAIN, NODE, "everybody may use main"),
        (MAIN.replace("AllowGroups=ALL", "AllowGroups=ml"), NODE, "main is for AllowGroups=ml"),
        (MAIN, NODE.replace("Partitions=main", "Partitions=main,debug"), "its nodes are in debug, too"),
    ],
)
def test_who_else_may_use_its_nodes(shown: str, nodes: str, words: str) -> None:
    assert words in examined(shown, nodes)["other users"].seen


@pytest.mark.parametrize(
    ("default", "wanted", "ok", "warning", "words"),
    [
        ("NONE", "", True, False, "main allows 1-00:00:00"),
        ("01:00:00", "", True, False, "main allows 1-00:00:00"),
        ("01:00:00", "12:00:00", True, False, "12:00:00 (EVENKEEL_SLURM_TIME)"),
        ("NONE", "2-00:00:00", True, True, "which is what launches ask for"),
        ("NONE", "1441", True, True, "which is what launches ask for"),
        ("NONE", "2-0", True, True, "which is what launches ask for"),
        ("NONE", "1440", True, False, "main allows"),
    ],
)
def test_its_time_limits(default: str, wanted: str, ok: bool, warning: bool, words: str) -> None:
    found = examined(MAIN.replace("DefaultTime=NONE", f"DefaultTime={default}"), time_limit=wanted)["time limits"]
    assert (found.ok, found.warning) == (ok, warning)
    assert words in found.seen


def test_memory_that_nodes_keep_is_said_once_for_all_of_them() -> None:
    kept = NODE.replace("RealMemory=64000", "RealMemory=64000 MemSpecLimit=2000")
    nodes = "".join(kept.replace("NodeName=gpu1", f"NodeName=gpu{number}") for number in range(1, 65))
    assert examined(nodes=nodes)["MemSpecLimit"].seen.startswith("gpu[1-64] keep 2,000 MiB")
    assert "MemSpecLimit" not in examined()


def test_only_the_partition_of_the_settings_counts() -> None:
    debug = MAIN.replace("PartitionName=main", "PartitionName=debug").replace("Default=YES", "Default=NO")
    debug = debug.replace("MaxTime=1-00:00:00", "MaxTime=30:00")
    assert examined(f"{MAIN}\n{debug}\n", partition="debug")["time limits"].seen == "debug allows 30:00"
    assert examined(f"{debug}\n{MAIN}\n")["time limits"].seen == "main allows 1-00:00:00"
    assert examined(debug) == {}


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([f"gpu{number}" for number in range(1, 65)], "gpu[1-64]"),
        (["gpu1", "gpu3", "gpu4", "cpu"], "gpu[1,3-4],cpu"),
        (["gpu7"], "gpu7"),
        (["gpu01", "gpu02"], "gpu0[1-2]"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold_names(names) == folded


def test_lines_that_are_the_same_of_64_nodes_are_one() -> None:
    said = {
        f"gpu{number}": [
            Finding("images", True, "none"),
            Finding("data cache", True, f"/scratch: {9_000 + number:,} MiB"),
        ]
        for number in range(1, 65)
    }
    said["gpu65"] = [Finding("images", False, "they are not there", "install it")]
    assert list(fold_findings(said)) == [
        Finding("gpu[1-64]: images", True, "none"),
        Finding("gpu[1-64]: data cache", True, "/scratch: 9,001 MiB on gpu1, the least"),
        Finding("gpu65: images", False, "they are not there", "install it"),
    ]


def test_a_nodes_own_name_is_no_difference_between_nodes() -> None:
    free = {"gpu1": 9_000, "gpu2": 7_000, "gpu10": 8_000}
    said = {node: [Finding("data cache", True, f"/scratch/{node}: {mib:,} MiB")] for node, mib in free.items()}
    assert list(fold_findings(said)) == [
        Finding("gpu[1-2,10]: data cache", True, "/scratch/%n: 7,000 MiB on gpu2, the least")
    ]
    same = {node: [Finding("scratch", True, f"/scratch/{node} is there")] for node in free}
    assert list(fold_findings(same)) == [Finding("gpu[1-2,10]: scratch", True, "/scratch/%n is there")]
    alone = {"gpu2": said["gpu2"]}
    assert list(fold_findings(alone)) == [Finding("gpu2: data cache", True, "/scratch/gpu2: 7,000 MiB")]
