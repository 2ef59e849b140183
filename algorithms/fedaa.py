"""FedAA — "FedAA: A Reinforcement Learning Perspective on Adaptive Aggregation for Fair and Robust
Federated Learning".

Algorithm 2 with the loop cut after line 7, so that a round ends with an aggregated model. Round t
does, by the paper's lines (8–14 are in its pass t − 1, 4–6 in its pass t):
    8–10   every client of the cohort trains from w_g(t−1)
    11     s(t), w_top(t) ← ClientSelection (Algorithm 1): the M % nearest models, and their sums of
           distances
    12–14  the agent stores (s(t−1), a(t−1), r(t−1), s(t)) and updates
    4      a(t) = π(s(t)) + noise, on the simplex
    5      w_g(t) ← Σ_i a_i(t) w_top,i(t)
    6      r(t) ← accuracy of w_g(t) on the server's held-out rows
Before the first round all models are equal: s(0) = 1 after division by the largest entry, w_g(0)
the initial model.

The paper's state says nothing of how good the model already is, while its reward is the absolute
accuracy; both can be changed (``accuracy_in_state``, ``reward: change``). ``agent`` may be any
weigher: uniform weights on the same clients show what the selection alone is worth.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import SerializeAsAny

from algorithms.contract import Clients, Cohort, Influence, Updates
from algorithms.draws import generator
from algorithms.fedavg import FedAvg
from algorithms.figure import Figure
from algorithms.part import Pattern, chosen_from, option
from algorithms.parts.aggregators import Mean
from algorithms.parts.selection import Selected, columns, layers, nearest
from algorithms.parts.weighers import Situation, UniformWeights, Weigher
from algorithms.setting import Composition

if TYPE_CHECKING:
    from torch import Tensor

# in what the text and the published code agree
_COMMON = {
    "cohort": 1.0,
    "local.epochs": 20,
    "local.batch_size": 64,
    "local.lr": 0.1,
    "data.heldout.per_class": 100,
}


class FedAA(FedAvg):
    """Adaptive aggregation: the nearest clients, weighed by an agent that is rewarded with held-out
    accuracy.
    """

    class Options(FedAvg.Options):
        """The M % nearest clients, weighed by an agent (presets: the paper's text, the published
        code).
        """

        name: str = "fedaa"
        records = {
            "reward": "the agent's reward for the round's weights: held-out accuracy of the model "
            "that they make, or its change",
            "heldout_class_*": "held-out accuracy of that class",
            "state_spread": "largest less smallest distance in the agent's state, by which it "
            "tells clients apart (0: not at all)",
            "policy_effective": "1/Σp² of the weights p that the agent means",
            "policy_correlation": "correlation of the weights that were executed with those that "
            "the agent means",
        }
        headline = {"reward": "reward"}
        figures = (
            Figure(
                "reward",
                "The agent's reward",
                "held-out accuracy of the model that the round's weights make, or its change",
                "reward",
                {"reward": "reward"},
            ),
            Figure(
                "policy",
                "How many clients the agent counts on",
                "1/Σp² of the weights that its policy means, and of those that were executed, with "
                "exploration",
                "clients",
                {"policy_effective": "as the policy means", "effective_clients": "as executed"},
                bounds=(0, 0),
            ),
            Figure(
                "executed",
                "What the policy says against what is executed",
                "correlation of both over the selected clients: 1 without exploration",
                "correlation",
                {"policy_correlation": "correlation"},
                bounds=(0, 1),
            ),
            Figure(
                "classes",
                "Held-out accuracy by class",
                "recorded with algorithm.per_class",
                "accuracy",
                {"heldout_class_*": "class"},
            ),
        )
        needs_classes = True
        preset: Literal["paper", "authors"] = option(
            "paper", "settings of the text, or of the published code"
        )
        select: float = option(0.3, "part of the participants that is aggregated", "M", gt=0, le=1)
        candidates: float = option(
            1.0, "part of the trained clients that enters the selection (published code)", "C",
            gt=0, le=1,
        )  # fmt: skip
        layers: Pattern = option(
            "all", "layers compared: all, last_hidden, or a regular expression over tensor names"
        )
        accuracy_in_state: bool = option(
            False, "append the last held-out accuracy to the agent's state"
        )
        reward: Literal["accuracy", "change"] = option(
            "accuracy", "held-out accuracy, or its change", "r"
        )
        per_class: bool = option(False, "record held-out accuracy per class (the paper's Figure 4)")
        agent: Annotated[SerializeAsAny[Weigher], chosen_from(Weigher)] = option(
            UniformWeights(),
            "who weighs the selected clients; the presets, and so an algorithm without options, "
            "choose ddpg",
        )

        needs_rows = True
        presets: ClassVar[dict[str, dict[str, Any]]] = {
            "paper": {**_COMMON, "algorithm.agent": {"name": "ddpg", "preset": "paper"}},
            "authors": {
                **_COMMON,
                "algorithm.agent": {"name": "ddpg", "preset": "authors"},
                # the code moves parameters only: its server's statistics stay as initialised
                "local.drop_last": True,
                "local.clip": 60.0,
                "buffers": "exclude",
            },
        }

        def refuses(self, parts: Composition) -> str | None:
            if not isinstance(parts.aggregator, Mean):
                return "fedaa's agent chooses the weights; leave aggregator at mean"
            if not parts.sampler.distinct:
                return (
                    f"fedaa needs distinct clients, and the sampler {parts.sampler.name!r} may "
                    "repeat them"
                )
            return None

        @property
        def uses_heldout(self) -> bool:
            return self.agent.uses_heldout

        def slots(self, cohort: int) -> int:
            """K, the number of clients that get a weight."""
            return max(1, round(self.select * self.participants(cohort)))

        def participants(self, cohort: int) -> int:
            """How many trained clients enter the selection."""
            return max(1, round(self.candidates * cohort))

    options: Options
    server_state = (*FedAvg.server_state, "accuracy", "reward")

    def start(self) -> None:
        super().start()
        if not self.setting.heldout:
            raise ValueError(
                "fedaa's reward needs rows held out at the server; set data.heldout.per_class"
            )
        # fixed for the run, whoever is dropped from a round: the agent's networks have this size
        self.slots = self.options.slots(self.setting.parts.cohort)
        self.pieces = layers(self.setting.spec, self.options.layers)
        observation = self.slots + self.options.accuracy_in_state
        self.agent = self.options.agent.start(self.slots, observation, self.setting.seed)
        self.accuracy = self.reward = 0.0

    def weights(self, cohort: Cohort) -> None:
        """Always rows: the weights are chosen after looking at them."""

    def round(self, t: int, clients: Clients) -> dict[str, float]:
        if t == 1:
            self._begin(clients)
        cohort = self.draw(t)
        updates, report = self.train(t, clients, cohort, self.rule(), self.broadcast())
        selected = self.selection(t, updates)
        state = self.observation(selected)
        # lines 12–14 before line 4: the last action's reward is known only with the state after it
        report |= self.agent.observe(self.reward, state)
        if not len(selected.rows):
            # nobody sent anything finite: the model stays, and so does the agent's rhythm
            self.influence = None
            self.agent.act(self._nobody(t, state))
            return report | self._rate(clients) | _describe(state[: self.slots])
        used = len(selected.rows)
        intended = self.agent.intended(state)
        action = self.agent.act(self.situation(t, updates, selected, state, clients))
        if intended is not None:
            report |= in_effect(intended[:used], action[:used])
        self.influence = Influence.of(updates.clients, selected.rows, action[:used])
        self.apply(updates)
        return report | self._rate(clients) | _describe(state[: self.slots])

    def aggregate(self, updates: Updates, name: str) -> Tensor:
        """Line 5: Σ_i a_i (w_top,i − w_g), which added to w_g is Σ_i a_i w_top,i."""
        assert self.influence is not None
        return self.influence.combine(updates.rows(name))

    def selection(self, t: int, updates: Updates) -> Selected:
        """Line 11: Algorithm 1 among the participants."""
        rows = updates.rows("delta")
        some = np.arange(len(rows))
        if self.options.candidates < 1:
            rng = generator(self.setting.seed, "candidates", t)
            some = np.sort(
                rng.choice(
                    some, min(len(rows), self.options.participants(len(rows))), replace=False
                )
            )
        rows = rows[some] if len(some) < len(rows) else rows
        # what a layer that nobody looks at holds would be in the model all the same
        found = nearest(columns(rows, self.pieces), self.slots, rows.isfinite().all(1))
        # rows that are not finite come last, and fill slots only where nothing else is left
        usable = np.isfinite(found.sums)
        return Selected(some[found.rows[usable]], found.sums[usable])

    def observation(self, selected: Selected) -> np.ndarray:
        """s(t) [K] in [0, 1], or [K + 1] with the accuracy: sums of distances over the largest.

        Slots left empty count as farthest.
        """
        state = np.ones(self.slots)
        state[: len(selected.sums)] = relative(selected.sums)
        extra = [self.accuracy] if self.options.accuracy_in_state else []
        return np.append(state, extra).astype(np.float32)

    def situation(
        self, t: int, updates: Updates, selected: Selected, state: np.ndarray, clients: Clients
    ) -> Situation:
        """What the weights may depend on."""

        # copied once, and tried in hundreds of mixtures
        rows = {name: updates.rows(name)[selected.rows] for name in updates.vectors}
        ids, every = updates.clients[selected.rows], np.arange(len(selected.rows))

        def table(weights: np.ndarray) -> Tensor:
            p = Influence.of(ids, every, weights)
            sent = rows.get("buffers")
            buffers = self.buffers if sent is None else self.mixed_buffers(p, sent)
            return clients.heldout(self._tried(p.combine(rows["delta"])), buffers)

        return Situation(
            self.setting.seed, t, state, relative(selected.sums), updates.samples[selected.rows],
            accuracy=lambda weights: _accuracy(table(weights)),
            loss=lambda weights: _loss(table(weights)),
        )  # fmt: skip

    def _tried(self, update: Tensor) -> Tensor:
        """The model that the server would make of an update."""
        state = {name: value.clone() for name, value in self.optimizer.items()}
        return self.setting.parts.server_optimizer.step(state, self.w, update)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "agent": self.agent.state()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.agent.restore(state["agent"])

    def _begin(self, clients: Clients) -> None:
        """Lines 1–7 for the initial model, which any action leaves as it is."""
        self._rate(clients)
        if self.options.reward == "change":
            self.reward = 0.0  # nothing was there before that it could have changed from
        state = self.observation(Selected(np.arange(self.slots), np.ones(self.slots)))
        self.agent.act(self._nobody(0, state))

    def _nobody(self, t: int, state: np.ndarray) -> Situation:
        """A situation in which the weights make no difference."""
        ones = np.ones(self.slots)
        return Situation(
            self.setting.seed,
            t,
            state,
            ones,
            ones,
            lambda weights: self.accuracy,
            lambda weights: 0.0,
        )

    def _rate(self, clients: Clients) -> dict[str, float]:
        """Line 6: the reward of the present model."""
        table = clients.heldout(self.w, self.buffers)
        before, self.accuracy = self.accuracy, _accuracy(table)
        self.reward = self.accuracy - before if self.options.reward == "change" else self.accuracy
        report = {"reward": self.reward}
        if self.options.per_class:
            report |= {
                f"heldout_class_{c}": float(hit / n)
                for c, (hit, n, _) in enumerate(table.tolist())
                if n
            }
        return report


def relative(sums: np.ndarray) -> np.ndarray:
    """Sums of distances over the largest; all 1 where all models are equal."""
    top = sums.max(initial=0.0)
    return sums / top if top > 0 else np.ones(len(sums))


def in_effect(intended: np.ndarray, executed: np.ndarray) -> dict[str, float]:
    """How much of an agent's policy reaches the model.

    The correlation of the ``executed`` weights [K] with those of π(s), ``intended`` [K] (left out
    where either are all equal), and the effective number 1/Σp² of the latter; that of the former is
    the round's ``effective_clients``.
    """
    report = {"policy_effective": float(intended.sum() ** 2 / (intended**2).sum())}
    if np.ptp(intended) > 0 and np.ptp(executed) > 0:
        report["policy_correlation"] = float(np.corrcoef(intended, executed)[0, 1])
    return report


def _accuracy(table: Tensor) -> float:
    """Top-1 accuracy from correct answers, rows and losses of each class [classes, 3]."""
    hits, rows, _ = table.sum(0).tolist()
    return float(hits / rows)


def _loss(table: Tensor) -> float:
    """Mean loss from the same; infinite where it is not finite."""
    _, rows, total = table.sum(0).tolist()
    return float(total / rows) if math.isfinite(total) else math.inf


def _describe(distances: np.ndarray) -> dict[str, float]:
    """How much the state tells the slots apart."""
    return {"state_spread": float(distances.max() - distances.min())}
