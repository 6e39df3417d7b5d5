"""What Slurm's commands print, recorded from 22.05.8, and in the form that its documentation gives for 23.11."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.slurm.cluster.inventory import parse_nodes
from scheduling.executors.slurm.commands import Commands, SlurmJob, limit_seconds
from scheduling.executors.slurm.endings import brought_about, ending_of
from scheduling.executors.slurm.launch.launching import arguments, parts_of
from scheduling.executors.slurm.names import job_name
from scheduling.executors.slurm.options import Options
from scheduling.executors.slurm.seeing import Notes, Seen, waits_in_words
from tests.cases import in_turn
from tests.executors.test_sharing import make_request

RECORDED = Path(__file__).parent.parent / "fixtures" / "slurm"
NODE = (RECORDED / "node-22.05.txt").read_text()
#: As 22.05.8 printed it, and a name of somebody's with the separator in it.
QUEUE = """\
6|6|COMPLETED|gpu2|1795850760|1795850770|1-00:00:00|None|evenkeel job 1 run f epoch 1|evenkeel-1 resnet50
2|2|PENDING||1795850770|1796023570|1-00:00:00|Resources|evenkeel job 2 run b epoch 1; for the paper|evenkeel-2
3|3|PENDING||N/A|N/A|UNLIMITED|JobHeldUser|(null)|evenkeel-c-1
1|1|RUNNING|gpu[1-2]|1795850770|1795937170|1-00:00:00|None|evenkeel job 4 run abc epoch 1|evenkeel-4 x
8|8|RUNNING|gpu[1-2]|1795850770|1795937170|1-00:00:00|None|(null)|evenkeel-5 x
10|9+1|RUNNING|gpu[1-2]|1795850770|1795937170|1-00:00:00|None|changed|evenkeel-6 x
4|4|SUSPENDED|gpu2|1795850770|1795937170|1-00:00:00|None|(null)|a|b evenkeel-d-1
of two lines|evenkeel-e-1
7|7|COMPLETING|gpu1|1795541120|1795541300|3:00|None|evenkeel job 7 run a epoch 1|evenkeel-7 x
"""


class Printed(Commands):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def run(self, *command: str, timeout_s: float | None = None) -> str:
        return self._text


def job_of(run: str) -> SlurmJob:
    [job] = Printed(QUEUE).jobs("evenkeel-")[f"evenkeel-{run}-1"]
    return job


def test_a_recorded_queue_is_read() -> None:
    job = job_of("abc")
    assert (job.job_id, job.nodes, job.reason) == (1, "gpu[1-2]", "")
    assert (job.states, job.over, job.pending) == (frozenset({"RUNNING"}), False, False)
    assert (job_of("b").reason, job_of("b").pending) == ("Resources", True)
    assert (job_of("c").reason, job_of("c").ended_at) == ("JobHeldUser", None)
    assert (job_of("f").over, job_of("f").ended_at) == (True, 1_795_850_770)


@in_turn(
    ("text", "seconds"),
    [("3:00", 180), ("2:03:04", 7_384), ("1-02:03:04", 93_784), ("UNLIMITED", None), ("INVALID", None), ("", None)],
)
def test_time_limits_are_read(text: str, seconds: int | None) -> None:
    assert limit_seconds(text) == seconds


@in_turn(
    ("state", "ran_s", "by_limit"),
    [("COMPLETED", 119, False), ("COMPLETED", 120, True), ("COMPLETED", 180, True), ("TIMEOUT", 0, True)],
)
def test_a_job_that_ended_near_its_limit_ended_by_it(state: str, ran_s: int, by_limit: bool) -> None:
    job = dataclasses.replace(job_of("a"), states=frozenset({state}), started_at=1_000.0, ended_at=1_000.0 + ran_s)
    assert job.ended_by_limit(0.0) is by_limit
    assert dataclasses.replace(job, limit_s=None).ended_by_limit(0.0) is (state == "TIMEOUT")
    assert job.ended_by_limit(1.0) is (by_limit or ran_s == 119)


def test_memory_that_slurm_keeps_for_itself_is_not_asked_for() -> None:
    text = NODE.replace("RealMemory=64000", "RealMemory=64000 MemSpecLimit=2000")
    assert parse_nodes(text)[0].info.memory_mib == 62_000


def test_jobs_of_others_are_left_out() -> None:
    ours = {f"evenkeel-{run}-1" for run in ("f", "b", "c", "abc", "a")}
    assert set(Printed(QUEUE).jobs("evenkeel-")) == {"", *ours}
    assert Printed(QUEUE).jobs("another-") == {}
    assert Printed("").jobs("evenkeel-") == {}


def test_a_job_that_does_not_say_which_launch_it_is_is_known_by_its_number(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.write("x", 1, 9)
    notes.write("y", 2, 6)
    seen = Seen(0.0, Printed(QUEUE).jobs("evenkeel-"), notes)
    assert [job.job_id for job in seen.of("x", 1)] == [10]  # a component of the job that was noted
    assert [job.job_id for job in seen.of("f", 1)] == [6]
    assert not seen.of("y", 2)  # that number is another launch's by now
    assert not seen.of("z", 1)


@in_turn(
    ("name", "shown"),
    [
        ("resnet50", "evenkeel-25 resnet50"),
        ("Größe: 50 %, lr=0.1|x", "evenkeel-25 Groe-50-lr=0.1-x"),
        ("ä" * 100 + "\n$(id)`", "evenkeel-25 " + "a" * 48),
        ("日本", "evenkeel-25"),
    ],
)
def test_jobs_have_names_that_people_read_and_tools_bear(name: str, shown: str) -> None:
    assert job_name(25, name) == shown


def test_completing_is_not_over() -> None:
    assert (job_of("a").ended_at, job_of("a").over) == (1_795_541_300, False)


def test_accounting_is_read_and_may_be_missing() -> None:
    entry = {"job_id": 9, "name": "n", "state": {"current": ["TIMEOUT"], "reason": "None"}, "nodes": "a"}
    found = Printed(json.dumps({"jobs": [entry]})).past_jobs("n")
    assert found
    assert found[0].ended("TIMEOUT")
    assert Printed("Slurm accounting storage is disabled\n").past_jobs("n") is None


def test_how_long_a_job_ran_before_slurm_queued_it_again_is_read_from_accounting() -> None:
    def part(start: int, end: int, number: int = 9) -> dict[str, object]:
        return {"job_id": number, "name": "n", "state": {"current": "REQUEUED"}, "time": {"start": start, "end": end}}

    jobs = [part(0, 130), part(100, 112), part(130, 130), part(50, 60, number=10)]
    assert Printed(json.dumps({"jobs": jobs})).first_part(9) == (100, 112)
    assert Printed(json.dumps({"jobs": []})).first_part(9) == (None, None)
    assert Printed("Slurm accounting storage is disabled\n").first_part(9) == (None, None)


@in_turn("text", ["slurm_load_jobs error", "[]", "6|COMPLETED|gpu2"])
def test_what_is_no_queue_is_an_error_that_may_pass(text: str) -> None:
    with pytest.raises(ExecutorError, match="no jobs") as refusal:
        Printed(text).jobs("evenkeel-")
    assert not refusal.value.permanent


@in_turn("text", ["{", "[]", "{} {}"])
def test_what_is_no_json_is_an_error_that_may_pass(text: str) -> None:
    if not text.startswith("{"):
        assert Printed(text).past_jobs("n") is None  # what Slurm says where it keeps none
        return
    with pytest.raises(ExecutorError, match="no JSON") as refusal:
        Printed(text).past_jobs("n")
    assert not refusal.value.permanent


def test_a_command_that_is_not_there_is_an_error_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ExecutorError, match="sbatch cannot be run") as refusal:
        Commands().run("sbatch")
    assert refusal.value.permanent


def test_a_command_that_hangs_is_given_up() -> None:
    with pytest.raises(ExecutorError, match=r"no answer from Slurm within 0\.1 s") as refusal:
        Commands(timeout_s=0.1).run("sleep", "60")
    assert not refusal.value.permanent


def test_a_recorded_node_is_read() -> None:
    [node] = parse_nodes(NODE)
    assert (node.info.name, node.address, node.gpu_types) == ("gpu1", "127.0.0.1", ("a100",) * 4)
    assert (node.info.cpus, node.info.memory_mib, node.info.reachable, node.info.drain_reason) == (
        16,
        64000,
        True,
        None,
    )
    assert parse_nodes(NODE, "another") == []
    assert len(parse_nodes(NODE, "main")) == 1


def test_processors_and_memory_are_asked_for_on_each_node(tmp_path: Path) -> None:
    [node] = parse_nodes(NODE)
    other = dataclasses.replace(node, info=dataclasses.replace(node.info, name="gpu2"))
    request = make_request(placement={"gpu1": [0, 1], "gpu2": [2]}, cpus=6, memory_mib=8_192)
    words = arguments(request, parts_of(request, {"gpu1": node, "gpu2": other}), Options(), tmp_path)
    assert [word for word in words if word.startswith(("--cpus", "--mem"))] == ["--cpus-per-task=6", "--mem=8192M"] * 2


#: What `scontrol show node` and `sinfo` print of Slurm 22.05 to 25.11: base states, flags, marks.
UP = (None, "", True)
STATES = {
    "IDLE": UP, "ALLOCATED": UP, "MIXED": UP, "MIXED+PLANNED": UP, "IDLE+COMPLETING": UP, "ALLOCATED+COMPLETING": UP,
    "IDLE+CLOUD": UP, "IDLE+DYNAMIC_NORM": UP, "IDLE+EXTERNAL": UP, "IDLE+UNDRAIN": UP, "IDLE+RESUME": UP, "MIXED-": UP,
    "IDLE~": UP, "IDLE+CLOUD+POWERED_DOWN": UP, "IDLE#": UP, "ALLOCATED+CLOUD+POWERING_UP": UP, "IDLE+POWER_UP": UP,
    "IDLE+REBOOT_CANCEL": UP,
    "MIXED+POWERED_DOWN": UP, "MIXED+NOT_RESPONDING+POWERING_UP": UP, "ALLOCATED#*": UP,
    "MIXED+POWER_UP+NO_RESPOND": UP,
    "UNKNOWN": (None, "UNKNOWN", True), "UNKNOWN*": (None, "NOT_RESPONDING", True),
    "ALLOCATED*": (None, "NOT_RESPONDING", True), "IDLE+NOT_RESPONDING": (None, "NOT_RESPONDING", True),
    "MIXED+NO_RESPOND": (None, "NO_RESPOND", True), "UNKNOWN+CLOUD+POWERING_UP": (None, "UNKNOWN", True),
    "FUTURE": (None, "FUTURE", True), "FUTURE+DYNAMIC_FUTURE": (None, "DYNAMIC_FUTURE", True),
    "IDLE%": (None, "POWERING_DOWN", True), "IDLE+CLOUD+POWERING_DOWN": (None, "POWERING_DOWN", True),
    "IDLE!": (None, "POWER_DOWN", True), "MIXED+POWER_DOWN": (None, "POWER_DOWN", True),
    "MIXED+POWER_DRAIN": (None, "POWER_DRAIN", True),
    "IDLE^": (None, "REBOOT_ISSUED", True), "MIXED+REBOOT_ISSUED": (None, "REBOOT_ISSUED", True),
    "SOMETHING_NEW": (None, "SOMETHING_NEW", True), "": (None, "UNKNOWN", True),
    "MIXED+DRAIN": ("fan broken", "", True), "IDLE+DRAIN": ("fan broken", "", True),
    "UNKNOWN+DRAIN": ("fan broken", "UNKNOWN", True), "ALLOCATED*+DRAIN": ("fan broken", "NOT_RESPONDING", True),
    "IDLE$": ("fan broken", "", True), "IDLE+MAINTENANCE": ("fan broken", "", True),
    "IDLE+MAINT": ("fan broken", "", True),
    "IDLE+FAIL": ("fan broken", "", True), "MIXED+FAILING": ("fan broken", "", True),
    "IDLE+INVALID_REG": ("fan broken", "", True), "IDLE+INVAL": ("fan broken", "", True),
    "IDLE+BLOCKED": ("fan broken", "", True), "MIXED@": ("fan broken", "", True),
    "MIXED+REBOOT_REQUESTED": ("fan broken", "", True),
    "DOWN": (None, "", False), "DOWN*": (None, "", False), "DOWN+NOT_RESPONDING": (None, "", False),
    "DOWN*+DRAIN": ("fan broken", "", False), "DOWN+CLOUD+POWERED_DOWN": (None, "", False),
    "DOWN^": (None, "", False), "ERROR": (None, "", False),
}  # fmt: skip


@in_turn("state", STATES)
def test_states_of_nodes(state: str) -> None:
    """Only DOWN and ERROR are final; every word that is not known changes nothing for what runs there."""
    text = NODE.replace("State=IDLE", f"State={state}").strip() + " Reason=fan broken [root@2026-11-24T17:00:00]\n"
    [node] = parse_nodes(text)
    assert (node.info.drain_reason, node.info.unclear, node.info.reachable) == STATES[state]


@in_turn(("state", "silent"), [("IDLE", False), ("IDLE%", False), ("UNKNOWN", True), ("MIXED*", True), ("DOWN", True)])
def test_nodes_of_which_slurm_hears_nothing(state: str, silent: bool) -> None:
    assert parse_nodes(NODE.replace("State=IDLE", f"State={state}"))[0].silent is silent


def test_a_reserved_node_is_closed_unless_jobs_go_into_the_reservation() -> None:
    text = NODE.replace("State=IDLE", "State=IDLE+RESERVED")
    assert parse_nodes(text)[0].info.drain_reason == "reserved"
    assert parse_nodes(text, reservation="ours")[0].info.drain_reason is None


@in_turn(
    ("gres", "types"),
    [
        ("gpu:a100:4(S:0-1)", ["a100"] * 4),
        ("gpu:2", ["", ""]),
        ("shard:8,gpu:a100:1(S:0,1),gpu:h100-80gb:2", ["a100", "h100-80gb", "h100-80gb"]),
        ("(null)", []),
        ("gpu:a100:no_consume:4", ["a100"] * 4),
        ("gpu:no_consume:2(S:0-1)", ["", ""]),
        ("gpu:a100:2K", ["a100"] * 2_048),
        ("gpu:a100:99999K", ["a100"] * 4_096),
        ("gpu:a100:4M", []),
    ],
)
def test_generic_resources(gres: str, types: list[str]) -> None:
    found = parse_nodes(NODE.replace("Gres=gpu:a100:4", f"Gres={gres}"))
    assert [kind for node in found for kind in node.gpu_types] == types


@in_turn(
    ("state", "reason"),
    [
        ("OUT_OF_MEMORY", "out_of_memory"),
        ("TIMEOUT", "time_limit"),
        ("NODE_FAIL", "runner_lost"),
        ("PREEMPTED", "runner_lost"),
        ("CANCELLED", "runner_lost"),
        ("FAILED", "launch_failed"),
    ],
)
def test_endings_without_the_runners_word_are_told_apart(tmp_path: Path, state: str, reason: str) -> None:
    job = job_of("a")
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "job").write_text("7")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "slurm.log").write_text("python: not found\n")
    ending = ending_of(dataclasses.replace(job, states=frozenset({state})), tmp_path, killed=False)
    assert ending.reason == reason
    assert ("python: not found" in ending.message) == (state == "FAILED")


def test_what_slurm_queued_again_has_stopped(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "job").write_text("7")
    job = dataclasses.replace(job_of("a"), states=frozenset({"CANCELLED"}))
    assert ending_of(job, tmp_path, killed=False, requeued=True).reason == "stopped"
    assert ending_of(job, tmp_path, killed=True, requeued=True).reason == "signal"


@in_turn(
    ("state", "reason", "words"),
    [
        ("RUNNING", "", ""),
        ("COMPLETING", "", ""),
        ("PENDING", "", "waits in Slurm"),
        ("PENDING", "Resources", "waits in Slurm (Resources)"),
        ("PENDING", "JobHeldAdmin", "held in Slurm (JobHeldAdmin)"),
        ("PENDING", "job requeued in held state", "held in Slurm (job requeued in held state)"),
        ("REQUEUE_HOLD", "", "held in Slurm"),
        ("SPECIAL_EXIT", "", "held in Slurm"),
        ("CONFIGURING", "None", "its nodes are being made ready by Slurm"),
        ("SUSPENDED", "", "suspended in Slurm"),
        ("STOPPED", "", "suspended in Slurm"),
    ],
)
def test_what_a_job_waits_for_is_said_in_words(state: str, reason: str, words: str) -> None:
    job = dataclasses.replace(job_of("b"), states=frozenset({state}), reason=reason)
    other = dataclasses.replace(job, job_id=job.job_id + 1, states=frozenset({"PENDING"}), reason="Dependency")
    assert waits_in_words([other, job]) == words


@in_turn(
    ("state", "by_limit", "words"),
    [
        ("CANCELLED", False, "Slurm job 7 was cancelled in Slurm"),
        ("PREEMPTED", False, "Slurm job 7 was preempted by Slurm"),
        ("COMPLETED", True, "Slurm job 7 reached its time limit in Slurm"),
        ("COMPLETED", False, ""),
    ],
)
def test_what_slurm_did_to_a_job_that_stopped_in_good_order_is_said(state: str, by_limit: bool, words: str) -> None:
    job = dataclasses.replace(job_of("a"), states=frozenset({state}))
    assert brought_about(job, by_limit=by_limit) == words


def test_a_comment_that_holds_the_end_of_a_line_loses_no_job() -> None:
    lines = "7|7|RUNNING|gpu1|1|2|1:00|None|mine\nand more|evenkeel-5 digits\n"
    assert [job.job_id for job in Printed(lines).jobs("evenkeel-")[""]] == [7]
    changed = "7|7|RUNNING|gpu1|1|2|1:00|None|mine|called otherwise\n"
    assert [job.job_id for job in Printed(changed).jobs("evenkeel-")[""]] == [7]
