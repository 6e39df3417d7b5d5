"""What Slurm jobs of others hold of nodes, as `squeue` of 22.05.8 prints it, and in the words of 23.11 to 25.11."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import Taken
from scheduling.executors.slurm.cluster import others
from scheduling.executors.slurm.cluster.inventory import SlurmNode, Used, parse_nodes
from scheduling.executors.slurm.cluster.others import as_left, beside, expand, parse_jobs
from scheduling.executors.slurm.cluster.partitions import KnownPartitions
from scheduling.executors.slurm.cluster.waiting import Watch
from scheduling.executors.slurm.commands import Commands
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.launch.launching import parts_of
from scheduling.executors.slurm.names import parse_launch
from tests.cases import in_turn
from tests.executors.test_sharing import make_request

NODE = (Path(__file__).parent.parent / "fixtures" / "slurm" / "node-22.05.txt").read_text()
NOW = 1_795_860_000.0
SOON, LATER = "1795863600", "1795867200"


def line(number: int, nodes: str, *, state: str = "RUNNING", end: str = SOON, cpus: int = 2, **words: Any) -> str:
    alloc = words.get("alloc", f"cpu={cpus},mem=32M,node=1,billing={cpus}")
    tres = (words.get("node", "N/A"), words.get("job", "N/A"), words.get("task", "N/A"))
    values = (str(number), state, end, str(cpus), alloc, *tres, nodes)
    return "".join(f"{value:>{size}}|" for value, size in zip(values, others._COLUMNS.values(), strict=True))


def node(name: str = "gpu1", used: tuple[int, int, int] = (0, 0, 0), gpus: int = 4) -> SlurmNode:
    """16 processors and 64,000 MiB."""
    text = NODE.replace("NodeName=gpu1", f"NodeName={name}").replace("Gres=gpu:a100:2", f"Gres=gpu:a100:{gpus}", 1)
    [found] = parse_nodes(text.splitlines()[0])
    return replace(found, used=Used(*used))


def found(lines: Sequence[str], *nodes: SlurmNode, ours: Sequence[int] = ()) -> dict[str, list[tuple[object, ...]]]:
    taken = beside({one.info.name: one for one in nodes}, parse_jobs("\n".join(lines), NOW), ours)
    return {name: [(t.gpus, t.cpus, t.memory_mib, t.until, t.blocks) for t in some] for name, some in taken.items()}


def test_the_node_of_these_tests_is_as_they_take_it_to_be() -> None:
    one = node()
    assert (len(one.gpu_types), one.info.cpus, one.info.memory_mib) == (4, 16, 64_000)


@in_turn(
    ("gres", "gpus"),
    [
        ("gpu:a100:3(IDX:0-2)", 3),
        ("gpu:a100:0(IDX:N/A)", 0),
        ("gpu:2(IDX:0,3)", 2),
        ("gpu:a100:2(IDX:0,2),gpu:v100:1(IDX:3)", 3),
        ("gpu:a100:2(S:0-1),shard:a100:4(0/4,4/4)", 2),
        ("(null)", 0),
        ("", 0),
    ],
)
def test_how_many_gpus_a_node_has_given_away_is_read(gres: str, gpus: int) -> None:
    text = NODE.splitlines()[0] + f" GresUsed={gres} CPUAlloc=4 AllocMem=64"
    used = parse_nodes(text)[0].used
    assert used.gpus == gpus


@in_turn(
    ("words", "gpus"),
    [
        ({"node": "gres:gpu:2"}, 2),  # 22.05
        ({"node": "gres:gpu:a100:2"}, 2),
        ({"node": "gres/gpu:a100:2"}, 2),  # 23.11 and later
        ({"node": "gres/gpu"}, 1),
        ({"node": "gres:gpu:a100:1,gres:gpu:v100:2"}, 3),
        ({"node": "gres/license:x:9,gres/gpu:2(S:0-1)"}, 2),
        ({"job": "gres:gpu:3"}, 3),
        ({"job": "gres/gpu:a100:3"}, 3),
        ({"alloc": "cpu=2,mem=1G,node=1,billing=2,gres/gpu=2,gres/gpu:a100=2"}, 2),
        ({"alloc": "cpu=2,mem=1G,node=1,gres/gpu:a100=2,gres/gpu:v100=1"}, 3),
        ({"task": "gres/gpu:1"}, 4),  # what the node has given away
        ({}, 4),  # it may be exclusive
    ],
)
def test_gpus_of_a_job_are_read_in_the_words_of_each_version(words: dict[str, Any], gpus: int) -> None:
    [(seen, cpus, *_)] = found([line(1, "gpu1", **words)], node(used=(4, 4, 64)))["gpu1"]
    assert (seen, cpus) == (gpus, 2)


def test_where_slurm_accounts_for_gpus_a_job_without_any_has_none() -> None:
    gpus = line(1, "gpu1", alloc="cpu=2,mem=32M,node=1,gres/gpu=1", end=LATER)
    seen = found([gpus, line(2, "gpu1")], node(used=(4, 4, 64)))["gpu1"]
    assert [part[0] for part in seen] == [0, 1]


def test_what_is_not_clear_of_several_is_of_the_one_that_names_gpus_and_ends_last() -> None:
    several = line(1, "gpu[1-2]", job="gres:gpu:5", cpus=8), line(2, "gpu1", end=LATER)
    assert [part[0] for part in found(several, node(used=(3, 6, 64)))["gpu1"]] == [3, 0]
    alike = line(1, "gpu1"), line(2, "gpu1", end=LATER)
    assert [part[0] for part in found(alike, node(used=(3, 6, 64)))["gpu1"]] == [0, 3]


def test_ours_are_not_others_and_what_they_have_counts_as_theirs() -> None:
    lines = [line(1, "gpu1", node="gres:gpu:a100:2"), line(2, "gpu1", job="gres:gpu:1,x")]
    assert found(lines, node(used=(3, 4, 64)), ours=[1]) == {"gpu1": [(1, 2, 32, float(SOON), 1)]}
    assert found(lines, node(used=(3, 4, 64)), ours=[1, 2]) == {}


def test_figures_of_a_job_on_several_nodes_are_divided_and_ends_are_put_together() -> None:
    lines = [
        line(1, "gpu[1-2]", node="gres:gpu:1", cpus=5, alloc="cpu=5,mem=4.5G,node=2"),
        line(2, "gpu1", node="gres:gpu:1"),
    ]
    seen = found(lines, node(used=(2, 5, 9_000)), node("gpu2", used=(1, 3, 9_000)))
    assert seen["gpu1"] == [(2, 5, 2_304 + 32, float(SOON), 2)]
    assert seen["gpu2"] == [(1, 3, 2_304, float(SOON), 1)]


@in_turn(
    ("end", "state", "until"),
    [
        (SOON, "RUNNING", float(SOON)),
        ("N/A", "RUNNING", None),
        ("NONE", "RUNNING", None),
        ("Unknown", "RUNNING", None),
        (str(int(NOW) + 365 * 86_400), "RUNNING", None),  # a job without a limit
        (SOON, "SUSPENDED", None),
        ("9" * 13, "RUNNING", None),
    ],
)
def test_until_when_is_read(end: str, state: str, until: float | None) -> None:
    [(*_, seen, _)] = found([line(1, "gpu1", node="gres:gpu:1", end=end, state=state)], node(used=(1, 2, 32)))["gpu1"]
    assert seen == until


def test_gpus_with_too_little_beside_them_are_blocked_until_there_is_enough() -> None:
    """A GPU gets by with half of its part: 2 of 16 processors, 8,000 of 64,000 MiB."""
    first, last = line(1, "gpu1", cpus=9), line(2, "gpu1", cpus=6, end=LATER)
    assert found([first], node(used=(0, 9, 32)))["gpu1"][0][4] == 1
    assert [part[4] for part in found([first, last], node(used=(0, 15, 64)))["gpu1"]] == [4, 0]
    memory = line(1, "gpu1", alloc="cpu=2,mem=60000M,node=1")
    assert found([memory], node(used=(0, 2, 60_000)))["gpu1"] == [(0, 2, 60_000, float(SOON), 4)]
    assert found([memory], node(used=(0, 2, 0)))["gpu1"] == [(0, 2, 0, float(SOON), 0)]  # it counts no memory
    own = line(3, "gpu1", cpus=10, node="gres:gpu:2")
    assert found([own], node(used=(2, 10, 32)), ours=[3]) == {}
    assert found([own, last], node(used=(2, 16, 64)), ours=[3])["gpu1"] == [(0, 6, 32, float(LATER), 2)]


@in_turn(
    ("text", "names"),
    [
        ("gpu1", ("gpu1",)),
        ("gpu[1-2,07-08],x", ("gpu1", "gpu2", "gpu07", "gpu08", "x")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("", ()),
        ("gpu[1-", ()),
        ("gpu[a]", ()),
        ("gpu[1-999999999]", ()),
        ("a[1-9999]b[1-9999]", ()),
        ("gpu]1[", ()),
    ],
)
def test_lists_of_nodes_are_read_within_bounds(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@in_turn("text", ["a|b", "x" * 100_000, "|" * 9, line(1, "gpu1").replace("1|", "-1|", 1)])
def test_lines_that_cannot_be_read_are_passed_over_unless_there_is_no_other(text: str) -> None:
    with pytest.raises(ExecutorError, match="no jobs"):
        parse_jobs(text, NOW)
    assert [job.job_id for job in parse_jobs(f"{text}\n{line(2, 'gpu1')}", NOW)] == [2]
    assert parse_jobs("", NOW) == []


def test_a_list_of_nodes_that_was_cut_is_not_believed() -> None:
    names = ",".join(f"gpu{number:05}" for number in range(400))[: others._COLUMNS["nodelist"]]
    assert [job.job_id for job in parse_jobs(f"{line(1, names)}\n{line(2, 'gpu1')}", NOW)] == [2]


def test_ends_of_one_node_are_bounded() -> None:
    lines = [line(n, "gpu1", cpus=0, end=str(int(NOW) + n), alloc="mem=1M,") for n in range(1, 101)]
    seen = found(lines, node(used=(0, 0, 100)))["gpu1"]
    assert (len(seen), sum(int(str(part[2])) for part in seen)) == (others.MOST_ENDS, 100)
    assert seen[-1][3] == NOW + 100


def test_a_launch_gets_its_part_of_what_others_leave() -> None:
    one = node(used=(2, 10, 40_000))
    taken = replace(one, info=replace(one.info, taken=(Taken(2, 10, 40_000),)))
    plain = node("gpu2")
    request = replace(make_request(), placement={"gpu1": (2,), "gpu2": (0,)})
    [[first, second]] = parts_of(request, as_left({"gpu1": taken, "gpu2": plain}, request.placement))
    assert [part.cpus(request) for part in (first, second)] == [3, 3]
    assert [part.memory_mib(request) for part in (first, second)] == [12_000, 12_000]
    crowded = replace(taken, used=Used(2, 15, 60_000))  # it waits rather than to starve
    [[part]] = parts_of(replace(request, placement={"gpu1": (2,)}), as_left({"gpu1": crowded}, request.placement))
    assert (part.cpus(request), part.memory_mib(request)) == (2, 8_000)
    [[part]] = parts_of(replace(request, placement={"gpu2": (2,)}), as_left({"gpu2": plain}, ["gpu2"]))
    assert (part.cpus(request), part.memory_mib(request)) == (4, 16_000)


@in_turn(
    ("name", "launch"),
    [
        ("evenkeel-a-b-3", ("a-b", 3)),
        ("evenkeel-doctor", None),
        ("evenkeel--1", None),
        ("evenkeel-../x-1", None),
        ("other-a-1", None),
        ("evenkeel-a-" + "9" * 30, None),
    ],
)
def test_a_launch_is_known_by_its_name(name: str, launch: tuple[str, int] | None) -> None:
    assert parse_launch(name) == launch


class Played(Commands):
    def __init__(self, running: str, me: str = "") -> None:
        super().__init__()
        self.running, self.me, self.asked = running, me, list[str]()
        self.text = NODE.splitlines()[0] + " GresUsed=gpu:a100:1(IDX:0) CPUAlloc=2 AllocMem=32"

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        if command[0] == "scontrol":
            return self.text
        self.asked.append("me" if "--me" in command else "all")
        return self.me if "--me" in command else self.running


def test_others_are_asked_for_after_something_has_changed_and_ours_last(tmp_path: Path) -> None:
    executor = SlurmExecutor(tmp_path)
    played = Played(line(7, "gpu1", node="gres:gpu:a100:1"))
    executor._commands = played
    executor._watch, executor._partitions = Watch(played), KnownPartitions(played)
    [info] = executor.inventory()
    assert [one.gpus for one in info.taken] == [1]
    executor.inventory()
    assert played.asked == ["all", "me", "all"]  # the last: the jobs that wait in Slurm
    played.text = played.text.replace("CPUAlloc=2", "CPUAlloc=3")
    played.me = f"7|7|RUNNING|gpu1|{SOON}|{LATER}|1:00:00|None|(null)|evenkeel-run-1\n"
    assert executor.inventory()[0].taken != ()  # the name alone makes it none of ours
    executor._layout.begin("run", 1)
    played.text = played.text.replace("CPUAlloc=3", "CPUAlloc=4")
    assert executor.inventory()[0].taken == ()
    executor._notes.write("run", 1, 8)
    played.text = played.text.replace("CPUAlloc=4", "CPUAlloc=5")
    assert executor.inventory()[0].taken != ()  # anybody can name a job so, and this launch has another number
    played.text, played.asked = NODE.splitlines()[0], []
    executor.inventory()
    assert played.asked == []  # nobody has anything


def test_one_process_of_the_portal_asks_for_others_and_all_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = (line(number, "gpu1", node="gres:gpu:a100:1") for number in (7, 8))
    played, now = Played("\n".join(jobs)), 1_000.0
    monkeypatch.setattr(time, "time", lambda: now)

    def look() -> list[int]:
        """As a process that has just begun, which is told that Slurm's job 8 is ours."""
        nodes = {one.info.name: one for one in parse_nodes(played.text, emulated=True)}
        watch = others.Watch(played, tmp_path / "looks" / "others")
        return [one.gpus for one in watch.with_taken(nodes, lambda: [8])["gpu1"].info.taken]

    assert (look(), look(), played.asked) == ([1], [1], ["all"])
    played.text = played.text.replace("CPUAlloc=2", "CPUAlloc=3")
    assert (look(), look(), played.asked) == ([1], [1], ["all"] * 2)
    now += others.KEPT_S
    assert (look(), look(), played.asked) == ([1], [1], ["all"] * 3)
    now -= 5.0
    assert (look(), played.asked) == ([1], ["all"] * 4), "a clock that was set back makes nothing newer"
