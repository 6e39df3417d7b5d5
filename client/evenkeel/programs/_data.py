"""What the programs train on: scikit-learn's bundled digits and a text, both on this machine already."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

HELD_OUT = 297  # of 1,797 digits


class Samples(Protocol):
    def __len__(self) -> int: ...

    def take(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these samples."""
        ...


@dataclass(frozen=True, slots=True)
class Images:
    pixels: Tensor  # (n, 1, side, side), about zero mean and unit variance
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        chosen = torch.tensor(indices)
        return self.pixels[chosen], self.labels[chosen]


@dataclass(frozen=True, slots=True)
class Text:
    """Windows of `context` bytes, each to be predicted one byte ahead; a sample is where a window starts."""

    codes: Tensor
    context: int

    def __len__(self) -> int:
        return len(self.codes) - self.context

    def take(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        windows = torch.tensor(indices)[:, None] + torch.arange(self.context + 1)
        codes = self.codes[windows]
        return codes[:, :-1], codes[:, 1:]


def digits(side: int = 8) -> tuple[Images, Images]:
    """Images to train on and held out, enlarged to `side` pixels."""
    table = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=",", dtype=np.float32))
    pixels = (table[:, :64].view(-1, 1, 8, 8) - 4.884) / 6.017
    if side != 8:
        pixels = F.interpolate(pixels, size=(side, side), mode="bilinear", align_corners=False)
    labels = table[:, 64].long()
    return Images(pixels[:-HELD_OUT], labels[:-HELD_OUT]), Images(pixels[-HELD_OUT:], labels[-HELD_OUT:])


def _digits_file() -> Path:
    """The file in scikit-learn's package, read without the second that importing scikit-learn takes."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("the digits come with scikit-learn, which is not installed here")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def corpus(context: int) -> Text:
    """The Apache licence and pages of this project's documentation, in ASCII."""
    raw = resources.files("evenkeel.programs").joinpath("corpus.txt").read_bytes()
    return Text(torch.frombuffer(bytearray(raw), dtype=torch.uint8).long(), context)
