"""Changes that are made of one input at a time: torchvision's, and a user's own."""

from __future__ import annotations

import functools
import inspect
import json
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import JsonValue, model_validator

from algorithms.part import nearest, option
from orchestrator.data.augment.augmentation import Augmentation
from orchestrator.plugins.blame import raised
from orchestrator.plugins.own import Own

if TYPE_CHECKING:
    from torch import Tensor


class Singly(Augmentation):
    """Base: each input gets a seed, by which all of torch's draws for it are made."""

    def draw(self, rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, 2**62, (n, 1))

    def apply(self, x: Tensor, draws: Tensor) -> Tensor:
        on_gpu = x.device.type == "cuda"
        made = []
        with torch.random.fork_rng([torch.cuda.current_device()] if on_gpu else []):
            for one, seed in zip(x, draws[:, 0].tolist(), strict=True):
                torch.default_generator.manual_seed(seed)
                if on_gpu:
                    torch.cuda.manual_seed(seed)
                made.append(self.changed(one, seed))
        return torch.stack(made)

    @abstractmethod
    def changed(self, x: Tensor, seed: int) -> Tensor:
        """One input [*shape] changed."""


class TorchVision(Singly):
    """A transform of torchvision.transforms.v2 by its name, of one image at a time."""

    name: str = "torchvision"
    transform: str = option("", "name of the class, such as RandAugment or RandomRotation")
    options: dict[str, JsonValue] = option({}, "its keyword arguments")

    @model_validator(mode="after")
    def _is_one(self) -> TorchVision:
        try:
            _transform(self.transform, json.dumps(self.options))
        except ValueError:
            raise
        except Exception as error:  # whatever its constructor may raise
            raise ValueError(f"{self.transform}: {raised(error)}") from error
        return self

    def changed(self, x: Tensor, seed: int) -> Tensor:
        made: Tensor = _transform(self.transform, json.dumps(self.options))(x)
        return made


@functools.lru_cache(maxsize=100)
def _transform(name: str, options: str) -> Callable[[Tensor], Any]:
    """The transform, made once; raises ValueError if there is none of that name."""
    from torchvision.transforms import v2

    names = [n for n, found in vars(v2).items() if inspect.isclass(found) and n[0].isupper()]
    if name not in names:
        raise ValueError(f"torchvision.transforms.v2 has no {name!r}; {nearest(name, names)[:300]}")
    made: Callable[[Tensor], Any] = getattr(v2, name)(**json.loads(options))
    return made


class OwnAugmentation(Own, Singly):
    """A function of one input ``x`` [*shape], and of a ``generator`` of torch if it asks for one,
    that returns it changed; a config says it in short as ``data.augment: ./parts.py:shaken``.
    """

    name: str = "own"

    def changed(self, x: Tensor, seed: int) -> Tensor:
        generator = torch.Generator(x.device).manual_seed(seed)
        made: Tensor = self.made("data.augment", {"x": x, "generator": generator})
        return made
