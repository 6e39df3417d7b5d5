"""The command line against a real HTTP server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evenkeel.client
import pytest
from click.testing import CliRunner, Result
from evenkeel.cli import jobs, waiting
from evenkeel.cli.main import cli

from tests.client.cli_portal import TOKEN, Portal, make_job

Run = Callable[..., Result]


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as server:
        server.start()
        yield server
        server.shutdown()


@pytest.fixture
def run(portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `evenkeel ARGUMENTS` as somebody logged in by environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EVENKEEL_URL", portal.url)
    monkeypatch.setenv("EVENKEEL_TOKEN", TOKEN)
    monkeypatch.setattr(waiting, "POLL_S", 0.01)
    monkeypatch.setattr(jobs, "FOLLOW_S", 0.01)
    monkeypatch.setattr(evenkeel.client, "LONGEST_PAUSE_S", 0.01)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin)

    return invoke


def advance(*states: str, **last: Any) -> Callable[[dict[str, Any]], None]:
    """Each look at the job finds it in the next state."""
    left = list(states)

    def change(job: dict[str, Any]) -> None:
        if left:
            job["state"] = left.pop(0)
        if not left:
            job.update(last)

    return change


class TestLogin:
    def test_a_token_is_stored_for_its_owner_alone(
        self, run: Run, portal: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = run("login", portal.url, "--token", "-", stdin=f"{TOKEN}\n")
        assert result.exit_code == 0, result.output
        path = tmp_path / "config" / "evenkeel" / "config.json"
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        monkeypatch.delenv("EVENKEEL_URL")
        monkeypatch.delenv("EVENKEEL_TOKEN")
        assert run("ls").exit_code == 0

    def test_a_password_makes_a_token(self, run: Run, portal: Portal, tmp_path: Path) -> None:
        result = run("login", portal.url, "--email", "ada@example.org", stdin="right\n")
        assert result.exit_code == 0, result.output
        assert "right" not in result.output
        assert TOKEN in (tmp_path / "config" / "evenkeel" / "config.json").read_text()
        assert not portal.signed_in

    def test_a_wrong_password_is_said(self, run: Run, portal: Portal) -> None:
        result = run("login", portal.url, "--email", "ada@example.org", "--password-stdin", stdin="wrong\n")
        assert result.exit_code == 1
        assert "Email or password is wrong" in result.output

    def test_a_wrong_token_is_not_stored(self, run: Run, portal: Portal, tmp_path: Path) -> None:
        assert run("login", portal.url, "--token", "ek_no").exit_code == 1
        assert not (tmp_path / "config" / "evenkeel").exists()

    def test_a_stored_token_is_not_sent_to_another_portal(
        self, run: Run, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run("login", "http://localhost:" + portal.url.rpartition(":")[2], "--token", TOKEN)
        monkeypatch.delenv("EVENKEEL_TOKEN")
        result = run("ls")
        assert (result.exit_code, "Not signed in" in result.output) == (1, True)

    def test_without_a_login_it_says_how(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("EVENKEEL_URL")
        result = run("ls")
        assert result.exit_code == 1
        assert "evenkeel login" in result.output


class TestSubmit:
    def test_a_job_file_with_settings(self, run: Run, portal: Portal, tmp_path: Path) -> None:
        file = tmp_path / "job.yaml"
        file.write_text("name: a\ntotal_steps: 5\ngpus: {min: 1, max: 6}\ndeadline: 2026-12-01T10:00:00Z\n")
        result = run("submit", str(file), "--set", "gpus.max=4", "--set", "labels.stage=nightly", "--steps", "7")
        assert result.exit_code == 0, result.output
        assert portal.submitted == [
            {
                "name": "a",
                "total_steps": 7,
                "gpus": {"min": 1, "max": 4},
                "deadline": "2026-12-01T10:00:00Z",
                "labels": {"stage": "nightly"},
            }
        ]
        assert "Job 1 submitted: a, queued" in result.output

    def test_options_alone_and_json(self, run: Run, portal: Portal) -> None:
        result = run("submit", "--model", "resnet50", "--steps", "9", "--gpus", "2", "--output", "json")
        assert json.loads(result.stdout)["number"] == 1
        assert portal.submitted == [{"model_type": "resnet50", "total_steps": 9, "gpus": {"min": 2, "max": 2}}]

    def test_a_command_after_dashes(self, run: Run, portal: Portal) -> None:
        run("submit", "--steps", "9", "--", "python", "train.py", "--name", "two words")
        assert portal.submitted == [{"total_steps": 9, "command": "python train.py --name 'two words'"}]

    def test_standard_input(self, run: Run, portal: Portal) -> None:
        assert run("submit", "-", stdin="total_steps: 3").exit_code == 0
        assert portal.submitted == [{"total_steps": 3}]

    @pytest.mark.parametrize("trouble", [["drop"], [503, 429], ["drop", 502, "drop"]])
    def test_a_retried_submission_makes_one_job(self, run: Run, portal: Portal, trouble: list[int | str]) -> None:
        portal.trouble = trouble
        result = run("submit", "--model", "m", "--steps", "1")
        assert result.exit_code == 0, result.output
        assert len(portal.jobs) == 1

    def test_a_key_repeats_and_refuses_another_job(self, run: Run, portal: Portal) -> None:
        for _ in range(2):
            result = run("submit", "--model", "m", "--steps", "1", "--idempotency-key", "k")
            assert "Job 1" in result.output
        result = run("submit", "--model", "m", "--steps", "2", "--idempotency-key", "k")
        assert (result.exit_code, len(portal.jobs)) == (1, 1)

    def test_retries_end(self, run: Run, portal: Portal) -> None:
        portal.trouble = ["drop"] * 50
        result = run("submit", "--model", "m", "--steps", "1")
        assert result.exit_code == 1
        assert "--idempotency-key" in result.output
        assert len(portal.requests) == evenkeel.client.TRIES

    def test_a_refusal_names_the_field(self, run: Run, portal: Portal) -> None:
        result = run("submit", "--model", "m")
        assert result.exit_code == 1
        assert "total_steps: is required" in result.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ("submit",),
            ("submit", "/nowhere.yaml"),
            ("submit", "--model", "m", "--gpus", "many"),
            ("submit", "--model", "m", "--set", "novalue"),
            ("submit", "--model", "m", "--set", "total_steps=1", "--set", "total_steps.x=1"),
            ("submit", "--model", "m", "--steps", "none"),
            ("nothing",),
            ("wait",),
        ],
    )
    def test_wrong_usage_ends_with_1(self, run: Run, portal: Portal, arguments: tuple[str, ...]) -> None:
        assert run(*arguments).exit_code == 1
        assert portal.requests == []

    def test_wait_ends_with_the_jobs_code(self, run: Run, portal: Portal) -> None:
        portal.on_get = advance("starting", "running", "succeeded", step=2000)
        result = run("submit", "--model", "m", "--steps", "2000", "--wait")
        assert result.exit_code == 0
        assert "succeeded at step 2,000/2,000 after 1m 00s" in result.stdout
        assert "running" in result.stderr


class TestWait:
    @pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 100), ("cancelled", 103)])
    def test_exit_codes(self, run: Run, portal: Portal, state: str, code: int) -> None:
        portal.jobs[1] = make_job(1)
        portal.on_get = advance("running", state, exit={"message": "out of memory"})
        result = run("wait", "1")
        assert result.exit_code == code
        assert ("out of memory" in result.stdout) == (code != 0)

    def test_not_in_time(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, state="running")
        assert run("wait", "1", "--timeout", "0.05").exit_code == 101

    @pytest.mark.parametrize("name", ["7", "../tokens", "a b"])
    def test_not_found(self, run: Run, name: str) -> None:
        assert run("wait", name).exit_code == 102

    def test_a_portal_that_is_away_for_a_while_is_waited_for(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, state="succeeded")
        portal.trouble = [503] * (3 * evenkeel.client.TRIES)
        assert run("wait", "1").exit_code == 0

    def test_a_refused_token_is_not_waited_for(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVENKEEL_TOKEN", "ek_no")
        assert run("wait", "1").exit_code == 1


class TestLooking:
    def test_ls_follows_pages_on_the_same_portal(self, run: Run, portal: Portal) -> None:
        portal.jobs = {number: make_job(number, state="running") for number in range(1, 6)}
        result = run("ls")
        assert result.exit_code == 0, result.output
        assert len(result.stdout.splitlines()) == 6
        assert "\x1b" not in result.stdout
        assert len(json.loads(run("ls", "--limit", "3", "--output", "json").stdout)) == 3
        assert run("ls", "--state", "failed").stdout == "No jobs.\n"

    def test_ls_says_what_is_emulated(self, run: Run, portal: Portal) -> None:
        portal.jobs = {1: make_job(1, state="running", emulated=True), 2: make_job(2, state="running", emulated=False)}
        newest, oldest = sorted(run("ls").stdout.splitlines()[1:])[::-1]
        assert ("running (emulated)" in oldest, "running (emulated)" in newest) == (True, False)

    def test_a_cancelled_job_whose_program_still_runs_is_ending(self, run: Run, portal: Portal) -> None:
        portal.jobs = {1: make_job(1, state="cancelled", emulated=True, ending=True)}
        assert "cancelled, ending (emulated)" in run("ls").stdout
        assert "cancelled, ending (emulated)" in run("show", "1").stdout

    def test_names_cannot_drive_the_terminal(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, name="\x1b[2Jx\ny")
        assert "\x1b" not in run("ls").stdout + run("show", "1").stdout

    def test_show(self, run: Run, portal: Portal) -> None:
        held = {
            "type": "titan_xp",
            "count": 2,
            "epoch": 1,
            "gpus": [{"node": "a", "index": 0}, {"node": "a", "index": 1}],
        }
        portal.jobs[1] = make_job(1, state="running", allocation=held, emulated=True)
        result = run("show", "1")
        assert "2 of 1-6 titan_xp" in result.stdout
        assert "a:0, a:1" in result.stdout
        assert "emulated" in result.stdout
        assert json.loads(run("show", "1", "--output", "json").stdout)["number"] == 1
        assert run("show", "9").exit_code == 102

    def test_show_what_was_set_of_a_job(self, run: Run, portal: Portal) -> None:
        bounds = {"deadline_at": "2030-01-02T12:00:00Z", "nice": 7, "max_cost": "5", "max_duration_s": 5_400.0}
        slurm = {"constraint": "fast", "exclusive": True, "mail_type": ["END", "FAIL"], "nice": None, "tmp": 5}
        spec = {"cpus": 4, "memory": 16_384, "slurm": slurm}
        portal.jobs = {1: make_job(1, labels={"team": "x", "run": "2"}, spec=spec, **bounds), 2: make_job(2)}
        said = run("show", "1").stdout
        for part in (
            "4 of each node",
            "16,384 MiB of each node",
            "2030-01-02",
            "  7\n",
            "5 USD",
            "1h 30m in training",
            "run=2, team=x",
            "--constraint=fast --exclusive --mail-type=END,FAIL --tmp=5",
        ):
            assert part in said
        for name in ("Processors", "Memory", "Deadline", "Nice", "Labels", "Max cost", "Max duration"):
            assert name in said
            assert name not in run("show", "2").stdout

    def test_a_job_without_a_most_of_gpus_takes_so_many_or_more(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, gpus={"min": 2, "max": None, "types": [], "share_percent": 100})
        assert "0 of 2 or more" in run("show", "1").stdout
        assert "0 of 2 or more" in run("ls").stdout

    def test_a_part_of_a_gpu_is_named_as_one(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, gpus={"min": 1, "max": 1, "types": [], "share_percent": 25, "memory_mib": 3072})
        assert "0 of 25%" in run("show", "1").stdout
        held = {"type": "v100", "count": 1, "epoch": 1, "gpus": [{"node": "n", "index": 0}], "share_percent": 25}
        portal.jobs[1] |= {"allocation": held, "state": "running"}
        assert "25% of 1 v100" in run("ls").stdout
        assert "25% of 1 v100" in run("show", "1").stdout

    def test_show_a_job_of_nobody_that_ended_without_a_word(self, run: Run, portal: Portal) -> None:
        silent = {"reason": None, "message": None, "exit_code": None, "signal": 9}
        portal.jobs[1] = make_job(1, state="failed", owner=None, exit=silent)
        result = run("show", "1")
        assert result.exit_code == 0, result.output
        assert "vision, no owner" in result.stdout
        assert "Exit" not in result.stdout

    def test_cancel_twice_and_too_late(self, run: Run, portal: Portal) -> None:
        portal.jobs = {1: make_job(1), 2: make_job(2, state="succeeded")}
        assert [run("cancel", job).exit_code for job in ("1", "1", "2", "3")] == [0, 0, 1, 102]


class TestLogs:
    def test_a_long_log_is_fetched_in_parts(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, state="running")
        portal.log = "".join(f"line {number}\n" for number in range(1000))
        assert run("logs", "1").stdout == portal.log
        assert run("logs", "1", "--tail", "2").stdout == "line 998\nline 999\n"

    def test_follow_goes_on_to_the_end_of_the_job_and_over_a_retry(self, run: Run, portal: Portal) -> None:
        portal.jobs[1] = make_job(1, state="running")
        looks = iter(range(100))

        def look(job: dict[str, Any]) -> None:
            number = next(looks)
            if number < 3:
                portal.log += f"first {number}\n"
            elif number == 3:
                job["run"], portal.log = {"id": "again", "attempt": 2, "epoch": 1}, "second\n"
            else:
                job["state"] = "succeeded"

        portal.on_get = look
        assert run("logs", "1", "-f").stdout == "first 0\nfirst 1\nfirst 2\nsecond\n"


def test_it_runs_as_a_program_with_colours_only_where_wanted(portal: Portal, run: Run) -> None:
    portal.jobs[1] = make_job(1)
    command = [sys.executable, "-c", "from evenkeel.cli.main import cli; cli()", "show", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "queued" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", [[], ["login"], ["submit"], ["ls"], ["show"], ["logs"], ["wait"], ["cancel"]])
def test_help_has_examples(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output


class TestDependencies:
    def test_they_are_given_as_sbatch_takes_them(self, run: Run, portal: Portal) -> None:
        text = "afterok:12:13,afterany:8c6f2f2e-0000-4000-8000-000000000000,singleton"
        assert run("submit", "--model", "resnet50", "--steps", "5", "--dependency", text).exit_code == 0
        assert portal.submitted[-1]["dependencies"] == [
            {"type": "afterok", "job": 12},
            {"type": "afterok", "job": 13},
            {"type": "afterany", "job": "8c6f2f2e-0000-4000-8000-000000000000"},
            {"type": "singleton"},
        ]

    @pytest.mark.parametrize("text", ["", "afterok:", ":12", "afterok:12,,"])
    def test_what_is_not_of_that_form_is_refused(self, run: Run, portal: Portal, text: str) -> None:
        result = run("submit", "--model", "resnet50", "--steps", "5", "--dependency", text)
        assert result.exit_code == 1
        assert "afterok:12:13" in result.stderr
        assert not portal.submitted


class TestData:
    def test_options_name_data_beside_the_file_or_in_its_place(self, run: Run, portal: Portal, tmp_path: Path) -> None:
        file = tmp_path / "job.yaml"
        data = "[{name: a, url: s3://x/a, secret: KEY}, {name: b, path: /b}]"
        file.write_text(f"total_steps: 5\nmodel_type: resnet50\ndata: {data}\n")
        assert run("submit", str(file), "--data", "a=s3://y/a=1", "--data", "c=/c").exit_code == 0
        assert portal.submitted[-1]["data"] == [
            {"name": "a", "secret": "KEY", "url": "s3://y/a=1"},
            {"name": "b", "path": "/b"},
            {"name": "c", "path": "/c"},
        ]

    @pytest.mark.parametrize("text", ["a", "a=", "=/a"])
    def test_what_is_not_of_that_form_is_refused(self, run: Run, portal: Portal, text: str) -> None:
        result = run("submit", "--model", "resnet50", "--steps", "5", "--data", text)
        assert result.exit_code == 1
        assert "NAME=PATH or NAME=URL" in result.stderr
        assert not portal.submitted
