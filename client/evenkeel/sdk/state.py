"""State of a program on its way to and from a file: JSON where it can be, torch's format otherwise."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

JSON, TORCH = "json", "torch"


class CheckpointError(Exception):
    """A checkpoint that cannot be written or read; the message says which and why."""


def format_of(state: Any) -> str:
    return JSON if _is_json(state) else TORCH


def _is_json(state: Any) -> bool:
    if isinstance(state, dict):
        return all(type(key) is str and _is_json(value) for key, value in state.items())
    if type(state) is list:
        return all(map(_is_json, state))
    return state is None or type(state) in (str, int, float, bool)


def copy_state(state: Any) -> Any:
    """A copy that later steps do not change; tensors come to host memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        copied = {key: copy_state(value) for key, value in state.items()}
        return copied if type(state) is dict else type(state)(copied)
    if type(state) in (list, tuple):
        return type(state)(map(copy_state, state))
    return copy.deepcopy(state)


def write_state(path: Path, state: Any, format_name: str) -> None:
    with path.open("wb") as file:
        if format_name == JSON:
            file.write(json.dumps(state).encode())
            return
        try:
            import torch
        except ImportError:
            raise CheckpointError("without PyTorch a checkpoint holds only what JSON can express") from None
        torch.save(state, file)


def read_state(path: Path, format_name: str) -> Any:
    """Never runs code from the file: JSON, or torch with weights only."""
    if format_name == JSON:
        return json.loads(path.read_bytes())
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)
