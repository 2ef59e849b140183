"""Libraries' networks with the weights that a config names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from orchestrator.errors import UserError
from orchestrator.models.base import Model


class LibraryModel(Model):
    """A network of a library, whose weights may be loaded."""

    weights: str = "none"

    def forgets(self) -> str | None:
        if self.init == "default" or self.weights == "none":
            return None
        return (
            f"model.init: {self.init} would draw anew what model.weights has loaded; leave init at "
            "default"
        )


def pretrained(name: str, weights: str, key: str, otherwise: str = "", **options: Any) -> Any:
    """torchvision's network ``name``, with ``weights`` imagenet (its download), none, or a file
    with a state dict.

    Raises UserError, naming the config's ``key`` (and what to do ``otherwise``), if the weights
    cannot be had.
    """
    import torchvision

    build = getattr(torchvision.models, name)
    if weights == "imagenet":
        try:
            return build(weights="IMAGENET1K_V1", **options)
        except Exception as error:  # whatever a download can raise
            reason = " ".join(str(error).split())[:120]
            raise UserError(
                f"{key}: no ImageNet weights of {name} can be downloaded ({reason}); name a file "
                f"with them{otherwise}"
            ) from error
    network = build(weights=None, **options)
    if weights != "none":
        load_weights(network, weights, key, name)
    return network


def load_weights(network: torch.nn.Module, path: str, key: str, name: str) -> None:
    """Give the network ``name`` the state dict of a file (of torch, or .safetensors); raises
    UserError, naming the config's ``key``, if it cannot be had.
    """
    from safetensors.torch import load_file

    file = existing(path, key)
    try:
        if file.suffix == ".safetensors":
            state = load_file(file)
        else:
            # weights_only: nothing in the file is run
            state = torch.load(file, map_location="cpu", weights_only=True)
        network.load_state_dict(state)
    except Exception as error:  # torch's reader can raise anything on what is no such file
        raise UserError(f"{key}: {path} holds no state dict of {name}") from error


def existing(path: str, key: str) -> Path:
    """The file; raises UserError, naming the config's ``key``, if there is none."""
    if not Path(path).is_file():
        raise UserError(f"{key}: there is no file {path}")
    return Path(path)
