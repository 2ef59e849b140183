"""Whether processes that share a GPU compute on it side by side: NVIDIA's MPS."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = "/tmp/nvidia-mps"
"""Where its daemon listens unless CUDA_MPS_PIPE_DIRECTORY says otherwise."""


def shared() -> str:
    """How the processes of this machine compute that share a GPU, as words behind "compute"."""
    there = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", DEFAULT), "control")
    return "side by side (MPS)" if there.exists() else "in turn (no MPS)"
