"""Networks built again, and vectors laid out again: tensor after tensor, kernels with channels last."""

import math
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from orchestrator.models.base import Model


class TinyNorm(Model):
    """Two convolutions, each with batch norm; the zoo's smallest has 678,794 parameters.

    Smooth, and without what batch norm takes out again: of a ReLU near 0, and of gradients that are
    0 but for rounding, another order of addition may make others. It has no name of its
    own, so no config can choose it, and no other test meets it.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(shape[0], 3, 5, 3, bias=False),
            nn.BatchNorm2d(3),
            nn.Tanh(),
            nn.Conv2d(3, 4, 3, 2, bias=False),
            nn.BatchNorm2d(4),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, classes),
        )


TINY_NORM = TinyNorm.model_construct(name="tiny_norm")


def built(model: dict[str, Any], shape: tuple[int, ...], classes: int) -> nn.Module:
    """The module of that name in a config, with any weights."""
    width = math.prod(shape)
    if model["name"] == "linear":
        return nn.Sequential(OrderedDict(a=nn.Flatten(), b=nn.Linear(width, classes)))
    if model["name"] == "mlp":
        (hidden,) = model["hidden"]
        layers = [nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
        return nn.Sequential(*layers)
    first = [nn.Conv2d(shape[0], 3, 5, 3, bias=False), nn.BatchNorm2d(3), nn.Tanh()]
    second = [nn.Conv2d(3, 4, 3, 2, bias=False), nn.BatchNorm2d(4), nn.Tanh()]
    return nn.Sequential(
        *first, *second, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes)
    )


def statistics(module: nn.Module) -> list[torch.Tensor]:
    return [b for b in module.buffers() if b.is_floating_point()]


def flat(tensors) -> torch.Tensor:
    """One vector [d] of them, kernels [o, i, h, w] written as (o, h, w, i)."""
    rows = [t.permute(0, 2, 3, 1) if t.dim() == 4 else t for t in tensors]
    return torch.cat([t.reshape(-1) for t in rows]) if rows else torch.zeros(0)


def put(vector: torch.Tensor, tensors) -> None:
    """The inverse of :func:`flat`, into ``tensors``."""
    at = 0
    with torch.no_grad():
        for t in tensors:
            piece, at = vector[at : at + t.numel()], at + t.numel()
            if t.dim() == 4:
                o, i, h, w = t.shape
                t.copy_(piece.reshape(o, h, w, i).permute(0, 3, 1, 2))
            else:
                t.copy_(piece.reshape(t.shape))


def of_batch_norm(module: nn.Module) -> torch.Tensor:
    """Mask [d] of the parameters of batch-norm layers."""
    normal = {
        id(p) for m in module.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()
    }
    masks = [torch.full_like(p, id(p) in normal) for p in module.parameters()]
    return flat(masks).detach().bool()


def gradient(module, w, stats, x, y, contrast=None):
    """(loss, gradient [d], next statistics [b]) of the mean cross-entropy of one batch in training.

    With ``contrast`` (μ, T, (w_g, w_prev)) it is MOON's: the loss is what is told, its gradient
    that of the whole.
    """
    others = []
    for other in contrast[2] if contrast else ():
        put(other, module.parameters())
        others.append(_features(module.train(), x).detach())
    put(w, module.parameters())
    put(stats, statistics(module))
    features = _features(module.train(), x)
    loss = F.cross_entropy(module[-1](features), y)
    if contrast:
        mu, temperature, _ = contrast
        near, far = ((_cosine(features, z) / temperature).exp() for z in others)
        loss = loss - mu * (near / (near + far)).log().mean()
    # what does not enter a loss has a gradient of zeros
    grads = torch.autograd.grad(loss, list(module.parameters()))
    return float(loss.detach()), flat(grads), flat([s.clone() for s in statistics(module)])


def _features(module, x):
    """What enters the last layer."""
    return module[:-1](x)


def _cosine(a, b):
    """Of each row of a with that of b [n]; 0 where one of them is."""
    a, b = (v / v.norm(dim=1, keepdim=True).clamp_min(1e-8) for v in (a, b))
    return (a * b).sum(1)


def ties(module, w, stats, x) -> bool:
    """Whether two classes of a row are as likely but for rounding."""
    put(w, module.parameters())
    put(stats, statistics(module))
    module.eval()
    with torch.no_grad():
        logits = module(x)
    first, second = logits.topk(2, 1).values.T
    return bool((first - second <= 2e-6 * logits.abs().max()).any())


def judged(module, w, stats, x, y):
    """Losses [n] and hits [n] of a model that is evaluated."""
    put(w, module.parameters())
    put(stats, statistics(module))
    module.eval()
    with torch.no_grad():
        logits = module(x)
        return F.cross_entropy(logits, y, reduction="none"), logits.argmax(1) == y
