"""What passes between server and clients: its parts, what each part is, and what it weighs.

A message is a dict of named tensors, one client's ``[...]`` or a block's rows ``[C, ...]``. Its
names are given by the algorithm ("w", "delta", "control"), but for those below, which are the
machinery's own. Everything that must treat parts differently (compression, forging, the account of
bytes, the sums) asks :func:`role`, and nobody looks at names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import numpy as np

from algorithms.flat import outside
from algorithms.local import LocalRule, Probe, Tensors
from algorithms.parts.aggregators import weighted_sum
from algorithms.parts.compressors import Compressor, NoCompression
from algorithms.parts.monitors import XI
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

BUFFERS = "buffers"
"""Batch-norm statistics [b], in a broadcast, in an upload, and in the state of a client."""
PERSONAL = "personal/buffers"
"""Those of a client's own model, in its state, beside which it may keep the common model's."""
ANSWER = "answer"
"""What a client says to a question, in a sum over several."""
OPTIMIZER, ERROR = "optimizer/", "error/"
"""Beginnings of names: moments of the local optimiser, and what compression has left out of the
client's earlier messages."""

BufferPolicy = Literal["aggregate", "local", "exclude"]


class Role(StrEnum):
    """What a part of a message is to whoever handles it on its way."""

    model = "model"
    """The model w [d], or its change ``delta`` [d]: some entries of it may be private."""
    control = "control"
    """Any other vector that the algorithm exchanges (control variates, snapshots, gradients)."""
    buffers = "buffers"
    """Batch-norm statistics; they leave a client only where the config has them averaged."""
    optimizer = "optimizer"
    """Moments of the local optimiser that are averaged."""
    direction = "direction"
    """LinearFDA's ξ: a lossy one would not be the clients' own."""
    scalar = "scalar"
    """One number of each client."""


LOSSY = frozenset({Role.model, Role.control})
"""What compression may touch."""


def role(name: str, one: Tensor) -> Role:
    """What the part ``name`` is, of which ``one`` is a single client's tensor."""
    if name == BUFFERS:
        return Role.buffers
    if name.startswith(OPTIMIZER):
        return Role.optimizer
    if name == XI:
        return Role.direction
    if one.dim() == 0:
        return Role.scalar
    # the names under which algorithms send models and their changes
    return Role.model if name in ("w", "delta") else Role.control


def scalars(rows: Tensors) -> Tensors:
    """The parts of a block's message ``rows`` [C, ...] that are one number of each client [C]."""
    return {n: v for n, v in rows.items() if role(n, v[0]) is Role.scalar}


def vectors(rows: Tensors) -> Tensors:
    """The other parts [C, ...]."""
    return {n: v for n, v in rows.items() if role(n, v[0]) is not Role.scalar}


def leaving(name: str, one: Tensor, rule: LocalRule) -> Tensor | None:
    """Mask of the entries of the part ``one`` [..., d] that leave the client; None: all do."""
    if role(name, one) is not Role.model or not rule.private:
        return None
    return outside(rule.private, one.shape[-1])


def travelling(message: Tensors, rule: LocalRule, buffers: BufferPolicy) -> Tensors:
    """The parts of one client's ``message`` that leave where they are: without the rule's private
    entries of the model, and without statistics that stay with the clients.
    """
    parts = {}
    for name, one in message.items():
        mask = leaving(name, one, rule)
        if role(name, one) is not Role.buffers or buffers == "aggregate":
            parts[name] = one if mask is None else one[mask]
    return parts


def weight(message: Tensors, compressor: Compressor | None = None) -> int:
    """Bytes of one client's ``message`` on the wire, as a deployment would send it: every tensor at
    its own dtype, but for those that ``compressor`` makes smaller.
    """
    return sum(_part_weight(name, one, compressor) for name, one in message.items())


def _part_weight(name: str, one: Tensor, compressor: Compressor | None) -> int:
    plain = compressor is None or isinstance(compressor, NoCompression)
    if plain or role(name, one) not in LOSSY:
        return one.numel() * one.element_size()
    # ``plain`` says so, which a type checker cannot follow
    assert compressor is not None
    size = compressor.nbytes(one.numel())
    if not isinstance(size, int | np.integer) or size < 0:
        raise UserError(
            f"compressor {compressor.name}: nbytes({one.numel()}) is {size}; messages have whole "
            "bytes, and none has less than nothing"
        )
    return int(size)


@dataclass(frozen=True)
class BlockSpec:
    """Which clients train together in a round, under which rule, from which state."""

    ids: np.ndarray
    """Client ids [C], ascending."""
    rule: LocalRule
    states: dict[int, Tensors]
    """State of the clients that have one."""
    own: Tensors
    """What each client has of its own, [C, ...]."""
    t: int
    session: int
    """Number of the session within round ``t``, from 0."""
    vectorized: bool


@dataclass(frozen=True)
class Advance:
    """Local steps, the same for all or of each client [C]; None: the rest of the config's work."""

    steps: int | np.ndarray | None


@dataclass(frozen=True)
class Ask:
    """A probe; ``weights`` [C] for this block's :class:`Part` of the weighted sum, or None for the
    rows.
    """

    probe: Probe
    weights: np.ndarray | None
    drop: bool
    """Leave clients whose model is not finite out of the sum; their rows are NaN."""


@dataclass(frozen=True)
class Evaluate:
    """Accuracy and loss of each local model on its client's test rows."""


@dataclass(frozen=True)
class Look:
    """What the clients have now, which nobody sends: this block's :class:`Part` of the sums with
    ``weights`` [C].
    """

    weights: np.ndarray
    drop: bool
    """As :class:`Ask` has it."""


@dataclass(frozen=True)
class Part:
    """A block's part of weighted sums."""

    sums: Tensors
    """name -> [...]."""
    counted: np.ndarray
    """Mask [C]: who is in them."""

    @classmethod
    def of(cls, rows: Tensors, weights: np.ndarray, counted: np.ndarray) -> Part:
        """Of ``rows`` (name -> [C, ...]), those that are ``counted`` (mask [C])."""
        return cls({n: weighted_sum(v, weights * counted).cpu() for n, v in rows.items()}, counted)

    @classmethod
    def of_answers(cls, rows: Tensor, weights: np.ndarray, drop: bool) -> Part:
        """Of what each client has answered [C, ...]; with ``drop`` without those of NaN."""
        known = ~rows.flatten(1).isnan().any(1).numpy() if drop else np.ones(len(weights), bool)
        return cls.of({ANSWER: rows}, weights, known)


@dataclass(frozen=True)
class Collect:
    """The uploads: this block's part of the weighted sums, or rows, with what is needed to finish
    them.

    With ``drop`` set, clients with a non-finite upload are left out of the sums.
    """

    weights: np.ndarray | None
    drop: bool


Command = Advance | Ask | Evaluate | Look | Collect


@dataclass(frozen=True)
class Collected:
    """One block's answer to :class:`Collect`."""

    vectors: Tensors
    """name -> [...] (weighted sum) or [C, ...] (rows)."""
    scalars: Tensors
    """Uploads of one number a client, name -> [C]."""
    diagnostics: Tensors
    """train_loss, update_norm, steps, finite -> [C]."""
    states: dict[int, Tensors]
    upload_bytes: int
    """Bytes that one client transmits."""
