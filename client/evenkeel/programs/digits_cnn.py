"""A small convolutional network on scikit-learn's handwritten digits."""

from torch import nn

from evenkeel.programs._data import digits
from evenkeel.programs._train import argument_parser, train


def make_model(features: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, features, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(features, 2 * features, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * features, 10),
    )


def main() -> None:
    parser = argument_parser(__doc__, lr=3e-3)
    parser.add_argument("--features", type=int, default=16, help="of the first convolution (default %(default)s)")
    options = parser.parse_args()
    train(
        options,
        lambda: make_model(options.features),
        *digits(),
    )


if __name__ == "__main__":
    main()
