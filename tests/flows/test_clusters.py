"""One portal over two local clusters: jobs go where they are told, or where they end first, and each is run there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_portal import GENTLE, LivePortal, running_portal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(600)]

CLUSTERS = """
clusters:
  - name: slow
    executor: local
    settings: {EVENKEEL_VIRTUAL_ACCELERATORS: slow-node=titan_xp:2}
  - name: fast
    executor: local
    settings: {EVENKEEL_VIRTUAL_ACCELERATORS: fast-node=v100:2}
"""
JOB = GENTLE | {"throughput": {"titan_xp": [2.0, 3.0], "v100": [20.0, 30.0]}, "gpus": 1}


@contextlib.contextmanager
def two_clusters() -> Iterator[LivePortal]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clusters.yaml"
        file.write_text(CLUSTERS)
        with running_portal(EVENKEEL_CLUSTERS=str(file)) as portal:
            yield portal


def test_jobs_run_on_the_cluster_that_is_named_or_ends_them_first() -> None:
    with two_clusters() as portal, portal.api() as api:
        assert [one["name"] for one in api.get("session").json()["clusters"]] == ["slow", "fast"]
        portal.wait_for("nodes of both", lambda: api.get("nodes").json() and api.get("nodes?cluster=fast").json())
        chosen = portal.submit(**JOB, total_steps=400)
        assert chosen["cluster"]["name"] == "fast"
        assert chosen["cluster"]["choice"].endswith("earlier than on slow.")
        named = portal.submit(**JOB, total_steps=40, cluster="slow")
        refused = api.post("jobs", json={"model_type": "digits_mlp", "total_steps": 9, "gpus": {"min": 3}})
        assert refused.status_code == 400
        assert "slow: " in refused.json()["detail"]
        for job, node in ((chosen, "fast-node"), (named, "slow-node")):
            ended = portal.wait_state(job["number"], "succeeded", timeout_s=240)
            cluster = job["cluster"]["name"]
            assert (portal.data / "clusters" / cluster / "jobs" / job["id"]).is_dir()
            assert api.get(f"jobs/{job['number']}/logs").json()["size"] > 0
            held = api.get(f"timeline?cluster={cluster}").json()["holds"]
            assert {(hold["node"], hold["job"]["number"]) for hold in held} == {(node, job["number"])}
            assert ended["cluster"] == job["cluster"]
        said = portal.manage("doctor")
        assert "cluster slow: executor local" in said
        assert "accelerators: 2 × v100" in said
