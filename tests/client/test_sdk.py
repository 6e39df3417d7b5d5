"""The training SDK: resuming, checkpoints, pace, sampling, and what it says to the runner."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import evenkeel
import pytest
import torch
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, Control
from evenkeel.sdk.lines import Lines, number
from evenkeel.sdk.pace import Pace
from evenkeel.sdk.sampling import batch_indices, share
from evenkeel.sdk.settings import Settings, read_settings
from evenkeel.sdk.state import CheckpointError, copy_state


class Cluster:
    """What the runner would prepare for a program of one rank."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "sdk").mkdir()
        self.control = Control.create(place / "sdk" / "control")

    def settings(self, **changes: Any) -> Settings:
        variables = {
            "EVENKEEL_TOTAL_STEPS": 20,
            "EVENKEEL_BATCH_SIZE": 8,
            "EVENKEEL_CHECKPOINT_EVERY": 5,
            "EVENKEEL_CHECKPOINT_KEEP": 2,
            "EVENKEEL_CHECKPOINT_DIR": self.place / "checkpoints",
            "EVENKEEL_SDK_DIR": self.place / "sdk",
        }
        return read_settings({name: str(value) for name, value in (variables | changes).items()})

    def run(self, **changes: Any) -> evenkeel.Run:
        return evenkeel.training(settings=self.settings(**changes))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "sdk" / "rank0.jsonl").read_text().splitlines()]

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def steps_saved(self) -> list[int]:
        return CheckpointStore(self.place / "checkpoints", 9).steps()

    def state_file(self, step: int) -> Path:
        return next((self.place / "checkpoints" / f"step-{step}").glob("state.*"))

    def train(self, until: int | None = None, **changes: Any) -> list[int]:
        """Runs a program that fails before step `until`; the steps in its state."""
        with self.run(**changes) as run:
            state = run.load() or {"seen": []}
            for step in run.steps():
                if step == until:
                    raise RuntimeError("power cut")
                state["seen"].append(step)
                run.report(double=2 * step)
                run.save(state)
        return list(state["seen"])


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_total_that_grows_is_taken_between_two_steps(cluster: Cluster) -> None:
    seen = []
    with cluster.run() as run:
        for step in run.steps():
            if step == 10:
                cluster.control.total_wanted = 30
            seen.append(step)
    assert seen == list(range(30))
    assert cluster.said("done")[0]["step"] == 30


def test_a_total_that_grows_too_late_is_left_to_the_next_launch(cluster: Cluster) -> None:
    """Another rank may have left at the old total by then."""
    seen = []
    with cluster.run() as run:
        for step in run.steps():
            if step == 18:
                cluster.control.total_wanted = 30
            seen.append(step)
    assert seen == list(range(20))


def test_a_runner_of_an_earlier_version_says_nothing_of_totals(tmp_path: Path) -> None:
    (tmp_path / "control").write_bytes(b"\0" * 8 + b"\xff" * 8)
    control = Control(tmp_path / "control")
    assert (control.stop_at, control.total_wanted, control.total) == (None, None, None)


def test_it_does_nothing_outside_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with evenkeel.training(batch_size=4, settings=read_settings({})) as run:
        assert (run.rank, run.world_size, run.resumed, run.load()) == (0, 1, False, None)
        seen = []
        for step in run.steps(total=5):
            seen.append(step)
            run.report(loss=1.0)
            assert not run.save({"step": step})
    assert seen == list(range(5))
    assert run.finished
    assert list(tmp_path.iterdir()) == []


def test_outside_the_cluster_the_number_of_steps_is_asked_for() -> None:
    with evenkeel.training(settings=read_settings({})) as run, pytest.raises(ValueError, match="number of steps"):
        next(run.steps())


def test_a_run_says_ready_steps_checkpoints_and_done(cluster: Cluster) -> None:
    assert cluster.train() == list(range(20))
    kinds = [line["kind"] for line in cluster.lines]
    assert kinds[0] == "ready"
    assert kinds[-1] == "done"
    assert cluster.said("ready")[0]["resumed"] is False
    assert cluster.said("step")[-1] | {"t": 0} == {"kind": "step", "t": 0, "step": 20, "metrics": {"double": 38.0}}
    assert cluster.said("checkpoint")[-1]["reason"] == "end"
    assert cluster.said("checkpoint")[-1]["path"] == "step-20"


def test_a_run_resumes_after_its_last_checkpoint(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError):
        cluster.train(until=13)
    assert cluster.said("error")[0]["type"] == "RuntimeError"
    assert cluster.train() == list(range(20))
    assert cluster.said("ready")[-1] | {"t": 0} == {"kind": "ready", "t": 0, "step": 10, "resumed": True}


def test_only_the_last_checkpoints_are_kept(cluster: Cluster) -> None:
    cluster.train()
    assert cluster.steps_saved() == [20, 15]
    assert sorted(path.name for path in (cluster.place / "checkpoints").iterdir()) == ["step-15", "step-20"]


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "manifest"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(cluster: Cluster, harm: str) -> None:
    with pytest.raises(RuntimeError):
        cluster.train(until=17)
    path = cluster.state_file(15)
    content = path.read_bytes()
    match harm:
        case "flip":
            path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "remove":
            path.unlink()
        case "manifest":
            (path.parent / "manifest.json").write_text("{}")
    assert cluster.train() == list(range(20))
    assert cluster.said("notice")[0]["text"] == "checkpoint step 15 is damaged, falling back to step 10"
    assert cluster.said("ready")[-1]["step"] == 10


def test_with_every_checkpoint_damaged_it_starts_anew_and_says_so(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError):
        cluster.train(until=7)
    cluster.state_file(5).write_text("x")
    assert cluster.train() == list(range(20))
    assert "starting at step 0" in cluster.said("notice")[0]["text"]


def test_what_a_killed_writer_left_is_no_checkpoint(cluster: Cluster) -> None:
    draft = cluster.place / "checkpoints" / ".draft-99-1"
    draft.mkdir(parents=True)
    assert cluster.train() == list(range(20))
    assert not draft.exists()


def test_a_request_checkpoints_and_leaves_at_the_next_step(cluster: Cluster) -> None:
    def train() -> None:
        with cluster.run() as run:
            for step in run.steps():
                run.save({"step": step})
                if step == 6:
                    cluster.control.request = CHECKPOINT_AND_STOP

    with pytest.raises(SystemExit) as leaving:
        train()
    assert leaving.value.code == 0
    assert cluster.control.stop_at == 8
    assert cluster.lines[-1] | {"t": 0} == {"kind": "stopped", "t": 0, "step": 8}
    assert cluster.said("checkpoint")[-1]["reason"] == "request"
    assert cluster.steps_saved()[0] == 8


def test_links_are_said_and_what_is_no_address_is_refused(cluster: Cluster) -> None:
    with cluster.run() as run:
        run.link("TensorBoard", "https://tensorboard.example.org/#scalars")
        for url in ("javascript:alert(1)", "tensorboard.example.org", "https://a b", "https://x/" + "y" * 1_000):
            with pytest.raises(ValueError, match=r"^link\('bad'\): url (must|may) "):
                run.link("bad", url)
        for _ in run.steps():
            pass
    said = [(line["name"], line["url"]) for line in cluster.said("link")]
    assert said == [("TensorBoard", "https://tensorboard.example.org/#scalars")]


def test_a_stopped_run_without_a_checkpoint_says_so(cluster: Cluster) -> None:
    cluster.control.request = CHECKPOINT_AND_STOP
    run = cluster.run()
    with pytest.raises(SystemExit), run:
        list(run.steps())
    assert cluster.said("notice")[0]["text"] == "stopped at step 1 without a checkpoint of it"


class Momentum:
    """An optimizer small enough not to load PyTorch's."""

    def __init__(self, model: torch.nn.Linear) -> None:
        self.weight, self.speed = model.weight, torch.zeros_like(model.weight)

    def step(self) -> None:
        assert self.weight.grad is not None
        with torch.no_grad():
            self.speed = 0.9 * self.speed + self.weight.grad
            self.weight -= 0.1 * self.speed
        self.weight.grad = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"speed": self.speed}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.speed = state["speed"]


def test_registered_objects_are_saved_and_restored(cluster: Cluster) -> None:
    def train(until: int) -> tuple[bool, torch.nn.Linear]:
        model = torch.nn.Linear(2, 1)
        optimizer = Momentum(model)
        with cluster.run() as run:
            resumed = run.checkpoint(model=model, optimizer=optimizer)
            for step in run.steps():
                if step == until:
                    raise RuntimeError
                model(torch.ones(1, 2)).square().sum().backward()
                optimizer.step()
        return resumed, model

    torch.manual_seed(1)
    resumed, whole = train(99)
    assert not resumed
    for step in cluster.steps_saved():
        cluster.state_file(step).unlink()
    torch.manual_seed(1)
    with pytest.raises(RuntimeError):
        train(12)
    resumed, pieced = train(99)
    assert resumed
    assert torch.equal(whole.weight, pieced.weight)


def test_an_object_that_the_checkpoint_lacks_is_named(cluster: Cluster) -> None:
    cluster.train()
    with cluster.run() as run, pytest.raises(CheckpointError, match="'model'"):
        run.checkpoint(model=torch.nn.Linear(1, 1))


def test_state_that_could_not_be_loaded_fails_at_the_first_save(cluster: Cluster) -> None:
    with pytest.raises(CheckpointError, match="could not be loaded again"), cluster.run() as run:
        run.save({"path": Path("x")}, force=True)


def test_interval_checkpoints_hold_the_state_of_their_step(cluster: Cluster) -> None:
    state = {"weights": torch.zeros(1000)}
    with cluster.run() as run:
        for _ in run.steps():
            state["weights"] += 1
            run.save(state)
    content = torch.load(cluster.state_file(15), weights_only=True)
    assert content["state"]["weights"].unique().tolist() == [15.0]


def test_damaged_checkpoints_do_not_crowd_out_good_ones(cluster: Cluster) -> None:
    cluster.train()
    cluster.state_file(20).write_text("x")
    with pytest.raises(RuntimeError):
        cluster.train(until=18, EVENKEEL_CHECKPOINT_EVERY=1)
    assert cluster.steps_saved() == [18, 17]


def test_a_copy_shares_nothing() -> None:
    state: dict[str, Any] = {"a": [torch.zeros(2), {"b": (torch.ones(1),)}]}
    copied = copy_state(state)
    state["a"][0] += 1
    assert copied["a"][0].tolist() == [0.0, 0.0]


def test_breaking_out_of_the_loop_is_an_end(cluster: Cluster) -> None:
    with cluster.run() as run:
        for step in run.steps():
            if step == 3:
                break
    assert cluster.lines[-1] | {"t": 0} == {"kind": "done", "t": 0, "step": 3}


def test_the_pace_is_a_ceiling_without_bursts() -> None:
    now, starts = 0.0, []

    def sleep(duration_s: float) -> None:
        nonlocal now
        now += duration_s

    pace = Pace(10, clock=lambda: now, sleep=sleep)
    for step in range(40):
        pace.wait()
        starts.append(now)
        now += 1.0 if step == 20 else 0.01  # one long step
    gaps = [after - before for before, after in pairwise(starts)]
    assert min(gaps) == pytest.approx(0.1)
    assert sorted(gaps)[-2] == pytest.approx(0.1)


def test_the_pace_wait_ends_when_interrupted() -> None:
    pace = Pace(0.001, sleep=lambda _: None)
    pace.wait()
    pace.wait(lambda: True)


def test_batches_are_passes_over_the_data_whatever_the_ranks() -> None:
    stream = [index for step in range(10) for index in batch_indices(step, 20, 6, seed=3)]
    assert sorted(stream[:20]) == sorted(stream[20:40]) == list(range(20))
    assert stream[:20] != stream[20:40]
    assert batch_indices(4, 20, 6, seed=3) == stream[24:30]
    assert batch_indices(0, 20, 6, seed=4) != stream[:6]


@pytest.mark.parametrize(("batch", "world"), [(90, 4), (8, 3), (2, 3), (7, 7)])
def test_the_ranks_share_each_batch_without_overlap(batch: int, world: int) -> None:
    parts = [range(*share(batch, rank, world)) for rank in range(world)]
    assert [index for part in parts for index in part] == list(range(batch))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_rank_without_a_share_trains_on_one_sample_that_weighs_nothing() -> None:
    settings = read_settings({"RANK": "2", "WORLD_SIZE": "3"})
    run = evenkeel.training(batch_size=2, settings=settings)
    assert len(run.local_slice(0, 100)) == 1
    assert run.scale_loss(5.0) == 0.0


def test_metrics_that_are_not_finite_are_null() -> None:
    assert [number(value) for value in (float("nan"), torch.tensor(2.5), float("inf"))] == [None, 2.5, None]


def test_a_program_finds_its_data_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "numbers").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with evenkeel.training(total_steps=1) as alone:
        assert alone.data("numbers") == Path("data/numbers")
    settings = Cluster(tmp_path).settings(EVENKEEL_DATA_DIR=tmp_path / "data")
    with evenkeel.training(settings=settings) as run:
        assert run.data("numbers") == tmp_path / "data" / "numbers"
        with pytest.raises(FileNotFoundError, match="there is no data 'others'"):
            run.data("others")


def test_metrics_beyond_the_limits_are_not_sent_and_that_is_said_once(tmp_path: Path) -> None:
    lines = Lines(tmp_path, 0)
    for first in range(0, 300, 60):
        lines.step(first, {f"m{first + n}": 1.0 for n in range(60)}, force=True)
    lines.close()
    said = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
    steps = [set(line["metrics"]) for line in said if line["kind"] == "step"]
    assert [len(names) for names in steps] == [50, 50, 50, 50, 0]
    assert ["200 names a run" in line["text"] for line in said if line["kind"] == "notice"] == [True]
