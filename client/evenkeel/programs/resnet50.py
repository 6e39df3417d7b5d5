"""ResNet-50 at a fraction of its width, on digits.

He et al. 2015, "Deep Residual Learning for Image Recognition", table 1: the topology is
the paper's, --width multiplies every channel count. With images of 16 pixels the stages work at 4, 2, 1 and 1 pixels.
"""

import torch
from torch import Tensor, nn

from evenkeel.programs._data import digits
from evenkeel.programs._layers import ConvNorm, channels
from evenkeel.programs._train import argument_parser, train

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, middle: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.reduce = ConvNorm(inputs, middle, 1)
        self.conv = ConvNorm(middle, middle, 3, stride=stride)
        self.expand = ConvNorm(middle, outputs, 1, activation=False)
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = (
            nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride=stride, activation=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.expand(self.conv(self.reduce(x))) + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, width: float, classes: int = 10) -> None:
        super().__init__()
        last = channels(64, width)
        self.stem = nn.Sequential(ConvNorm(1, last, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        for middle, depth, stride in STAGES:
            outputs = channels(middle * EXPANSION, width)
            for index in range(depth):
                blocks.append(Bottleneck(last, channels(middle, width), outputs, stride if index == 0 else 1))
                last = outputs
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(x))
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
        lambda: ResNet50(options.width),
        *digits(options.side),
    )


if __name__ == "__main__":
    main()
