"""The portal's side of an agent: what it believes, how long it waits, and what it makes of an agent that is gone."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import CheckpointStore, Data, Fact, LaunchRequest, Preparation, Secret
from scheduling.executors.slurm.agent import Agent, with_own_caches
from scheduling.executors.slurm.agents import Link, RunAs
from scheduling.executors.slurm.as_person import (
    LAUNCH,
    PREPARATION,
    QUEUE,
    VERSION,
    facts_of,
    plain_queue,
    progress_of,
    spooled_of,
)
from scheduling.executors.slurm.commands import SlurmJob
from tests.executors.contract import until

ASKED = [("run", 1)]
GOOD = {"run_id": "run", "epoch": 1, "kind": "alive", "at": 1.0}
STANDS_IN = """
import json, sys
sys.argv = sys.argv[sys.argv.index("serve"):]
for line in sys.stdin.buffer:
    request = json.loads(line)
    if request["call"] == "hello":
        print(json.dumps({"result": {"version": VERSION}}), flush=True)
    else:
        WHAT
"""


def make_request(**changes: Any) -> LaunchRequest:
    request = LaunchRequest(
        job_id="job", job_number=1, run_id="run", epoch=1, project_key="vision", argv=("true",), shell=False,
        workdir=None, placement={"gpu1": (0, 1)}, env={"A": "b"}, total_steps=20, batch_size=8,
        checkpoint_every_steps=5, checkpoint_keep=3, max_duration_s=None, memory_mib=None, cpus=None,
        api_url="http://127.0.0.1:9", token="secret-token", report_interval_s=0.5,
    )  # fmt: skip
    return replace(request, **changes)


made: list[Link] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def link(tmp_path: Path, what: str, version: int = VERSION) -> Link:
    """Its agent is a program of the test's, in sudo's place."""
    program = tmp_path / "sudo"
    body = STANDS_IN.replace("VERSION", str(version)).replace("WHAT", what)
    program.write_text(f"#!{sys.executable}\n{body}")
    program.chmod(0o755)
    made.append(Link("alice", RunAs(sudo=str(program)), {}))
    return made[-1]


@pytest.mark.parametrize("name", ["", "-x", "a b", "a;b", "../a", "x" * 33, "a\n"])
def test_no_command_is_made_of_what_is_no_name(name: str) -> None:
    with pytest.raises(ExecutorError, match="no name of an account"):
        Link(name, RunAs(), {})


def test_an_answer_is_taken_and_an_error_said_with_its_account(tmp_path: Path) -> None:
    echo = link(tmp_path, 'print(json.dumps({"result": request}), flush=True)')
    assert echo.ask("look", 20, a=[1, "ü"]) == {"call": "look", "a": [1, "ü"]}
    failing = link(tmp_path, 'print(json.dumps({"error": "no", "permanent": True}), flush=True)')
    with pytest.raises(ExecutorError, match="alice: no") as error:
        failing.ask("look", 20)
    assert error.value.permanent


@pytest.mark.parametrize(
    "what",
    ['print("nonsense", flush=True)', 'print("[1]", flush=True)', 'print("{}", flush=True)',
     'print("[" * 100 + "]" * 100, flush=True)'],
)  # fmt: skip
def test_nonsense_is_an_error_and_ends_the_agent(tmp_path: Path, what: str) -> None:
    odd = link(tmp_path, what)
    with pytest.raises(ExecutorError, match="gave no answer"):
        odd.ask("look", 20)
    assert odd._process is None


def test_an_agent_without_an_answer_is_given_up(tmp_path: Path) -> None:
    slow = link(tmp_path, "__import__('time').sleep(60)")
    with pytest.raises(ExecutorError, match="had no answer within 1 s"):
        slow.ask("look", 1)
    assert slow._process is None


def test_one_that_has_left_is_replaced_and_one_that_ends_at_once_says_why(tmp_path: Path) -> None:
    once = link(tmp_path, 'print(json.dumps({"result": __import__("os").getpid()}), flush=True); sys.exit()')
    first = once.ask("look", 20)
    assert once.ask("look", 20) != first
    refusing = link(tmp_path, 'sys.exit("evenkeel-run-as refuses: no")')
    with pytest.raises(ExecutorError, match="refuses: no"):
        refusing.ask("look", 20)


def test_one_of_another_version_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="another version"):
        link(tmp_path, "pass", version=99).ask("look", 20)


@pytest.mark.parametrize(
    "answer",
    [None, {}, [], [GOOD, GOOD], [GOOD | {"run_id": "other"}], [GOOD | {"epoch": 2}], [GOOD | {"kind": "gone"}],
     [GOOD | {"kind": ["alive"]}], [GOOD | {"exit": {"reason": 7}}], ["alive"]],
)  # fmt: skip
def test_of_facts_that_were_not_asked_for_nothing_is_believed(answer: Any) -> None:
    with pytest.raises(ExecutorError, match="no sense"):
        facts_of(answer, ASKED)


def test_what_an_agent_says_is_bounded_and_printable() -> None:
    left = {"reason": "invented", "message": "a\x1b[31m\x00" + "x" * 100_000}
    [fact] = facts_of([GOOD | {"kind": "exited", "exit": left, "usage": {"cpu_s": 1.0}, "strays": "x"}], ASKED)
    assert fact.exit is not None
    assert fact.exit.reason == "runner_lost"
    assert fact.exit.message.startswith("a[31mx")
    assert len(fact.exit.message) <= 2_000
    assert (fact.usage, fact.strays) == ({}, "")
    assert facts_of([GOOD], ASKED) == [Fact("run", 1, "alive", 1.0)]


@pytest.mark.parametrize("answer", [None, [], {"state": "odd"}, {"message": "x"}])
def test_progress_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(ExecutorError, match="no sense"):
        progress_of(answer)


@pytest.mark.parametrize("answer", [1, {}, {"report": [], "dropped": 0}, {"report": {}, "dropped": True}])
def test_reports_that_are_none_are_refused(answer: Any) -> None:
    with pytest.raises(ExecutorError, match="no sense"):
        spooled_of(answer)


def test_a_request_and_a_queue_come_out_as_they_went_in() -> None:
    wanted: LaunchRequest = make_request(account="alice", secrets=(Secret("key", env="KEY", value="hush"),))
    assert LAUNCH.validate_python(json.loads(json.dumps(LAUNCH.dump_python(wanted, mode="json")))) == wanted
    queue = {"evenkeel-a-1": [SlurmJob(7, "evenkeel-a-1", frozenset({"RUNNING"}), "gpu1", None)]}
    assert QUEUE.validate_python(json.loads(json.dumps(plain_queue(queue)))) == queue


def test_an_agent_discards_only_what_lies_below_a_job(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        agent = Agent(tmp_path, tmp_path / "state", nothing)
        assert "result" in agent.answer(json.dumps({"call": "hello", "options": {}, "environment": {}}).encode())
        for path in ("keep", "/etc/passwd", "environments/a/b", "jobs/../keep/x", "jobs/a"):
            answer = agent.answer(json.dumps({"call": "discard", "project_key": "p", "paths": [path]}).encode())
            assert "nothing that can be discarded" in answer["error"], path
        assert agent.answer(b"nonsense\n")["permanent"] is False
        assert "KeyError" in agent.answer(b'{"call": "exec"}')["error"]
    assert (tmp_path / "keep").is_dir()


def test_caches_of_nodes_are_each_accounts_own() -> None:
    wanted = make_request(
        checkpoint_store=CheckpointStore("s3://b", "p", 3, cache_dir="/scratch/%n"), data=Data((), "p", cache_dir="/d")
    )
    found = with_own_caches(wanted, "alice")
    assert found.checkpoint_store is not None
    assert found.data is not None
    assert (found.checkpoint_store.cache_dir, found.data.cache_dir) == ("/scratch/%n/alice", "/d/alice")
    assert with_own_caches(make_request(), "alice") == make_request()


def test_a_bundle_is_sent_once_unpacked_and_removed_again(tmp_path: Path) -> None:
    bundle = io.BytesIO()
    with tarfile.open(fileobj=bundle, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = 8
        archive.addfile(member, io.BytesIO(b"print(1)"))
    options = {"max_files": 10}
    wanted = Preparation("bundle", "job", 1, "vision", "job", options, 60.0, 1 << 20, source="/the/portals/own")
    plain = {**PREPARATION.dump_python(wanted, mode="json"), "source": None}
    agent = Agent(tmp_path, tmp_path / "state", io.BytesIO(bundle.getvalue()))

    def ask(**request: Any) -> Any:
        answer = agent.answer(json.dumps(request).encode())
        assert "result" in answer, answer
        return answer["result"]

    ask(call="hello", options={}, environment={})
    assert ask(call="prepare", preparation=plain, has_source=True) is None
    ask(call="stage", kind="bundle", key="job", size=len(bundle.getvalue()))
    until(lambda: ask(call="prepare", preparation=plain, has_source=True)["state"] != "working", "the bundle")
    assert (tmp_path / "jobs/job/code/tree/train.py").read_text() == "print(1)"
    assert list((tmp_path / "state").glob("*.source")) == []
    ask(call="discard", project_key="vision", paths=["jobs/job/code"])
    assert not (tmp_path / "jobs/job/code").exists()


def test_a_source_that_breaks_off_or_is_too_large_ends_the_agent(tmp_path: Path) -> None:
    for source, size in ((b"abc", 4), (b"", 1 << 60), (b"", -1)):
        agent = Agent(tmp_path, tmp_path / "state", io.BytesIO(source))
        agent.answer(b'{"call": "hello", "options": {}, "environment": {}}')
        with pytest.raises(SystemExit):
            agent.answer(json.dumps({"call": "stage", "kind": "bundle", "key": "job", "size": size}).encode())
