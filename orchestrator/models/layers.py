"""Layers of a library's network that are exchanged for others: channels, outputs, norms."""

from __future__ import annotations

from typing import Any

import torch


def like(conv: torch.nn.Conv2d, **changed: Any) -> torch.nn.Conv2d:
    """A fresh convolution with another's settings but for those that are ``changed``."""
    channels = ("in_channels", "out_channels", "groups")
    names = (*channels, "kernel_size", "stride", "padding", "dilation")
    settings = {name: getattr(conv, name) for name in names} | {"bias": conv.bias is not None}
    return torch.nn.Conv2d(**{**settings, **changed})


def put(net: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    """Have ``module`` stand where the network has ``name``."""
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, module)


def replace_last(net: torch.nn.Module, outputs: int) -> None:
    """A fresh last layer (dense, or a 1x1 convolution) with so many outputs."""
    layers = [
        (n, m) for n, m in net.named_modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv2d)
    ]
    # of GoogLeNet and its like the last ones belong to classifiers beside
    path, last = next(((n, m) for n, m in layers if n == "fc"), layers[-1])
    if isinstance(last, torch.nn.Conv2d):
        put(net, path, like(last, out_channels=outputs))
    else:
        put(net, path, torch.nn.Linear(last.in_features, outputs, last.bias is not None))


def group_norm(net: torch.nn.Module, most: int) -> None:
    """Group norm in place of each batch norm of images, in as many groups as divide its channels,
    ``most`` at most; raises ValueError for a network with batch norm of anything else.
    """
    for name, module in [*net.named_modules()]:
        if isinstance(module, torch.nn.BatchNorm2d):
            put(net, name, _grouped(module, most))
    any_batch_norm = torch.nn.modules.batchnorm._BatchNorm
    if any(isinstance(module, any_batch_norm) for module in net.modules()):
        raise ValueError("model.norm: it has batch norm of other things than images; leave it")


def _grouped(norm: torch.nn.BatchNorm2d, most: int) -> torch.nn.Module:
    channels = norm.num_features
    groups = next(g for g in range(min(most, channels), 0, -1) if channels % g == 0)
    fresh = torch.nn.GroupNorm(groups, channels, norm.eps)
    # timm's batch norms end in an activation of their own
    after = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
    return torch.nn.Sequential(fresh, *after) if after else fresh
