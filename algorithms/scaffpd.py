"""SCAFF-PD — Yu et al. (2023), "Scaff-PD: Communication Efficient Fair and Robust Federated
Learning".

    min_x max_{λ in the simplex} Σ λ_i f_i(x) − ψ(λ),   ψ(λ) = ρ/(2N) Σ (N λ_i − 1)²  (χ² penalty)
Round r, two exchanges:
    1.  clients send L_i = f_i(x^r) and c_i = g_i(x^r);      s = (1 + θ) L^r − θ L^{r−1}
        λ^{r+1} = argmin ψ(λ) − ⟨s, λ⟩ + ‖λ − λ^r‖²/(2σ) = Π_simplex((λ^r + σ s + σρ) / (1 + σρN))
    2.  c = Σ λ_i c_i;  J local steps u ← u − η (g_i(u) − c_i + c) from x^r;
        x^{r+1} = x^r − τ Σ λ_i (x^r − u_i)/(η J),   with the server step τ = ηJ unless
        ``server_scale`` is not 1.
Reconstructed from the paper's public reviews and reported parameters; the normalisation of ψ is
from memory. The paper needs all clients; with a smaller cohort the sums run over it with λ
renormalised there, and absent clients keep their last L_i (the cohort's mean loss before their
first round), which is fedorch's reading. ``uncertainty`` puts another set in the simplex's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from algorithms.contract import Clients
from algorithms.flat import ParamSpec
from algorithms.local import LocalRule, Tensors, Work, zeros
from algorithms.minimax import Minimax
from algorithms.part import option
from algorithms.parts.optimizers import Sgd
from algorithms.parts.step_sizes import StepSize, at
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


class WithAnchor(LocalRule):
    """A client that keeps its anchor c_i, the gradient at the round's model."""

    def state(self, received: Tensors, spec: ParamSpec) -> Tensors:
        return {"anchor": zeros(spec)}


class GradientAtModel(WithAnchor):
    """Stay at w and send the mean mini-batch gradient there, which becomes the anchor."""

    def begin(self, work: Work) -> Tensor:
        work.extras["sum"] = torch.zeros_like(work.received["w"]).repeat(len(work.clients), 1)
        return super().begin(work)

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        # in place: these may be the first rows only of a lane's clients
        work.extras["sum"] += gradient
        return torch.zeros_like(gradient)

    def upload(self, work: Work) -> Tensors:
        work.state["anchor"] = work.extras["sum"] / work.steps.clamp_min(1).unsqueeze(1)
        return {"gradient": work.state["anchor"]}


class Anchored(WithAnchor):
    """Local steps corrected by the anchors: g_i(u) − c_i + c."""

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        return gradient.sub_(work.state["anchor"]).add_(work.received["control"])


class ScaffPD(Minimax):
    """Accelerated primal-dual federated learning with bias-corrected local steps."""

    class Options(Minimax.Options):
        """Primal-dual method with an extrapolated dual step and SCAFFOLD-like correction."""

        name: str = "scaffpd"
        rho: float = option(
            0.1, "weight of the χ² penalty on λ; 0: the plain worst case", "ρ", ge=0
        )
        theta: float = option(1.0, "extrapolation of the losses", "θ", ge=0)
        dual_lr: StepSize = option(
            0.1,
            "step size of the dual variable; {start, power}: start · t^−power in round t",
            "σ",
        )
        anchor_batches: int = option(1, "mini-batches whose gradients make c_i", ge=1, le=100_000)
        full_loss: bool = option(
            False, "losses on all of a client's data instead of one mini-batch"
        )
        server_scale: float = option(1.0, "server step τ as a multiple of ηJ", "τ", gt=0)

        def refuses(self, parts: Composition) -> str | None:
            local = parts.local.optimizer
            if not isinstance(local, Sgd) or local.momentum or local.weight_decay:
                return "scaffpd corrects gradients of plain SGD; set local.optimizer to sgd"
            return super().refuses(parts)

    options: Options
    server_state = (*Minimax.server_state, "losses", "heard")

    def start(self) -> None:
        super().start()
        self.losses = np.zeros(self.setting.clients)
        self.heard = np.zeros(self.setting.clients, bool)

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort, options = self.draw(t), self.options
        ids = cohort.ids
        batch = None if options.full_loss else self.setting.parts.local.batch_size
        with clients.train(
            cohort, GradientAtModel(), {"w": self.w, "buffers": self.buffers}
        ) as training:
            # a client answers with L_i and c_i to one message; λ must be known before c is summed
            losses = clients.loss(ids, self.w, self.buffers, batch, known=True).double().numpy()
            dual = self.dual
            self._dual_step(t, ids, losses)
            # λ may be 0 on all of a small cohort
            weights = (
                self.dual[ids] / self.dual[ids].sum()
                if self.dual[ids].sum() > 0
                else np.full(len(ids), 1 / len(ids))
            )
            training.advance(options.anchor_batches)
            control = training.collect(weights).mean("gradient")
        sent = {"w": self.w, "buffers": self.buffers}
        updates, report = self.train(
            t, clients, cohort, Anchored(), {"control": control}, sent, weights=weights
        )
        self.w = self.w + options.server_scale * self.mean(updates, "delta")
        self.take_buffers(updates)
        known = np.where(self.heard, self.losses, losses.mean())
        return report | self.close(known, dual, whole=len(ids) == self.setting.clients)

    def _dual_step(self, t: int, ids: np.ndarray, losses: np.ndarray) -> None:
        """λ^{r+1}, from the cohort's new losses and the last known ones of the others."""
        rho, theta, sigma = self.options.rho, self.options.theta, at(self.options.dual_lr, t)
        n = self.setting.clients
        # in its first round a client has no L_i^{r−1}, and nothing is extrapolated
        before = np.where(self.heard[ids], self.losses[ids], losses)
        slope = np.where(self.heard, self.losses, losses.mean())
        slope[ids] = (1 + theta) * losses - theta * before
        # copies, because ``state`` gave out the arrays themselves
        self.losses, self.heard = self.losses.copy(), self.heard.copy()
        self.losses[ids], self.heard[ids] = losses, True
        self.dual = self.project((self.dual + sigma * slope + sigma * rho) / (1 + sigma * rho * n))
