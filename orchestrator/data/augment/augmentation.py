"""What every augmentation does: draw by a client's generator, then change many inputs at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.part import Part

if TYPE_CHECKING:
    from torch import Tensor


class Augmentation(Part):
    """A random change of training inputs [n, *shape], as they are stored: pixels 0-255 (uint8) or
    numbers (float32), before they are scaled.

    What is drawn and what is done with it are apart, so that clients which train together are
    changed in one go, and each by its own draws.
    """

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> np.ndarray:
        """What the changes of n inputs are made of [n, k]; a row of zeros must be a draw, too."""

    @abstractmethod
    def apply(self, x: Tensor, draws: Tensor) -> Tensor:
        """The inputs [n, *shape] changed, each by its own row of ``draws`` [n, k]; of the same
        shape and type. ``x`` may be written to.
        """

    def refuses(self, x: Tensor) -> str | None:
        """Why inputs like ``x`` [1, *shape] cannot be changed so, or None."""
        return None

    def tried(self, x: Tensor) -> str | None:
        """:meth:`refuses`, or what comes of a first input ``x`` [1, *shape] that is not one."""
        if (refusal := self.refuses(x)) is not None:
            return refusal
        draws = self.draw(np.random.default_rng(0), 1, tuple(x.shape[1:]))
        made = self.apply(x.clone(), torch.from_numpy(draws))
        if not isinstance(made, torch.Tensor):
            return f"returns a {type(made).__name__}, and no tensor"
        if made.shape != x.shape or made.dtype != x.dtype:
            return (
                f"makes {made.dtype} of shape {tuple(made.shape[1:])} of an input that is "
                f"{x.dtype} of shape {tuple(x.shape[1:])}"
            )
        return None
