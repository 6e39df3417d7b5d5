"""A perceptron with two hidden layers on scikit-learn's handwritten digits."""

from torch import nn

from evenkeel.programs._data import digits
from evenkeel.programs._train import argument_parser, train


def make_model(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def main() -> None:
    parser = argument_parser(__doc__, lr=3e-3)
    parser.add_argument("--hidden", type=int, default=128, help="units in each hidden layer (default %(default)s)")
    options = parser.parse_args()
    train(
        options,
        lambda: make_model(options.hidden),
        *digits(),
    )


if __name__ == "__main__":
    main()
