"""Inception-v3 at a fraction of its width, on digits.

Szegedy et al. 2015, "Rethinking the Inception Architecture for Computer Vision": the blocks, their order and
their counts (3 A, reduction, 4 B, reduction, 2 C) are the paper's, without the auxiliary head; --width multiplies every
channel count and every convolution is padded.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from evenkeel.programs._data import digits
from evenkeel.programs._layers import ConvNorm, channels
from evenkeel.programs._train import argument_parser, train

Kernel = int | tuple[int, int]
Layer = tuple[int, Kernel] | tuple[int, Kernel, int]  # full-size channels, kernel, stride


class Chain(nn.Sequential):
    """Convolutions one after the other; knows how many channels come out."""

    def __init__(self, inputs: int, width: float, *layers: Layer) -> None:
        modules = []
        for full, kernel, *stride in layers:
            outputs = channels(full, width)
            modules.append(ConvNorm(inputs, outputs, kernel, stride=stride[0] if stride else 1))
            inputs = outputs
        super().__init__(*modules)
        self.outputs = inputs


class Pool(nn.Sequential):
    """3x3 pooling, then a 1x1 convolution unless the block reduces the resolution."""

    def __init__(self, inputs: int, width: float, full: int | None) -> None:
        if full is None:
            super().__init__(nn.MaxPool2d(3, stride=2, padding=1))
            self.outputs = inputs
        else:
            self.outputs = channels(full, width)
            super().__init__(nn.AvgPool2d(3, stride=1, padding=1), ConvNorm(inputs, self.outputs, 1))


class Fork(nn.Module):
    """One chain, then two convolutions side by side: how block C widens."""

    def __init__(self, stem: Chain, width: float) -> None:
        super().__init__()
        self.stem = stem
        self.arms = nn.ModuleList(Chain(stem.outputs, width, (384, kernel)) for kernel in ((1, 3), (3, 1)))
        self.outputs = 2 * channels(384, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        return torch.cat([arm(y) for arm in self.arms], dim=1)


class Branches(nn.Module):
    """Branches side by side, concatenated."""

    def __init__(self, branches: Sequence[Chain | Pool | Fork]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.outputs = sum(branch.outputs for branch in branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def block_a(i: int, w: float, pool: int) -> Branches:
    return Branches(
        [Chain(i, w, (64, 1)), Chain(i, w, (48, 1), (64, 5)), Chain(i, w, (64, 1), (96, 3), (96, 3)), Pool(i, w, pool)]
    )


def reduction_a(i: int, w: float) -> Branches:
    return Branches([Chain(i, w, (384, 3, 2)), Chain(i, w, (64, 1), (96, 3), (96, 3, 2)), Pool(i, w, None)])


def block_b(i: int, w: float, c: int) -> Branches:
    short = Chain(i, w, (c, 1), (c, (1, 7)), (192, (7, 1)))
    long = Chain(i, w, (c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7)))
    return Branches([Chain(i, w, (192, 1)), short, long, Pool(i, w, 192)])


def reduction_b(i: int, w: float) -> Branches:
    long = Chain(i, w, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2))
    return Branches([Chain(i, w, (192, 1), (320, 3, 2)), long, Pool(i, w, None)])


def block_c(i: int, w: float) -> Branches:
    forks = [Fork(Chain(i, w, (384, 1)), w), Fork(Chain(i, w, (448, 1), (384, 3)), w)]
    return Branches([Chain(i, w, (320, 1)), *forks, Pool(i, w, 192)])


class InceptionV3(nn.Module):
    def __init__(self, width: float, classes: int = 10) -> None:
        super().__init__()
        low = Chain(1, width, (32, 3, 2), (32, 3), (64, 3))
        high = Chain(low.outputs, width, (80, 1), (192, 3))
        stem = (low, Pool(low.outputs, width, None), high, Pool(high.outputs, width, None))
        blocks: list[Branches] = []
        last = high.outputs
        makers = [partial(block_a, pool=pool) for pool in (32, 64, 64)]
        makers += [partial(reduction_a), *(partial(block_b, c=middle) for middle in (128, 160, 160, 192))]
        makers += [partial(reduction_b), partial(block_c), partial(block_c)]
        for make in makers:
            blocks.append(make(last, width))
            last = blocks[-1].outputs
        self.features = nn.Sequential(*stem, *blocks)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.features(x)
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits


def main() -> None:
    parser = argument_parser(__doc__, lr=1e-3)
    parser.add_argument(
        "--width", type=float, default=0.0625, help="of every layer; 1 is full size (default %(default)s)"
    )
    parser.add_argument("--side", type=int, default=16, help="pixels along an image (default %(default)s)")
    options = parser.parse_args()
    train(
        options,
        lambda: InceptionV3(options.width),
        *digits(options.side),
    )


if __name__ == "__main__":
    main()
