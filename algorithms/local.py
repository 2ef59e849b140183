"""The client side of an algorithm: an object shipped to the trainers, whose hooks work on many
clients at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import torch

from algorithms.flat import ParamSpec

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "dict[str, Tensor]"


def writes(tensor: Tensor) -> int:
    """How often it has been written to in place; of tensors of inference mode nobody knows: 0."""
    return 0 if tensor.is_inference() else tensor._version


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
    """The clients' own tensors [C, ...], kept between rounds; ``upload`` changes them by replacing
    entries, and so may hooks around a step, for the clients that they are given."""
    w: Tensor
    """Current local models [C, d]."""
    start: Tensor
    """Models at the start of the round [C, d] (as a rule a broadcast view of ``received["w"]``,
    which must not be written to)."""
    steps: Tensor
    """Local steps done in this round [C]; 0 until they are over, for ``upload`` and ``sent``."""
    lr: float
    """Local learning rate η of this round; in hooks around a step, of that step."""
    reach: Tensor = field(default_factory=lambda: torch.zeros(0))
    """The rates of all local steps added up, Kη where they are equal [C]; for ``upload``."""
    own: Tensors = field(default_factory=dict)
    """What each client has of its own where the server only stands in for a network [C, ...]."""
    loss: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Mini-batch losses [C] of the step under way."""
    private: tuple[slice, ...] = ()
    """Which entries of the models stay with each client (``LocalRule.private``)."""
    extras: Tensors = field(default_factory=dict)
    """Round-local tensors [C, ...] that hooks may keep for themselves, made in ``begin``;
    hooks around a step may change and replace them, but add none."""

    def first(self, rows: int) -> Work:
        """The same view on the first ``rows`` clients; models and state are shared, not copied."""
        return self if rows == len(self.clients) else self.part(slice(rows))

    def part(self, rows: slice) -> Work:
        """The same view on some of the clients."""
        count = len(self.clients)

        def one(tensor: Tensor) -> Tensor:
            # what is of no client (a number, say) is of all
            return tensor[rows] if tensor.dim() and len(tensor) == count else tensor

        def some(tensors: Tensors) -> Tensors:
            return {name: one(tensor) for name, tensor in tensors.items()}

        # slices are views, so what is written in place reaches the whole
        return replace(
            self,
            clients=self.clients[rows],
            samples=self.samples[rows],
            state=some(self.state),
            w=self.w[rows],
            start=self.start[rows],
            steps=self.steps[rows],
            reach=self.reach[rows],
            own=some(self.own),
            extras=some(self.extras),
            loss=one(self.loss),
        )


class LocalRule:
    """Plain local training, the client side of FedAvg; algorithms override what they change.

    A rule is immutable and picklable, and must treat every row independently of the others. Hooks
    around a step must do the same whenever what they are given is the same, but for the numbers in
    tensors: on GPUs, steps of rules that are dataclasses or hold nothing are recorded and replayed.
    """

    transmitted: bool = True
    """Whether a deployment would send the uploads to a server, so that the ledger counts them."""
    unit: str | None = None
    """Name of the upload of one number by which ``delta`` was divided; None: by none."""
    watches_accuracy: bool = False
    """Whether :meth:`epoch` wants to be called."""
    asks_gradient: bool = False
    """Whether ``upload`` finds in ``extras["gradient"]`` [C, d] the gradient of the loss, summed
    over all local data."""

    personal: bool = False
    """Whether the model that is trained is the client's own and stays with it, and so do its
    batch-norm statistics, whatever becomes of those of the common model."""

    @property
    def private(self) -> tuple[slice, ...]:
        """Which entries of the model stay with each client: in a broadcast and in ``delta``, but
        never transmitted.
        """
        return ()

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        """One client's state before it has ever taken part: name -> tensor (no client axis)."""
        return {}

    def begin(self, work: Work) -> Tensor:
        """The models [C, d] from which local training starts; may be a broadcast view."""
        return work.received["w"].expand(len(work.clients), -1)

    def epoch(self, work: Work, starting: Tensor, accuracy: Tensor) -> None:
        """A pass over the data begins for the clients ``starting`` (mask [C]).

        ``accuracy`` [C] is theirs on their training data, in [0, 1]; 0 for the others.
        """

    def references(self, work: Work) -> list[Tensor]:
        """Models [C, d] with whose features :meth:`contrast` compares the local model's.

        None: plain cross-entropy.
        """
        return []

    def contrast(self, features: Tensor, references: list[Tensor]) -> Tensor:
        """Loss terms [C, B] beside the cross-entropy, from features [C, B, F] of the local and the
        reference models (what enters the last layer).

        Raises NotImplementedError unless overridden; only called where there are references.
        """
        raise NotImplementedError

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        """The direction [C, d] that the local optimiser follows, from the mini-batch gradient.

        ``gradient`` [C, d] is clipped already, and may be overwritten.
        """
        return gradient

    def after_step(self, work: Work) -> None:
        """Change ``work.w`` in place after a step of the local optimiser (a projection)."""

    def upload(self, work: Work) -> Tensors:
        """What each client sends: name -> [C, ...]; ``delta`` = w_k − w is the model update."""
        return {"delta": work.w - work.start}

    def sent(self, work: Work, messages: Tensors) -> None:
        """Change ``work.state`` by the uploads as the server will read them (after compression)."""


class GivenModel(LocalRule):
    """Start from the client's own model, ``own["model"]``; nothing of it passes a server."""

    transmitted = False
    personal = True

    def begin(self, work: Work) -> Tensor:
        return work.own["model"]


class Probe:
    """A question about the local models that the server asks in mid-round (a state, a snapshot)."""

    transmitted: bool = True
    """Whether a deployment would send the answer, so that the ledger counts it."""

    def answer(self, work: Work) -> Tensor:
        """The clients' answers [C, k]; raises NotImplementedError unless overridden."""
        raise NotImplementedError


class ModelProbe(Probe):
    """The local model itself, k = d (DRDM's snapshot at step t')."""

    def answer(self, work: Work) -> Tensor:
        return work.w


def zeros(spec: ParamSpec) -> Tensor:
    """A zero vector [d] of the model's size, float32."""
    return torch.zeros(spec.size)
