"""Actor and critic networks of deterministic policy gradients (Lillicrap et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl.options import Head


def hidden_layers(inputs: int, widths: Sequence[int]) -> nn.ModuleList:
    """Linear layers with weights drawn from U(±1/√width) and PyTorch's biases."""
    layers = nn.ModuleList()
    for width in widths:
        # by outputs, as in FedAA's code; Lillicrap et al. have the inputs here
        layer = nn.Linear(inputs, width)
        nn.init.uniform_(layer.weight, -(width**-0.5), width**-0.5)
        layers.append(layer)
        inputs = width
    return layers


class Actor(nn.Module):
    """π(s): ReLU layers, a linear layer, and a head that maps its outputs u to an action.

    ``l1``: |u| / ‖u‖₁ (FedAA's simplex); ``softmax``; ``tanh``: in [−1, 1]^k.
    """

    def __init__(
        self, observation: int, action: int, hidden: Sequence[int], head: Head, bound: float | None
    ) -> None:
        super().__init__()
        self.head, self.bound = head, bound
        self.hidden = hidden_layers(observation, hidden)
        # as in Lillicrap et al., so that outputs begin near 0
        self.out = nn.Linear(hidden[-1], action)
        nn.init.uniform_(self.out.weight, -3e-3, 3e-3)

    def outputs(self, state: Tensor, noise: Tensor | None = None) -> Tensor:
        """u [B, k] for states [B, n]; ``noise`` [B, h] is added to the last hidden activations
        (FedAA's published code).
        """
        h = state
        for layer in self.hidden:
            h = layer(h).relu()
        return self.out(h if noise is None else h + noise)

    def action(self, outputs: Tensor) -> Tensor:
        """The action [B, k] of u; with a bound, softmax sees bound · tanh(u / bound)."""
        if self.head == "l1":
            return on_simplex(outputs)
        if self.head == "tanh":
            return outputs.tanh()
        logits = outputs if self.bound is None else self.bound * (outputs / self.bound).tanh()
        return logits.softmax(-1)

    def moved(self, action: Tensor, noise: Tensor) -> Tensor:
        """``action`` with ``noise`` [B, k] in the unit of actions, back in their space.

        The unit is 1/k on the simplex, where noise of size 1 would leave nothing of k weights, and
        1 under tanh.
        """
        if self.head == "tanh":
            return (action + noise).clamp(-1, 1)
        return on_simplex(action + noise / action.shape[-1])

    def forward(self, state: Tensor) -> Tensor:
        return self.action(self.outputs(state))


class Critic(nn.Module):
    """Q(s, a); the action joins before hidden layer ``join``.

    0: with the state; 1: after one layer (FedAA's code).
    """

    def __init__(self, observation: int, action: int, hidden: Sequence[int], join: int) -> None:
        super().__init__()
        self.join = join
        self.before = hidden_layers(observation, hidden[:join])
        inputs = (hidden[join - 1] if join else observation) + action
        self.after = hidden_layers(inputs, hidden[join:])
        self.out = nn.Linear(hidden[-1] if hidden[join:] else inputs, 1)
        nn.init.uniform_(self.out.weight, -3e-3, 3e-3)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """Values [B] of states [B, n] and actions [B, k]."""
        h = state
        for layer in self.before:
            h = layer(h).relu()
        h = torch.cat([h, action], -1)
        for layer in self.after:
            h = layer(h).relu()
        return self.out(h).squeeze(-1)


def on_simplex(outputs: Tensor) -> Tensor:
    """|u| / ‖u‖₁ [B, k] of ``outputs`` u [B, k]; the uniform point where u is zero."""
    size = outputs.abs()
    total = size.sum(-1, keepdim=True)
    uniform = torch.full_like(size, 1 / size.shape[-1])
    # where() passes gradients through both branches, and 0/0 in the other would make them NaN
    return torch.where(total > 0, size / total.clamp_min(1e-30), uniform)
