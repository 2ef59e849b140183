"""One digest of a whole state: what "equal bits" is said by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from orchestrator.noted import bytes_of


def digest(state: Any) -> str:
    """SHA-256 of nested dicts of tensors, arrays and numbers, independent of key order."""
    sha = hashlib.sha256()
    within: list[int] = []

    def feed(value: Any) -> None:
        if id(value) in within:
            sha.update(b"itself")
        elif isinstance(value, Mapping):
            within.append(id(value))
            # client ids are numbers, and numbers and text do not compare
            for key in sorted(value, key=str):
                sha.update(f"{key}:".encode())
                feed(value[key])
            within.pop()
        elif isinstance(value, torch.Tensor):
            sha.update(bytes_of(value).tobytes())
        elif isinstance(value, np.ndarray):
            sha.update(np.ascontiguousarray(value).tobytes())
        else:
            sha.update(repr(value).encode())

    feed(state)
    return sha.hexdigest()
