"""Attacks: what malicious clients do instead of taking part honestly.

A forging attack replaces what the malicious clients of a cohort would have sent; it is told which
of them send, what they would honestly have sent, and (if it colludes) what the benign clients of
the same cohort send. The malicious clients are a fixed set, drawn from the run's seed; they keep
their data and are left out of evaluation.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch

from algorithms.account import Rounds, recorded
from algorithms.draws import generator
from algorithms.finite import finite_rows
from algorithms.part import Part, option
from algorithms.parts.distances import pairwise

if TYPE_CHECKING:
    from torch import Tensor


class Attack(Part):
    """Who is malicious, and what they do."""

    flips_labels: ClassVar[bool] = False
    """Whether they train on other classes than their data have."""

    def account(self, rounds: Rounds) -> Iterator[str]:
        weight, part = (recorded(rounds, f"malicious_{of}") for of in ("weight", "selected"))
        none = int((weight == 0).sum())
        if len(weight) and none == len(weight):
            yield f"No aggregate of the {none:,} rounds had anything of the attackers' in it."
        elif len(weight):
            yield (
                f"In the mean of the rounds the attackers had {weight.mean():.0%} of the "
                f"aggregate's weight, and were {part.mean():.0%} of the clients that it used"
                + (f"; in {none:,} of {len(weight):,} rounds they had none." if none else ".")
            )
            if weight.mean() > 0.5:
                yield "That is most of it: what was to leave them out has left out the others."

    @abstractmethod
    def malicious(self, seed: int, clients: int) -> np.ndarray:
        """Ids of the malicious clients, ascending; raises ValueError for ids not in 0..N − 1."""


class NoAttack(Attack):
    """Every client is honest."""

    name: str = "none"

    def malicious(self, seed: int, clients: int) -> np.ndarray:
        return np.empty(0, np.int64)


class Byzantine(Attack):
    """A fixed set of malicious clients."""

    fraction: float = option(0.2, "part of all clients that is malicious (rounded)", ge=0, lt=1)
    ids: tuple[int, ...] | None = option(
        None, "the malicious clients by id; unset: drawn from the seed"
    )

    def malicious(self, seed: int, clients: int) -> np.ndarray:
        if self.ids is not None:
            if any(not 0 <= k < clients for k in self.ids):
                raise ValueError(f"attack.ids: clients are numbered 0 to {clients - 1}")
            return np.unique(np.asarray(self.ids, np.int64))
        rng = generator(seed, "malicious")
        return np.sort(rng.choice(clients, round(self.fraction * clients), replace=False))


class LabelFlip(Byzantine):
    """Data poisoning: malicious clients train honestly, but on labels C − 1 − y."""

    name: str = "label_flip"
    flips_labels = True


class Forging(Byzantine):
    """Malicious clients send forged vectors."""

    target: Literal["model", "update"] = option(
        "model", "what is forged: the model w_k that a client would send, or w_k − w"
    )
    buffers: bool = option(False, "forge batch-norm statistics too")
    probes: bool = option(
        False,
        "forge answers to questions in mid-round, too: losses, states of FDA's monitors, snapshots",
    )
    colludes: ClassVar[bool] = False
    """Whether the attackers know each other's and the benign clients' vectors."""

    @abstractmethod
    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        """What the a malicious clients send [a, d].

        ``honest`` [a, d] is what they would honestly send; ``benign`` [b, d] what the benign
        clients of the cohort send, those whose messages are finite (no rows unless the attack
        colludes); ``draws`` one generator for each malicious client.
        """


def _normal(draw: torch.Generator, tau: float) -> float:
    """One number from N(0, τ²)."""
    return tau * float(torch.randn((), generator=draw, dtype=torch.float64))


class SameValue(Forging):
    """m·1 with m ~ N(0, τ²), drawn anew by each malicious client in each round (FedAA)."""

    name: str = "same_value"
    tau: float = option(100.0, "standard deviation of m", "τ", gt=0)

    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        # not full_like, which refuses what float32 can only hold as infinity
        return torch.stack(
            [
                torch.zeros_like(row) + _normal(g, self.tau)
                for row, g in zip(honest, draws, strict=True)
            ]
        )


class SignFlip(Forging):
    """−|m| w with m ~ N(0, τ²) (FedAA's text)."""

    name: str = "sign_flip"
    tau: float = option(10.0, "standard deviation of m", "τ", gt=0)

    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        return torch.stack(
            [row * -abs(_normal(g, self.tau)) for row, g in zip(honest, draws, strict=True)]
        )


class Scale(Forging):
    """+|m| w with m ~ N(0, τ²): what FedAA's published code does under the name of
    sign-flipping."""

    name: str = "scale"
    tau: float = option(10.0, "standard deviation of m", "τ", gt=0)

    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        return torch.stack(
            [row * abs(_normal(g, self.tau)) for row, g in zip(honest, draws, strict=True)]
        )


class GaussianNoise(Forging):
    """N(0, τ² I) (FedAA)."""

    name: str = "gaussian"
    tau: float = option(100.0, "standard deviation of every entry", "τ", gt=0)

    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        noise = [torch.randn(honest.shape[1], generator=g, dtype=honest.dtype) for g in draws]
        return self.tau * torch.stack(noise)


class Colluding(Forging):
    """Attackers that agree on one vector, from the updates they know."""

    target: Literal["update"] = option("update", "what is forged: the update w_k − w")
    knowledge: Literal["benign", "own"] = option(
        "benign",
        "whose updates the attackers know: the benign clients' of the cohort, or only what they "
        "would send",
    )
    colludes: ClassVar[bool] = True

    def forge(self, honest: Tensor, benign: Tensor, draws: Sequence[torch.Generator]) -> Tensor:
        known = benign if self.knowledge == "benign" and len(benign) else honest
        # nobody goes by what has become NaN, unless there is nothing else
        usable = finite_rows(known)
        known = known[usable] if usable.any() else known
        return (
            self.agree(known, len(honest) + len(benign), len(honest))
            .to(honest)
            .expand(len(honest), -1)
        )

    @abstractmethod
    def agree(self, known: Tensor, cohort: int, attackers: int) -> Tensor:
        """The vector [d] that all malicious clients send."""


class InnerProduct(Colluding):
    """Inner-product manipulation, −ε mean(u) (Xie et al. 2020). FedAA gives no ε."""

    name: str = "ipm"
    epsilon: float = option(
        0.5, "size of the reversed mean: small against Krum, large against median", "ε", gt=0
    )

    def agree(self, known: Tensor, cohort: int, attackers: int) -> Tensor:
        return known.mean(0) * -self.epsilon


class ALittleIsEnough(Colluding):
    """mean(u) − z std(u) per coordinate (Baruch et al. 2019, Algorithm 3)."""

    name: str = "alie"
    z: float | None = option(
        None,
        "deviations; unset: the largest that leaves enough supporters in the paper's sense",
        "z",
        ge=0,
    )

    def agree(self, known: Tensor, cohort: int, attackers: int) -> Tensor:
        z = alie_deviations(cohort, attackers) if self.z is None else self.z
        return known.mean(0) - z * known.std(0, correction=0)


def alie_deviations(cohort: int, attackers: int) -> float:
    """z_max ≥ 0, Φ(z) = (m − a − s)/(m − a), with s = ⌊m/2 + 1⌋ − a ≥ 1 supporters needed."""
    benign = cohort - attackers
    if benign <= 1:
        return 0.0
    # at least one, or else Φ(z) = 1, which no z fulfils
    supporters = max(1, math.floor(cohort / 2 + 1) - attackers)
    return NormalDist().inv_cdf(max(0.5, (benign - supporters) / benign))


class MinMax(Colluding):
    """mean(u) + γ p with the largest γ that keeps the forged update as near to every benign one as
    these to each other.

    Shejwalkar & Houmansadr 2021, Eq. 10. The condition ‖mean + γ p − u_i‖ ≤ max_jk ‖u_j − u_k‖ is a
    quadratic in γ for each i, so γ has a closed form.
    """

    name: str = "min_max"
    direction: Literal["std", "unit", "sign"] = option(
        "std", "p: −std(u), −mean/‖mean‖, or −sign(mean)", "p"
    )

    def agree(self, known: Tensor, cohort: int, attackers: int) -> Tensor:
        centre, p = known.mean(0), perturbation(known, self.direction)
        gaps = (centre - known).double()
        # ‖gap_i + γ p‖² ≤ bound for every i, as a quadratic in γ
        bound = float(pairwise(known).max()) ** 2
        return (
            centre
            + _largest(
                float(p.double() @ p.double()), gaps @ p.double(), gaps.square().sum(1) - bound
            )
            * p
        )


class MinSum(Colluding):
    """As min_max, with sums: Σ_i ‖forged − u_i‖² ≤ max_j Σ_i ‖u_j − u_i‖² (Shejwalkar & Houmansadr
    2021, Eq. 11).
    """

    name: str = "min_sum"
    direction: Literal["std", "unit", "sign"] = option(
        "std", "p: −std(u), −mean/‖mean‖, or −sign(mean)", "p"
    )

    def agree(self, known: Tensor, cohort: int, attackers: int) -> Tensor:
        centre, p = known.mean(0), perturbation(known, self.direction)
        bound = pairwise(known).square().sum(1).max()
        excess = (centre - known).double().square().sum() - bound
        b = len(known)
        # the linear term is 2 γ p·Σ gap_i = 0, since the gaps are to the mean
        return (
            centre
            + _largest(b * float(p.double() @ p.double()), torch.zeros(1).double(), excess[None])
            * p
        )


def perturbation(known: Tensor, direction: str) -> Tensor:
    """The direction p [d] along which min_max and min_sum move away from the mean."""
    centre = known.mean(0)
    if direction == "std":
        return -known.std(0, correction=0)
    if direction == "sign":
        return -centre.sign()
    return -centre / torch.linalg.vector_norm(centre).clamp_min(1e-30)


def _largest(square: float, half: Tensor, rest: Tensor) -> float:
    """The largest γ ≥ 0 with square γ² + 2 half_i γ + rest_i ≤ 0 for all i (0 if p is zero)."""
    if square == 0:
        return 0.0
    # the larger root of each; γ = 0 will do, so a discriminant below 0 is rounding
    roots = (-half + (half.square() - square * rest).clamp_min(0.0).sqrt()) / square
    return max(0.0, float(roots.min()))
