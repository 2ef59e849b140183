"""What methods for min_w max_λ Σ λ_i f_i(w), λ in an uncertainty set, have in common: DRFA, DRDM,
AFL and SCAFF-PD.

The dual variable λ [N], the set that it is projected onto, and what a round tells of the game.
Theorems are about means of the iterates: the config's ``output``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
from pydantic import SerializeAsAny

from algorithms.account import Rounds, recorded
from algorithms.algorithm import Algorithm, AlgorithmOptions, steps_by_itself
from algorithms.figure import Figure
from algorithms.part import chosen_from, option
from algorithms.parts.simplex import spread
from algorithms.parts.uncertainty import Simplex, Uncertainty, largest
from algorithms.setting import Composition


class Minimax(Algorithm):
    """A game between the model and the mixture of the clients."""

    class Options(AlgorithmOptions):
        """Options of all such methods."""

        uncertainty: Annotated[SerializeAsAny[Uncertainty], chosen_from(Uncertainty)] = option(
            Simplex(), "the set of mixtures λ that the worst is taken over", "Λ"
        )

        needs_whole_cohort = True
        records = {
            "mixture_loss": "F(w, λ) = Σ λ_i f_i(w), from the losses that the round's clients "
            "tell: where only some are asked an unbiased estimate, which scatters",
            "upper_gap": "max F(w, ·) − F(w, λ): how far the mixture could still go",
            "dual_max": "largest entry of the mixture λ",
            "dual_effective": "exp(entropy of λ): how many clients it is spread over",
            "client/dual": "its entry of the mixture λ",
        }
        figures = (
            Figure(
                "lambda",
                "Whom the mixture λ counts",
                "λ_i of each client: the larger, the more the objective counts its loss",
                "λ",
                client="dual",
            ),
            Figure(
                "spread",
                "How many clients λ is spread over",
                "exp(entropy of λ): all of them while it is uniform, 1 where one client is all",
                "clients",
                {"dual_effective": "exp(entropy of λ)"},
            ),
            Figure(
                "mixture",
                "What is minimised",
                "F(w, λ) = Σ λ_i f_i(w), from the losses that the round's clients tell (an "
                "estimate that scatters where only some are asked); where all are, also what "
                "another λ could add to it",
                "loss",
                {"mixture_loss": "F(w, λ)", "upper_gap": "max F(w, ·) − F(w, λ)"},
            ),
        )

        def account(self, rounds: Rounds) -> Iterator[str]:
            over, top = recorded(rounds, "dual_effective"), recorded(rounds, "dual_max")
            if len(over) and len(top):
                yield (
                    f"At the end λ is spread over {over[-1]:.3g} clients (exp of its entropy), and "
                    f"its largest entry is {top[-1]:.3g}."
                )

        def refuses(self, parts: Composition) -> str | None:
            return self.uncertainty.refuses(parts.clients) or steps_by_itself(self.name, parts)

    options: Options
    server_state: ClassVar[tuple[str, ...]] = ("w", "buffers", "dual")

    def start(self) -> None:
        self.project = self.options.uncertainty.projection(self.setting)
        self.dual = np.full(self.setting.clients, 1 / self.setting.clients)

    def by_client(self) -> dict[str, np.ndarray]:
        return {"dual": self.dual}

    def close(self, losses: np.ndarray, dual: np.ndarray, whole: bool) -> dict[str, float]:
        """What a round tells of the game: f_i(w) [N] against the λ [N] that ``w`` was made with.

        ``mixture_loss`` is F(w, λ) = Σ λ_i f_i(w); ``upper_gap``, where the losses are of the
        ``whole`` federation, max F(w, ·) − F(w, λ). It is one side of the duality gap: how far the
        other player could still go; the other side, F(w, λ) − min F(·, λ), nobody knows.
        """
        told = {"mixture_loss": float(dual @ losses)}
        if whole:
            told["upper_gap"] = largest(losses, self.project) - told["mixture_loss"]
        return told | spread(self.dual)
