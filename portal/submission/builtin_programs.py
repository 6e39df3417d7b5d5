"""The programs that come with the portal, and prices of their accelerators until an administrator sets others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    title: str
    description: str
    default_batch_size: int

    @property
    def argv(self) -> list[str]:
        return ["python", "-m", f"evenkeel.programs.{self.name}"]


PROGRAMS = (
    Program("digits_cnn", "Digits CNN", "A small convolutional network on scikit-learn's handwritten digits.", 128),
    Program("digits_mlp", "Digits MLP", "A multi-layer perceptron on scikit-learn's handwritten digits.", 128),
    Program("tiny_lm", "Tiny language model", "A small transformer that learns the next character of a text.", 64),
    Program("resnet50", "ResNet-50", "ResNet-50 of adjustable width on small images.", 90),
    Program("inception_v3", "Inception v3", "Inception v3 of adjustable width on small images.", 90),
)

#: Accelerator type -> price of a GPU-hour in millionths of the currency: initial values, to be replaced by real costs.
DEFAULT_RATES = {
    "titan_xp": 600_000,
    "v100": 1_200_000,
    "l40s": 1_100_000,
    "h200": 3_800_000,
    "cpu": 50_000,
}
