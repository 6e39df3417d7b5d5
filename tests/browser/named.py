"""A portal in which everything that somebody may name has a long name or one that runs from right to left, and every
page of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live_portal import GENTLE, LivePortal

_ROUTER = Path(__file__).resolve().parents[2] / "frontend" / "src" / "app.tsx"


def _of(characters: int) -> str:
    return ("WithoutAnyBlank" * 8)[:characters]


def _turned(characters: int) -> str:
    return f"אימון{_of(characters - 5)}"


JOB, PROJECT, NODE, PARTITION = _of(120), _of(120), _of(60), _of(40).lower()
HOOK = f"https://example.org/{_of(100)}"
EMAIL = f"{'address' * 8}@example.org"
#: Long, and from right to left.
PERSON, ENTRY, SIMULATION = _turned(60), _turned(60), _turned(120)
HEBREW, ARABIC = "אימון מודל 7", "تدريب النموذج"
TURNED = [PERSON, ENTRY, SIMULATION, HEBREW, ARABIC]
#: By route, what is opened of it; in braces what is known once everything has its name.
PAGES = {
    "/": ["/"],
    "/jobs": ["/jobs", "/jobs?label=for={entry}", "/jobs?owner={email}"],
    "/jobs/compare": ["/jobs/compare?jobs={running},{failed},{hebrew}"],
    "/jobs/:number": ["/jobs/{running}", "/jobs/{waiting}", "/jobs/{failed}", "/jobs/{hebrew}", "/jobs/{capped}"],
    "/submit": ["/submit"],
    "/projects": ["/projects"],
    "/projects/:key": ["/projects/long", "/projects/arabic"],
    "/shares": ["/shares"],
    "/fairness": ["/fairness", "/fairness?by=user"],
    "/limits": ["/limits"],
    "/usage": ["/usage", "/usage?by=user", "/usage?by=job"],
    "/cluster": ["/cluster"],
    "/cluster/nodes/:name": ["/cluster/nodes/{node}"],
    "/cluster/throughput": ["/cluster/throughput"],
    "/lab": ["/lab"],
    "/lab/new": ["/lab/new"],
    "/lab/:id": ["/lab/{simulation}"],
    "/lab/what-if": ["/lab/what-if"],
    "/lab/rounds": ["/lab/rounds"],
    "/lab/rounds/:number": ["/lab/rounds/{round}"],
    "/lab/rollouts/:id": ["/lab/rollouts/{rollout}"],
    "/policy": ["/policy"],
    "/notifications": ["/notifications"],
    "/tokens": ["/tokens"],
    "/admin/people": ["/admin/people"],
    "/admin/prices": ["/admin/prices"],
    "/admin/audit": ["/admin/audit"],
}
#: Those that are read before one has signed in.
OUTSIDE = {
    "/signin": ["/signin"],
    "/invitation": ["/invitation#{into_long}", "/invitation#{into_arabic}", "/invitation#wrong"],
}
SIMULATED_S = 240
_SPEC: dict[str, Any] = {
    "name": SIMULATION,
    "workload": {"kind": "synthetic", "jobs": 20, "jobs_per_hour": 60.0},
    "policies": [{"name": "fifo_gang", "parameters": {"gang": "max"}}, {"name": "f_scheduling"}],
}
_PEOPLE = """
from accounts.models import User
from accounts.tokens import create_token
User.objects.filter(is_superuser=True).update(first_name={person!r}, last_name="")
admin = User.objects.get(is_superuser=True)
User.objects.create_user({email!r}, first_name={person!r}, invited_by=admin)
User.objects.create_user("arabic@example.org", first_name={arabic!r})
create_token(user=admin, name={entry!r}, scopes=["jobs:read"])
"""
_LINKS = """
from portal.jobs.models import Run
Run.objects.filter(job__number={number}).update(links={{{name!r}: {url!r}, "TensorBoard": "http://localhost:6006/#scalars"}})
"""


def routes() -> set[str]:
    """What the front end's router tells apart."""
    router = _ROUTER.read_text()
    found = re.findall(r'<Route path="([^"]+)"', router) + re.findall(r'location\.pathname === "([^"]+)"', router)
    return {*found} - {"*"}


@dataclass(frozen=True)
class Names:
    running: int
    waiting: int
    failed: int
    hebrew: int
    capped: int
    simulation: str
    rollout: str
    round: int
    into_long: str
    into_arabic: str
    node: str = NODE
    entry: str = ENTRY
    email: str = EMAIL


def name_everything(portal: LivePortal) -> Names:
    """Everything that somebody may name has as long a name as it may have."""
    portal.manage("shell", "-v", "0", "-c", _PEOPLE.format(person=PERSON, email=EMAIL, arabic=ARABIC, entry=ENTRY))
    _make(portal, "projects", {"key": "long", "name": PROJECT})
    _make(portal, "projects", {"key": "arabic", "name": ARABIC})
    simulation = _make(portal, "simulations", _SPEC)["id"]
    into = [
        _make(portal, f"projects/{key}/invitations", {"email": f"{key}-{EMAIL}"})["link"].partition("#")[2]
        for key in ("long", "arabic")
    ]
    for path, wish in _wishes():
        _make(portal, path, wish)
    with portal.api() as api:
        answer = api.put(
            f"partitions/{PARTITION}", json={"nodes": [NODE], "projects": ["long", "arabic"], "is_default": True}
        )
        assert answer.is_success, answer.text
    jobs = _jobs(portal)
    moved = _read(portal, "rounds?moved=true")["results"][0]["round"]
    return Names(*jobs, simulation, _try_in_the_shadow(portal, simulation), moved, *into)


def _wishes() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("projects/long/members", {"email": EMAIL, "confirm_unproved": True}),
        ("projects/arabic/members", {"email": "arabic@example.org", "confirm_unproved": True}),
        ("projects/long/service-accounts", {"name": _of(40).lower()}),
        ("limits", {"project": "long", "kind": "money", "period": "month", "limit": "100"}),
        ("limits", {"project": "arabic", "kind": "gpus", "limit": "2"}),
        ("limits", {"user": EMAIL, "kind": "gpus", "limit": "4"}),
        ("templates", {"name": ENTRY, "project": "arabic", "file": {"model_type": "digits_mlp", "total_steps": 9}}),
        ("notifications/destinations", {"name": ENTRY, "kind": "webhook", "url": HOOK, "events": ["job.failed"]}),
        ("views", {"name": ENTRY, "filters": {"label": [f"for={ENTRY}"]}}),
    ]


def _make(portal: LivePortal, path: str, wish: dict[str, Any]) -> dict[str, Any]:
    with portal.api() as api:
        answer = api.post(path, json=wish)
    assert answer.is_success, (path, answer.text)
    return dict(answer.json())


def _read(portal: LivePortal, path: str) -> dict[str, Any]:
    with portal.api() as api:
        return dict(api.get(path).raise_for_status().json())


def _jobs(portal: LivePortal) -> tuple[int, int, int, int, int]:
    """Running and waiting with a long name, failed, and two from right to left, of which one has its project's GPUs."""
    endless = GENTLE | {"total_steps": 1_000_000}
    failed = portal.submit(name=JOB, project="long", command=f"echo {_of(100)}; exit 3", model_type=None)["number"]
    portal.wait_state(failed, "failed")
    two = endless | {"gpus": {"min": 2, "max": 2}}
    running = portal.submit(name=JOB, project="long", labels={"for": ENTRY}, **two)["number"]
    hebrew = portal.submit(name=HEBREW, project="arabic", **two)["number"]
    for number in (running, hebrew):
        portal.wait_state(number, "running")
    portal.manage("shell", "-v", "0", "-c", _LINKS.format(number=running, name=ENTRY, url=HOOK))
    capped = portal.submit(name=HEBREW, project="arabic", **two)["number"]
    portal.wait_for("why it waits", lambda: ARABIC in portal.job(capped)["reason"]["text"])
    waiting = portal.submit(name=JOB, project="long", **endless, gpus={"min": 6, "max": 6})["number"]
    return running, waiting, failed, hebrew, capped


def _try_in_the_shadow(portal: LivePortal, simulation: str) -> str:
    """A rollout of what was simulated, after some rounds."""

    def ended() -> Any:
        found = _read(portal, f"simulations/{simulation}")
        return found if found["state"] in ("succeeded", "failed") else None

    found = portal.wait_for("the simulation", ended, timeout_s=SIMULATED_S)
    trial = next(one["id"] for one in found["trials"] if one["role"] == "candidate")
    rollout = str(_make(portal, "rollouts", {"trial": trial})["id"])
    portal.wait_for("a round", lambda: _read(portal, f"rollouts/{rollout}")["shadow"]["rounds"])
    return rollout
