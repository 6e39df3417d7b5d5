"""What the kernel killed for want of memory is told as that, whoever of the run it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from evenkeel.runner.listening import Heard
from evenkeel.runner.processes import group_oom_kills
from evenkeel.runner.verdict import Order, judge

from tests.client.test_runner import LIMITS, worker


def test_a_shell_whose_child_was_killed_ran_out_of_memory() -> None:
    assert judge([worker(0, 137)], Heard(), None, LIMITS, oom=True).reason == "out_of_memory"
    assert judge([worker(0, 137)], Heard(), None, LIMITS, oom=False).reason == "user_error"
    assert judge([worker(0, 1)], Heard(), None, LIMITS, oom=True).reason == "user_error", "somebody else's"


def test_who_was_killed_failed_first() -> None:
    verdict = judge([worker(0, 1), worker(1, 137)], Heard(), None, LIMITS, oom=True)
    assert (verdict.reason, verdict.exit_code) == ("out_of_memory", 137)


def test_any_kill_in_the_group_is_the_reason_of_a_failure() -> None:
    failed = worker(0, 1, text="RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.")
    verdict = judge([failed], Heard(), None, LIMITS, oom=False, in_group=True)
    assert (verdict.reason, verdict.exit_code) == ("out_of_memory", 1)
    assert judge([worker(0, by=9)], Heard(), None, LIMITS, oom=False, in_group=True).signal == 9
    assert judge([worker(0, 0)], Heard(done=True), None, LIMITS, oom=False, in_group=True).reason == "done"
    ended = [worker(0, by=9, ours=True)]
    assert judge(ended, Heard(), Order.KILL, LIMITS, oom=False, in_group=True).reason == "signal"


@pytest.mark.parametrize(
    ("kind", "options", "controllers", "file"),
    [("cgroup2", "rw", "", "memory.events"), ("cgroup", "rw,memory", "memory", "memory.oom_control")],
)
def test_kills_are_counted_in_our_own_group(
    tmp_path: Path, kind: str, options: str, controllers: str, file: str
) -> None:
    group = tmp_path / "mounted" / "evenkeel" / "r.3"
    group.mkdir(parents=True)
    (group / file).write_text("low 0\noom 5\noom_kill_disable 0\noom_kill 2\n")
    (tmp_path / "mountinfo").write_text(
        "23 1 0:20 / / rw - ext4 /dev/vda rw\n"
        f"31 23 0:28 /box {tmp_path}/mounted rw,relatime shared:9 - {kind} {kind} {options}\n"
    )
    (tmp_path / "cgroup").write_text(f"3:cpu,cpuacct:/\n2:{controllers}:/box/evenkeel/r.3\n")
    assert group_oom_kills("r.3", tmp_path) == 2
    assert group_oom_kills("r.4", tmp_path) == 0, "a group that we share with others"
    assert group_oom_kills("r.3", tmp_path / "nowhere") == 0


@pytest.mark.parametrize(("before", "after"), [(0, 500), (300, 800), (700, 1000)])
def test_a_workers_score_is_raised_above_its_runners(before: int, after: int) -> None:
    program = (
        "from pathlib import Path; from evenkeel.runner.processes import die_first_for_memory\n"
        "score = Path('/proc/self/oom_score_adj')\n"
        f"try: score.write_text('{before}')\n"
        "except PermissionError: raise SystemExit('ours is higher')\n"
        "die_first_for_memory(); print(score.read_text())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if "ours is higher" in done.stderr:
        pytest.skip("a score is not lowered")
    assert done.stdout.split() == [str(after)]
