"""The training SDK.

    with evenkeel.training() as run:
        run.checkpoint(model=model, optimizer=optimizer)      # resumes, then saves when due
        for step in run.steps():
            batch = run.local_indices(step, len(dataset))
            ...
            run.report(loss=loss)

Outside the cluster the same program runs alone: nothing is saved, reported or paced.
"""

from __future__ import annotations

import atexit
import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from evenkeel.sdk import distributed
from evenkeel.sdk.checkpoints import CheckpointStore
from evenkeel.sdk.control import CHECKPOINT_AND_STOP, Control, open_control
from evenkeel.sdk.gpu_memory import limit_gpu_memory
from evenkeel.sdk.lines import Lines
from evenkeel.sdk.pace import Pace
from evenkeel.sdk.sampling import batch_indices, share
from evenkeel.sdk.saver import Saver, unwrapped
from evenkeel.sdk.settings import Settings, read_settings
from evenkeel.sdk.state import CheckpointError
from evenkeel.web_address import read_url

log = logging.getLogger("evenkeel")
#: Ranks are at most two steps apart; see `StepFence`.
GROW_MARGIN = 4
MAX_URL = 1_000
__all__ = ["CheckpointError", "Run", "training"]


def training(
    *, total_steps: int | None = None, batch_size: int | None = None, seed: int = 0, settings: Settings | None = None
) -> Run:
    """This worker's part of the run. `total_steps` and `batch_size` are for use outside the cluster;
    inside, the job says both."""
    return Run(settings or read_settings(), total_steps=total_steps, batch_size=batch_size, seed=seed)


class Run:
    def __init__(self, settings: Settings, *, total_steps: int | None, batch_size: int | None, seed: int) -> None:
        self._settings = settings
        self.in_cluster = settings.in_cluster
        self.rank, self.world_size, self.local_rank = settings.rank, settings.world_size, settings.local_rank
        self.total_steps = settings.total_steps if self.in_cluster else total_steps
        self.batch_size = settings.batch_size or batch_size or 0
        self.seed = seed
        self.step = 0  # steps completed
        self.resumed = False
        self.stopping = False  # told to stop before the last step
        self._in_step = self._owns_group = False
        self._device: str | None = None
        self._loaded: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._control: Control | None = None
        self._lines: Lines | None = None
        self._saver: Saver | None = None
        self._fence: distributed.StepFence | None = None
        self._pace: Pace | None = None

    def __enter__(self) -> Run:
        if not self.in_cluster:
            return self
        if self.world_size > 1:
            atexit.register(distributed.wait_for_gloo)
        if "torch" in sys.modules:  # otherwise `device` does it
            limit_gpu_memory(self._settings)
        if self._settings.sdk_dir:
            self._lines = Lines(self._settings.sdk_dir, self.rank)
            self._control = open_control(self._settings.sdk_dir / "control", self._settings)
        if self._settings.checkpoint_dir:
            self._open_checkpoints(CheckpointStore(self._settings.checkpoint_dir, self._settings.checkpoint_keep))
        return self

    def _open_checkpoints(self, store: CheckpointStore) -> None:
        latest = store.load_latest(self.notice)
        if latest:
            self.step, self._loaded, self.resumed = latest[0], latest[1], True
        if self.rank == 0:
            self._saver = Saver(store, self._settings, self._lines)
            self._saver.last_step = self.step if latest else None

    # What this worker is

    @property
    def device(self) -> str:
        """`cuda:<local rank>` where there is one, otherwise `cpu`."""
        if self._device is None:
            self._device = distributed.pick_device(self._settings)
        return self._device

    @property
    def artifact_dir(self) -> Path:
        """What is left here is kept with the run, to be downloaded; outside the cluster `./artifacts`."""
        place = self._settings.artifact_dir or Path("artifacts")
        place.mkdir(parents=True, exist_ok=True)
        return place

    def data(self, name: str) -> Path:
        """The file or folder that the job file names so under `data`; outside the cluster `./data/<name>`."""
        place = (self._settings.data_dir or Path("data")) / name
        if not place.exists():
            raise FileNotFoundError(f"there is no data {name!r}: {place} is not there")
        return place

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def finished(self) -> bool:
        return self.total_steps is not None and self.step >= self.total_steps

    @property
    def local_batch(self) -> int:
        """How many samples of each global batch are this rank's."""
        start, end = share(self.batch_size, self.rank, self.world_size)
        return end - start

    # Distribution

    def init_process_group(self) -> None:
        """Joins the other ranks (gloo or NCCL); `wrap` and `mean` do it when it has not been done."""
        if self.world_size > 1:
            self._owns_group |= distributed.init_process_group(self._settings, self.device)

    def wrap(self, model: Any) -> Any:
        """The model under DistributedDataParallel; with one rank the model itself."""
        if self.world_size == 1:
            return model
        self.init_process_group()
        if self.device.startswith("cuda"):
            self._fence = distributed.StepFence()
        return distributed.wrap(model, self.device)

    def scale_loss(self, loss: Any) -> Any:
        """`loss`, the mean over the local batch, weighted so that DDP's average of the gradients is
        the gradient of the mean over the global batch, however unevenly it is split."""
        return loss * (self.local_batch * self.world_size / self.batch_size)

    def mean(self, value: Any) -> float:
        """The mean over the global batch of `value`, a mean over the local batch. Every rank must call it."""
        if self.world_size == 1:
            return float(value)
        self.init_process_group()
        return distributed.weighted_mean(value, self.local_batch / self.batch_size)

    # Samples

    def batch_indices(self, step: int, dataset_size: int) -> list[int]:
        """The global batch of `step`: the same on every rank and for every number of ranks."""
        return batch_indices(step, dataset_size, self.batch_size, self.seed)

    def local_slice(self, step: int, dataset_size: int) -> list[int]:
        """This rank's part of `batch_indices`. A rank without a share gets one sample, which
        `scale_loss` weighs with nothing, so that it still takes part in the step."""
        indices = self.batch_indices(step, dataset_size)
        start, end = share(self.batch_size, self.rank, self.world_size)
        return indices[start:end] or indices[:1]

    # State

    def checkpoint(self, **objects: Any) -> bool:
        """Registers objects with `state_dict` and `load_state_dict`: they are restored now where there is
        a checkpoint (then True), and saved at intervals, on request and at the end."""
        objects = {name: unwrapped(item) for name, item in objects.items()}
        saved = self._loaded.get("objects", {})
        for name, item in objects.items():
            if name in saved:
                item.load_state_dict(saved.pop(name))
            elif self.resumed:
                raise CheckpointError(f"the checkpoint of step {self.step} holds no {name!r}")
        if self._saver:
            self._saver.register(objects)
        return self.resumed

    def load(self) -> Any:
        """What `save` was given for the last good checkpoint; None at the beginning."""
        return self._loaded.get("state")

    def save(self, state: Any = None, *, force: bool = False) -> bool:
        """Writes `state` (or what it returns, when it can be called) if a checkpoint is due: call it at
        the end of each step. After the loop, or with `force`, it is always written. True if it was."""
        step = self.step + self._in_step
        reason = self._due(step, force or not self._in_step)
        if self._saver is None or reason is None:
            return False
        self._saver.save(step, reason, state if callable(state) else lambda: state)
        return True

    def _due(self, step: int, force: bool) -> str | None:
        if self._saver is None or self._saver.last_step == step:
            return None
        if self.total_steps is not None and step >= self.total_steps:
            return "end"
        if self._control and self._control.stop_at == step:
            return "request"
        return "interval" if force or self._saver.interval_due(step) else None

    # Words to the portal

    def report(self, **metrics: Any) -> None:
        """Numbers of this step. Rank 0's are sent, a few steps a second; calling it often costs nothing."""
        if self._lines and self.rank == 0:
            self._metrics |= {name: getattr(value, "detach", lambda v=value: v)() for name, value in metrics.items()}

    def notice(self, text: str) -> None:
        """A line for people, shown with the job."""
        if self.rank == 0:
            log.warning("%s", text)
            if self._lines:
                self._lines.say("notice", text=text)

    def link(self, name: str, url: str) -> None:
        """An address where more of this run is to be seen (TensorBoard, MLflow, Weights & Biases, ...), shown with the
        job. The same name again replaces it. ValueError for what is no http or https address. The portal shows one
        that leads to its own machine, such as http://localhost:6006, as text, not as a link."""
        try:
            read_url(url, most=MAX_URL)
        except ValueError as error:
            raise ValueError(f"link({name!r}): url {error}, not {url!r}") from None
        if self._lines and self.rank == 0:
            self._lines.say("link", name=name, url=url)

    # The loop

    def steps(self, total: int | None = None) -> Iterator[int]:
        """The steps still to do. `total` counts outside the cluster only; inside, the job's does."""
        if not self.in_cluster and total is not None:
            self.total_steps = total
        if self.total_steps is None:
            raise ValueError("outside the cluster steps(total) needs the number of steps")
        self._begin(self.total_steps)
        while self._goes_on():
            self._in_step = True
            try:
                yield self.step
            finally:
                self._in_step = False
            self.step += 1
            self._after_step()
        if self._saver and self._saver.has_objects:
            self.save()

    def _begin(self, total: int) -> None:
        if self.step >= total or not self.in_cluster:
            return
        if self._settings.pace_steps_per_s and (self.rank == 0 or not self._owns_group):
            self._pace = Pace(self._settings.pace_steps_per_s)
        if self._lines and self.rank == 0:
            self._lines.say("ready", step=self.step, resumed=self.resumed)

    def _goes_on(self) -> bool:
        if self._control:
            self._control.refresh()
        self._take_total()
        return self.total_steps is not None and self.step < self.total_steps and not self._must_leave()

    def _take_total(self) -> None:
        """The job's total may grow while it trains. Rank 0 says so while no rank can have reached the old total,
        so that none leaves before the others; later than that, the next launch does the rest."""
        control = self._control
        if control is None or self.total_steps is None:
            return
        wanted = control.total_wanted
        if self.rank == 0 and wanted and wanted > self.total_steps and self.step + GROW_MARGIN <= self.total_steps:
            control.total = wanted
        self.total_steps = max(self.total_steps, control.total or 0)

    def _must_leave(self) -> bool:
        """Rank 0 answers a request by naming the step to leave at, the next one; all ranks compare."""
        control = self._control
        if self._pace:
            self._pace.wait(lambda: control is not None and control.request == CHECKPOINT_AND_STOP)
        if self._fence:
            self._fence.pass_step()
        if control is None:
            return False
        if self.rank == 0 and control.request == CHECKPOINT_AND_STOP and control.stop_at is None:
            control.stop_at = self.step + (2 if self._fence else 1)
        stop_at = control.stop_at
        self.stopping = stop_at is not None and self.step >= stop_at
        return self.stopping

    def _after_step(self) -> None:
        if self._lines and self.rank == 0:
            said = self._lines.step(self.step, self._metrics, force=self.finished)
            self._metrics = {} if said else self._metrics
        if self._saver and self._saver.has_objects and not self.finished:
            reason = self._due(self.step, False)
            if reason:
                self._saver.save(self.step, reason, lambda: None)

    # The end

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._saver:
            self._saver.wait()
        if isinstance(error, Exception) and self._lines:
            self._lines.say("error", type=type(error).__name__, text=str(error)[:2000])
        if error is None:
            self._leave()

    def _leave(self) -> None:
        if self._lines and self.rank == 0:
            if self.stopping and self._saver and self._saver.last_step != self.step:
                self.notice(f"stopped at step {self.step} without a checkpoint of it")
            if self.stopping:
                self._lines.step(self.step, self._metrics, force=True)
            self._lines.say("stopped" if self.stopping else "done", step=self.step)
        if self._owns_group:
            import torch.distributed as dist

            dist.destroy_process_group()
        if self.in_cluster:
            gc.freeze()  # the interpreter's last collection would walk the whole framework, for seconds
        if self.stopping:
            # What follows the block (evaluation, export) belongs to a finished run.
            raise SystemExit(0)
