"""A small network learns a function of two numbers; `diff plain.py elastic.py` says what Evenkeel needs of it."""

import evenkeel
import torch
from torch import nn

STEPS, BATCH_SIZE = 600, 96

torch.manual_seed(0)
run = evenkeel.training(total_steps=STEPS, batch_size=BATCH_SIZE)
device = run.device
inputs = torch.rand(4096, 2).to(device) * 2 - 1
targets = torch.sin(3 * inputs[:, :1]) * inputs[:, 1:]
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model: nn.Module) -> None:
    run.checkpoint(model=model, optimizer=optimizer)
    for step in run.steps():
        batch = run.local_slice(step, len(inputs))
        loss = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        run.scale_loss(loss).backward()
        optimizer.step()
        run.report(loss=loss)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}, loss {loss.item():.5f}", flush=True)  # noqa: T201


with run:
    train(run.wrap(model))
print(f"final loss {nn.functional.mse_loss(model(inputs), targets).item():.6g}")  # noqa: T201
