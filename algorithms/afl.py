"""AFL — Mohri et al., "Agnostic Federated Learning" (ICML 2019), stochastic algorithm of §4.

Simultaneous steps from (w, λ), losses at the old w:
    w ← w − η_w Σ_i λ_i ∇f_i(w),        λ ← Π_simplex(λ + η_λ [f_i(w)]_i),
and the average of the iterates w as the output. Every client takes part with one gradient step; η_w
is ``local.lr``. ``uncertainty`` puts another set in the simplex's place.
"""

from __future__ import annotations

from algorithms.algorithm import everyone
from algorithms.contract import Clients
from algorithms.local import LocalRule
from algorithms.minimax import Minimax
from algorithms.part import option
from algorithms.parts.iterates import Average
from algorithms.parts.round_ends import Fixed
from algorithms.parts.step_sizes import StepSize, at
from algorithms.setting import Composition


class AFL(Minimax):
    """Agnostic federated learning."""

    class Options(Minimax.Options):
        """Simultaneous gradient descent on the model and ascent on the mixture of the clients."""

        name: str = "afl"
        dual_lr: StepSize = option(
            0.1,
            "learning rate of the mixture; {start, power}: start · t^−power in round t",
            "η_λ",
        )
        full_loss: bool = option(
            False, "losses on all of a client's data instead of one mini-batch"
        )
        defaults = {"cohort": 1.0, "local.steps": 1, "output": Average()}

        def refuses(self, parts: Composition) -> str | None:
            if parts.local.steps != 1 or not isinstance(parts.round_end, Fixed):
                return (
                    "afl does one gradient step a round; leave local.steps at 1 and round_end at "
                    "fixed"
                )
            return everyone(self.name, parts) or super().refuses(parts)

    options: Options

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        with clients.train(cohort, LocalRule(), {"w": self.w, "buffers": self.buffers}) as training:
            training.advance(1)
            # everyone takes part, so λ's entries are in the cohort's order; they sum to 1
            updates = training.collect(self.dual)
        batch = None if self.options.full_loss else self.setting.parts.local.batch_size
        # at the old w, which the clients still have: both steps are taken from (w, λ)
        losses = clients.loss(cohort.ids, self.w, self.buffers, batch, known=True).numpy()
        self.w = self.w + self.mean(updates, "delta")
        self.take_buffers(updates)
        dual = self.dual
        self.dual = self.project(dual + at(self.options.dual_lr, t) * losses)
        return self.close(losses, dual, whole=True)
