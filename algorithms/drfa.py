"""DRFA — Deng et al., "Distributionally Robust Federated Averaging" (NeurIPS 2020), Algorithm 1.

min_w max_{λ in the simplex} Σ λ_i f_i(w). In round s:
    sample D of size m with probabilities λ;  draw t' uniformly from 1..τ;
    w_i: τ local SGD steps from w;            w ← mean_D w_i,   w' ← mean_D w_i^{(t')};
    sample U uniformly, |U| = m;              v_i = (N/m) f_i(w'; ξ_i) for i in U, else 0;
    λ ← Π_simplex(λ + τ γ v).
λ starts uniform. ``uncertainty`` puts another set in the simplex's place. DRDM's line 5 and
Algorithm 3 are the same sampling and dual update, so DRDM builds on this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from algorithms.algorithm import uniform
from algorithms.contract import Clients, Cohort, Training
from algorithms.draws import generator
from algorithms.local import LocalRule, ModelProbe
from algorithms.minimax import Minimax
from algorithms.part import option
from algorithms.parts.round_ends import Fixed
from algorithms.parts.samplers import Uniform, by_probability
from algorithms.parts.step_sizes import StepSize, at
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


class DRFA(Minimax):
    """Distributionally robust federated averaging."""

    class Options(Minimax.Options):
        """FedAvg against the worst mixture of the clients' distributions; the cohort is drawn by
        λ."""

        name: str = "drfa"
        gamma: StepSize = option(
            1e-3,
            "step size of the dual variable, per local step; {start, power}: start · t^−power in "
            "round t",
            "γ",
        )
        replace: bool = option(True, "draw the cohort with replacement, as the analysis assumes")
        floor: float = option(
            0.0,
            "draw from (1 − ε) λ + ε/N; needed without replacement, where λ may have too few "
            "positive entries",
            "ε", ge=0, le=1,
        )  # fmt: skip

        def refuses(self, parts: Composition) -> str | None:
            if not isinstance(parts.sampler, Uniform):
                return (
                    f"{self.name} draws its cohort by the dual variable; leave sampler at uniform"
                )
            if not isinstance(parts.round_end, Fixed) or parts.local.steps is None:
                return (
                    f"{self.name} draws a snapshot step from 1..τ; set local.steps, for example to "
                    "10 (with local.epochs=null if these are set), also for the methods that it is "
                    "compared with, and leave round_end at fixed"
                )
            # of the least floats a part of N is 0
            if not self.replace and self.floor / parts.clients == 0:
                return f"{self.name} without replacement needs algorithm.floor above 0"
            return super().refuses(parts)

    options: Options

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw_by_dual(t)
        weights = uniform(cohort)
        steps = self.setting.parts.local.steps or 1
        # t' in 1..τ (the upper end is exclusive), one for all clients
        snapshot_step = int(generator(self.setting.seed, "snapshot", t).integers(1, steps + 1))
        with clients.train(cohort, self.rule(), {"w": self.w, "buffers": self.buffers}) as training:
            training.advance(snapshot_step)
            middle = self.ask_snapshot(training, weights)
            training.advance()
            snapshot = self.apply(training, weights, middle)
        v, dual = self.estimate(t, clients, snapshot), self.dual
        # line 9
        self.dual = self.project(dual + steps * at(self.options.gamma, t) * v)
        return self.close(v, dual, whole=self.setting.parts.cohort == self.setting.clients)

    def rule(self) -> LocalRule:
        """The client side."""
        return LocalRule()

    def ask_snapshot(self, training: Training, weights: np.ndarray) -> Tensor:
        """What the server needs of the local models at step t': their mean [d]."""
        return training.query(ModelProbe(), weights)

    def apply(self, training: Training, weights: np.ndarray, middle: Tensor) -> Tensor:
        """Collect, make the next model, and return the global snapshot w' [d]."""
        updates = training.collect(weights)
        # of a compressed broadcast both are moved by what the clients have not got yet
        snapshot = middle + (self.w - training.start)
        self.w = self.w + self.mean(updates, "delta")
        self.take_buffers(updates)
        return snapshot

    def draw_by_dual(self, t: int) -> Cohort:
        """D^(s): m clients by λ, or by its mixture with the uniform distribution."""
        n, m, floor = self.setting.clients, self.setting.parts.cohort, self.options.floor
        rng = generator(self.setting.seed, "cohort", t)
        return Cohort.of(
            by_probability(rng, (1 - floor) * self.dual + floor / n, m, self.options.replace)
        )

    def draw_uniformly(self, t: int) -> np.ndarray:
        """U: the ids of m clients, who are asked for their loss."""
        n, m = self.setting.clients, self.setting.parts.cohort
        # apart from D, or v would not be unbiased
        return np.sort(generator(self.setting.seed, "dual cohort", t).choice(n, m, replace=False))

    def estimate(self, t: int, clients: Clients, snapshot: Tensor) -> np.ndarray:
        """v [N] (DRDM Algorithm 3): the loss estimate of a uniform cohort, unbiased."""
        n, m = self.setting.clients, self.setting.parts.cohort
        chosen = self.draw_uniformly(t)
        # the snapshot's own batch-norm statistics would be one more vector to send; of those that
        # the server has, the new ones are nearer to them than the old (docs/drdm.md)
        batch_size = self.setting.parts.local.batch_size
        losses = clients.loss(chosen, snapshot, self.buffers, batch_size)
        # lines 7–8: N/m makes up for those who are not asked
        v = np.zeros(n)
        v[chosen] = n / m * losses.numpy()
        return v
