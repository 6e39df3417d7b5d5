"""What the portal does itself where jobs run as people: one look for all accounts, and whom it believes."""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import NO_SOFTWARE, Fact, Preparation
from scheduling.executors.local.layout import RunRecord
from scheduling.executors.slurm.agent import PersonsExecutor
from scheduling.executors.slurm.commands import jobs_in
from scheduling.executors.slurm.executor import SlurmExecutor
from scheduling.executors.slurm.person import PersonSlurmExecutor, open_to_people
from scheduling.executors.slurm.seeing import Seen
from tests.executors.test_agents import make_request

ALICE, BOB = 20_001, 20_002
RUN = "evenkeel-run-1"


def line(user: str, number: int, state: str, name: str) -> str:
    return f"{user}|{number}|{number}|{state}|gpu1|1|2|1:00|None|(null)|{name}"


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PersonSlurmExecutor:
    names = {ALICE: "alice", BOB: "bob", os.geteuid(): "evenkeel"}

    def entry(uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((names[uid], "x", uid, uid, "", "/", "/bin/sh"))

    monkeypatch.setattr("scheduling.executors.slurm.person.pwd.getpwuid", entry)
    return PersonSlurmExecutor(tmp_path)


def answers(
    monkeypatch: pytest.MonkeyPatch, executor: PersonSlurmExecutor, lines: list[str], config: str = ""
) -> list[Any]:
    """squeue prints these lines in the form that it is asked for."""
    asked: list[Any] = []

    def run(*command: str, timeout_s: float | None = None) -> str:
        asked.append(command)
        if command[0] != "squeue":
            return config
        mark = (
            next(word for word in command if word.startswith("--format=")).removeprefix("--format=").partition("|")[0]
        )
        return "".join(f"{mark}|{one}\n" for one in lines)

    monkeypatch.setattr(executor._commands, "run", run)
    return asked


def facts(monkeypatch: pytest.MonkeyPatch, executor: PersonSlurmExecutor, kind: str) -> Callable[..., list[Fact]]:
    """Agents say the same of every run; what they were asked is kept."""
    queues: dict[str, Any] = {}

    class Told:
        def __init__(self, account: str) -> None:
            self.account = account

        def ask(self, call: str, timeout_s: float, **arguments: Any) -> Any:
            queues[self.account] = arguments["queue"]
            return [{"run_id": run, "epoch": epoch, "kind": kind, "at": 1.0} for run, epoch in arguments["known"]]

    monkeypatch.setattr(executor, "_link", Told)

    def observe(*pairs: tuple[str, int]) -> list[Fact]:
        return list(executor.observe(pairs))

    observe.queues = queues  # type: ignore[attr-defined]
    return observe


def test_one_look_serves_all_accounts_and_each_agent_gets_its_own_jobs(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    executor._layout.remember(RunRecord("other", "job2", BOB))
    forged = line("alice", 3, "RUNNING", f"x\nbob|9|9|RUNNING|gpu1|1|2|1:00|None|(null)|{RUN}")
    asked = answers(monkeypatch, executor, [
        line("alice", 1, "RUNNING", RUN), line("bob", 2, "PENDING", "evenkeel-other-1"),
        line("bob", 4, "RUNNING", RUN), forged,
    ])  # fmt: skip
    observe = facts(monkeypatch, executor, "alive")
    observe(("run", 1), ("other", 1))
    [look] = [command for command in asked if command[0] == "squeue"]
    assert "--user=alice,bob,evenkeel" in look
    queues = observe.queues  # type: ignore[attr-defined]
    assert [job["job_id"] for job in queues["alice"][RUN]] == [1]
    assert [job["job_id"] for job in queues["bob"][RUN]] == [4]  # bob's own doing, and bob's alone


def test_agents_look_for_orphans_in_what_the_portal_saw(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    monkeypatch.setattr(executor, "_accounts_in_use", lambda: ["alice", "bob"])
    asked = answers(monkeypatch, executor, [line("alice", 1, "RUNNING", RUN), line("bob", 2, "RUNNING", RUN)])
    given: dict[str, Any] = {}

    class Told:
        def __init__(self, account: str) -> None:
            self.account = account

        def ask(self, call: str, timeout_s: float, **arguments: Any) -> Any:
            given[self.account] = arguments["queue"]
            return [["lost", 1]] if call == "reap" and self.account == "bob" else []

    monkeypatch.setattr(executor, "_link", Told)
    assert executor.reap_orphans([("run", 1)]) == [("lost", 1)]
    assert {name: [job["job_id"] for job in jobs[RUN]] for name, jobs in given.items()} == {"alice": [1], "bob": [2]}
    assert [command[0] for command in asked].count("squeue") == 1


def test_an_agent_ends_an_orphan_by_a_look_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the portal saw says which there are, not that they have ended since."""
    agent = PersonsExecutor(tmp_path / "shared", tmp_path / "state", {"software": NO_SOFTWARE})
    agent._layout.remember(RunRecord("run", "job", None))
    agent._layout.begin("run", 1)
    (agent._layout.epoch_dir(RunRecord("run", "job", None), 1) / "claim").mkdir(parents=True)
    agent._notes.write("run", 1, 7)
    told: list[tuple[str, ...]] = []

    def run(*command: str, timeout_s: float | None = None) -> str:
        told.append(command)
        return ""

    monkeypatch.setattr(agent._commands, "run", run)
    queue = jobs_in(line("", 7, "RUNNING", RUN).partition("|")[2], "evenkeel-")
    assert agent.reap_seen({("run", 1)}, -2.0, Seen(time.time(), queue, agent._notes)) == []
    assert not told
    assert agent.reap_seen(set(), -2.0, Seen(time.time(), queue, agent._notes)) == [("run", 1)]
    assert {command[0] for command in told} >= {"squeue"}


def test_where_slurm_hides_jobs_agents_look_themselves(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    asked = answers(monkeypatch, executor, [], config="PrivateData             = jobs,usage\n")
    observe = facts(monkeypatch, executor, "exited")
    assert [fact.kind for fact in observe(("run", 1))] == ["exited"]
    assert observe.queues == {"alice": None}  # type: ignore[attr-defined]
    assert "squeue" not in {command[0] for command in asked}


@pytest.mark.parametrize("said", ["exited", "absent"])
def test_what_slurm_has_running_has_not_ended_by_an_agents_word(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    monkeypatch.setattr(executor, "_on_lost_node", lambda job: False)
    observe = facts(monkeypatch, executor, said)
    for state, kind in (("RUNNING", "alive"), ("COMPLETING", "alive"), ("PENDING", said), ("COMPLETED", said)):
        answers(monkeypatch, executor, [line("alice", 1, state, RUN)])
        assert [fact.kind for fact in observe(("run", 1))] == [kind], state
    answers(monkeypatch, executor, [line("alice", 1, "RUNNING", RUN)])
    monkeypatch.setattr(executor, "_on_lost_node", lambda job: True)
    assert [fact.kind for fact in observe(("run", 1))] == [said]


def test_a_launch_is_known_by_its_number_whatever_its_owner_calls_it(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    executor._notes.write("run", 1, 7)
    monkeypatch.setattr(executor, "_on_lost_node", lambda job: False)
    observe = facts(monkeypatch, executor, "exited")
    for name in ("x", "evenkeel-other-1"):
        answers(monkeypatch, executor, [line("alice", 7, "RUNNING", name)])
        assert [fact.kind for fact in observe(("run", 1))] == ["alive"]
    answers(monkeypatch, executor, [line("alice", 7, "COMPLETED", "x")])
    [fact] = observe(("run", 1))
    assert (fact.kind, fact.began_at, fact.ended_at) == ("exited", 1, 2)


def test_a_run_of_an_account_that_is_gone_keeps_its_gpus(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", 20_003))
    answers(monkeypatch, executor, [])
    observe = facts(monkeypatch, executor, "absent")
    assert [fact.kind for fact in observe(("run", 1), ("unknown", 1))] == ["alive", "absent"]


def test_who_has_no_account_or_a_systems_starts_nothing(executor: PersonSlurmExecutor) -> None:
    for account, words in (
        ("", "has no UNIX account here"),
        ("root", "no account of a person's"),
        ("no-one", "not exist"),
    ):
        with pytest.raises(ExecutorError, match=words) as error:
            executor.launch(make_request(account=account))
        assert error.value.permanent
    assert list((executor._layout.own).glob("*.json")) == []


def test_no_environment_is_built_as_anybody(executor: PersonSlurmExecutor) -> None:
    wanted = Preparation("environment", "a" * 64, 1, "vision", "job", {}, 60.0, 1024)
    with pytest.raises(ExecutorError, match="environments are not built where jobs run as each person's") as error:
        executor.prepare(wanted)
    assert error.value.permanent


def test_a_stop_before_its_launch_forbids_it(executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(executor, "_link", lambda account: asked.append(account))
    monkeypatch.setattr(executor, "_account", lambda name: pwd.struct_passwd(("alice", "x", ALICE, 1, "", "/", "")))
    executor.checkpoint_and_stop("run", 1)
    executor.launch(make_request(account="alice"))
    assert asked == []


def test_a_run_is_forgotten_only_a_day_after_its_files_are_gone(executor: PersonSlurmExecutor) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    assert executor._look_up_accounts() == []  # a launch may be under way
    assert executor._layout.record("run") is not None
    (executor._layout.jobs / "job").mkdir()
    assert executor._look_up_accounts() == ["alice"]
    (executor._layout.jobs / "job").rmdir()
    long_ago = time.time() - 100_000
    os.utime(executor._layout.own / "run.json", (long_ago, long_ago))
    assert executor._look_up_accounts() == []
    assert executor._layout.record("run") is None


def test_in_quiet_times_rounds_share_what_slurm_said_last(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    executor._notes.write("run", 1, 1)
    asked = answers(monkeypatch, executor, [line("alice", 1, "RUNNING", RUN)])

    def looks(there: PersonSlurmExecutor = executor) -> int:
        asked.clear()
        for _ in range(3):
            facts(monkeypatch, there, "alive")(("run", 1))
        return len([command for command in asked if command[0] == "squeue"])

    assert looks() == 3  # it was launched just now
    long_ago = time.time() - 1_000
    os.utime(executor._notes.file("run", 1), (long_ago, long_ago))
    assert looks() == 0
    for file in (executor._layout.own / "looks").glob("*.json"):
        file.unlink()
    assert looks() == 1
    other = PersonSlurmExecutor(tmp_path)  # another process of the portal
    monkeypatch.setattr(other._commands, "run", executor._commands.run)
    assert looks(other) == 0
    executor._notes.kill_mark("run", 1).touch()
    assert looks() == 3


def test_accounts_are_looked_up_again_where_something_was_noted(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def look() -> list[str]:
        looks.append(1)
        return ["alice"]

    monkeypatch.setattr(executor, "_look_up_accounts", look)
    assert executor._accounts_in_use() == executor._accounts_in_use() == ["alice"]
    assert len(looks) == 1
    executor._layout.remember(RunRecord("run", "job", ALICE))
    executor._accounts_in_use()
    assert len(looks) == 2


def test_a_job_with_another_persons_comment_is_none_of_ours(
    executor: PersonSlurmExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor._layout.remember(RunRecord("run", "job", ALICE))
    executor._layout.begin("run", 1)
    monkeypatch.setattr(executor, "_accounts_in_use", lambda: ["alice", "bob"])
    said = [line("alice", 1, "RUNNING", RUN), line("alice", 5, "RUNNING", RUN), line("bob", 2, "RUNNING", RUN)]
    said.append(line("evenkeel", 9, "RUNNING", "evenkeel-check gpu1"))
    answers(monkeypatch, executor, said)
    assert executor._our_jobs() == {1, 5, 9}  # its number is not known yet
    executor._notes.write("run", 1, 1)
    assert executor._our_jobs() == {1, 9}


def test_an_agent_takes_launches_of_other_persons_for_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = PersonsExecutor(tmp_path / "shared", tmp_path / "state", {"software": NO_SOFTWARE})
    monkeypatch.setattr(SlurmExecutor, "_our_jobs", lambda self: {1})
    agent.beside = frozenset({2, 3})
    assert agent._our_jobs() == {1, 2, 3}


def test_each_account_makes_its_jobs_directories_and_lists_no_others(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir(mode=0o711)
    open_to_people(jobs)
    assert stat.S_IMODE(jobs.stat().st_mode) == 0o3733
