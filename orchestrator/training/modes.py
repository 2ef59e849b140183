"""Torch's modes, of which a caller's own must not reach into a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """As in a process in which nobody has set any: with gradients, without autocast, in float32.
    Also a decorator.
    """
    kind = torch.get_default_dtype()
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                modes.enter_context(torch.autocast(device, enabled=False))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(kind)
