import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg2
import pytest
import uvicorn

from portal.config.layout import Layout
from portal.supervisor.control_plane import ControlPlane
from portal.supervisor.lock import DirectoryLock
from portal.supervisor.process import alive
from portal.web import __main__
from tests.portal.web.test_listening import has_ipv6
from tests.supervisor.running import ROOT, RunningPortal, free_port, portal_env

PARTS = ("web", "worker", "commands", "forecasts", "lab", "shadow", "beat", "valkey", "postgres")


def refused(env: dict[str, str]) -> str:
    """What `up` says when it will not start: one sentence, exit status 1."""
    finished = subprocess.run(
        [sys.executable, "manage.py", "up"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 1
    assert finished.stderr.count("\n") == 1
    assert "Traceback" not in finished.stdout + finished.stderr
    return finished.stderr


def test_it_refuses_a_port_in_use(data: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        sentence = refused(portal_env(data, EVENKEEL_PORT=str(port)))
    assert sentence == f"Port {port} on 127.0.0.1 is in use; free it or set EVENKEEL_PORT to another.\n"
    assert not (data / "postgres").exists()


def test_it_says_which_settings_are_old_and_which_are_none(data: Path) -> None:
    given = {"EVENKEEL_KEEP_EVENTS_DAYS": "120", "EVENKEEL_RATE_USER_PER_MINUTE": "0", "EVENKEEL_PROT": "1"}
    with socket.socket() as other:  # it ends before it starts anything
        other.bind(("127.0.0.1", 0))
        other.listen()
        refused(portal_env(data, EVENKEEL_PORT=str(other.getsockname()[1]), **given))
    said = (data / "logs" / "supervisor.log").read_text()
    assert "WARNING EVENKEEL_KEEP_EVENTS_DAYS is deprecated" in said
    assert "add events=120d to EVENKEEL_KEEP instead." in said
    assert "WARNING EVENKEEL_RATE_USER_PER_MINUTE is no longer a setting and is ignored" in said
    assert "WARNING EVENKEEL_PROT is not a setting and is ignored; did you mean EVENKEEL_PORT?" in said


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_refuses_a_port_where_localhost_would_be_another_program(data: Path) -> None:
    """Browsers try ::1 first."""
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        sentence = refused(portal_env(data, EVENKEEL_PORT=str(port)))
    assert sentence == f"Port {port} on ::1 is in use; free it or set EVENKEEL_PORT to another.\n"


def test_it_refuses_a_directory_that_another_supervisor_holds(layout: Layout) -> None:
    lock = DirectoryLock(layout.run / "supervisor.lock")
    lock.acquire()
    sentence = refused(portal_env(layout.data, EVENKEEL_PORT=str(free_port())))
    lock.release()
    assert sentence.startswith(f"Another supervisor (process {os.getpid()}) runs on {layout.data}; ")


def test_it_refuses_a_directory_of_a_newer_version(layout: Layout) -> None:
    (layout.data / "VERSION").write_text("7\n")
    assert "was written by a newer version (layout 7" in refused(portal_env(layout.data))


def test_it_refuses_a_setting_it_cannot_read(data: Path) -> None:
    sentence = refused(portal_env(data, EVENKEEL_VIRTUAL_ACCELERATORS="six of them"))
    assert "EVENKEEL_VIRTUAL_ACCELERATORS must look like titan_xp:6" in sentence


@pytest.mark.whole
def test_everything_comes_back_after_kill_9(data: Path) -> None:
    portal = RunningPortal(data)
    try:
        portal.start()
        assert "Sign in as admin@evenkeel.local with the password" in portal.said()
        log = (data / "logs" / "supervisor.log").read_text()
        assert "password" not in log
        assert "No HTTPS name of its own" in portal.said()
        assert " WARNING No HTTPS name of its own" in log
        for name in PARTS:
            before = portal.pid(name)
            portal.kill(name)
            spoken = {"valkey": "Valkey", "postgres": "PostgreSQL"}.get(name, name)
            portal.wait_until_ready(15, text=f"{spoken} runs again")
            assert portal.pid(name) != before

        assert portal.process is not None
        backup = [sys.executable, "manage.py", "backup", str(data / "backup")]
        for command in (backup, [*backup, "--restore"]):
            subprocess.run(command, cwd=ROOT, env=portal.env, check=True)

        databases = portal.pid("postgres"), portal.pid("valkey")
        __main__ = portal.pid("web")
        portal.process.kill()
        portal.process.wait()
        portal.start()
        assert "Taking over from process" in portal.said()
        assert "PostgreSQL  found running" in portal.said()
        assert "with the password you have" in portal.said()
        assert (portal.pid("postgres"), portal.pid("valkey")) == databases
        assert portal.pid("web") != __main__
        processes = [psutil.Process(portal.pid(name)) for name in PARTS]
        assert portal.stop() == 0
        assert not [process for process in processes if alive(process)]
    finally:
        portal.stop()


def _address_noted(portal: RunningPortal, services: Layout) -> str:
    """Where the portal takes somebody to be who says to come from elsewhere, as any job could."""
    elsewhere = {"X-Forwarded-For": "203.0.113.9"}
    with httpx.Client(base_url=f"http://127.0.0.1:{portal.port}/api/v1/", headers=elsewhere, trust_env=False) as client:
        client.get("session")
        guess = {"email": "admin@evenkeel.local", "password": "a guess"}
        answer = client.post("session", json=guess, headers={"X-CSRFToken": client.cookies["csrftoken"]})
        assert answer.status_code == 401
    url = services.owner_database_url
    with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT address FROM accounts_auditentry WHERE action = 'session.refused'")
        (row,) = cursor.fetchall()
        return str(row[0])


def test_a_proxy_is_believed_where_one_is_named(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[uvicorn.Config] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: started.append(server.config))
    settings.EVENKEEL_PORT = free_port()
    __main__.main()
    settings.FORWARDED_ALLOW_IPS = "10.0.0.7"
    __main__.main()
    assert [one.proxy_headers for one in started] == [False, True]
    assert started[1].forwarded_allow_ips == "10.0.0.7"


def test_the_owner_of_the_database_stays_unknown_to_what_is_started(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENKEEL_OWNER_DATABASE_URL", "postgresql://owner:hush@/x")
    for child in ControlPlane(layout)._children():
        assert "hush" not in str(child._env)


@pytest.mark.whole
def test_external_services_start_nothing_embedded(data: Path, embedded_services: Layout) -> None:
    portal = RunningPortal(
        data, DATABASE_URL=embedded_services.owner_database_url, REDIS_URL=embedded_services.redis_url + "?db=3"
    )
    try:
        portal.start()
        assert "PostgreSQL  external" in portal.said()
        assert not (data / "postgres").exists()
        assert not (data / "valkey").exists()
        assert _address_noted(portal, embedded_services) == "127.0.0.1"
        assert portal.process is not None
        portal.process.send_signal(signal.SIGINT)
        assert portal.process.wait(30) == 0
    finally:
        portal.stop()
