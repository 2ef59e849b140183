"""DRDM — "Distributionally Robust Federated Learning with Client Drift Minimization".

Algorithms 1–3: DRFA's λ-sampled cohort and dual update, with FedDyn's dynamic regularisation on the
clients. Round s → s+1, by the lines of Algorithm 1 (Σ over the drawn clients, repeats counted):
    5      D^(s) by λ, size m                            ``draw_by_dual``
    6      t' uniform in 1..τ                            ``DRFA.round``
    9      τ steps along d_i = ∇ℓ_i − g_i + μ (w − w̄)   Eq. 6, ``DynamicRegularizer.direction``
    10     g_i ← g_i − μ (w_i − w̄)                       Eq. 4, ``DynamicRegularizer.upload``
    17–18  c' = c − μ/N Σ (w_i^(t') − w̄),   c⁺ = c − μ/N Σ (w_i − w̄)
    19–20  w' = mean w_i^(t') − c'/μ,       w̄⁺ = mean w_i − c⁺/μ
    21     λ⁺ = Π_simplex(λ + τ γ v),  v_i = (N/m) ℓ_i(w'; ζ_i) on a uniform cohort
Lines 17–18 print the bracket as (Σ w_i − w̄); the proof's definition of c^(t), and FedDyn, have Σ
(w_i − w̄), which is what converges. g_i is a stored state (0 at first), not a gradient that is
computed anew. Both brackets are from what the clients were sent, which a compressed downlink makes
another vector than the server's w̄.

``control: lambda_weighted`` is fedorch's extension: with distinct clients the published c equals
(1/N) Σ g_i, so a fixed point satisfies Σ ∇f_i(w) = 0, the ERM optimum, whatever λ is; with c = Σ
λ_i g_i it satisfies Σ λ_i ∇f_i(w) = 0, the minimax condition (docs/drdm.md). The server then keeps
every g_i, formed from the uploads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from algorithms.contract import Influence, Training
from algorithms.drfa import DRFA
from algorithms.feddyn import DynamicRegularizer
from algorithms.local import LocalRule, ModelProbe
from algorithms.part import option

if TYPE_CHECKING:
    from torch import Tensor


class DRDM(DRFA):
    """Distributionally robust federated learning with client-drift minimisation."""

    class Options(DRFA.Options):
        """Clients whom the model serves badly count more (DRFA's λ), and dynamic regularisation
        holds against client drift.
        """

        name: str = "drdm"
        mu: float = option(0.1, "weight of the dynamic regulariser", "μ", gt=0)
        replace: bool = option(False, "draw the cohort with replacement")
        floor: float = option(1e-3, "draw from (1 − ε) λ + ε/N", "ε", ge=0, le=1)
        initial_dual: Literal["uniform", "samples"] = option(
            "uniform", "λ at the start: 1/N, or n_i/n", "λ⁰"
        )
        radius: float | None = option(
            None, "project local models onto the L2 ball of this radius", "W", gt=0
        )
        control: Literal["published", "lambda_weighted"] = option(
            "published",
            "control variate: (1/N) Σ g_i as published, or fedorch's extension Σ λ_i g_i",
            "c",
        )

    options: Options
    server_state = (*DRFA.server_state, "control", "gradients")

    def start(self) -> None:
        super().start()
        if self.options.initial_dual == "samples":
            self.dual = self.project(self.setting.samples / self.setting.samples.sum())
        self.control = torch.zeros_like(self.w)
        kept = self.setting.clients if self.options.control == "lambda_weighted" else 0
        self.gradients = self.w.new_zeros(kept, len(self.w))

    def rule(self) -> LocalRule:
        return DynamicRegularizer(self.options.mu, self.options.radius)

    def ask_snapshot(self, training: Training, weights: np.ndarray) -> Tensor:
        # Σ λ_i (w_i − w̄) takes other weights than the mean over the draws
        needs_rows = self.options.control == "lambda_weighted"
        return training.query(ModelProbe(), None if needs_rows else weights)

    def apply(self, training: Training, weights: np.ndarray, middle: Tensor) -> Tensor:
        if self.options.control == "lambda_weighted":
            return self._apply_lambda_weighted(training, weights, middle)
        updates, mu = training.collect(weights), self.options.mu
        # the weights are 1/m, so m times a mean is the paper's Σ over the drawn clients
        share = mu * self.setting.parts.cohort / self.setting.clients
        ends, middles = self.mean(updates, "delta"), middle - training.start
        # lines 17–18, both from c^(s)
        control_middle = self.control - share * middles
        self.control = self.control - share * ends
        # lines 19–20
        snapshot = self.w + middles - control_middle / mu
        self.w = self.w + ends - self.control / mu
        self.take_buffers(updates)
        return snapshot

    def _apply_lambda_weighted(
        self, training: Training, weights: np.ndarray, middle: Tensor
    ) -> Tensor:
        mu, ids = self.options.mu, torch.from_numpy(training.cohort.ids)
        updates = training.collect(None)
        ends, middles = updates.rows("delta"), middle - training.start
        p = torch.from_numpy(weights).to(ends)
        dual = torch.from_numpy(self.dual).to(ends)
        base = dual @ self.gradients
        # lines 17 and 19 with c = Σ λ_i g_i: at t' a drawn client's g_i would be g_i − μ (w_i − w̄)
        snapshot = self.w + p @ middles - (base - mu * (dual[ids] @ middles)) / mu
        # line 10 as the clients do it: once for each, however often it was drawn
        self.gradients = self.gradients.index_add(0, ids, ends, alpha=-mu)
        self.control = dual @ self.gradients
        self.w = self.w + p @ ends - self.control / mu
        self.influence = Influence(updates.clients, weights)
        self.take_buffers(updates)
        return snapshot
