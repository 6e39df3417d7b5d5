"""EVENKEEL_CLUSTERS: what it may say, and how errors name cluster and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.config import env
from portal.config.clusters_file import MOST, read_clusters
from portal.config.engines import Engine


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clusters.yaml"
    monkeypatch.setenv("EVENKEEL_CLUSTERS", str(path))
    return path


def read(file: Path, *clusters: Any) -> dict[str, Engine]:
    file.write_text(yaml.safe_dump({"clusters": list(clusters)}))
    return read_clusters(file.parent / "data")


def local(name: str, accelerators: str = "titan_xp:2", **settings: Any) -> dict[str, Any]:
    more = {"EVENKEEL_VIRTUAL_ACCELERATORS": accelerators} if accelerators else {}
    return {"name": name, "executor": "local", "settings": more | settings}


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    assert read_clusters(tmp_path) == {}


def test_each_cluster_has_its_executor_and_settings_in_the_order_of_the_file(file: Path, tmp_path: Path) -> None:
    slurm = {"name": "big", "executor": "slurm", "settings": {"EVENKEEL_SHARED_DIR": "/nfs/evenkeel"}}
    found = read(file, local("near"), slurm, local("b", "v100:4", EVENKEEL_LOCAL_DIR=str(tmp_path / "b")))
    assert list(found) == ["near", "big", "b"]
    assert [engine.executor for engine in found.values()] == ["local", "slurm", "local"]
    assert found["near"].job_files == tmp_path / "data/clusters/near"
    assert found["big"].job_files == found["big"].options["shared_dir"] == Path("/nfs/evenkeel")
    assert found["b"].options["virtual_accelerators"] == "v100:4"
    assert found["b"].options["data_dir"] == tmp_path / "b"
    assert [engine.emulated for engine in found.values()] == [True, False, True]


def test_local_clusters_of_one_machine_share_its_accounts(file: Path) -> None:
    found = read(file, local("a"), local("b"))
    assert found["a"].options["accounts_file"] == found["b"].options["accounts_file"]


def test_what_a_cluster_leaves_open_the_environment_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENKEEL_LEASE_S", "90")
    ray = {"EVENKEEL_RAY_ADDRESS": "10.0.0.1:6379", "EVENKEEL_EMULATED": True}
    own = {"name": "b", "executor": "ray", "settings": {**ray, "EVENKEEL_LEASE_S": 300}}
    found = read(file, {"name": "a", "executor": "ray", "settings": ray}, own)
    assert [engine.options["lease_s"] for engine in found.values()] == [90, 300]
    assert found["a"].options["address"] == "10.0.0.1:6379"
    assert found["a"].emulated


WRONG: list[tuple[list[Any], str]] = [
    ([], "1 to 16 clusters, not 0"),
    ([local(f"c{n}") for n in range(MOST + 1)], "not 17"),
    (["a"], "cluster 1 must be name, executor and settings"),
    ([local("Big One")], "cluster 1: name must be small letters"),
    ([local("auto")], "'auto' cannot name a cluster"),
    ([local("a"), local("a")], "'a' is there twice"),
    ([{"name": "a", "executor": "pbs"}], "cluster 'a': executor must be local or ray or slurm, not 'pbs'"),
    ([{"name": "a", "executer": "ray"}], "cluster 'a' has a key 'executer'"),
    ([local("a", EVENKEEL_VIRTUAL_ACCELERATORS="x")], "cluster 'a': EVENKEEL_VIRTUAL_ACCELERATORS must look like"),
    ([local("a", EVENKEEL_LOCAL_DIRS="/x")], "EVENKEEL_LOCAL_DIRS says nothing .* did you mean EVENKEEL_LOCAL_DIR"),
    ([local("a", EVENKEEL_SLURM_QOS="x")], "EVENKEEL_SLURM_QOS says nothing to a cluster of executor local"),
    ([local("a", EVENKEEL_LOCAL_DIR=["x"])], "EVENKEEL_LOCAL_DIR must be a text or a number"),
    ([local("a") | {"settings": ["x"]}], "cluster 'a': settings must be names and values"),
    ([local("a", EVENKEEL_LOCAL_DIR="/x"), local("b", EVENKEEL_LOCAL_DIR="/x")], "'a' and 'b' would both keep their"),
    ([local("a", ""), local("b", "")], "'a' and 'b' would both give away the GPUs"),
]


@pytest.mark.parametrize(("clusters", "said"), WRONG)
def test_errors_name_the_cluster_and_the_key(file: Path, clusters: list[Any], said: str) -> None:
    with pytest.raises(env.BadSetting, match=said):
        read(file, *clusters)


@pytest.mark.parametrize("text", ["clusters: [", "a: 1", "- a", "clusters: {}", "clusters: []\nmore: 1"])
def test_what_is_no_list_of_clusters_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(env.BadSetting, match="EVENKEEL_CLUSTERS"):
        read_clusters(file.parent)


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(env.BadSetting, match=f"cannot be read: No such file or directory: {file}"):
        read_clusters(file.parent)


def test_a_file_with_a_key_is_for_the_portal_alone(file: Path) -> None:
    file.touch()
    file.chmod(0o644)
    with pytest.raises(env.BadSetting, match="chmod 600"):
        read(file, {"name": "big", "executor": "slurm", "settings": {"EVENKEEL_CHECKPOINT_SECRET": "secret"}})


def test_a_checkpoint_store_is_of_its_cluster(file: Path) -> None:
    slurm = {"name": "big", "executor": "slurm", "settings": {"EVENKEEL_CHECKPOINT_URL": "file:///nfs/checkpoints"}}
    found = read(file, slurm, local("near"))
    assert found["big"].checkpoint_store is not None
    assert found["near"].checkpoint_store is None


def test_data_is_kept_where_its_cluster_says(file: Path, tmp_path: Path) -> None:
    slurm = {"name": "big", "executor": "slurm", "settings": {"EVENKEEL_DATA_CACHE_DIR": "/scratch/%n"}}
    found = read(file, slurm, local("near"))
    places = {"big": "/scratch/%n", "near": str(tmp_path / "data/clusters/near/data_cache")}
    assert {name: engine.datasets.cache_dir for name, engine in found.items()} == places
    assert {name: engine.options["data_cache_dir"] for name, engine in found.items()} == places
