"""Code, environments, secrets and artefacts under the local executor: real git servers, archives and packages."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduling.errors import ExecutorError
from scheduling.executors.base import Executor, Preparation, Progress, Secret
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.processes.watching import holders
from tests.executors.contract import ExecutorContract, ended, reason, until
from tests.executors.contract_material import MIB, archive, asked, git, settled

TOKEN = "ghp_0123456789abcdefghij"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-material-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(params=["accounts", "none"])
def executor(place: Path, request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    """Both as root with an account per project, and with everything as one user."""
    if request.param == "accounts" and os.geteuid() != 0:
        pytest.skip("accounts of their own need root")
    made = LocalExecutor(place / "data", "titan_xp:6", request.param, preload=("colorsys",))
    yield made
    made.reap_orphans([], min_age_s=-2.0)
    made.stop_warm_start(["vision"])


@pytest.fixture
def request_for(executor: Executor, place: Path) -> Any:
    return ExecutorContract.request_for.__wrapped__(ExecutorContract(), executor, place)  # type: ignore[attr-defined]


def log_of(place: Path, wish: Preparation) -> str:
    where = f"environments/vision/{wish.key}" if wish.kind == "environment" else f"jobs/{wish.key}/code"
    return (place / "data" / where / "log").read_text()


# Git


@pytest.fixture
def repository(place: Path) -> Path:
    """A bare repository with two commits, a tag on the first, and a hook that would show itself."""
    source, bare = place / "source", place / "code.git"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    (source / "train.py").write_text("print('first')\n")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "first")
    git(source, "tag", "-a", "v1", "-m", "v1")
    (source / "train.py").write_text("print('second')\n")
    (source / "deep").mkdir()
    (source / "deep" / "go.py").write_text("print('deep')\n")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "second")
    git(place, "clone", "-q", "--bare", str(source), str(bare))
    subprocess.run(["chmod", "-R", "a+rX", str(bare)], check=True)
    return bare


class Backend(http.server.BaseHTTPRequestHandler):
    """The real git http-backend, behind Basic authentication where the server has a token."""

    def answer(self) -> None:
        wanted = getattr(self.server, "token", "")
        given = self.headers.get("Authorization", "")
        if wanted and given != "Basic " + base64.b64encode(f"x-access-token:{wanted}".encode()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),  # type: ignore[attr-defined]
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        said = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(repository: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    made.root = repository.parent  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def address(server: http.server.ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/code.git"


@pytest.mark.parametrize(("ref", "says"), [("main", "second"), ("v1", "first")])
def test_a_ref_becomes_a_commit_and_its_files(
    executor: LocalExecutor, place: Path, repository: Path, ref: str, says: str
) -> None:
    wish = asked("git", {"url": f"file://{repository}", "ref": ref})
    progress = settled(executor, wish)
    assert progress.state == "done", log_of(place, wish)
    assert progress.detail["commit"] == git(repository, "rev-parse", f"{ref}^{{commit}}")
    tree = place / "data" / "jobs" / wish.key / "code" / "tree"
    assert says in (tree / "train.py").read_text()
    assert not (tree / ".git").exists()
    assert executor.prepare(wish) == progress


def test_a_server_on_the_list_is_asked_with_the_token(
    executor: LocalExecutor, place: Path, server: http.server.ThreadingHTTPServer
) -> None:
    server.token = TOKEN  # type: ignore[attr-defined]
    options = {"url": address(server), "ref": "main", "subdir": "deep", "allowed_hosts": ["127.0.0.0/8"]}
    refused = settled(executor, asked("git", options))
    assert refused.state == "failed"
    wish = asked("git", options, secret=TOKEN)
    progress = settled(executor, wish)
    assert progress.state == "done", log_of(place, wish)
    stored = "".join(p.read_text(errors="replace") for p in (place / "data").rglob("*") if p.is_file())
    assert TOKEN not in stored
    assert base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode() not in stored


def test_private_addresses_are_refused(executor: LocalExecutor, server: http.server.ThreadingHTTPServer) -> None:
    progress = settled(executor, asked("git", {"url": address(server), "ref": "main"}))
    assert progress.state == "failed"
    assert "127.0.0.1, a private address" in progress.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ref": "no-such"}, "fetching no-such failed with exit code 128: fatal: couldn't find remote ref"),
        ({"subdir": "nowhere"}, "subdir nowhere is not a directory"),
        ({"url": "file:///no/such/place"}, "failed with exit code"),
    ],
)
def test_what_cannot_be_fetched_says_why(
    executor: LocalExecutor, repository: Path, change: dict[str, str], words: str
) -> None:
    progress = settled(executor, asked("git", {"url": f"file://{repository}", "ref": "main"} | change))
    assert progress.state == "failed"
    assert words in progress.message


def test_a_repository_that_is_too_large_is_given_up(executor: LocalExecutor, repository: Path, place: Path) -> None:
    source = place / "source"
    (source / "big").write_bytes(os.urandom(3 * MIB))
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "big")
    git(source, "push", "-q", str(repository), "main")
    wish = asked("git", {"url": f"file://{repository}", "ref": "main"}, max_bytes=MIB)
    progress = settled(executor, wish)
    assert progress.state == "failed"
    assert "needs more than the 1 MiB" in progress.message


# Bundles


def unpacked(executor: LocalExecutor, place: Path, data: bytes, **options: Any) -> tuple[Progress, Path]:
    source = place / f"{uuid.uuid4().hex}.tar.gz"
    source.write_bytes(data)
    source.chmod(0o600)
    wish = asked("bundle", {"max_files": 10} | options, source=str(source))
    return settled(executor, wish), place / "data" / "jobs" / wish.key / "code" / "tree"


def test_a_bundle_is_unpacked_as_the_project(executor: LocalExecutor, place: Path) -> None:
    progress, tree = unpacked(executor, place, archive(("a/b.py", b"print(1)"), ("c", "a/b.py")))
    assert progress.state == "done", progress
    assert (tree / "a" / "b.py").read_bytes() == b"print(1)"
    assert (tree / "c").read_bytes() == b"print(1)"
    assert (tree.stat().st_uid != 0) == (not executor.single_trust_mode)


def test_one_that_was_stopped_while_it_starts_is_begun_again(executor: LocalExecutor, place: Path) -> None:
    source = place / "bundle.tar.gz"
    source.write_bytes(archive(("a", b"1")))
    source.chmod(0o600)
    wish = asked("bundle", {"max_files": 10}, source=str(source))
    lock = executor._layout.own / "prepare" / f"bundle-vision-{wish.key}.lock"
    account = executor._accounts.of_project("vision")
    stopped: list[int] = []

    def stop() -> None:
        give_up_at = time.monotonic() + 60
        while not stopped and time.monotonic() < give_up_at:
            for process in holders(lock, account):
                os.kill(process.pid, signal.SIGSTOP)
                stopped.append(process.pid)
                return

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    with contextlib.suppress(ExecutorError):
        executor.prepare(wish)
    assert settled(executor, wish).state == "done"
    thread.join(60)
    assert all(process.pid not in stopped for process in holders(lock, account))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("../x", b"1")], "leads out"),
        ([("/etc/x", b"1")], "leads out"),
        ([("x", "/etc/passwd")], "leads out"),
        ([("a/x", "../../y")], "leads out"),
        ([("a/b/c/up", "../../.."), ("x", "a/b/c/up/..")], "leads out"),
        ([("l", "a"), ("l/x", b"1")], "cannot be unpacked"),
        ([("pipe", None)], "not a file"),
        ([(f"f{n}", b"") for n in range(11)], "more than the 10 members"),
        ([("zeros", bytes(65 * MIB))], "larger than"),
        ([], "empty"),
    ],
)
def test_no_archive_may_do_harm(executor: LocalExecutor, place: Path, members: Any, words: str) -> None:
    progress, _ = unpacked(executor, place, archive(*members))
    assert progress.state == "failed"
    assert words in progress.message


def test_a_damaged_archive_is_refused(executor: LocalExecutor, place: Path) -> None:
    whole = archive(("a", os.urandom(4_000)), ("b", os.urandom(4_000)))
    for data in (whole[:3_000], whole[:-6], b"no archive", whole[:2_000] + b"damage" + whole[2_006:]):
        progress, _ = unpacked(executor, place, data)
        assert (progress.state, "not a readable gzipped tar archive" in progress.message) == ("failed", True), progress


# Environments


def test_an_environment_is_built_once_on_top_of_the_base(
    executor: LocalExecutor, request_for: Any, place: Path
) -> None:
    wish = asked("environment", {"requirements": "six==1.16.0\n"}, key="e" * 64, timeout_s=240.0)
    progress = settled(executor, wish)
    assert progress.state == "done", log_of(place, wish)
    built = (place / "data" / "environments" / "vision" / ("e" * 64) / "venv" / "bin").stat().st_mtime_ns
    assert "six" in log_of(place, wish)
    assert executor.prepare(wish) == progress
    assert (place / "data" / "environments" / "vision" / ("e" * 64) / "venv" / "bin").stat().st_mtime_ns == built
    line = "import six, evenkeel, sys; print(six.__version__, sys.prefix); from importlib.util import find_spec as f; "
    line += "print(f('torch') is not None)"
    request = request_for(argv=("python", "-c", line), environment="e" * 64)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    said = (place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1" / "logs" / "rank0.log").read_text()
    assert reason(fact) == "done", said
    assert "\n1.16.0 " in said
    assert "environments/vision" in said
    assert said.endswith("True\n")


def test_a_requirement_that_does_not_exist_fails_with_its_log(executor: LocalExecutor, place: Path) -> None:
    wish = asked("environment", {"requirements": "six==99.99.99\n"}, key="f" * 64, timeout_s=240.0)
    progress = settled(executor, wish)
    assert progress.state == "failed"
    assert "exit code 1" in progress.message
    assert "six==99.99.99" in log_of(place, wish)


def test_where_wheels_are_asked_for_no_source_package_is_built(executor: LocalExecutor, place: Path) -> None:
    """docopt was published as source alone."""
    asked_for = {"requirements": "docopt==0.6.2\n", "wheels_only": True}
    wish = asked("environment", asked_for, key="d" * 64, timeout_s=240.0)
    progress = settled(executor, wish)
    assert progress.state == "failed"
    assert "No matching distribution found for docopt==0.6.2" in log_of(place, wish)


def test_a_launch_without_its_environment_is_refused(executor: LocalExecutor, request_for: Any) -> None:
    with pytest.raises(ExecutorError) as refusal:
        executor.launch(request_for("pass", environment="a" * 64))
    assert refusal.value.permanent


# Secrets


@pytest.mark.parametrize("warm", [True, False])
def test_secrets_reach_the_program_and_nothing_else(
    executor: LocalExecutor, request_for: Any, place: Path, warm: bool
) -> None:
    secret, key = "correct-horse-battery", "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\n-----END KEY-----"
    program = """
import base64, os, sys, evenkeel
value = os.environ["API_KEY"]
path = os.path.join(os.environ["EVENKEEL_SECRETS_DIR"], "key.pem")
assert value == "correct-" + "horse-battery" and oct(os.stat(path).st_mode)[-3:] == "600"
for character in value: print(character, end="", flush=True)
print("|", base64.b64encode(b"user:" + value.encode()).decode(), open(path).read())
with evenkeel.training() as run:
    run.notice("it is " + value)
    raise ValueError(value)
"""
    script = place / "show.py"
    script.write_text(program)
    script.chmod(0o644)
    secrets = (Secret("API_KEY", env="API_KEY", value=secret), Secret("KEY", file="key.pem", value=key))
    argv = ("python", str(script)) if warm else ("python", "-c", program)
    request = request_for(argv=argv, secrets=secrets)
    assert secret not in repr(request)
    executor.launch(request)
    fact = ended(executor, request.run_id)
    assert reason(fact) == "user_error"
    assert fact.exit
    assert secret not in fact.exit.message
    assert "[redacted]" in fact.exit.message
    epoch = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1"
    assert (epoch / "logs" / "rank0.log").read_text().splitlines()[1].startswith("[redacted]| ")
    assert not (epoch / "secrets").exists()
    reports = json.dumps([one.report for one in executor.spooled(request.run_id, 1)])
    assert "it is [redacted]" in reports
    harmless = {p for p in epoch.rglob("*") if p.is_file() and p.parent.name != "sdk"}
    stored = "".join(p.read_text(errors="replace") for p in harmless) + reports
    hidden = (secret, "abcdefghijklmnopqrstuvwxyz", base64.b64encode(secret.encode()).decode()[:20])
    assert not [value for value in hidden if value in stored]


def test_a_killed_runner_leaves_no_secret_behind(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    request = request_for("import time; time.sleep(600)", secrets=(Secret("K", file="k", value="correct-horse"),))
    executor.launch(request)
    epoch = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1"
    until((epoch / "secrets" / "k").exists, "the file")
    os.kill(int(json.loads((epoch / "runner.json").read_text())["pid"]), 9)
    assert reason(ended(executor, request.run_id)) == "runner_lost"
    assert not (epoch / "secrets").exists()


# Artefacts


def test_what_a_run_leaves_is_listed_without_links(executor: LocalExecutor, request_for: Any, place: Path) -> None:
    program = """
import os
os.chdir(os.environ["EVENKEEL_ARTIFACT_DIR"])
os.makedirs("plots")
open("plots/loss.csv", "w").write("1,2")
open("model.bin", "w").write("weights")
os.symlink("/etc/passwd", "passwd.csv")
os.symlink("/etc", "etc")
os.mkfifo("pipe.csv")
open("big.csv", "w").write("x" * 5000)
"""
    request = request_for(program)
    executor.launch(request)
    assert reason(ended(executor, request.run_id)) == "done"
    options = {"globs": ["*.csv"], "max_files": 10, "max_bytes": 1_000}
    wish = asked("artifacts", options, key=request.run_id, job_id=request.job_id)
    progress = settled(executor, wish)
    assert progress.state == "done", progress
    [only] = progress.detail["files"]
    assert (only["path"], only["bytes"]) == ("plots/loss.csv", 3)
    assert progress.detail["left_out"] == 1
    executor.discard("vision", [f"jobs/{request.job_id}/runs/{request.run_id}/artifacts/plots/loss.csv"])
    left = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "artifacts"
    assert not (left / "plots" / "loss.csv").exists()
    assert (left / "model.bin").exists()


def test_a_run_that_left_nothing_costs_no_process(executor: LocalExecutor, place: Path) -> None:
    wish = asked("artifacts", {"globs": ["**"], "max_files": 10, "max_bytes": 1_000})
    assert executor.prepare(wish) == Progress("done", "", {"files": [], "left_out": 0})
    assert not (place / "data" / "jobs" / wish.job_id).exists()


@pytest.mark.parametrize("path", ["jobs/x", "run/local/x", "jobs/x/../../run/local", "/etc/passwd", "jobs//x"])
def test_nothing_else_can_be_discarded(executor: LocalExecutor, path: str) -> None:
    with pytest.raises(ExecutorError):
        executor.discard("vision", [path])
