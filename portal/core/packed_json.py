"""JSON compressed with zstd."""

from __future__ import annotations

import json
from typing import Any

import zstandard

_MOST_BYTES = 1 << 30


def pack(value: Any) -> bytes:
    return zstandard.compress(json.dumps(value, separators=(",", ":")).encode(), 3)


def unpack(packed: Any) -> Any:
    return json.loads(zstandard.ZstdDecompressor().decompress(bytes(packed), max_output_size=_MOST_BYTES))
