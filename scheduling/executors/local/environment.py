"""Environment variables that jobs inherit from the portal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Of the portal's own environment only these reach a job.
ALLOWED = frozenset(
    {
        "LANG",
        "LANGUAGE",
        "TZ",
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
)


def own_environment() -> dict[str, str]:
    """The part of our environment that a job gets, with our interpreter first in its path."""
    kept = {name: value for name, value in os.environ.items() if name in ALLOWED or name.startswith("LC_")}
    here = str(Path(sys.executable).parent)
    return kept | {"PATH": f"{here}:{os.environ.get('PATH') or os.defpath}", "PYTHONUNBUFFERED": "1"}
