"""Which addresses lead to the portal's own machine, and how the portal says that it has none of its own."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings as configured

from portal.core.own_address import has_name_of_its_own, leads_here
from portal.execution.checks.access import examine_access
from portal.jobs.clusters import shares_its_host
from tests.portal.api_calls import Api
from tests.portal.world import World

#: tests/client/test_web_address.py has all spellings.
LOOPBACK = (
    "http://127.0.0.1:7788/", "http://127.9.9.9/", "http://2130706433:7788/", "http://0.0.0.0:7788/",
    "http://[::1]:7788/", "http://[::]:7788/", "http://[::ffff:7f00:1]/", "HTTP://LocalHost:6006/",
    "http://localhost.:6006/", "http://a.localhost/", "http://localhost.localdomain/", "http://ip6-localhost/",
    "https://%6cocalhost/",
)  # fmt: skip


@pytest.mark.parametrize("url", LOOPBACK)
def test_loopback_leads_here_however_it_is_spelt(url: str) -> None:
    assert leads_here(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://portal.example.org:7788/", "https://PORTAL.example.org/", "http://portal.example.org./",
        "http://a.lab.example.org/", "http://api.example.org:9/", "https://proxy.example.org:444/", "http://192.0.2.7:81/",
        "http://3221225991/", "http://[2001:db8::7]:81/",
    ],
)  # fmt: skip
def test_names_and_addresses_of_the_portal_lead_here_on_every_port(url: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["portal.example.org", ".lab.example.org", "192.0.2.7", "[2001:db8::7]"]
    settings.EVENKEEL_API_URL = "http://api.example.org:8800"
    settings.CSRF_TRUSTED_ORIGINS = ["https://proxy.example.org"]
    assert leads_here(url)


def test_the_machines_own_addresses_lead_here() -> None:
    for each in psutil.net_if_addrs().values():
        for one in each:
            if one.family == socket.AF_INET:
                assert leads_here(f"http://{one.address}:7788/")


def test_the_machines_own_name_leads_here() -> None:
    assert leads_here(f"http://{socket.gethostname()}:7788/")


@pytest.mark.parametrize(
    "url",
    ["https://board.example.org/", "http://192.0.2.8/", "http://127.0.0.1.example.org/", "http://localhost.example.org/",
     "http://example.org/?http://localhost/", "https://notlocalhost/"],
)  # fmt: skip
@pytest.mark.parametrize("allowed", [["portal.example.org"], ["*"]])
def test_others_lead_elsewhere(url: str, allowed: list[str], settings: Any) -> None:
    settings.ALLOWED_HOSTS = allowed
    assert not leads_here(url)


@pytest.mark.django_db
def test_a_job_says_which_of_its_links_lead_here(settings: Any) -> None:
    world = World()
    job = world.submit()
    world.round()
    run = job.runs.get()
    run.links = {"board": "https://board.example.org/", "spy": "http://127.1:7788/"}
    run.save(update_fields=["links"])
    found = Api(world.user).get(f"jobs/{job.number}").json["links"]
    assert [(link["name"], link["leads_here"]) for link in found] == [("board", False), ("spy", True)]


@pytest.mark.django_db
def test_any_page_may_send_a_browser_on_to_a_job_where_the_portal_has_no_name_of_its_own(settings: Any) -> None:
    world = World()
    job = world.submit()
    world.round()
    job.runs.update(links={"board": "https://board.example.org/"})
    api = Api(world.user)
    assert api.get(f"jobs/{job.number}").json["links"][0]["may_lead_here"]
    settings.SESSION_COOKIE_SECURE, settings.EVENKEEL_ALLOWED_HOSTS = True, ["portal.example.org"]
    assert not api.get(f"jobs/{job.number}").json["links"][0]["may_lead_here"]


@pytest.mark.parametrize(
    ("https", "hosts", "own"),
    [
        (True, ["portal.example.org"], True),
        (False, ["portal.example.org"], False),
        (True, ["127.0.0.1"], False),
        (True, ["192.0.2.7"], False),
        (True, ["localhost", "node7"], False),
        (True, ["*"], False),
        (True, [".example.org"], True),
    ],
)
def test_a_name_of_its_own_takes_https_and_a_name(https: bool, hosts: list[str], own: bool, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE, settings.EVENKEEL_ALLOWED_HOSTS = https, hosts
    assert has_name_of_its_own() is own
    assert shares_its_host("local") is not own
    assert not shares_its_host("slurm")


@pytest.mark.django_db
def test_doctor_warns_of_the_name_and_of_what_others_can_read(settings: Any, tmp_path: Path) -> None:
    settings.EVENKEEL_DATA = tmp_path
    for name, mode in (("backup.dump", 0o644), ("fine.dump", 0o600), ("secret_key", 0o640), ("notes.txt", 0o644)):
        (tmp_path / name).write_bytes(b"PGDMP..." if name.endswith("dump") else b"x")
        (tmp_path / name).chmod(mode)
    world = World()
    found = {one.subject: one for one in examine_access(world.cluster.pk)}
    assert all(one.ok and one.warning and one.fix for one in found.values())
    assert configured.EVENKEEL_API_URL in found["portal's name"].seen
    assert (
        found["private files"].seen == f"other accounts can read {tmp_path / 'backup.dump'}, {tmp_path / 'secret_key'}"
    )
    settings.SESSION_COOKIE_SECURE, settings.EVENKEEL_ALLOWED_HOSTS = True, ["portal.example.org"]
    for name in ("backup.dump", "secret_key"):
        (tmp_path / name).chmod(0o600)
    [only] = examine_access(world.cluster.pk)
    assert (only.subject, only.ok, only.warning) == ("portal's name", True, False)
