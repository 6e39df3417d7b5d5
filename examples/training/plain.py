"""A small network learns a function of two numbers; `diff plain.py elastic.py` says what Evenkeel needs of it."""

import torch
from torch import nn

STEPS, BATCH_SIZE = 600, 96

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
inputs = torch.rand(4096, 2).to(device) * 2 - 1
targets = torch.sin(3 * inputs[:, :1]) * inputs[:, 1:]
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model: nn.Module) -> None:
    for step in range(STEPS):
        batch = torch.randint(len(inputs), (BATCH_SIZE,))
        loss = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}, loss {loss.item():.5f}", flush=True)  # noqa: T201


train(model)
print(f"final loss {nn.functional.mse_loss(model(inputs), targets).item():.6g}")  # noqa: T201
