"""FDA — federated dynamic averaging: synchronise when local models vary by more than a threshold.

Algorithm 6 (FDA), with plain averaging as the server step:
    every client does one local step; H ← estimate of the variance from the clients' states
    while H ≤ Θ;  then  w_t0 ← mean_k w_k
Algorithm 7 (FDA-Opt): the same inside a FedOpt round, asked once per epoch of e steps, with at most
τ̃ = 2τ + 8e steps (Eq. 4.3), any server optimiser on the mean drift, and a threshold that follows
the variance ν found at the end of the round:
    Θ ← τ̃/2 · ν / (steps done),
so that at the present rate of growth a round ends half-way to the cap (the first is one epoch).
Both are round ends: they decide when local work stops and leave everything else to the algorithm,
so they go with SCAFFOLD, FedProx, FedDyn and compression as they are. Where thesis and published
code differ, the code is followed: clients keep their optimiser's state (``local.optimizer_state:
keep``) and batch-norm statistics (``buffers: local``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from algorithms.account import Rounds, recorded
from algorithms.contract import Training
from algorithms.draws import generator
from algorithms.figure import Figure
from algorithms.local import Tensors
from algorithms.part import chosen_from, option
from algorithms.parts.monitors import AmsSketch, Drift, Exact, Linear, Monitor
from algorithms.parts.round_ends import RoundEnd, RoundState

SUGGESTED = {"fl": 4.91e-5, "balanced": 3.89e-5, "hpc": 2.74e-5}
"""Θ/d by setting: a 0.5 Gbps shared channel, both costs alike, InfiniBand (thesis, fitted to four
points each)."""


def _number(theta: float | str) -> float:
    """Θ, or its factor of d; raises ValueError if it is neither."""
    return SUGGESTED[theta] if theta in SUGGESTED else float(str(theta).removesuffix("d"))


def _threshold(value: float | str) -> float | str:
    try:
        factor = _number(value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < np.inf:  # so written that NaN is refused, too
        raise ValueError(
            f"must be a number from 0 on, one with a d ('4e-5 d'), or {', '.join(SUGGESTED)}"
        )
    return value if value in SUGGESTED or str(value).endswith("d") else factor


Theta = Annotated[Annotated[float, Field(le=1e300)] | str, AfterValidator(_threshold)]
"""Not bounded as other numbers are: it is only compared, and a large one means never."""
Positive = Annotated[int, Field(ge=1)]
AnyMonitor = Annotated[SerializeAsAny[Monitor], chosen_from(Monitor)]


class Monitored(RoundEnd):
    """Asks a monitor while clients train."""

    records = {
        "round_steps": "local steps from one synchronisation to the next",
        "exceeded": "1 where the clients synchronised because H exceeded Θ, 0 where their local "
        "work was done",
        "variance_estimate": "H, the monitor's estimate of the models' variance at the "
        "synchronisation; nothing where it was not asked then",
        "theta": "Θ, the threshold on it",
        "bytes_direction": "bytes of what the monitor's states are made with (ξ), where some "
        "clients could not work it out, among bytes_down",
    }
    headline: ClassVar[Mapping[str, str]] = {"round_steps": "steps", "variance_estimate": "H"}
    figures: ClassVar[tuple[Figure, ...]] = (
        Figure(
            "variance",
            "The models' variance against Θ",
            "the estimate H when the clients synchronised (a point, and a tick on the axis): at "
            "the first step at which it exceeded Θ, or when their local work was done",
            "variance",
            {"variance_estimate": "H, estimated", "theta": "Θ (dashed)", "variance": "exact"},
            over="steps",
            ticks=True,
            limits=("theta",),
            bounds=(0, 0),
        ),
        Figure(
            "intervals",
            "Local steps between synchronisations",
            "how long the clients trained by themselves before the variance was too large",
            "local steps",
            {"round_steps": "steps"},
        ),
    )
    monitor: AnyMonitor = option(Linear(), "how the variance is estimated")

    def account(self, rounds: Rounds) -> Iterator[str]:
        exceeded, steps = recorded(rounds, "exceeded"), recorded(rounds, "round_steps").sum()
        by_theta = int(exceeded.sum())
        rest = len(exceeded) - by_theta
        done = f", {rest} as their local work was done" if rest else ""
        theta = recorded(rounds, "theta")
        value = f" (at last {theta[-1]:.4g})" if len(theta) else ""
        yield (
            f"The clients synchronised {len(exceeded):,} times in {steps:,.0f} local steps: "
            f"{by_theta:,} as H exceeded Θ{value}{done}."
        )
        if steps and steps == len(exceeded):
            yield "That is synchronous training: a larger Θ would save bytes."
        sent = sum(recorded(rounds, column).sum() for column in ("bytes_up", "bytes_down"))
        asking = sum(recorded(rounds, f"bytes_{of}").sum() for of in ("questions", "direction"))
        once = (sent - asking) / max(1, len(exceeded))
        if sent and steps > len(exceeded):
            yield (
                "A synchronisation after every step would have sent about "
                f"{steps * once / 1e6:,.4g} MB, {steps * once / sent:,.3g} times as much as was "
                "sent."
            )

    def follows(self, about: RoundState) -> bool:
        return self.monitor.follows(about.memory)

    def known(self, about: RoundState) -> Tensors:
        return self.monitor.known(about.w, about.memory)

    def ask(self, training: Training, about: RoundState) -> float:
        """H, from one small message of every client."""
        probe = self.monitor.probe(len(about.w), about.seed)
        return self.monitor.estimate(training.query(probe, about.weights))


class Thresholded(Monitored):
    """Ends a round by a threshold that the config gives."""

    theta: Theta = option(
        1.0,
        "threshold on the variance: a number, '4e-5 d' (for d parameters), or the thesis' factor "
        "by setting: fl, balanced or hpc",
        "Θ",
    )


class Fda(Thresholded):
    """Synchronise when the estimated variance exceeds Θ; a round does at most the config's local
    work.
    """

    name: str = "fda"
    every: int = option(1, "local steps between two questions", "I_query", ge=1)
    at: tuple[Positive, ...] = option(
        (), "the steps of a round after which to ask; leave every at 1 with it"
    )

    @model_validator(mode="after")
    def _one_way_to_say_when(self) -> Fda:
        if self.at and self.every != 1:
            raise ValueError("give at or every, not both")
        return self

    def run(self, training: Training, about: RoundState) -> dict[str, float]:
        done, theta = 0, threshold(self.theta, len(about.w))
        estimate: float | None = None
        while done < about.work_steps:
            step = min(self._next(done), about.work_steps)
            training.advance(step - done)
            done = step
            if self.at and done not in self.at:
                estimate = None  # what an earlier step had is not that of the synchronisation
                break
            # Algorithm 6, lines 6–8
            estimate = self.ask(training, about)
            if not estimate <= theta:  # so written that a diverged client's NaN ends the round, too
                break
        return {"round_steps": float(done), **compared(estimate, theta)}

    def _next(self, done: int) -> int:
        """The next step of the round after which to ask; past all local work after the last."""
        if not self.at:
            return done + self.every
        later = [step for step in self.at if step > done]
        # past any local work, at whose end ``run`` stops
        return min(later) if later else 2**62


def compared(estimate: float | None, theta: float) -> dict[str, float]:
    """What a round records of H against Θ, if H was asked for when it ended."""
    if estimate is None:
        return {"theta": theta, "exceeded": 0.0}
    # so written that a diverged client's NaN counts as too large
    exceeded = float(not estimate <= theta)
    return {"variance_estimate": estimate, "theta": theta, "exceeded": exceeded}


def threshold(theta: float | str, size: int) -> float:
    """Θ as a number, for a model of ``size`` parameters."""
    return _number(theta) * size if isinstance(theta, str) else theta


class FdaOpt(Monitored):
    """FDA-Opt's round: asked once an epoch, at most 2τ + 8e steps, with a threshold that follows
    the variance.
    """

    name: str = "fda_opt"
    records = {"variance": "the exact variance of the models that were sent"}
    monitor: AnyMonitor = option(AmsSketch(rows=3, columns=500), "how the variance is estimated")

    def run(self, training: Training, about: RoundState) -> dict[str, float]:
        # Algorithm 7, line 1: Θ_0 = −∞, so that the first question ends the first round
        theta = float(about.memory["theta"]) if "theta" in about.memory else -np.inf
        done, cap = 0, cap_steps(about)
        estimate = 0.0
        while done < cap:
            step = min(about.pass_steps, cap - done)
            training.advance(step)
            done += step
            # lines 10–16
            estimate = self.ask(training, about)
            if not estimate <= theta:
                break
        # lines 19–20
        variance = self._variance(training, about)
        following = cap / 2 / done * variance
        # a round that diverged must not set the threshold of the next
        if np.isfinite(following):
            about.memory["theta"] = torch.tensor(following, dtype=torch.float64)
        return {
            "round_steps": float(done),
            **compared(estimate, theta),
            "variance": variance,
            "theta": max(theta, 0.0),  # that of the first round is none
        }

    def _variance(self, training: Training, about: RoundState) -> float:
        """ν, the exact variance of the models that are about to be sent (so that nothing more is).

        At least 0: where the clients hardly differ, it is a difference of nearly equal numbers.
        """
        return max(Exact().estimate(training.query(Drift(transmitted=False), about.weights)), 0.0)


def cap_steps(about: RoundState) -> int:
    """2τ + 8e, the most local steps of an FDA-Opt round: τ the config's local work, e an epoch."""
    return 2 * about.work_steps + 8 * about.pass_steps


class AsyncFda(Thresholded):
    """FDA without lock step: a coordinator keeps each client's latest state and decides whenever
    one arrives.

    Client k takes s_k units of time for a step, s_k drawn log-normally around 1 and multiplied by
    ``slowdown`` for the stragglers. Time is simulated; nobody waits for a straggler, whose part in
    a synchronisation is the model after its last finished step. A server that trains beside them
    (fltrust) has no part in the clock: at the end it does the clients' mean number of steps.
    """

    name: str = "fda_async"
    records = {
        "virtual_time": "simulated time so far; a step takes about 1",
        "round_time": "simulated time of the round",
        "lock_step_time": "what the round's steps would have taken with everybody waiting",
    }
    figures = (
        *Thresholded.figures,
        Figure(
            "clocks",
            "What waiting for nobody saves",
            "simulated time of a round (a step takes about 1), and what as many steps would have "
            "taken with everybody waiting for the slowest in each",
            "simulated time of a round",
            {"round_time": "without waiting", "lock_step_time": "in lock step"},
        ),
    )
    lock_step: ClassVar[bool] = False
    jitter: float = option(0.1, "spread of log s_k over clients", ge=0)
    stragglers: float = option(0.0, "part of the clients that is slow", ge=0, le=1)
    slowdown: float = option(4.0, "how many times slower they are", ge=1)

    def step_times(self, seed: int, ids: np.ndarray) -> np.ndarray:
        """s_k [m], a property of each client for the whole run."""
        draws = [generator(seed, "speed", int(k)) for k in ids]
        base = np.exp([self.jitter * g.standard_normal() for g in draws])
        return base * np.where([g.random() < self.stragglers for g in draws], self.slowdown, 1.0)

    def run(self, training: Training, about: RoundState) -> dict[str, float]:
        speed = self.step_times(about.seed, training.cohort.ids)
        timed = np.arange(len(speed)) < len(speed) - about.server
        arrival, done = np.where(timed, speed, np.inf), np.zeros(len(speed), np.int64)
        latest, estimate, now, theta = None, 0.0, 0.0, threshold(self.theta, len(about.w))
        while done.max() < about.work_steps:
            now = float(arrival.min())
            due = np.flatnonzero(arrival <= now)
            steps = np.zeros(len(speed), np.int64)
            steps[due] = 1
            training.advance(steps)
            answers = training.query(self.monitor.probe(len(about.w), about.seed), among=due)
            # a client that has not finished a step stands at the start: drift 0, state 0
            latest = answers.new_zeros(len(speed), answers.shape[1]) if latest is None else latest
            latest[torch.from_numpy(due)] = answers
            done[due] += 1
            arrival[due] += speed[due]
            estimate = self.monitor.estimate(training.combine(latest, about.weights))
            if not estimate <= theta:
                break
        mean_steps = float(done[timed].mean())
        if not timed.all():
            # not before: what the others will have done is only known now
            training.advance(np.where(timed, 0, max(1, round(mean_steps))))
        total = float(about.memory.get("clock", torch.zeros((), dtype=torch.float64))) + now
        about.memory["clock"] = torch.tensor(total, dtype=torch.float64)
        return {
            "round_steps": mean_steps,
            **compared(estimate, theta),
            "virtual_time": total,
            "round_time": now,
            "lock_step_time": float(mean_steps * speed[timed].max()),
        }
