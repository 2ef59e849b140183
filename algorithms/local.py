"""The client side of an algorithm: a small object shipped to the trainers, whose hooks work on many
clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.flat import ParamSpec

Tensors = dict[str, Tensor]


@dataclass
class Work:
    """What a hook sees: C clients in the middle of a round. Row c of every [C, ...] tensor belongs
    to client c.
    """

    spec: ParamSpec
    clients: Tensor
    """Client ids [C]."""
    samples: Tensor
    """Training samples of each client [C]."""
    received: Tensors
    """What the server sent, the same for every client (``w`` [d] and what the algorithm adds)."""
    state: Tensors
    """The clients' own tensors [C, ...], kept between rounds; ``upload`` replaces entries to change
    them."""
    w: Tensor
    """Current local models [C, d]."""
    start: Tensor
    """Models at the start of the round [C, d] (a broadcast view of ``received["w"]`` as a rule)."""
    steps: Tensor
    """Local steps done in this round [C], counted when they are over: for ``upload`` and
    ``sent``."""
    lr: float
    """Local learning rate η of this round."""
    own: Tensors = field(default_factory=dict)
    """What each client has of its own in an algorithm whose server only stands in for a network,
    [C, ...]."""
    loss: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Mini-batch losses [C] of the step under way."""
    extras: Tensors = field(default_factory=dict)
    """Round-local tensors [C, ...] that hooks may keep for themselves."""

    def first(self, rows: int) -> Work:
        """The same view on the first ``rows`` clients; models and state are shared, not copied."""
        if rows == len(self.clients):
            return self
        return replace(
            self,
            clients=self.clients[:rows],
            samples=self.samples[:rows],
            state={k: v[:rows] for k, v in self.state.items()},
            w=self.w[:rows],
            start=self.start[:rows],
            steps=self.steps[:rows],
            own={k: v[:rows] for k, v in self.own.items()},
            extras={k: v[:rows] for k, v in self.extras.items()},
        )


class LocalRule:
    """Plain local training, the client side of FedAvg. Algorithms override the hooks that they
    change.

    A rule is immutable and picklable, and must treat every row independently of the others.
    """

    transmitted: bool = True
    """Whether a deployment would send the uploads to a server, so that the ledger counts them."""
    watches_accuracy: bool = False
    """Whether :meth:`epoch` wants to be called."""
    asks_gradient: bool = False
    """Whether ``upload`` finds in ``extras["gradient"]`` [C, d] the gradient of the summed loss on
    all local data."""

    @property
    def private(self) -> int:
        """Entries of the model that stay with each client: in a broadcast and in ``delta``, but
        never transmitted.
        """
        return 0

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        """One client's state before it has ever taken part: name -> tensor (no client axis)."""
        return {}

    def begin(self, work: Work) -> Tensor:
        """The models [C, d] from which local training starts; may be a broadcast view."""
        return work.received["w"].expand(len(work.clients), -1)

    def epoch(self, work: Work, starting: Tensor, accuracy: Tensor) -> None:
        """A pass over the data begins for the clients ``starting`` (mask [C]) with this training
        ``accuracy`` [C].
        """

    def references(self, work: Work) -> list[Tensor]:
        """Models [C, d] whose features :meth:`contrast` compares with the local model's; none:
        plain cross-entropy.
        """
        return []

    def contrast(self, features: Tensor, references: list[Tensor]) -> Tensor:
        """Loss terms [C, B] beside the cross-entropy, from features [C, B, F] of the local and the
        reference models.

        Features are what enters the model's last layer.
        """
        raise NotImplementedError

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        """The direction [C, d] that the local optimiser follows, from the mini-batch gradient [C,
        d].
        """
        return gradient

    def after_step(self, work: Work) -> None:
        """Change ``work.w`` in place after a step of the local optimiser (a projection)."""

    def upload(self, work: Work) -> Tensors:
        """What each client sends: name -> [C, ...]; ``delta`` = w_k − w is the model update."""
        return {"delta": work.w - work.start}

    def sent(self, work: Work, messages: Tensors) -> None:
        """Change ``work.state`` by what the server will make of the uploads, compressed as the
        config says.
        """


class GivenModel(LocalRule):
    """Start from the client's own model, given as ``own["model"]``; nothing of it passes a
    server."""

    transmitted = False

    def begin(self, work: Work) -> Tensor:
        return work.own["model"]


class Probe:
    """A question about the local models that the server asks in mid-round (a variance monitor's
    state, a snapshot).
    """

    transmitted: bool = True
    """Whether a deployment would send the answer, so that the ledger counts it."""

    def answer(self, work: Work) -> Tensor:
        """The clients' answers [C, k]."""
        raise NotImplementedError


class ModelProbe(Probe):
    """The local model itself, k = d (DRDM's snapshot at step t')."""

    def answer(self, work: Work) -> Tensor:
        return work.w


def zeros(spec: ParamSpec) -> Tensor:
    """A zero vector of the model's size."""
    return torch.zeros(spec.size)
