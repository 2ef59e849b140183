"""Torch's modes, of which a caller's own must not reach into a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import RLock

import torch

ALONE = RLock()
"""Torch's modes, threads and generator are of the whole process: of runs in several threads one
computes at a time, or one's dropout would draw from another's."""


@contextmanager
def own_modes() -> Iterator[None]:
    """As in a process in which nobody has set any, and no other run is: with gradients, without
    autocast, in float32. Also a decorator.
    """
    with ExitStack() as modes:
        modes.enter_context(ALONE)
        kind = torch.get_default_dtype()
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


@contextmanager
def put_back() -> Iterator[None]:
    """With torch's threads and products afterwards as they were before: for who computes in a
    caller's own process, whose other work is not to become slow by it.
    """
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        with ALONE:  # not in the middle of another run's round
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(products)


def settle(threads: int, rounded: bool) -> None:
    """Set what else of torch's decides about bits, and code beside the run may have changed since:
    its threads, and whether products of float32 are ``rounded`` (tf32).
    """
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    products = "high" if rounded else "highest"
    if torch.get_float32_matmul_precision() != products:
        torch.set_float32_matmul_precision(products)
