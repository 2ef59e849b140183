"""AFL — Mohri et al., "Agnostic Federated Learning" (ICML 2019), stochastic algorithm of §4.

Simultaneous steps from (w, λ), losses at the old w:
    w ← w − η_w Σ_i λ_i ∇f_i(w),        λ ← Π_simplex(λ + η_λ [f_i(w)]_i),
and the average of the iterates w as the output. Every client takes part with one gradient step; η_w
is ``local.lr``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from algorithms.algorithm import Algorithm, AlgorithmOptions, everyone, steps_by_itself
from algorithms.contract import Clients
from algorithms.local import LocalRule
from algorithms.part import option
from algorithms.parts.round_ends import Fixed
from algorithms.parts.simplex import project, spread
from algorithms.setting import Composition


class AFL(Algorithm):
    """Agnostic federated learning."""

    class Options(AlgorithmOptions):
        """Simultaneous gradient descent on the model and ascent on the mixture of the clients."""

        name: str = "afl"
        dual_lr: float = option(0.1, "learning rate of the mixture", "η_λ", ge=0)
        output: Literal["average", "last"] = option(
            "average", "the model judged: running average of the iterates, or last"
        )
        full_loss: bool = option(
            False, "losses on all of a client's data instead of one mini-batch"
        )
        defaults = {"cohort": 1.0, "local.steps": 1}

        needs_whole_cohort = True

        def refuses(self, parts: Composition) -> str | None:
            if parts.local.steps != 1 or not isinstance(parts.round_end, Fixed):
                return (
                    "afl does one gradient step a round; leave local.steps at 1 and round_end at "
                    "fixed"
                )
            return everyone(self.name, parts) or steps_by_itself(self.name, parts)

    options: Options
    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers", "dual", "average", "rounds")

    def start(self) -> None:
        self.dual = np.full(self.setting.clients, 1 / self.setting.clients)
        self.average, self.rounds = self.w, 0

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        with clients.train(cohort, LocalRule(), {"w": self.w, "buffers": self.buffers}) as training:
            training.advance(1)
            # everyone takes part, so λ's entries are in the cohort's order; they sum to 1
            updates = training.collect(self.dual)
        batch = None if self.options.full_loss else self.setting.parts.local.batch_size
        # at the old w, which the clients still have: both steps are taken from (w, λ)
        losses = clients.loss(cohort.ids, self.w, self.buffers, batch, known=True).numpy()
        self.w = self.w + updates.mean("delta")
        self.take_buffers(updates)
        self.dual = project(self.dual + self.options.dual_lr * losses)
        self.rounds += 1
        # a running mean needs no store of iterates; the initial model is not among them
        self.average = self.average + (self.w - self.average) / self.rounds
        return spread(self.dual)

    def model(self) -> Tensor:
        return self.average if self.options.output == "average" else self.w
