"""The examples for CI, their shell steps run as the services run them, against a real portal."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml
from evenkeel.client import Client

from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ci"
GOOD = {"project": "default", "model_type": "digits_mlp", "total_steps": 40, "gpus": {"min": 1, "max": 1}}
BAD = {
    "project": "default",
    "command": "exit 3",
    "total_steps": 40,
    "gpus": {"min": 1, "max": 1},
    "retry": {"limit": 0},
}
LONG = GOOD | {"total_steps": 1_000_000}


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    with running_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of a runner, with nothing in it; the examples install the client."""
    home = tmp_path_factory.mktemp("runner")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    built = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "client", home / "client", ignore=built)  # building leaves files beside the sources
    return home / "bin"


@dataclass
class Runner:
    """A CI service's machine: a checkout with a job file, and what the service sets."""

    checkout: Path
    env: dict[str, str]
    cancel_during: str | None = None
    cancel_after_s: float | None = None  # of the step; by default once it follows the log
    ran: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def at(cls, portal: LivePortal, python: Path, checkout: Path, job: dict[str, Any], **env: str) -> Runner:
        (checkout / "job.yaml").write_text(yaml.safe_dump(job))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVENKEEL_", "CI"))}
        own = {
            "EVENKEEL_URL": portal.base_url,
            "EVENKEEL_TOKEN": portal.token,
            "EVENKEEL_CLIENT": str(python.parent / "client"),
        }
        return cls(checkout, kept | own | env | {"PATH": f"{python}:{kept['PATH']}", "HOME": str(checkout)})

    def run(self, name: str, script: str) -> int:
        """As both services do: bash that ends at the first failure."""
        # SIGINT as a service's machine has it: shells let what is in the background ignore it, tests among it.
        command = ["env", "--default-signal=INT", "bash", "-e", "-o", "pipefail", "-c", script]
        process = subprocess.Popen(command, cwd=self.checkout, env=self.env, start_new_session=True)
        if self.cancel_during == name:
            if self.cancel_after_s is None:
                self._await_submission()
            else:
                time.sleep(self.cancel_after_s)
            os.killpg(process.pid, signal.SIGINT if self.cancel_after_s is None else signal.SIGTERM)
        code = process.wait(timeout=300)
        self.ran.append((name, code))
        return code

    def _await_submission(self) -> None:
        give_up_at = time.monotonic() + 120
        while not ((file := self.checkout / "job.json").exists() and file.stat().st_size):
            assert time.monotonic() < give_up_at, "nothing was submitted"
            time.sleep(0.2)
        time.sleep(2.0)  # it follows the log by then

    @property
    def number(self) -> int:
        return int(json.loads((self.checkout / "job.json").read_text())["number"])


def github(runner: Runner) -> str:
    """Steps in order, with their conditions; what one writes to GITHUB_ENV the next ones have."""
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    status, added = "success", runner.checkout / "github.env"
    runner.env["GITHUB_ENV"] = str(added)
    for step in workflow["jobs"]["train"]["steps"]:
        met = {"success()": status == "success", "always()": True, "cancelled()": status == "cancelled"}
        met["env.JOB != ''"] = bool(runner.env.get("JOB"))
        if "run" not in step or not all(met[part] for part in step.get("if", "success()").split(" && ")):
            continue
        code = runner.run(step["name"], step["run"])
        if added.exists():
            runner.env |= dict(line.split("=", 1) for line in added.read_text().splitlines())
        if runner.cancel_during == step["name"]:
            status = "cancelled"
        elif code and status == "success":
            status = "failure"
    return status


def submission() -> str:
    """The step that submits, alone."""
    steps = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())["jobs"]["train"]["steps"]
    return str(next(step["run"] for step in steps if step.get("name") == "Submit").splitlines()[0])


def gitlab(runner: Runner) -> str:
    """before_script and script in one shell, then after_script whatever happened."""
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["train"]
    code = runner.run("script", "\n".join([*job["before_script"], *job["script"]]))
    status = "canceled" if runner.cancel_during else "failed" if code else "success"
    runner.env["CI_JOB_STATUS"] = status
    runner.run("after_script", "\n".join(job["after_script"]))
    return status


class Late(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Between a runner and the portal: submissions reach the portal late, or their answers the runner."""

    daemon_threads = True

    def __init__(self, portal: LivePortal, *, before_s: float, after_s: float) -> None:
        super().__init__(("127.0.0.1", 0), LateHandler)
        self.portal_url, self.before_s, self.after_s = portal.base_url, before_s, after_s

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The runner is gone by the time of the answer: that is the play."""


class LateHandler(http.server.BaseHTTPRequestHandler):
    server: Late

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        submits = (self.command, self.path) == ("POST", "/api/v1/jobs")
        time.sleep(self.server.before_s if submits else 0)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        answer = httpx.request(
            self.command, self.server.portal_url + self.path, content=body, headers=headers, timeout=60
        )
        time.sleep(self.server.after_s if submits else 0)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers.get("content-type", "application/json"))
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)


@pytest.fixture(params=[{"before_s": 0.0, "after_s": 12.0}, {"before_s": 12.0, "after_s": 0.0}], ids=["answer", "job"])
def late(request: pytest.FixtureRequest, portal: LivePortal) -> Iterator[Late]:
    with Late(portal, **request.param) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def jobs_with_label(portal: LivePortal, label: str) -> list[Any]:
    with Client(portal.base_url, portal.token) as client:
        return list(client.jobs(label=label))


def installed(python: Path) -> None:
    subprocess.run([python / "pip", "install", "--quiet", python.parent / "client"], check=True)


class TestGithub:
    def test_a_job_whose_number_never_came_is_cancelled_with_the_workflow(
        self, portal: LivePortal, python: Path, tmp_path: Path, late: Late
    ) -> None:
        attempt = f"{late.before_s:g}"
        runner = Runner.at(portal, python, tmp_path, LONG, GITHUB_RUN_ID="4", GITHUB_RUN_ATTEMPT=attempt)
        installed(python)
        runner.env["EVENKEEL_URL"] = late.url
        runner.cancel_during, runner.cancel_after_s = "Submit", 4.0
        assert github(runner) == "cancelled"
        assert ("Cancel it with the workflow", 0) in runner.ran
        (job,) = jobs_with_label(portal, f"run=github-4-{attempt}")
        assert portal.wait_state(job["number"], "cancelled")

    def test_it_succeeds_with_the_job_and_keeps_its_metrics(
        self, portal: LivePortal, python: Path, tmp_path: Path
    ) -> None:
        runner = Runner.at(portal, python, tmp_path, GOOD, GITHUB_RUN_ID="1", GITHUB_RUN_ATTEMPT="1")
        assert github(runner) == "success"
        assert portal.job(runner.number)["state"] == "succeeded"
        lines = (tmp_path / "metrics.csv").read_text().splitlines()
        assert lines[0] == "name,seconds,step,value"
        assert any(line.startswith("loss,") for line in lines)
        again = Runner.at(portal, python, tmp_path, GOOD, GITHUB_RUN_ID="1", GITHUB_RUN_ATTEMPT="1")
        first, _ = runner.number, again.run("once more", submission())
        assert again.number == first
        rerun = Runner.at(portal, python, tmp_path, GOOD, GITHUB_RUN_ID="1", GITHUB_RUN_ATTEMPT="2")
        rerun.run("another attempt", submission())
        assert rerun.number != first

    @pytest.mark.slow
    def test_it_fails_with_the_job(self, portal: LivePortal, python: Path, tmp_path: Path) -> None:
        runner = Runner.at(portal, python, tmp_path, BAD, GITHUB_RUN_ID="2", GITHUB_RUN_ATTEMPT="1")
        assert github(runner) == "failure"
        assert ("Succeed or fail as it did", 100) in runner.ran
        assert (tmp_path / "metrics.csv").exists()

    @pytest.mark.slow
    def test_cancelling_it_cancels_the_job(self, portal: LivePortal, python: Path, tmp_path: Path) -> None:
        runner = Runner.at(portal, python, tmp_path, LONG, GITHUB_RUN_ID="3", GITHUB_RUN_ATTEMPT="1")
        runner.cancel_during = "Follow its log"
        assert github(runner) == "cancelled"
        assert portal.wait_state(runner.number, "cancelled")


class TestGitlab:
    def test_a_job_whose_number_never_came_is_cancelled_with_the_pipeline(
        self, portal: LivePortal, python: Path, tmp_path: Path, late: Late
    ) -> None:
        pipeline = f"4{late.before_s:g}"
        runner = Runner.at(portal, python, tmp_path, LONG, CI_PIPELINE_ID=pipeline, CI_JOB_NAME="train")
        installed(python)
        runner.env |= {"EVENKEEL_URL": late.url, "EVENKEEL_CLIENT": "pip"}  # it is there: the step is the submission
        runner.cancel_during, runner.cancel_after_s = "script", 6.0
        assert gitlab(runner) == "canceled"
        (job,) = jobs_with_label(portal, f"run=gitlab-{pipeline}-train")
        assert portal.wait_state(job["number"], "cancelled")

    def test_it_succeeds_with_the_job(self, portal: LivePortal, python: Path, tmp_path: Path) -> None:
        runner = Runner.at(portal, python, tmp_path, GOOD, CI_PIPELINE_ID="1", CI_JOB_NAME="train")
        assert gitlab(runner) == "success"
        assert (tmp_path / "metrics.csv").read_text().count("loss,") > 1

    def test_it_fails_with_the_job_and_a_retry_of_that_submits_anew(
        self, portal: LivePortal, python: Path, tmp_path: Path
    ) -> None:
        numbers = []
        for job_id in ("21", "22"):
            env = {"CI_PIPELINE_ID": "2", "CI_JOB_NAME": "train", "CI_JOB_ID": job_id}
            runner = Runner.at(portal, python, tmp_path, BAD, **env)
            assert gitlab(runner) == "failed"
            assert ("script", 100) in runner.ran
            numbers.append(runner.number)
        assert len(set(numbers)) == 2

    @pytest.mark.slow
    def test_cancelling_it_cancels_the_job(self, portal: LivePortal, python: Path, tmp_path: Path) -> None:
        runner = Runner.at(portal, python, tmp_path, LONG, CI_PIPELINE_ID="3", CI_JOB_NAME="train")
        runner.cancel_during = "script"
        assert gitlab(runner) == "canceled"
        assert portal.wait_state(runner.number, "cancelled")


def test_the_client_needs_three_packages_at_most() -> None:
    client = (ROOT / "client" / "pyproject.toml").read_text()
    line = next(line for line in client.splitlines() if line.startswith("dependencies = "))
    assert len(json.loads(line.removeprefix("dependencies = "))) <= 3
