"""A small transformer language model, byte by byte, on text of this project."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evenkeel.programs._data import corpus
from evenkeel.programs._train import argument_parser, train

CODES = 128  # ASCII


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        mixed = self.queries_keys_values(self.attention_norm(x))
        q, k, v = mixed.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.perceptron(x)
        return y


class TinyLM(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.codes = nn.Embedding(CODES, width)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, CODES)

    def forward(self, codes: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.codes(codes) + self.positions))
        return logits


def main() -> None:
    parser = argument_parser(__doc__, lr=3e-3)
    parser.add_argument("--width", type=int, default=32, help="of the residual stream (default %(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="transformer blocks (default %(default)s)")
    parser.add_argument("--heads", type=int, default=2, help="attention heads in a block (default %(default)s)")
    parser.add_argument("--context", type=int, default=32, help="bytes a sample holds (default %(default)s)")
    options = parser.parse_args()
    train(
        options,
        lambda: TinyLM(options.width, options.layers, options.heads, options.context),
        corpus(options.context),
    )


if __name__ == "__main__":
    main()
