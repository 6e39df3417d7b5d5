"""However a command ends, its user reads a sentence and gets a code; never a traceback."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result
from evenkeel.cli import waiting
from evenkeel.cli.failures import Ended
from evenkeel.cli.main import cli

from tests.cases import in_turn
from tests.client.cli_portal import TOKEN, Portal, make_job

FAULTS: dict[str, Callable[[], BaseException]] = {
    "OSError": lambda: OSError(errno.EIO, "Input/output error", "/some/file"),
    "nameless OSError": lambda: OSError("odd"),
    "PermissionError": lambda: PermissionError(errno.EACCES, "Permission denied", "/some/file"),
    "ValueError": lambda: ValueError("odd"),
    "KeyError": lambda: KeyError("results"),
    "TypeError": lambda: TypeError("'NoneType' object is not subscriptable"),
    "RecursionError": lambda: RecursionError("maximum recursion depth exceeded"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "UnicodeEncodeError": lambda: UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)"),
    "SSLError": lambda: ssl.SSLError(1, "certificate verify failed"),
    "ReadError": lambda: httpx.ReadError("broken"),
    "JSONDecodeError": lambda: json.JSONDecodeError("Expecting value", "<html>", 0),
    "MemoryError": lambda: MemoryError(),
    "AssertionError": lambda: AssertionError(),
}
JOB_FILE = next((Path(__file__).parents[2] / "examples").glob("*.yaml"))
ARGUMENTS = {  # of parameters whose values are checked before anything is asked
    "at_once": "4", "settings": "nice=1", "url": "http://127.0.0.1:9", "file": str(JOB_FILE),
}  # fmt: skip
OPTIONS = {
    "bulk": ["--state", "queued", "--yes"],
    "submit": ["--model", "a", "--steps", "5"],
    "preview": ["--model", "a", "--steps", "5"],
    "login": ["--token", "t"],
    "environments log": ["--follow"],
    "logs": ["--follow"],
    "people account": ["ana"],
    "projects move": ["--top"],
    "projects set-share": ["--weight", "2"],
    "projects set-slurm": ["--account", "a"],
}


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from walk(inner, (*path, name))
    else:
        yield path, command


COMMANDS = dict(walk(cli))


def arguments_of(path: tuple[str, ...]) -> list[str]:
    given = list(path)
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Argument) and parameter.required:
            kinds = getattr(parameter.type, "choices", None)
            given.append(str(kinds[0]) if kinds else ARGUMENTS.get(str(parameter.name), "12"))
        elif parameter.required:
            kinds = getattr(parameter.type, "choices", None)
            given += [parameter.opts[0], str(kinds[0]) if kinds else ARGUMENTS.get(str(parameter.name), "12")]
    return given + OPTIONS.get(" ".join(path), [])


@pytest.fixture(autouse=True)
def logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("EVENKEEL_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("EVENKEEL_TOKEN", TOKEN)


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments, input="y\n")
    assert "Traceback" not in result.output + result.stderr
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def failing(monkeypatch: pytest.MonkeyPatch, fault: Callable[[], BaseException]) -> list[str]:
    """Every request of the client fails so."""
    reached: list[str] = []

    def fail(self: httpx.Client, *arguments: Any, **options: Any) -> None:
        reached.append("asked")
        raise fault()

    monkeypatch.setattr(httpx.Client, "request", fail)
    monkeypatch.setattr(httpx.Client, "stream", fail)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(waiting, "UNREACHABLE_S", 0.0)
    return reached


ASKS_NOTHING = {("completion",), ("open",)}
ASKING = [path for path in COMMANDS if path not in ASKS_NOTHING]
ENDS: dict[str, tuple[Callable[[], BaseException], int, str]] = {
    "SIGINT": (KeyboardInterrupt, 130, "Interrupted. "),
    "SIGTERM": (lambda: Ended(signal.SIGTERM), 143, "Ended by SIGTERM. "),
    "SIGHUP": (lambda: Ended(signal.SIGHUP), 129, "Ended by SIGHUP. "),
}
ANSWERS = [b"", b"<html>", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"results": 5}']


def spread(values: Iterable[Any]) -> list[Any]:
    """Each command with one of the values, two commands with all of them; all with all takes minutes."""
    kinds = list(values)
    product = [(path, kind) for path in ASKING for kind in kinds]
    chosen = {(path, kinds[number % len(kinds)]) for number, path in enumerate(ASKING)}
    chosen |= {(path, kind) for path in (("ls",), ("wait",)) for kind in kinds}
    slow = [pytest.mark.slow, pytest.mark.timeout(1200)]
    return [
        pytest.param([one for one in product if one in chosen], id="some"),
        pytest.param(product, id="all", marks=slow),
    ]


Cases = list[tuple[tuple[str, ...], Any]]


@pytest.mark.parametrize("cases", spread(FAULTS))
def test_every_fault_is_a_sentence_in_every_command(monkeypatch: pytest.MonkeyPatch, cases: Cases) -> None:
    @in_turn(("path", "name"), cases)
    def each(patch: pytest.MonkeyPatch, path: tuple[str, ...], name: str) -> None:
        reached = failing(patch, FAULTS[name])
        result = invoke(*arguments_of(path))
        assert reached, f"nothing was asked: {result.stderr}"
        assert result.exit_code == 1, result.output
        assert "Error: " in result.stderr

    each(patch=monkeypatch)


@pytest.mark.parametrize("cases", spread(ENDS))
def test_signals_end_every_command_with_their_code(monkeypatch: pytest.MonkeyPatch, cases: Cases) -> None:
    @in_turn(("path", "name"), cases)
    def each(patch: pytest.MonkeyPatch, path: tuple[str, ...], name: str) -> None:
        error, code, how = ENDS[name]
        failing(patch, error)
        result = invoke(*arguments_of(path))
        assert result.exit_code == code, result.output
        assert len(result.stderr.partition(how)[2]) > 10, "it says what goes on"

    each(patch=monkeypatch)


@pytest.mark.parametrize("cases", spread(ANSWERS))
def test_broken_answers_are_sentences_in_every_command(monkeypatch: pytest.MonkeyPatch, cases: Cases) -> None:
    in_turn(("path", "answer"), cases)(_a_broken_answer_is_a_sentence)(monkeypatch=monkeypatch)


def _a_broken_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], answer: bytes) -> None:
    def reply(self: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        return httpx.Response(200, content=answer, request=httpx.Request(method, "http://127.0.0.1:9/api/v1/x"))

    monkeypatch.setattr(httpx.Client, "request", reply)
    clock = iter(range(0, 10**9, 400))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert invoke(*arguments_of(path)).exit_code in (0, 1, 2, 100, 101)


@in_turn("name", FAULTS)
def test_faults_of_files_are_sentences(monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("a: 1")

    def fail(*arguments: Any, **options: Any) -> None:
        raise FAULTS[name]()

    for arguments in (("submit", str(tmp_path / "job.yaml")), ("cost", "estimate", str(tmp_path / "job.yaml"))):
        with monkeypatch.context() as patch:
            patch.setattr(pathlib.Path, "open", fail)
            result = invoke(*arguments)
        assert result.exit_code == 1
        assert "Error: " in result.stderr
    monkeypatch.delenv("EVENKEEL_TOKEN")
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "read_text", fail)
        assert invoke("ls").exit_code == 1


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, FAULTS["KeyError"])
    assert "--debug" in invoke("ls").stderr
    for arguments in (("--debug", "ls"), ("ls", "--debug")):
        result = CliRunner().invoke(cli, arguments)
        assert "Traceback" in result.stderr, arguments
        assert result.exit_code == 1
    monkeypatch.setenv("EVENKEEL_DEBUG", "1")
    assert "Traceback" in CliRunner().invoke(cli, ["ls"]).stderr


def test_debug_of_the_job_is_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def reply(self: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        sent.append(options["json"])
        return httpx.Response(201, json=make_job(1), request=httpx.Request(method, "http://127.0.0.1:9/"))

    monkeypatch.setattr(httpx.Client, "request", reply)
    assert invoke("submit", "--steps", "5", "--", "python", "a.py", "--debug").exit_code == 0
    assert sent[0]["command"] == "python a.py --debug"


# As a program of its own ---------------------------------------------------------------------------


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as server:
        server.start()
        yield server
        server.shutdown()


def program(portal: Portal, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    defaults = ["env", "--default-signal=INT,HUP"]  # the tests may have been started to live on without a terminal
    command = [*defaults, sys.executable, "-c", "from evenkeel.cli import run; run()", *arguments]
    own = {"EVENKEEL_URL": portal.url, "EVENKEEL_TOKEN": TOKEN} | env
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, **own}, **pipes)


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Ended by SIGTERM"), (signal.SIGHUP, 129, "SIGHUP")],
)
@pytest.mark.parametrize("arguments", [("wait", "1"), ("logs", "1", "-f"), ("submit", "--model", "a", "--wait")])
def test_what_follows_a_job_says_that_it_goes_on(
    portal: Portal, arguments: tuple[str, ...], number: signal.Signals, code: int, how: str
) -> None:
    portal.jobs[1] = make_job(1, state="running")
    if arguments[0] == "submit":
        arguments = (*arguments, "--steps", "5")
    process = program(portal, *arguments)
    deadline = time.monotonic() + 60
    while not any(asked.startswith("GET /api/v1/jobs/") for asked in portal.requests):
        assert time.monotonic() < deadline, process.poll()
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert b"Traceback" not in errors
    assert how.encode() in errors
    assert b"The job keeps running: " in errors
    assert b"evenkeel cancel " in errors


def test_output_that_cannot_be_written_is_said_once(portal: Portal) -> None:
    portal.jobs = {number: make_job(number) for number in range(1, 4)}
    with Path("/dev/full").open("wb") as full:
        process = program(portal, "ls")
        process.communicate(timeout=60)
        own = {"EVENKEEL_URL": portal.url, "EVENKEEL_TOKEN": TOKEN}
        command = [sys.executable, "-c", "from evenkeel.cli import run; run()", "ls"]
        done = subprocess.run(command, env={**os.environ, **own}, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "Error: No space left on device\n"


def test_a_reader_that_has_gone_is_no_error_to_print(portal: Portal) -> None:
    portal.jobs = {number: make_job(number) for number in range(1, 300)}
    process = program(portal, "ls", "--limit", "300")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(60) == 1


def test_names_that_the_terminal_cannot_show_are_printed_all_the_same(portal: Portal) -> None:
    portal.jobs = {1: make_job(1, name="größer ☃")}
    process = program(portal, "show", "1", PYTHONIOENCODING="iso-8859-1", PYTHONUTF8="0")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert b"Job        1  gr" in output


@pytest.mark.parametrize(
    "closing",
    [">&-", "2>&-", "<&-", ">&- 2>&-", ">&- 2>&- <&-", "> /dev/full 2>&-", "2> /dev/full", ">&- 2> /dev/full"],
)
@pytest.mark.parametrize("arguments", ["ls", "ls --output json", "show 9", "bulk cancel --state queued", "--help"])
def test_streams_that_are_closed_or_full_change_nothing_but_what_is_seen(
    portal: Portal, closing: str, arguments: str
) -> None:
    portal.jobs = {1: make_job(1)}
    own = {"EVENKEEL_URL": portal.url, "EVENKEEL_TOKEN": TOKEN}
    line = f'"{sys.executable}" -c "from evenkeel.cli import run; run()" {arguments} {closing}'
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60}
    done = subprocess.run(["sh", "-c", line], env={**os.environ, **own}, check=False, **streams)
    assert b"Traceback" not in done.stdout + done.stderr
    assert b"Exception ignored" not in done.stderr
    assert b"has a form that this version does not know" not in done.stderr
    is_full = "> /dev/full" in closing.replace("2> /dev/full", "")
    expected = {"show 9": 102, "bulk cancel --state queued": 1}.get(arguments, 1 if is_full else 0)
    assert done.returncode == (1 if is_full and expected == 0 else expected), done.stderr


#: Where files, JSON, YAML, the terminal and the client itself may fail.
PLACES = (
    "pathlib.Path.read_text", "json.loads", "json.dumps", "shutil.get_terminal_size", "evenkeel.yaml_loader.load",
    "httpx.Client.__init__", "evenkeel.cli.config.current_login", "click.Command.get_help",
)  # fmt: skip
FURTHER: dict[str, Callable[[], BaseException]] = FAULTS | {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SIGTERM": lambda: Ended(signal.SIGTERM),
    "BrokenPipeError": lambda: BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "full disk": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "EOFError": EOFError,
    "RuntimeError": lambda: RuntimeError("Could not determine home directory."),
    "ImportError": lambda: ImportError("no module"),
    "StopIteration": StopIteration,
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("odd")]),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_fails_wherever_is_a_sentence(monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: Path) -> None:
    """Faults and commands in turn, so that each of both is there for every place."""

    def reply(self: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        return httpx.Response(200, content=b'{"results": []}', request=httpx.Request(method, "http://127.0.0.1:9/"))

    (tmp_path / "evenkeel").mkdir()
    (tmp_path / "evenkeel" / "config.json").write_text('{"url": "http://127.0.0.1:9", "token": "t"}')
    for name in ("EVENKEEL_URL", "EVENKEEL_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(httpx.Client, "request", reply)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    names = list(FURTHER)
    for number, path in enumerate(COMMANDS):
        name = names[number % len(names)]

        def fail(*arguments: Any, fault: Callable[[], BaseException] = FURTHER[name], **options: Any) -> None:
            raise fault()

        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            result = invoke(*arguments_of(path))
        assert result.exit_code in (0, 1, 2, 100, 101, 102, 103, 130, 143), (path, name, result.output)
        assert result.exit_code != 1 or result.stderr or name == "BrokenPipeError", (path, name)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(KeyboardInterrupt, 130), (lambda: Ended(signal.SIGTERM), 143), (ValueError, 1), (MemoryError, 1)],
)
def test_a_fault_while_the_first_is_said_ends_it(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[], BaseException], code: int
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise fault()

    failing(monkeypatch, FAULTS["ValueError"])
    monkeypatch.setattr(click, "echo", fail)
    assert invoke("ls").exit_code == code


@pytest.mark.parametrize("token", ["☃secret", "secret\n", "sec ret", "secret\x7f", "\udce9secret"])
def test_a_token_that_cannot_be_sent_is_not_repeated(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("EVENKEEL_TOKEN", token)
    result = invoke("ls")
    assert result.exit_code == 1
    assert "set EVENKEEL_TOKEN again" in result.stderr
    assert "sec" not in result.stderr


def test_what_of_the_environment_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("HTTPS_PROXY", "gopher://proxy")
        assert "the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used" in invoke("ls").stderr
    monkeypatch.setenv("EVENKEEL_URL", "https://127.0.0.1:9")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    assert "the certificates that SSL_CERT_FILE name cannot be read: No such file" in invoke("ls").stderr


def test_a_number_that_is_too_large_is_refused_where_it_is_given() -> None:
    for command in (("ls",), ("queue",), ("audit", "ls")):
        assert f"'{2**70}' is too large" in invoke(*command, "--limit", str(2**70)).stderr
