"""The runner as a program: its reports to a portal that comes and goes, and its parts."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from evenkeel.runner.listening import Heard, Listener
from evenkeel.runner.output import RotatingLog
from evenkeel.runner.reports import report_url
from evenkeel.runner.spec import LaunchSpec
from evenkeel.runner.verdict import Order, judge
from evenkeel.runner.workers import Worker, free_port

SLOW = """
import time, evenkeel
with evenkeel.training() as run:
    for step in run.steps():
        time.sleep(0.02)
        run.report(loss=1 / (step + 1))
        run.save({"step": step})
"""


class Portal:
    """Takes reports; `answer` decides what it says to each."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reports: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.answer: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]] = lambda _: (200, {"next_report_s": 0.2})
        self._server: ThreadingHTTPServer | None = None

    def up(self) -> None:
        portal = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | {"path": self.path}
                portal.reports.append(report)
                portal.tokens.add(self.headers["Authorization"])
                status, content = portal.answer(report)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def sequence(self) -> list[int]:
        return [report["seq"] for report in self.reports]


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal(free_port())
    made.up()
    yield made
    made.down()


def launch(place: Path, portal: Portal, program: str = SLOW, **changes: Any) -> subprocess.Popen[bytes]:
    epoch_dir = place / "epoch"
    for name in ("sdk", "spool", "logs"):
        (epoch_dir / name).mkdir(parents=True, exist_ok=True)
    (epoch_dir / "token").write_text(changes.pop("token", "the-token"))
    environment = {
        "PATH": os.environ["PATH"],
        "EVENKEEL_TOTAL_STEPS": "100000",
        "EVENKEEL_BATCH_SIZE": "8",
        "EVENKEEL_CHECKPOINT_DIR": str(place / "checkpoints"),
        "EVENKEEL_SDK_DIR": str(epoch_dir / "sdk"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    content = {
        "job_id": "j1",
        "run_id": "r1",
        "epoch": 4,
        "argv": [sys.executable, "-c", program],
        "shell": False,
        "workdir": str(place),
        "workers": 1,
        "cuda_visible_devices": "",
        "emulated_devices": "",
        "gpu_sharing": "",
        "limits_in_words": "",
        "pace_steps_per_s": None,
        "environment": environment | changes.pop("environment", {}),
        "env": {},
        "total_steps": 100_000,
        "max_duration_s": None,
        "memory_mib": None,
        "api_url": f"http://127.0.0.1:{portal.port}",
        "report_interval_s": 0.2,
        "limits": {},
        "log_bytes": 1 << 20,
        "secret_variables": [],
    }
    (epoch_dir / "launch.json").write_text(json.dumps(content | changes))
    return subprocess.Popen([sys.executable, "-m", "evenkeel.runner", str(epoch_dir)], start_new_session=True)


def exit_of(place: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((place / "epoch" / "exit.json").read_text())
    return content


def until(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at, "did not happen"
        time.sleep(0.02)


def test_reports_tell_the_course_of_the_run(tmp_path: Path, portal: Portal) -> None:
    runner = launch(tmp_path, portal, environment={"EVENKEEL_TOTAL_STEPS": "60", "EVENKEEL_CHECKPOINT_EVERY": "20"})
    assert runner.wait(60) == 0
    reports = portal.reports
    assert portal.sequence() == list(range(1, len(reports) + 1))
    assert portal.tokens == {"Bearer the-token"}
    assert reports[0]["path"] == "/api/v1/runs/r1/reports"
    assert {report["epoch"] for report in reports} == {4}
    assert {report["phase"] for report in reports} >= {"running", "stopped"}
    assert reports[-1]["phase"] == "stopped"
    assert reports[-1]["exit"]["reason"] == "done"
    assert reports[-1]["checkpoint"]["path"] == "step-60"
    assert reports[-1]["sdk"] is True
    metrics = [line for report in reports for line in report["metrics"]]
    assert [line["step"] for line in metrics] == sorted({line["step"] for line in metrics})
    assert metrics[-1]["loss"] == pytest.approx(1 / 60)
    assert metrics[-1]["steps_per_s"] > 0
    assert exit_of(tmp_path) == {"run_id": "r1", "epoch": 4, **reports[-1]["exit"]}
    assert list((tmp_path / "epoch" / "spool").iterdir()) == []


def test_reports_wait_for_a_portal_that_is_away(tmp_path: Path, portal: Portal) -> None:
    runner = launch(tmp_path, portal)
    until(lambda: len(portal.reports) > 3)
    portal.down()
    spool = tmp_path / "epoch" / "spool"
    until(lambda: len(list(spool.glob("[0-9]*.json"))) > 4)
    portal.up()
    until(lambda: not list(spool.glob("[0-9]*.json")))
    (tmp_path / "epoch" / "stop").touch()
    assert runner.wait(60) == 0
    assert sorted(set(portal.sequence())) == list(range(1, max(portal.sequence()) + 1))
    assert exit_of(tmp_path)["reason"] == "stopped"


def test_what_nobody_takes_stays_in_the_spool(tmp_path: Path, portal: Portal) -> None:
    portal.down()
    runner = launch(tmp_path, portal, environment={"EVENKEEL_TOTAL_STEPS": "5"})
    assert runner.wait(60) == 0
    left = sorted((tmp_path / "epoch" / "spool").glob("[0-9]*.json"), key=lambda path: int(path.stem))
    assert json.loads(left[-1].read_text())["exit"]["reason"] == "done"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {"command": "checkpoint_and_stop", "next_report_s": 0.2}), "stopped"),
        ((200, {"command": "kill", "next_report_s": 0.2}), "signal"),
        ((409, {}), "stopped"),
    ],
)
def test_answers_to_reports_are_obeyed(
    tmp_path: Path, portal: Portal, answer: tuple[int, dict[str, Any]], reason: str
) -> None:
    portal.answer = lambda report: answer if report["phase"] == "running" else (200, {"next_report_s": 0.2})
    assert launch(tmp_path, portal).wait(60) == 0
    assert exit_of(tmp_path)["reason"] == reason


def test_a_total_that_has_grown_is_handed_on(tmp_path: Path, portal: Portal) -> None:
    portal.answer = lambda report: (200, {"next_report_s": 0.2, "total_steps": 130})
    environment = {"EVENKEEL_TOTAL_STEPS": "100"}
    assert launch(tmp_path, portal, environment=environment, total_steps=100).wait(60) == 0
    assert (exit_of(tmp_path)["reason"], exit_of(tmp_path)["step"]) == ("done", 130)


def test_a_time_limit_may_come_with_an_answer_and_may_be_lifted(tmp_path: Path, portal: Portal) -> None:
    portal.answer = lambda report: (200, {"next_report_s": 0.2, "max_duration_s": 0.4})
    assert launch(tmp_path, portal).wait(60) == 0
    assert exit_of(tmp_path)["reason"] == "time_limit"
    assert "0.4 s" in exit_of(tmp_path)["message"]


def test_a_report_the_portal_cannot_take_does_not_block_the_others(tmp_path: Path, portal: Portal) -> None:
    portal.answer = lambda report: (400 if report["seq"] == 1 else 200, {"next_report_s": 0.2})
    assert launch(tmp_path, portal, environment={"EVENKEEL_TOTAL_STEPS": "20"}).wait(60) == 0
    assert portal.sequence() == list(range(1, len(portal.reports) + 1))


def test_sigterm_checkpoints_and_stops(tmp_path: Path, portal: Portal) -> None:
    runner = launch(tmp_path, portal)
    until(lambda: any(report["phase"] == "running" for report in portal.reports))
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) == 0
    ended = exit_of(tmp_path)
    assert ended["reason"] == "stopped"
    assert ended["step"] == portal.reports[-1]["checkpoint"]["step"] > 0


@pytest.mark.parametrize(
    ("program", "both", "reason"),
    [
        ("import time; time.sleep(600)", True, "stopped"),
        ("import time; time.sleep(600)", False, "signal"),
        ("import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); time.sleep(600)", True, "stopped"),
    ],
)
def test_a_worker_that_an_engine_ended_with_its_runner_was_stopped(
    tmp_path: Path, portal: Portal, program: str, both: bool, reason: str
) -> None:
    """Slurm sends SIGTERM to all processes of a job that it cancels or queues again, in any order."""
    runner = launch(tmp_path, portal, program)
    until(lambda: any(report["ready_at"] for report in portal.reports))
    [worker] = psutil.Process(runner.pid).children()
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    if both:
        runner.send_signal(signal.SIGTERM)
    runner.wait(60)
    assert exit_of(tmp_path)["reason"] == reason


def test_a_program_without_the_sdk_is_ready_after_a_while_and_stopped_by_sigterm(
    tmp_path: Path, portal: Portal
) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked to leave', flush=True), sys.exit(3)))\n"
        "time.sleep(600)"
    )
    runner = launch(tmp_path, portal, program)
    until(lambda: any(report["ready_at"] for report in portal.reports))
    (tmp_path / "epoch" / "stop").touch()
    assert runner.wait(60) == 0
    assert exit_of(tmp_path) | {"at": 0, "exit_code": None} == exit_of(tmp_path) | {"reason": "stopped", "at": 0}
    assert (tmp_path / "epoch" / "logs" / "rank0.log").read_text() == "asked to leave\n"
    sdk = [report["sdk"] for report in portal.reports]
    assert True not in sdk
    assert all(said is None for said, report in zip(sdk, portal.reports, strict=True) if not report["ready_at"])
    assert sdk[-1] is False


@pytest.mark.parametrize(("pace", "words"), [(18.0, "at most 18 steps/s"), (None, "without a given pace")])
def test_a_log_of_emulated_devices_begins_with_what_they_are(
    tmp_path: Path, portal: Portal, pace: float | None, words: str
) -> None:
    runner = launch(tmp_path, portal, "print('hello')", emulated_devices="1 × titan_xp", pace_steps_per_s=pace)
    assert runner.wait(60) == 0
    first, *rest = (tmp_path / "epoch" / "logs" / "rank0.log").read_text().splitlines()
    assert first == f"[evenkeel] emulated: 1 × titan_xp, computed on this machine's processors, {words}"
    assert rest == ["hello"]


def test_an_epoch_is_never_run_twice(tmp_path: Path, portal: Portal) -> None:
    assert launch(tmp_path, portal, environment={"EVENKEEL_TOTAL_STEPS": "3"}).wait(60) == 0
    before = exit_of(tmp_path)
    command = [sys.executable, "-m", "evenkeel.runner", str(tmp_path / "epoch")]
    assert subprocess.run(command, timeout=60).returncode == 0
    assert exit_of(tmp_path) == before


# Parts


def test_logs_rotate_and_lose_nothing_recent(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "rank0.log", 100)
    for number in range(40):
        log.write(f"line {number:04}\n".encode())
    log.close()
    names = ("rank0.log.2", "rank0.log.1", "rank0.log")
    text = "".join((tmp_path / name).read_text() for name in names)
    assert text.splitlines() == [f"line {number:04}" for number in range(40)][-len(text.splitlines()) :]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_pipe_in_place_of_the_programs_words_does_not_keep_us_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.jsonl")
    assert not Listener(tmp_path, 1).listen()


def test_lines_that_go_too_deep_or_too_high_are_skipped(tmp_path: Path) -> None:
    deep, high = "[" * 200_000, '{"kind": "step", "t": 1, "step": 1e999}'
    (tmp_path / "rank0.jsonl").write_text(f'{deep}\n{high}\n{{"kind": "step", "t": 2, "step": 7}}\n')
    listener = Listener(tmp_path, 1)
    listener.listen()
    assert listener.heard.step == 7


def test_lines_that_make_no_sense_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(b'nonsense\n[1]\n{"kind": "step"}\n\xff\n{"kind": "ready", "t": 5, "step": 3}\n{"kind": "ste')
    listener = Listener(tmp_path, 1)
    assert listener.listen()
    assert (listener.heard.ready_at, listener.heard.step) == (5.0, 3)
    with path.open("ab") as file:
        file.write(b'p", "t": 6, "step": 4}\n')
    listener.listen()
    assert listener.heard.step == 4


def test_of_links_the_first_twenty_names_are_kept_with_their_newest_address() -> None:
    heard = Heard()
    for name in range(25):
        news = heard.take({"kind": "link", "t": 1, "name": f"board {name}", "url": "https://a.example.org/"})
        assert news == (name < 20)
    assert not heard.take({"kind": "link", "t": 1, "name": "board 0", "url": "https://a.example.org/"})
    heard.take({"kind": "link", "t": 2, "name": "board 3", "url": "https://b.example.org/"})
    assert len(heard.links) == 20
    assert (heard.links["board 3"], heard.links["board 19"]) == ("https://b.example.org/", "https://a.example.org/")


def test_reports_carry_at_most_two_hundred_metrics_and_the_newest() -> None:
    heard = Heard()
    for step in range(700):
        heard.take({"kind": "step", "t": step / 4, "step": step, "metrics": {}})
    taken = heard.take_metrics()
    assert len(taken) <= 200
    assert taken[-1]["step"] == 699
    assert taken[-1]["steps_per_s"] == pytest.approx(4.0)


@pytest.mark.parametrize("url", ["http://portal", "http://portal/", "http://portal/api/v1", "http://portal/api/v1/"])
def test_the_portal_is_found_with_and_without_the_api_path(url: str) -> None:
    assert report_url(url, "7") == "http://portal/api/v1/runs/7/reports"


class _Output:
    def __init__(self, text: str = "") -> None:
        self.tail = text.encode()


def worker(rank: int, code: int | None = None, *, by: int | None = None, text: str = "", ours: bool = False) -> Worker:
    made = Worker(rank, 1, _Output(text))  # type: ignore[arg-type]
    made.exit_code, made.signal, made.ended_at, made.signalled, made.order = code, by, 10.0 + rank, ours, rank
    return made


LIMITS = {"memory_mib": 100, "max_duration_s": 5.0}


def test_the_failure_that_came_first_is_the_reason() -> None:
    heard = Heard(errors=[{"rank": 1, "t": 9.0, "type": "RuntimeError", "text": "connection closed by peer"}])
    killed = worker(1, by=9)
    assert judge([worker(0, 1), killed], heard, None, LIMITS, oom=False).signal == 9
    assert judge([worker(0, 1), killed], heard, None, LIMITS, oom=True).reason == "out_of_memory"
    told = Heard(errors=[{"rank": rank, "t": 9.0 - rank, "type": "E", "text": str(rank)} for rank in (0, 1)])
    assert "worker 1" in judge([worker(0, 1), worker(1, 1)], told, None, LIMITS, oom=False).message


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried",
        "Traceback\nMemoryError",
        "numpy.core._exceptions.MemoryError: Unable to allocate",
    ],
)
def test_want_of_memory_is_read_from_the_last_words(text: str) -> None:
    assert judge([worker(0, 1, text=text)], Heard(), None, LIMITS, oom=False).reason == "out_of_memory"


def test_what_we_ended_is_no_error_of_the_program() -> None:
    ended = [worker(0, by=15, ours=True), worker(1, by=9, ours=True)]
    assert judge(ended, Heard(), Order.STOP, LIMITS, oom=False).reason == "stopped"
    assert judge(ended, Heard(), Order.LEASE, LIMITS, oom=False).reason == "stopped"
    assert judge(ended, Heard(), Order.TIME_LIMIT, LIMITS, oom=False).reason == "time_limit"
    assert judge(ended, Heard(), Order.MEMORY, LIMITS, oom=False).reason == "out_of_memory"
    assert judge([worker(0, 0)], Heard(done=True), Order.STOP, LIMITS, oom=False).reason == "done"


def spec(**changes: Any) -> LaunchSpec:
    here = str(Path(sys.executable).parent)
    content: dict[str, Any] = {
        "job_id": "j", "run_id": "r", "epoch": 1, "argv": ["python", "x.py"], "shell": False, "workdir": "/",
        "workers": 1, "cuda_visible_devices": "", "environment": {"PATH": here + ":/usr/bin:/bin"}, "env": {},
        "total_steps": 1, "max_duration_s": None, "memory_mib": None, "api_url": "", "report_interval_s": 1.0,
        "limits": {}, "log_bytes": 1, "secret_variables": [], "emulated_devices": "", "pace_steps_per_s": None,
        "gpu_sharing": "", "limits_in_words": "",
    }  # fmt: skip
    return LaunchSpec(**(content | changes))


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ({}, ["x.py"]),
        ({"argv": ["python3", "-u", "-m", "pkg.train", "--x"]}, ["-m", "pkg.train", "--x"]),
        ({"argv": ["python", "-c", "pass"]}, None),
        ({"argv": ["/bin/sh", "x.py"]}, None),
        ({"argv": ["python x.py --rate 0.1"], "shell": True}, ["x.py", "--rate", "0.1"]),
        ({"argv": ["python x.py | tee log"], "shell": True}, None),
        ({"argv": ["A=1 python x.py"], "shell": True}, None),
        ({"env": {"LD_PRELOAD": "x.so"}}, None),
        ({"env": {"PYTHONUNBUFFERED": "1"}}, ["x.py"]),
    ],
)
def test_programs_of_this_interpreter_can_start_warm(changes: dict[str, Any], arguments: list[str] | None) -> None:
    assert spec(**changes).python_arguments() == arguments


def test_a_program_that_speaks_of_the_sdk_is_expected_to_say_when_it_is_ready(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text("import evenkeel")
    (tmp_path / "plain.py").write_text("print()")
    found = [
        spec(argv=argv, shell=shell, workdir=str(tmp_path)).mentions_sdk()
        for argv, shell in (
            (["python", "uses.py"], False),
            (["python", "-m", "uses"], False),
            (["cd . && python uses.py"], True),
            (["python", "plain.py"], False),
            (["an 'unbalanced line"], True),
        )
    ]
    assert found == [True, True, True, False, False]


PRINTS_ITS_TOKEN = """
import base64, os, sys, urllib.parse
token = open(os.path.join(os.path.dirname(os.environ["EVENKEEL_SDK_DIR"]), "token")).read()
print("plain", token)
print("header", "Authorization: Bearer " + token)
print("bare", token.removeprefix("ekr_"))
for shift in range(3):
    print("base64", base64.b64encode(b"x" * shift + token.encode() + b"y").decode())
print("url", urllib.parse.quote("+" + token, safe=""))
for part in (token[:20], token[20:]):
    sys.stdout.write(part)
    sys.stdout.flush()
raise SystemExit(f"cannot report with {token}")
"""


def test_the_token_of_the_run_is_in_no_log_and_no_report(tmp_path: Path, portal: Portal) -> None:
    token = "ekr_" + "0123456789abcdef" * 4
    runner = launch(tmp_path, portal, PRINTS_ITS_TOKEN, token=token)
    runner.wait(60)
    log = (tmp_path / "epoch" / "logs" / "rank0.log").read_text()
    assert log.count("[redacted]") >= 9
    for words in (log, json.dumps(exit_of(tmp_path)), json.dumps(portal.reports)):
        assert token not in words
        assert "0123456789abcdef" * 2 not in words
        for shift in range(3):
            inner = base64.b64encode(b"x" * shift + token.encode() + b"y").decode()[4:-8]
            assert inner not in words
