"""Ditto — Li et al. (ICML 2021), "Ditto: Fair and Robust Federated Learning Through
Personalization".

Algorithm 1, with FedAvg (or any aggregator) for the global problem. Each round, every client of the
cohort
    trains its copy of w^t on F_k and sends the update;
    takes ``personal_steps`` steps  v_k ← v_k − η (∇F_k(v_k) + λ (v_k − w^t)),
and the server aggregates. λ = 0 is training alone. v_k stays with the client, starts at the first
model that it receives, and is what the client is judged by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from algorithms.contract import Clients, Training
from algorithms.fedavg import FedAvg
from algorithms.local import LocalRule, Work
from algorithms.local_only import OwnModel
from algorithms.part import option
from algorithms.parts.round_ends import Fixed
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Anchored(OwnModel):
    """The personal problem: the client's own model, held near the global one."""

    strength: float = 0.0

    def direction(self, gradient: Tensor, work: Work) -> Tensor:
        return gradient.add_(work.w - work.received["w"], alpha=self.strength)


class Ditto(FedAvg):
    """Federated averaging beside personal models that are held near its model."""

    class Options(FedAvg.Options):
        """A global model by FedAvg, and personal models with the penalty λ/2 ‖v_k − w‖²."""

        name: str = "ditto"
        strength: float = option(
            1.0, "how strongly personal models are held to the global one", "λ", ge=0
        )
        personal_steps: int | None = option(
            None,
            "steps of the personal problem; unset: the config's local work, whatever else may end "
            "the round, so that a client does it twice",
            ge=1,
        )

        def refuses(self, parts: Composition) -> str | None:
            if parts.local.optimizer_state == "keep":
                return (
                    "ditto's two models would share the optimizer's state; set "
                    "local.optimizer_state to reset"
                )
            return super().refuses(parts)

    options: Options

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        cohort = self.draw(t)
        updates, report = self.train(
            t, clients, cohort, self.rule(), self.broadcast(), weights=self.weights(cohort)
        )
        # before the server steps: v_k is held to w^t, which the clients have from the first session
        with clients.train(
            cohort, self.personal_rule(), received={}, known=self.broadcast()
        ) as training:
            self._advance_own(t, training)
            training.collect()  # sends nothing, but v_k is stored by it
        self.apply(updates)
        return report

    def _advance_own(self, t: int, training: Training) -> None:
        """The steps of the personal problem."""
        if self.options.personal_steps is not None:
            training.advance(self.options.personal_steps)
            return
        end = self.setting.parts.round_end
        work = end if isinstance(end, Fixed) else Fixed()
        work.run(training, self.round_state(t, training.cohort, self.w))

    def personal_rule(self) -> LocalRule:
        return Anchored(self.options.strength)
