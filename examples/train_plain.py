"""A small classifier of digits. `diff train_plain.py train_elastic.py` shows what training under Evenkeel takes."""

import torch
from sklearn.datasets import load_digits
from torch import nn

STEPS, BATCH_SIZE = 500, 90
device = "cuda" if torch.cuda.is_available() else "cpu"
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16
labels = torch.tensor(digits.target, device=device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        batch = torch.randint(len(labels), (BATCH_SIZE,))
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}, loss {loss.item():.3f}", flush=True)  # noqa: T201


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
train(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
