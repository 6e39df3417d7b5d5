"""A small network in numpy, and its file format: arrays and a JSON header, never pickles."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from scheduling.errors import InvalidInput
from scheduling.policies.learned.images import INPUTS, PRICE, SAVED, Choices

Floats = np.ndarray[Any, np.dtype[Any]]
SCHEMA = "evenkeel-placement/4"
LARGEST_BYTES = 4 << 20
_MOST_LAYERS = 8
#: Of a model: how many jobs it considers, and how many of these at once.
MOST_CHOICES = {"slots": 32, "together": 3}
_PROFILES = ("series", "max", "mean")


@dataclass(frozen=True, slots=True)
class Model:
    """`layers`: (weights, biases), with a rectifier after each but the last. `header`: what it was trained on and
    how."""

    layers: Sequence[tuple[Floats, Floats]]
    header: Mapping[str, Any]

    @property
    def choices(self) -> Choices:
        return Choices(self.header["slots"], self.header["together"])

    def scores(self, inputs: Floats) -> Floats:
        """One score for each row: the immediate gain plus the network's expected later gain, in mean run lengths."""
        values = np.asarray(inputs, dtype=np.float32)
        at_once = values[:, SAVED] - values[:, PRICE]
        for weights, biases in self.layers[:-1]:
            values = np.maximum(values @ weights + biases, 0.0)
        weights, biases = self.layers[-1]
        return np.asarray(at_once + (values @ weights + biases)[:, 0])


def save(model: Model, path: Path) -> None:
    arrays: dict[str, Any] = {
        f"{name}{n}": array for n, layer in enumerate(model.layers) for name, array in zip("wb", layer, strict=True)
    }
    header = np.frombuffer(json.dumps(dict(model.header), sort_keys=True).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, header=header, **arrays)


def load(path: Path) -> Model:
    """Raises InvalidInput; nothing in the file is executed."""
    try:
        status = path.stat()
        return _load(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path}: it is no placement model ({error})") from None


@lru_cache(maxsize=16)
def _load(path: Path, _changed: int, size: int) -> Model:
    with zipfile.ZipFile(path) as archive:
        if size > LARGEST_BYTES or sum(entry.file_size for entry in archive.infolist()) > LARGEST_BYTES:
            raise ValueError(f"it is larger than {LARGEST_BYTES} bytes")
    with np.load(path, allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes().decode())
        count = sum(name.startswith("w") for name in arrays.files)
        if not 1 <= count <= _MOST_LAYERS:
            raise ValueError(f"{count} layers where 1 to {_MOST_LAYERS} are possible")
        layers = [(arrays[f"w{n}"], arrays[f"b{n}"]) for n in range(count)]
    _check(header, layers)
    return Model(layers, header)


def _check(header: Any, layers: Sequence[tuple[Floats, Floats]]) -> None:
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise ValueError(f"its header does not say {SCHEMA}")
    if header.get("profile") not in _PROFILES:
        raise ValueError(f"profile {header.get('profile')!r} is none of {', '.join(_PROFILES)}")
    for name, most in MOST_CHOICES.items():
        if not isinstance(header.get(name), int) or not 1 <= header[name] <= most:
            raise ValueError(f"{name} {header.get(name)!r} is not from 1 to {most}")
    wide = INPUTS
    for number, (weights, biases) in enumerate(layers):
        if weights.dtype != np.float32 or biases.dtype != np.float32:
            raise ValueError(f"layer {number} has other numbers than 32-bit ones")
        if weights.ndim != 2 or weights.shape[0] != wide or biases.shape != weights.shape[1:]:
            raise ValueError(f"layer {number} has shape {weights.shape} where {wide} inputs are needed")
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise ValueError(f"layer {number} has numbers that are not finite")
        wide = weights.shape[1]
    if wide != 1:
        raise ValueError(f"it gives {wide} scores where 1 is needed")
