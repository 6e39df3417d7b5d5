"""Runs in networks of their own, through a real pasta: who reaches whom, and what is left when things are killed."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from evenkeel.runner.processes import all_processes, real_uid

from scheduling.errors import ExecutorError
from scheduling.executors.base import LaunchRequest
from scheduling.executors.local.executor import LocalExecutor
from scheduling.executors.local.machine import network_keeper, networks
from tests.executors.contract import ended, reason, requests_for, until
from tests.site_software import need_pasta

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks of their own need root"),
]

#: Plain PyTorch: two ranks that meet at MASTER_ADDR, train, and say at which port; they go on until told.
TRAINING = """
import os, pathlib, sys, time, torch, torch.distributed as dist
place = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimiser = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    optimiser.zero_grad()
    loss = model(torch.ones(8, 4) * (dist.get_rank() + 1)).square().mean()
    loss.backward()
    optimiser.step()
weights = [torch.zeros(1, 4) for _ in range(2)]
dist.all_gather(weights, model.module.weight.data)
assert torch.equal(*weights)
store = dist.distributed_c10d._get_default_store()
store.set("mine", "untouched")
dist.barrier()
if dist.get_rank() == 0:
    (place / "meeting").write_text(f"{os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']} {dist.get_world_size()}")
while not (place / "enough").exists():
    time.sleep(0.05)
print("trained; the key is", store.get("mine").decode())
dist.barrier()
"""
#: Another project's: which of these it can connect to, on every address of the machine and its own.
SCANNING = """
import json, pathlib, socket, sys
place, ports = pathlib.Path(sys.argv[1]), json.loads(sys.argv[3])
found = {}
for address in json.loads(sys.argv[2]):
    for port in ports:
        try:
            with socket.create_connection((address, port), 2) as connection:
                found[f"{address} {port}"] = "connected"
        except OSError as error:
            found[f"{address} {port}"] = type(error).__name__
(place / "scan").write_text(json.dumps(found))
"""
#: What it gets from each URL.
FETCHING = """
import json, pathlib, sys, urllib.request
found = {}
for url in sys.argv[2:]:
    try:
        found[url] = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5).read().decode()
    except OSError as error:
        found[url] = f"{type(error).__name__}"
(pathlib.Path(sys.argv[1]) / "fetched.draft").write_text(json.dumps(found))
(pathlib.Path(sys.argv[1]) / "fetched.draft").rename(pathlib.Path(sys.argv[1]) / "fetched")
"""
SLEEPING = "import time; time.sleep(600)"
#: Fetches whenever it is asked to, so that it can be seen whether a live run has a way out.
ASKED = """
import pathlib, sys, time, urllib.request
place = pathlib.Path(sys.argv[1])
while True:
    if (place / "ask").exists():
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            said = opener.open(sys.argv[2], timeout=1).read().decode()
        except OSError as error:
            said = type(error).__name__
        (place / "said").write_text(said)
    time.sleep(0.05)
"""


class Serving(http.server.ThreadingHTTPServer):
    def __init__(self, address: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"served")

            do_POST = do_GET

            def log_message(self, *_: Any) -> None: ...

        super().__init__((address, 0), Handler)
        self.url = f"http://{address}:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-networks-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def serving() -> Iterator[Callable[[str], Serving]]:
    made: list[Serving] = []

    def make(address: str) -> Serving:
        made.append(Serving(address))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture(params=[True, False], ids=["warm", "cold"])
def make_executor(place: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., LocalExecutor]]:
    """Each is the portal after a restart."""
    need_pasta()
    made: list[LocalExecutor] = []

    def make(**options: Any) -> LocalExecutor:
        defaults = {"warm_start": request.param, "preload": ("colorsys",), "run_network": "own"}
        made.append(LocalExecutor(place / "data", "titan_xp:6", **(defaults | options)))
        assert made[-1].isolation_problem is None
        return made[-1]

    yield make
    made[-1].reap_orphans([], min_age_s=-2.0)
    made[-1].stop_warm_start(["vision", "speech"])
    until(lambda: not kept(made[-1]), "the end of all keepers")


def kept(executor: LocalExecutor) -> list[int]:
    """Living processes of the account that keeps networks."""
    uid = executor._accounts.keepers_uid
    return [process.pid for process in all_processes() if process.alive and real_uid(process.pid) == uid]


def pastas(executor: LocalExecutor) -> list[int]:
    return [pid for pid in kept(executor) if "/pasta\0" in command_of(pid)]


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def keepers(place: Path) -> dict[str, int]:
    """By account."""
    return {path.stem: json.loads(path.read_text())["pid"] for path in (place / "data/run/network").glob("*.json")}


def directory(place: Path, name: str) -> Path:
    path = place / name
    path.mkdir()
    path.chmod(0o777)
    return path


def content(path: Path) -> str:
    return until(lambda: path.exists() and path.read_text(), str(path))  # type: ignore[no-any-return]


def log_of(place: Path, request: LaunchRequest, rank: int = 0) -> str:
    run = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1"
    return (run / "logs" / f"rank{rank}.log").read_text()


def runner_of(place: Path, request: LaunchRequest) -> int:
    run = place / "data" / "jobs" / request.job_id / "runs" / request.run_id / "1"
    return int(json.loads((run / "runner.json").read_text())["pid"])


def machines_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            pytest.skip("SKIPPED: this machine has no way out")
        return str(probe.getsockname()[0])


def test_no_other_project_reaches_where_ranks_meet(
    place: Path, make_executor: Callable[..., LocalExecutor], serving: Callable[[str], Serving]
) -> None:
    portal, executor = serving("127.0.0.1"), make_executor()
    make, mine, theirs = requests_for(executor, place), directory(place, "mine"), directory(place, "theirs")
    training = make(TRAINING, str(mine), workers=2, api_url=portal.url)
    executor.launch(training)
    address, port, world = content(mine / "meeting").split()
    addresses = [
        "127.0.0.1",
        "::1",
        machines_address(),
        network_keeper.ADDRESS,
        network_keeper.GATEWAY,
    ]
    ports = [int(port), portal.server_port]
    scan = make(
        SCANNING, str(theirs), json.dumps(addresses), json.dumps(ports), project_key="speech", api_url=portal.url
    )
    executor.launch(scan)
    found = json.loads(content(theirs / "scan"))
    assert reason(ended(executor, scan.run_id)) == "done"
    (mine / "enough").touch()
    assert reason(ended(executor, training.run_id)) == "done", log_of(place, training)

    assert (address, world) == ("127.0.0.1", "2")
    reached = {name for name, what in found.items() if what == "connected" and name.endswith(f" {port}")}
    assert not reached & {f"{one} {port}" for one in addresses[:4]}, found
    assert found[f"127.0.0.1 {portal.server_port}"] == "connected"
    assert "trained; the key is untouched" in log_of(place, training)


def test_a_run_reaches_the_portal_what_is_listed_and_outside(
    place: Path, make_executor: Callable[..., LocalExecutor], serving: Callable[[str], Serving]
) -> None:
    portal, listed, closed = (serving("127.0.0.1") for _ in range(3))
    index, here = serving(machines_address()), directory(place, "here")
    executor = make_executor(loopback_ports=[listed.server_port])
    urls = [one.url for one in (portal, listed, closed, index)]
    request = requests_for(executor, place)(FETCHING, str(here), *urls, api_url=portal.url)
    executor.launch(request)
    found = json.loads(content(here / "fetched"))
    assert reason(ended(executor, request.run_id)) == "done"
    assert found == {portal.url: "served", listed.url: "served", closed.url: "URLError", index.url: "served"}


def asked(here: Path) -> str:
    """What a program that was launched with ASKED gets now."""
    (here / "said").unlink(missing_ok=True)
    (here / "ask").touch()
    said = content(here / "said")
    (here / "ask").unlink()
    return said


def test_a_run_gets_its_way_out_again(
    place: Path, make_executor: Callable[..., LocalExecutor], serving: Callable[[str], Serving]
) -> None:
    portal, executor, here = serving("127.0.0.1"), make_executor(), directory(place, "here")
    request = requests_for(executor, place)(ASKED, str(here), portal.url, api_url=portal.url)
    executor.launch(request)
    runner = runner_of(place, request)
    network = networks.network_of(runner)
    assert network != networks.network_of("self")
    until(lambda: asked(here) == "served", "an answer")

    [pasta] = pastas(executor)
    os.kill(pasta, signal.SIGKILL)
    until(lambda: pastas(executor) not in ([], [pasta]), "another pasta")
    until(lambda: asked(here) == "served", "an answer by the second pasta")

    [keeper] = keepers(place).values()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not kept(executor), "the end of all that it had started")
    [fact] = executor.observe([(request.run_id, 1)])
    assert fact.kind == "alive"
    until(lambda: asked(here) == "served", "an answer by the second keeper")
    assert networks.network_of(runner) == network

    [keeper] = keepers(place).values()
    os.kill(keeper, signal.SIGKILL)
    until(lambda: not kept(executor), "the end of all that it had started")
    second = requests_for(executor, place)(SLEEPING, api_url=portal.url)
    executor.launch(second)
    assert networks.network_of(runner_of(place, second)) == network
    until(lambda: asked(here) == "served", "an answer by the third keeper")
    for run in (request, second):
        executor.kill(run.run_id, 1)


def test_the_portal_restarts_at_another_port(
    place: Path, make_executor: Callable[..., LocalExecutor], serving: Callable[[str], Serving]
) -> None:
    portal, executor, here = serving("127.0.0.1"), make_executor(), directory(place, "here")
    request = requests_for(executor, place)(ASKED, str(here), portal.url, api_url=portal.url)
    executor.launch(request)
    network, before = networks.network_of(runner_of(place, request)), keepers(place)

    executor = make_executor()
    assert executor.observe([(request.run_id, 1)])[0].kind == "alive"
    assert keepers(place) == before
    elsewhere = serving("127.0.0.1")
    second = requests_for(executor, place)(SLEEPING, api_url=elsewhere.url)
    executor.launch(second)
    assert networks.network_of(runner_of(place, second)) == network
    assert keepers(place) != before
    until(lambda: asked(here) == "served", "an answer to the first run")
    for run in (request, second):
        executor.kill(run.run_id, 1)


def test_nothing_of_a_network_is_left(place: Path, make_executor: Callable[..., LocalExecutor]) -> None:
    executor = make_executor()
    make = requests_for(executor, place)
    mine, theirs = make(SLEEPING), make(SLEEPING, project_key="speech")
    for run in (mine, theirs):
        executor.launch(run)
    assert len(pastas(executor)) == len(keepers(place)) == 2
    fork_servers = list(executor._in_network(executor._accounts.of_project("vision")))

    for pid in {runner_of(place, mine), *fork_servers}:  # the portal's processes need not be there
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pastas(executor)) == 1, "the end of the first project's pasta")
    assert reason(ended(executor, mine.run_id)) == "runner_lost"
    executor.reap_orphans([(theirs.run_id, 1)], min_age_s=-2.0)
    assert len(pastas(executor)) == 1
    assert executor.observe([(theirs.run_id, 1)])[0].kind == "alive"

    executor.launch(again := make(SLEEPING))
    assert len(pastas(executor)) == 2
    for run in (again, theirs):
        executor.kill(run.run_id, 1)
    executor.stop_warm_start(["vision", "speech"])
    until(lambda: not kept(executor), "the end of all keepers")


@pytest.mark.parametrize("asks", ["udp", "tcp"])
def test_a_resolver_on_the_loopback_device_answers(
    place: Path, make_executor: Callable[..., LocalExecutor], monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    """As systemd-resolved's."""
    monkeypatch.setattr(networks, "local_resolver", lambda: "127.0.0.153")
    executor, here = make_executor(), directory(place, "here")
    program = """
import pathlib, socket, sys
kind = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM}[sys.argv[2]]
with socket.socket(socket.AF_INET, kind) as asking:
    asking.settimeout(10)
    asking.connect(("127.0.0.153", 53))
    asking.send(b"\\0\\5where")
    (pathlib.Path(sys.argv[1]) / "said").write_text(repr(asking.recv(100)))
"""
    with contextlib.ExitStack() as stack:
        kind = socket.SOCK_DGRAM if asks == "udp" else socket.SOCK_STREAM
        resolver = stack.enter_context(socket.socket(socket.AF_INET, kind))
        resolver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        resolver.bind(("127.0.0.153", 53))
        resolver.settimeout(60)
        if asks == "tcp":
            resolver.listen()
        request = requests_for(executor, place)(program, str(here), asks)
        executor.launch(request)
        if asks == "udp":
            question, client = resolver.recvfrom(100)
            resolver.sendto(question + b"!", client)
        else:
            connection, _ = resolver.accept()
            with connection:
                connection.sendall(connection.recv(100))
        assert content(here / "said") == repr(b"\0\5where" + b"!" * (asks == "udp"))
        assert reason(ended(executor, request.run_id)) == "done"


def test_doctor_tries_it_out(make_executor: Callable[..., LocalExecutor]) -> None:
    executor = make_executor(run_network="auto", loopback_ports=[5000])
    [line] = [line for line in executor.examine("http://127.0.0.1:9") if line.subject == "network of runs"]
    assert (line.ok, line.warning) == (True, False), line
    assert "5000" in line.seen
    until(lambda: not kept(executor), "the end of the trial")


def test_without_pastas_device_nothing_starts(
    place: Path, make_executor: Callable[..., LocalExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make_executor()
    monkeypatch.setattr(networks, "way_out", lambda: ("none-such", False))
    request = requests_for(executor, place)(SLEEPING)
    with pytest.raises(ExecutorError, match="the network of the run cannot be made: pasta did not set it up"):
        executor.launch(request)
    assert executor.observe([(request.run_id, 1)])[0].kind == "absent"
    monkeypatch.undo()
    executor.launch(request)
    assert executor.observe([(request.run_id, 1)])[0].kind == "alive"
    executor.kill(request.run_id, 1)
