"""A whole portal, an ordinary account, on a real Slurm whose jobs run as the people who submitted them."""

from __future__ import annotations

import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.slurm_cluster import SlurmCluster
from tests.executors.people import ALICE, BOB, PORTAL, People, people
from tests.executors.slurm import portal_settings, slurm_or_skipped
from tests.flows.test_slurm import PROGRAM
from tests.live_portal import LivePortal, running_portal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PLAIN: dict[str, Any] = {"model_type": None, "batch_size": 8, "total_steps": 10**7, "gpus": {"min": 1, "max": 1}}
SAYS = "id -un; echo home $HOME $USER; touch $HOME/was-here; echo 42 > $EVENKEEL_ARTIFACT_DIR/answer.csv; "
NEW_TOKEN = (
    "from accounts.models import *; from accounts.tokens import ALL_SCOPES, create_token; "
    "u = User.objects.create_user('{0}@example.org'); Membership.objects.create(user=u, "
    "project=Project.objects.get(key='default')); print(create_token(user=u, name='t', scopes=ALL_SCOPES)[1])"
)


@dataclass
class There:
    portal: LivePortal
    slurm: SlurmCluster
    shared: Path
    tokens: dict[str, str]

    def api(self, name: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx.Client(base_url=f"{self.portal.base_url}/api/v1/", headers=headers, timeout=15, trust_env=False)

    def submit(self, name: str, **keys: Any) -> dict[str, Any]:
        with self.api(name) as api:
            answer = api.post("jobs", json={"project": "default"} | PLAIN | keys)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def cancel(self, number: int) -> None:
        with self.portal.api() as api:
            api.post(f"jobs/{number}/cancel").raise_for_status()
        self.portal.wait_state(number, "cancelled")

    def log(self, number: int) -> str:
        with self.portal.api() as api:
            return api.get(f"jobs/{number}/logs", headers={"Accept": "text/plain"}).text


@pytest.fixture(scope="module")
def made() -> Iterator[People]:
    with people() as made, made.sudo():
        yield made


@pytest.fixture(scope="module")
def there(made: People) -> Iterator[There]:
    shared = Path(tempfile.mkdtemp(prefix="ek-shared-", dir="/tmp"))
    shared.chmod(0o755)
    shutil.chown(shared, PORTAL, PORTAL)
    try:
        with slurm_or_skipped(nodes=2, gpus=2, accounting=True) as slurm:
            made.configure(shared, slurm_conf=str(slurm.conf))
            settings = portal_settings(slurm) | {
                "EVENKEEL_SLURM_RUN_AS": "person",
                "EVENKEEL_SLURM_HELPER": str(made.helper),
                "EVENKEEL_SHARED_DIR": str(shared),
            }
            with running_portal(account=PORTAL, **settings) as portal:
                tokens = {
                    name: portal.manage("shell", "-v", "0", "-c", NEW_TOKEN.format(name)).split()[-1]
                    for name in ("alice", "bob", "carol")
                }
                for name, account in (("alice", ALICE), ("bob", BOB)):
                    set_account(portal, name, account).raise_for_status()
                yield There(portal, slurm, shared, tokens)
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def set_account(portal: LivePortal, name: str, account: str) -> httpx.Response:
    with portal.api() as api:
        [person] = api.get("people", params={"search": f"{name}@"}).raise_for_status().json()["results"]
        return api.patch(f"people/{person['id']}", json={"unix_account": account})


def as_account(account: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, user=account, group=account, extra_groups=[], capture_output=True, text=True, check=False, cwd="/"
    )


def test_a_job_is_its_persons_and_nobody_elses(there: There) -> None:
    job = there.submit("alice", command=SAYS + "sleep 3600", artifacts={"paths": ["*.csv"]})
    number = job["number"]
    there.portal.wait_state(number, "running", timeout_s=120)
    log = there.portal.wait_for("its log", lambda: "home" in (log := there.log(number)) and log)
    home = pwd.getpwnam(ALICE).pw_dir
    assert ALICE in log.split()
    assert f"home {home} {ALICE}" in log
    assert (Path(home) / "was-here").owner() == ALICE
    [user] = set(there.slurm._ask("squeue", "-h", "--format=%u").split())
    assert user == ALICE

    [place] = (there.shared / "jobs").iterdir()
    assert (place.owner(), place.stat().st_mode & 0o007) == (ALICE, 0)
    [token] = place.glob("runs/*/*/token")
    assert (token.owner(), token.stat().st_mode & 0o777) == (ALICE, 0o600)
    assert as_account(ALICE, "cat", str(token)).returncode == 0
    for other in (BOB, PORTAL):
        assert "Permission denied" in as_account(other, "cat", str(token)).stderr
    assert "Permission denied" in as_account(BOB, "ls", str(place)).stderr
    assert "Permission denied" in as_account(BOB, "ls", str(place.parent)).stderr

    there.cancel(number)
    there.portal.wait_for("Slurm", lambda: there.slurm._ask("squeue", "-h", "--format=%u").split() == [])
    sacct = ("sacct", "--user", ALICE, "--allocations", "-n", "--format=User%20,JobName%60")
    listed = there.portal.wait_for("slurmdbd", lambda: ALICE in (rows := there.slurm._ask(*sacct)) and rows)
    assert "evenkeel-" in listed


def test_artifacts_and_logs_of_an_ended_job_are_read_by_the_portal(there: There) -> None:
    number = there.submit("bob", command=SAYS, artifacts={"paths": ["*.csv"]}, total_steps=1)["number"]
    job = there.portal.wait_state(number, "succeeded", "failed", timeout_s=120)
    assert job["state"] == "succeeded", job
    assert BOB in there.log(number).split()
    with there.api("bob") as api:
        listed = there.portal.wait_for(
            "the artifacts",
            lambda: (found := api.get(f"jobs/{number}/artifacts").json()) and not found["collecting"] and found,
        )
        file = api.get(f"jobs/{number}/artifacts/{listed['results'][0]['id']}")
    assert file.text.strip() == "42"


def test_a_job_shrinks_and_grows_and_goes_on_from_its_checkpoint(there: There) -> None:
    program = there.portal.data / "program.py"
    program.write_text(PROGRAM)
    there.portal.data.chmod(0o755)
    pace = {"a100": [10.0, 18.0, 25.0, 31.0]}
    wish = {"command": f"python {program}", "checkpoint": {"every_steps": 20}, "throughput": pace}
    number = there.submit("alice", **wish, gpus={"min": 1, "max": 4})["number"]

    def trains_on(gpus: int) -> Any:
        job = there.portal.job(number)
        held = len((job["allocation"] or {"gpus": []})["gpus"])
        return job["state"] == "running" and held == gpus and job

    first = there.portal.wait_for("all GPUs", lambda: trains_on(4), 180)
    there.portal.wait_for("steps", lambda: there.portal.job(number)["step"] > first["step"] + 50)
    other = there.submit("bob", command="sleep 3600", gpus={"min": 1, "max": 1})["number"]
    there.portal.wait_state(other, "running", timeout_s=180)
    there.portal.wait_state(number, "running", timeout_s=180)
    began = [line.split() for line in there.log(number).splitlines() if line.startswith("began")]
    assert len({int(step) for _, step, _ in began}) > 1, began
    assert all(int(step) == int(seen) for _, step, seen in began)  # nothing lost, nothing twice
    there.cancel(other)
    try:
        there.portal.wait_for("all GPUs again", lambda: trains_on(4), 180)
    finally:
        there.cancel(number)


def test_who_has_no_account_is_told_at_once(there: There) -> None:
    with there.api("carol") as api:
        for path in ("jobs", "jobs/preview"):
            answer = api.post(path, json={"project": "default", "command": "id", **PLAIN})
            assert answer.status_code == 400, answer.text
            assert "run as the UNIX account of who submits them, and you have none here" in answer.text
            assert "ask an administrator" in answer.text


@pytest.mark.parametrize("account", ["root", "daemon", "no-such-account", PORTAL, "-x", "a;b", BOB])
def test_no_other_account_can_be_set(there: There, account: str) -> None:
    answer = set_account(there.portal, "carol", account)
    assert answer.status_code == 400, answer.text
    assert "unix_account" in answer.text


def test_doctor_tries_the_rule_the_helper_and_an_account(there: There) -> None:
    said = there.portal.manage_anyhow("doctor")
    for words in ("sudo starts it", "is root's alone", "a job of ek-", "has mode 3733"):
        assert words in said, said


def is_bobs_and_goes_on(epoch_dir: Path) -> bool:
    return epoch_dir.owner() == BOB and not (epoch_dir / "exit.json").exists()


def test_a_job_that_lays_links_reaches_nothing_of_the_portals_or_of_others(there: There) -> None:
    """Its directory, and what the portal removes and reads there, lead into a job of somebody else."""
    victim = there.submit("bob", command="sleep 3600")["number"]
    there.portal.wait_state(victim, "running", timeout_s=120)
    [theirs] = [
        one.parent for one in (there.shared / "jobs").glob("*/runs/*/*/claim") if is_bobs_and_goes_on(one.parent)
    ]
    command = (
        f"cd $EVENKEEL_SDK_DIR/..; rm -rf logs spool; ln -s {theirs}/logs logs; ln -s {theirs}/spool spool; "
        f"cd ..; mv $EVENKEEL_EPOCH was; ln -s {theirs} $EVENKEEL_EPOCH; sleep 3600"
    )
    number = there.submit("alice", command=command)["number"]
    there.portal.wait_state(number, "running", "failed", "queued", timeout_s=120)
    with there.portal.api() as api:
        api.post(f"jobs/{number}/cancel").raise_for_status()
    there.portal.wait_state(number, "cancelled", timeout_s=180)
    assert there.portal.job(victim)["state"] == "running"
    assert not (theirs / "stop").exists()
    assert not (theirs / "exit.json").exists()
    there.portal.wait_for(
        "Slurm", lambda: there.slurm._ask("squeue", "-h", "--states=RUNNING", "--format=%u").split() == [BOB], 60
    )
    there.cancel(victim)
