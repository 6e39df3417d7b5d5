"""Commands beyond submitting and watching: what each asks of the portal, what it prints, and its exit code."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import evenkeel.client
import pytest
from click.testing import CliRunner, Result
from evenkeel.cli import environments, operate
from evenkeel.cli.bundle import pack
from evenkeel.cli.main import cli
from evenkeel.cli.output import cell_text

from tests.client.cli_portal import make_job

Run = Callable[..., Result]
PAGE = {"next": None, "previous": None}
ARCHIVED_AT = "2026-11-21T14:32:10.5Z"


class Scripted(ThreadingHTTPServer):
    """Answers as `answers` says and remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, Any]] = {"GET session": (200, {"clusters": [{"name": "local"}]})}
        self.asked: list[tuple[str, Any]] = []
        self.queued: dict[str, list[Any]] = {}

    def after(self, what: str, answers: list[Any]) -> None:
        """One answer after the other; the last stays."""
        self.queued[what] = answers
        self[what] = answers[-1]

    def __setitem__(self, what: str, answer: Any) -> None:
        self.answers[what] = answer if isinstance(answer, tuple) else (200, answer)

    @property
    def last(self) -> tuple[str, Any]:
        return self.asked[-1]


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = f"{self.command} {self.path.removeprefix('/api/v1/')}"
        is_json = body and self.headers["Content-Type"] == "application/json"
        self.server.asked.append((what, json.loads(body) if is_json else body))
        place = what.partition("?")[0]
        status, answer = self.server.answers.get(place, (404, {"title": "Not found", "status": 404}))
        if waiting := self.server.queued.get(place):
            answer = waiting.pop(0)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if status != 204 else 0))
        self.end_headers()
        self.wfile.write(data if status != 204 else b"")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any


@pytest.fixture
def portal() -> Iterator[Scripted]:
    with Scripted() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def run(portal: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EVENKEEL_URL", f"http://127.0.0.1:{portal.server_address[1]}")
    monkeypatch.setenv("EVENKEEL_TOKEN", "ek_test_secret")
    monkeypatch.setattr(evenkeel.client, "LONGEST_PAUSE_S", 0.01)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin)

    return invoke


@pytest.mark.parametrize("verb", ["hold", "release"])
def test_jobs_are_held_and_released(run: Run, portal: Scripted, verb: str) -> None:
    for number in (12, 13):
        portal[f"POST jobs/{number}/{verb}"] = make_job(number)
    result = run(verb, "12", "13")
    assert (result.exit_code, result.output.splitlines()) == (0, ["Job 12: job-12, queued", "Job 13: job-13, queued"])
    assert run(verb, "14").exit_code == 102


def test_a_job_is_changed_with_yaml_values(run: Run, portal: Scripted) -> None:
    portal["PATCH jobs/12"] = make_job(12)
    result = run("set", "12", "total_steps=4000", "labels.stage=nightly", "labels.draft=null", "--output", "json")
    assert json.loads(result.output)["number"] == 12
    assert portal.last == ("PATCH jobs/12", {"total_steps": 4000, "labels": {"stage": "nightly", "draft": None}})


@pytest.mark.parametrize("text", ["7", "1234567", "5e10", "0123", "true"])
def test_a_label_is_text_whatever_it_looks_like(run: Run, portal: Scripted, text: str) -> None:
    portal["PATCH jobs/12"] = make_job(12)
    assert run("set", "12", f"labels.commit={text}").exit_code == 0
    assert portal.last == ("PATCH jobs/12", {"labels": {"commit": text}})


def test_a_job_is_submitted_again_with_changes(run: Run, portal: Scripted) -> None:
    portal["POST jobs/12/resubmit"] = (201, make_job(13))
    assert "Job 13" in run("resubmit", "12", "--set", "batch_size=512", "--from", "latest").output
    assert portal.last[1] == {"batch_size": 512, "resume_from": "latest"}
    assert run("resubmit", "12", "--from", "1000").exit_code == 0
    assert portal.last[1] == {"resume_from": {"step": 1000}}


def test_words_that_yaml_once_took_for_booleans_stay_words(run: Run, portal: Scripted) -> None:
    portal["POST jobs"] = (201, make_job(12))
    file = "command: x\ntotal_steps: 1\nretry: {limit: 2, on: [signal]}\nenv: {A: on, E: no}\nrestartable: false\n"
    assert run("submit", "-", stdin=file).exit_code == 0
    sent = portal.last[1]
    assert sent["retry"] == {"limit": 2, "on": ["signal"]}
    assert (sent["env"], sent["restartable"]) == ({"A": "on", "E": "no"}, False)


def test_states_of_a_bulk_act_may_be_one_word(run: Run, portal: Scripted) -> None:
    portal["POST jobs/bulk"] = {"succeeded": 0, "refused": 0, "results": []}
    run("bulk", "hold", "--state", "queued,running", "--yes")
    assert portal.last[1]["filter"] == {"state": ["queued", "running"]}


def test_an_estimate_says_what_would_refuse_the_job_and_what_it_would_wait_for(run: Run, portal: Scripted) -> None:
    refusal = "The limit of 4 GPUs at once on project Vision has 4 in use, and this job needs 1 more."
    spent = "The limit of 2 GPU-hours per day on project Vision is reached: 2 in use."
    answer = {"options": [], "basis": "Nothing is known.", "refused_by": [refusal], "waits_for": [spent]}
    portal["POST jobs/estimate"] = answer
    said = run("cost", "estimate", "-", stdin="command: x\ntotal_steps: 1\n").output
    assert f"It would be refused now: {refusal}" in said
    assert f"It would wait: {spent}" in said


def test_many_jobs_at_once_are_asked_about_first(run: Run, portal: Scripted) -> None:
    portal["GET jobs"] = PAGE | {"results": [make_job(1), make_job(2)]}
    portal["POST jobs/bulk"] = {
        "succeeded": 1,
        "refused": 1,
        "results": [
            {"id": "1", "number": 1, "status": 200, "detail": None, "made": None},
            {"id": "2", "number": 2, "status": 409, "detail": "#2 has already ended.", "made": None},
        ],
    }
    chosen = ("bulk", "cancel", "--label", "sweep=7", "--state", "queued")
    assert "cancel 2 jobs?" in run(*chosen, stdin="n\n").output
    assert portal.last[0].startswith("GET jobs?label=sweep%3D7&state=queued")
    result = run(*chosen, stdin="y\n")
    assert result.exit_code == 1
    assert "#2 has already ended." in result.output
    assert portal.last[1] == {"action": "cancel", "filter": {"label": ["sweep=7"], "state": ["queued"]}}
    assert run("bulk", "cancel", "--yes").exit_code == 1


def test_projects_are_listed_and_their_members_changed_by_email(run: Run, portal: Scripted) -> None:
    rows = [{"key": "vision", "name": "Vision", "role": "manager", "gpus_allocated": 4, "archived_at": ARCHIVED_AT}]
    portal["GET projects"] = PAGE | {"results": rows}
    cells = run("projects", "ls").output.splitlines()[1].split()
    assert cells[:4] == ["vision", "Vision", "manager", "-"]
    local = datetime.fromisoformat(ARCHIVED_AT).astimezone()
    assert cells[-3:] == local.strftime("%Y-%m-%d %H:%M:%S %Z").split()
    portal["GET projects/vision/members"] = PAGE | {
        "results": [{"user": {"id": 7, "email": "ada@example.org", "name": "Ada"}, "role": "member"}]
    }
    portal["DELETE projects/vision/members/7"] = (204, b"")
    assert run("projects", "remove-member", "vision", "ADA@example.org").exit_code == 0
    assert portal.last[0] == "DELETE projects/vision/members/7"
    portal["GET projects/vision/members"] = PAGE | {"results": []}
    assert "is not a member" in run("projects", "remove-member", "vision", "eve@example.org").output


def test_of_several_rows_for_one_address_none_is_changed(run: Run, portal: Scripted) -> None:
    """As of a portal, or something before it, that drops the filter."""
    people = [{"id": n, "email": f"{n}@example.org", "name": "Ada"} for n in (7, 8)]
    portal["GET people"] = PAGE | {"results": people}
    portal["GET projects/vision/members"] = PAGE | {"results": [{"user": one, "role": "member"} for one in people]}
    for command in (("people", "deactivate"), ("projects", "remove-member", "vision")):
        result = run(*command, "7@example.org")
        assert (result.exit_code, "nothing is changed" in result.output) == (1, True)
        assert portal.last[0].startswith("GET ")


def test_limits_are_set_shown_and_removed(run: Run, portal: Scripted) -> None:
    limit = {"id": 3, "name": "GPUs", "level": "project Vision", "used": "5", "limit": "8", "hard": True}
    portal["POST limits"] = (201, limit)
    assert run("limit", "set", "gpus", "8", "--project", "vision", "--hard").exit_code == 0
    assert portal.last[1] == {"kind": "gpus", "limit": "8", "hard": True, "project": "vision"}
    for more in (False, True):
        portal["GET projects/vision/limits"] = {"results": [limit], "more": more}
        said = run("limit", "show", "vision").output
        assert ("project Vision" in said, "not shown" in said) == (True, more)
    portal["GET limits/3"] = portal["PUT limits/3"] = limit
    for option, hard in (((), True), (("--soft",), False)):
        assert run("limit", "change", "3", "9", *option).exit_code == 0
        assert portal.last == ("PUT limits/3", {"limit": "9", "hard": hard})
    portal["DELETE limits/3"] = (204, b"")
    assert "removed" in run("limit", "rm", "3").output


def test_cost_of_a_job_and_usage_as_csv(run: Run, portal: Scripted) -> None:
    use = {"gpu_hours": 2.0, "measured_gpu_hours": 1.5, "used_gpu_hours": 0.9, "emulated": True}
    portal["GET jobs/12/cost"] = use | {"so_far": "1.5", "currency": "USD", "basis": "measured"}
    said = run("cost", "job", "12").output
    assert "1.5 USD" in said
    assert "0.9 of 1.5 GPU-hours measured (60%, emulated)" in said
    portal["GET jobs/12/cost"] = use | {"gpu_hours": 0.00046, "so_far": "0.1", "currency": "USD", "basis": "measured"}
    assert "0.00046" in run("cost", "job", "12").output
    portal["GET usage/export"] = b"project,cost\nvision,1.5\n"
    assert run("cost", "usage", "--csv", "--by", "month").output == "project,cost\nvision,1.5\n"
    assert portal.last[0] == "GET usage/export?group_by=month"


def test_a_service_token_is_printed_alone(run: Run, portal: Scripted) -> None:
    portal["GET projects/vision/service-accounts"] = PAGE | {"results": [{"id": 5, "name": "ci"}]}
    portal["POST projects/vision/service-accounts/5/tokens"] = (201, {"id": 4, "secret": "ek_new_secret"})
    arguments = ("projects", "service-accounts", "create-token", "vision", "ci", "pipeline")
    result = run(*arguments, "--scope", "jobs:read", "--below", "detection")
    assert result.stdout == "ek_new_secret\n"
    wish = {"name": "pipeline", "scopes": ["jobs:read"], "project": "detection"}
    assert portal.last[1] == wish


def test_a_build_is_followed_to_its_end(run: Run, portal: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "FOLLOW_S", 0.01)
    digest = "9f86" + "0" * 60
    portal["GET projects/vision/environments"] = PAGE | {"results": [{"digest": digest}, {"digest": "9f87" + "0" * 60}]}
    log = {"offset": 0, "next_offset": 6, "size": 6, "text": "begun\n", "complete": False}
    path = f"GET projects/vision/environments/{digest}/log"
    end = log | {"next_offset": 10, "size": 10, "text": "end\n", "complete": True}
    portal.after(path, [log, log | {"offset": 6, "text": ""}, end])
    assert run("environments", "log", "vision", "9f86", "-f").output == "begun\nend\n"
    assert [what.partition("?")[2] for what, _ in portal.asked[1:]] == ["offset=0", "offset=6", "offset=6"]
    assert "give more of it" in run("environments", "rm", "vision", "9f8").output
    assert run("environments", "rm", "vision", "1").exit_code == 102


def test_the_list_of_jobs_comes_as_csv(run: Run, portal: Scripted) -> None:
    portal["GET jobs/export"] = b"number,name\n7,night\n"
    assert run("ls", "--csv", "--state", "failed", "--label", "sweep=7").stdout == "number,name\n7,night\n"
    assert portal.last[0] == "GET jobs/export?state=failed&label=sweep%3D7"


def test_the_audit_log_is_filtered_and_exported(run: Run, portal: Scripted, tmp_path: Path) -> None:
    portal["GET audit"] = PAGE | {"results": [{"id": n, "actor": "ada@example.org", "action": "x"} for n in range(5)]}
    result = run("audit", "ls", "--action", "token.", "--limit", "2", "--output", "json")
    assert [row["id"] for row in json.loads(result.output)] == [0, 1]
    assert portal.last[0] == "GET audit?action=token."
    portal["GET audit/export"] = b"position,at\n"
    target = tmp_path / "audit.csv"
    assert run("audit", "export", "--to-file", str(target), "--actor", "ada@example.org").exit_code == 0
    assert target.read_bytes() == b"position,at\n"
    assert portal.last[0] == "GET audit/export?format=csv&actor=ada%40example.org"


def test_a_token_that_one_has_gets_no_scopes(run: Run) -> None:
    result = run("login", "http://127.0.0.1:1", "--token", "ek_a_b", "--scope", "jobs:read")
    assert (result.exit_code, "not for one that you have" in result.output) == (1, True)


def test_a_rotated_token_is_printed_alone(run: Run, portal: Scripted) -> None:
    portal["POST tokens/3/rotate"] = (201, {"id": 4, "secret": "ek_new_secret"})
    result = run("tokens", "rotate", "3")
    assert result.stdout == "ek_new_secret\n"
    assert portal.last[1] == {"overlap_hours": 24}


def test_a_secret_comes_from_standard_input_and_is_never_printed(run: Run, portal: Scripted) -> None:
    portal["PUT projects/vision/secrets/HF_TOKEN"] = (201, {"name": "HF_TOKEN"})
    result = run("secrets", "set", "vision", "HF_TOKEN", stdin="hush\n")
    assert result.exit_code == 0
    assert "hush" not in result.output
    assert portal.last[1] == {"value": "hush"}


def test_an_artifact_is_found_by_its_path_and_downloaded(run: Run, portal: Scripted, tmp_path: Path) -> None:
    rows = [
        {"id": 7, "path": "plots/loss.csv", "bytes": 4, "attempt": 1},
        {"id": 9, "path": "plots/loss.csv", "attempt": 2},
    ]
    portal["GET jobs/12"] = make_job(12, state="succeeded")
    complete = PAGE | {"results": rows, "collecting": False}
    portal.after("GET jobs/12/artifacts", [PAGE | {"results": [], "collecting": True}, complete])
    portal["GET jobs/12/artifacts/9"] = b"1,2\n"
    target = tmp_path / "loss.csv"
    assert run("artifacts", "get", "12", "plots/loss.csv", "--to", str(target)).exit_code == 0
    assert target.read_bytes() == b"1,2\n"
    assert run("artifacts", "get", "12", "nothing.csv").exit_code == 102


def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    for name, text in {
        "train.py": "print(1)", "data.bin": "x", "big.ckpt": "x", "sub/part.py": "", "sub/note.txt": "x",
        ".gitignore": "*.ckpt\n", ".evenkeelignore": "data.bin\n", "sub/.gitignore": "note.txt\n",
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    (folder / "link").symlink_to("/etc/passwd")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(tar.getnames())


def test_a_bundle_has_what_is_not_ignored_and_no_links_that_lead_out(tmp_path: Path) -> None:
    folder = code(tmp_path)
    expected = [".evenkeelignore", ".gitignore", "sub/.gitignore", "sub/part.py", "train.py"]
    assert names(pack(folder).archive) == expected


@pytest.mark.parametrize("place", ["code", "./code/", "code/../code"])
def test_a_directory_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    expected = pack(code(tmp_path)).archive
    monkeypatch.chdir(tmp_path)
    assert pack(Path(place)).archive == expected


def test_the_same_files_are_the_same_bundle(tmp_path: Path) -> None:
    folder = code(tmp_path)
    before = pack(folder).archive
    (folder / "train.py").touch()
    assert pack(folder).archive == before
    (folder / "train.py").write_text("print(2)")
    assert pack(folder).archive != before
    assert gzip.decompress(before)


def test_code_is_uploaded_before_the_job_that_runs_it(run: Run, portal: Scripted, tmp_path: Path) -> None:
    rows = [{"key": "vision", "role": "member"}, {"key": "speech", "role": "viewer"}]
    portal["GET projects"] = PAGE | {"results": rows}
    portal["POST projects/vision/bundles"] = (201, {"sha256": "a" * 64, "bytes": 100, "files": 3})
    portal["POST jobs"] = (201, make_job(12))
    result = run("submit", "--steps", "5", "--code", str(code(tmp_path)), "--", "python", "train.py")
    assert result.exit_code == 0, result.output
    assert portal.last[1]["code"] == {"bundle": "a" * 64}
    assert portal.last[1]["project"] == "vision"
    uploaded = next(body for what, body in portal.asked if what == "POST projects/vision/bundles")
    assert "train.py" in names(uploaded)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_EVENKEEL_COMPLETE" in result.output


def test_commands_and_options_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"_EVENKEEL_COMPLETE": "bash_complete", "COMP_WORDS": "evenkeel projects mem", "COMP_CWORD": "2"}
    result = CliRunner().invoke(cli, [], env=environment, prog_name="evenkeel")
    assert "plain,members" in result.output


def every_command(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


def test_every_command_says_what_it_does() -> None:
    for path in every_command():
        result = CliRunner().invoke(cli, [*path, "--help"])
        assert result.exit_code == 0, path
        described = result.output.split("\n\n")[1].strip()
        assert described, path
        assert not described.startswith("Options:"), path


ARRAY = {
    "number": 57,
    "name": "sweep",
    "project": {"key": "vision", "name": "Vision"},
    "owner": None,
    "indices": "0-3",
    "size": 4,
    "max_running": 2,
    "states": {"succeeded": 3, "failed": 1},
    "first_job": 58,
    "submitted_at": "2026-11-21T14:32:10.123Z",
    "ended": True,
    "cost": {"so_far": "1.250000", "currency": "USD"},
}


def test_a_number_that_no_job_has_is_an_arrays(run: Run, portal: Scripted) -> None:
    portal["GET arrays/57"] = ARRAY
    portal["POST arrays/57/cancel"] = {"cancelled": 2, "array": ARRAY}
    assert "3 succeeded, 1 failed" in run("show", "57").output
    assert run("cancel", "57").output == "Array 57: 2 jobs cancelled\n"
    assert run("cancel", "58").exit_code == 102


@pytest.mark.parametrize(
    ("states", "ended", "code"),
    [
        ({"succeeded": 4}, True, 0),
        ({"succeeded": 2, "cancelled": 1, "failed": 1}, True, 100),
        ({"succeeded": 3, "cancelled": 1}, True, 103),
        ({"succeeded": 3, "running": 1}, False, 101),
    ],
)
def test_an_array_is_waited_for(run: Run, portal: Scripted, states: dict[str, int], ended: bool, code: int) -> None:
    portal["GET arrays/57"] = ARRAY | {"states": states, "ended": ended}
    assert run("wait", "57", "--timeout", "0").exit_code == code


def test_an_array_is_submitted_listed_and_limited(run: Run, portal: Scripted) -> None:
    portal["POST jobs"] = (201, make_job(58, array={"number": 57, "index": 0, "size": 4}))
    result = run("submit", "--model", "resnet50", "--steps", "5", "--array", "0-3%2")
    assert "Array 57 of 4 jobs submitted" in result.output
    assert portal.last[1]["array"] == "0-3%2"
    portal["GET arrays"] = PAGE | {"results": [ARRAY]}
    assert "3 succeeded, 1 failed" in run("arrays", "ls").output
    portal["PATCH arrays/57"] = ARRAY
    assert run("arrays", "limit", "57", "none").exit_code == 0
    assert portal.last == ("PATCH arrays/57", {"max_running": None})
    assert run("arrays", "limit", "57", "many").exit_code == 1


def test_the_idle_rule_is_changed_in_minutes_and_percent(run: Run, portal: Scripted) -> None:
    rule = {
        "enabled": True, "utilisation_below": 0.05, "warn_after_s": 1800.0, "release_after_s": None,
        "extension_s": 14400.0, "extensions_max": 3,
    }  # fmt: skip
    portal["GET idle-rule"] = rule
    said = run("idle", "show").output
    assert "30 min" in said
    assert "never" in said
    portal["PUT idle-rule"] = rule | {"release_after_s": 7200.0}
    assert "120 min" in run("idle", "set", "--release-after", "120", "--below", "10").output
    assert portal.last == ("PUT idle-rule", rule | {"release_after_s": 7200.0, "utilisation_below": 0.1})
    run("idle", "set", "--never-release", "--off")
    assert portal.last == ("PUT idle-rule", rule | {"release_after_s": None, "enabled": False})
    assert run("idle", "set", "--never-release", "--release-after", "5").exit_code == 1
    early = run("idle", "set", "--release-after", "20")
    assert "--release-after 20 must be at least --warn-after 30, both in minutes" in early.output
    assert "0<x<=43200" in run("idle", "set", "--help").output
    wrong = {"field": "extension_s", "message": "must be at least 1", "code": "too_small"}
    portal["PUT idle-rule"] = (400, {"title": "Wrong", "status": 400, "detail": "x", "errors": [wrong]})
    assert "--extension: must be at least 1" in run("idle", "set", "--extension", "0.001").output


def test_more_time_for_an_idle_job(run: Run, portal: Scripted) -> None:
    idle = {"text": "No step for 31 min while it holds 2 x k1. It is parked at 14:00."}
    portal["POST jobs/12/extend"] = {"number": 12, "name": "night", "idle": idle}
    assert "Job 12: No step for 31 min" in run("extend", "12").output


@pytest.mark.parametrize(("value", "shown"), [(9.3e-05, "0.000093"), (0.00733, "0.00733"), (2.0, "2"), (0.0, "0")])
def test_numbers_are_written_out(value: float, shown: str) -> None:
    assert cell_text(value) == shown


def test_bulk_looks_again_while_no_job_matches(run: Run, portal: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operate, "LOOK_S", 0.0)
    none: dict[str, Any] = {"succeeded": 0, "refused": 0, "results": []}
    one = {"id": "7", "number": 7, "status": 200, "detail": None, "made": None}
    portal.after("POST jobs/bulk", [none, none, {"succeeded": 1, "refused": 0, "results": [one]}])
    result = run("bulk", "cancel", "--label", "run=9", "--within", "60", "--yes")
    assert result.exit_code == 0, result.output
    assert "1 done" in result.stderr
    asked = [body for what, body in portal.asked if what == "POST jobs/bulk"]
    assert len(asked) == 3
    assert asked[0]["filter"] == {"label": ["run=9"], "state": ["queued", "starting", "running", "rescaling"]}
    portal["POST jobs/bulk"] = none
    result = run("bulk", "cancel", "--label", "run=9", "--yes")
    assert (result.exit_code, result.stderr) == (0, "No job matches.\n")
    assert run("bulk", "cancel", "--yes").exit_code == 1, "it is never about all jobs"


def test_preview_uploads_code_as_submit_does(run: Run, portal: Scripted, tmp_path: Path) -> None:
    portal["POST projects/vision/bundles"] = (201, {"sha256": "a" * 64, "bytes": 100, "files": 3})
    portal["POST jobs/preview"] = (400, {"title": "Bad request", "detail": "x"})
    run("preview", "--project", "vision", "--steps", "5", "--code", str(code(tmp_path)), "--", "python", "train.py")
    assert portal.last[0] == "POST jobs/preview"
    assert portal.last[1]["code"] == {"bundle": "a" * 64}
