"""The training loop that the programs share, and their common arguments."""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

import evenkeel
from evenkeel.programs._data import Images, Samples

log = logging.getLogger("evenkeel.programs")
WARM_UP_STEPS = 20
LOG_EVERY_S = 5.0


def argument_parser(description: str | None, *, lr: float) -> argparse.ArgumentParser:
    """Arguments every program has; the job says steps and batch size where there is one."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--lr", type=float, default=lr, help="learning rate (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the sample order (default %(default)s)")
    parser.add_argument("--report-every", type=int, default=1, metavar="STEPS", help="how often the loss is reported")
    parser.add_argument("--steps", type=int, default=500, help="outside the cluster (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=90, help="outside the cluster (default %(default)s)")
    return parser


def train(
    options: argparse.Namespace,
    make_model: Callable[[], nn.Module],
    samples: Samples,
    held_out: Images | None = None,
) -> None:
    _prepare(options.seed)
    with evenkeel.training(total_steps=options.steps, batch_size=options.batch_size, seed=options.seed) as run:
        model = make_model().to(run.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        run.checkpoint(model=model, optimizer=optimizer)
        wrapped = run.wrap(model)
        progress = Progress(run, model)
        for step in run.steps():
            _set_learning_rate(optimizer, options.lr, step)
            inputs, targets = samples.take(run.local_slice(step, len(samples)))
            loss = _loss(wrapped(inputs.to(run.device)), targets.to(run.device))
            optimizer.zero_grad()
            run.scale_loss(loss).backward()
            optimizer.step()
            if step % options.report_every == 0:
                mean = run.mean(loss.detach())
                run.report(loss=mean)
                progress.show(step, mean)
        if run.finished and run.is_main and held_out is not None:
            run.notice(f"accuracy on {len(held_out)} held-out images: {_accuracy(model, held_out, run.device):.1%}")


def _prepare(seed: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(seed)


def _set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, step: int) -> None:
    """A function of the step alone, so that a resumed run needs to remember nothing."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, (step + 1) / WARM_UP_STEPS)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


@torch.no_grad()
def _accuracy(model: nn.Module, images: Images, device: str) -> float:
    guesses = model(images.pixels.to(device)).argmax(dim=1).cpu()
    return float((guesses == images.labels).double().mean())


class Progress:
    """Lines in the log for people, a few a minute."""

    def __init__(self, run: evenkeel.Run, model: nn.Module) -> None:
        self._run = run
        self._shown_at = -LOG_EVERY_S
        parameters = sum(parameter.numel() for parameter in model.parameters())
        share = f"{run.local_batch} of {run.batch_size} samples a step"
        begun = f"resumed at step {run.step}" if run.resumed else "from the beginning"
        log.info(
            "%s, %s parameters, rank %d of %d on %s, %s, %s",
            *(type(model).__name__, f"{parameters:,}", run.rank, run.world_size, run.device, share, begun),
        )

    def show(self, step: int, loss: float) -> None:
        now = time.monotonic()
        last = step + 1 == self._run.total_steps
        if self._run.is_main and (last or now - self._shown_at >= LOG_EVERY_S):
            self._shown_at = now
            log.info("step %d of %s, loss %.4f", step + 1, self._run.total_steps, loss)
