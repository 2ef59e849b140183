"""What one client does with its own rows: mini-batches, gradients, and the steps of its optimiser."""

from dataclasses import dataclass, field

import numpy as np
import torch

from algorithms.draws import generator
from tests.meanings import channel, networks


def each_pass(local, n: int) -> int:
    """Mini-batches of a pass over n rows."""
    b = local["batch_size"]
    return n // b if local["drop_last"] else (n + b - 1) // b


def planned(local, n: int) -> int:
    """Local steps of a client with n rows in a round."""
    each = each_pass(local, n)
    if local["steps"] is not None:
        return local["steps"] if each else 0
    return (local["epochs"] or 1) * each


def batches(local, rows, seed: int, t: int, k: int, session: int):
    """Row numbers of one mini-batch after the other, without end."""
    # the first session of a round has no number in the key
    rng = generator(seed, "batches", t, k, *([session] if session else []))
    b = local["batch_size"]
    while local["sampling"] == "independent":
        yield rng.choice(rows, min(b, len(rows)), replace=False)
    while True:
        order = rng.permutation(rows)
        for i in range(0, len(order), b):
            if len(order[i : i + b]) == b or not local["drop_last"]:
                yield order[i : i + b]


def fresh(optimizer, d: int):
    """Moments of the local optimiser before its first step."""
    if optimizer["name"] == "sgd":
        return {"momentum": torch.zeros(d)} if optimizer["momentum"] else {}
    return {
        "first": torch.zeros(d),
        "second": torch.zeros(d),
        "t": torch.zeros(1, dtype=torch.float64),
    }


def step(optimizer, moments, w, g, lr: float):
    """(next w, next moments)."""
    g = g + optimizer["weight_decay"] * w
    if optimizer["name"] == "sgd":
        rho = optimizer["momentum"]
        if not rho:
            return w - lr * g, {}
        b = rho * moments["momentum"] + g
        return w - lr * (g + rho * b if optimizer["nesterov"] else b), {"momentum": b}
    b1, b2, t = optimizer["beta1"], optimizer["beta2"], moments["t"] + 1
    m = b1 * moments["first"] + (1 - b1) * g
    v = b2 * moments["second"] + (1 - b2) * g * g
    # of averaged moments the count need not be whole
    first, root = (m / (1 - b1**t)).float(), (v / (1 - b2**t)).sqrt().float()
    return w - lr * first / (root + optimizer["eps"]), {"first": m, "second": v, "t": t}


@dataclass
class Sent:
    """What a client did in a session, and what of it arrives."""

    k: int
    steps: int
    loss: float
    parts: dict = field(default_factory=dict)
    """"delta", "control", "buffers", "optimizer/NAME" -> vector."""
    numbers: dict = field(default_factory=dict)
    memory: dict = field(default_factory=dict)
    """What it remembers, should its update count."""
    nbytes: int = 0
    path: list = field(default_factory=list)
    """Its model after each step."""
    stats: list = field(default_factory=list)
    """The model's statistics then."""
    change: torch.Tensor | None = None
    """Of the model that it has trained, where that is not sent."""
    stays: bool = False
    """Whether that is its own."""
    session: int = 0
    """Of the round's."""
    forger: bool = False
    """It is judged by its message alone, whatever has become of its own training."""

    @property
    def finite(self) -> bool:
        remembered = [] if self.forger else self.memory.values()
        return channel.finite(*self.parts.values(), *self.numbers.values(), *remembered)


def rate(local, t: int, step: int | None = None) -> float:
    """Of a round's step; of all its steps, where none is given."""
    found = local["lr"] * local["lr_decay"] ** (t - 1) * _factor(local["schedule"], t)
    return found if step is None else found * _factor(local["within"], step)


def _factor(schedule, t: int) -> float:
    rise, past = min(1, t / (schedule["warmup"] + 1)), max(0, t - 1 - schedule["warmup"])
    if schedule["name"] == "constant":
        return rise
    if schedule["name"] == "step":
        return rise * schedule["gamma"] ** (past // schedule["every"])
    part, floor = min(1, past / schedule["over"]), schedule["floor"]
    if schedule["name"] == "linear":
        return rise * (1 - part + floor * part)
    return rise * (floor + (1 - floor) * np.cos(part * np.pi / 2) ** 2)


def _within(w, radius):
    """The nearest point of a ball around 0, if there is one."""
    return w if radius is None else w * min(1.0, radius / max(float(w.norm()), 1e-12))


class Trained:
    """Local training of client k from ``w`` [d], on its rows; ``correct(g, w)`` is the algorithm's."""

    def __init__(
        self,
        world,
        t,
        session,
        k,
        w,
        stats,
        moments,
        correct,
        steps=None,
        contrast=None,
        before=None,
    ):
        local, rows = world.config["local"], world.rows(k)
        self.start, self.w, self.stats, self.moments = w, w, stats, moments
        wanted = planned(local, len(rows))
        self.steps = wanted if steps is None or not wanted else steps
        stream = batches(local, rows, world.config["seed"], t, k, session)
        losses, self.path, self.passed = [], [], []
        self.reach = 0.0
        """The rates of all steps."""
        for s in range(1, self.steps + 1):
            if before is not None:
                before(s, self.w, self.stats)
            x, y = world.batch(next(stream), k)
            loss, g, self.stats = networks.gradient(
                world.module, self.w, self.stats, x, y, contrast
            )
            if local["clip"] is not None:
                g = g * min(1.0, local["clip"] / max(float(g.norm()), 1e-12))
            world.lost = loss
            g = correct(g, self.w)
            lr = rate(local, t, s)
            self.w, self.moments = step(local["optimizer"], self.moments, self.w, g, lr)
            self.w = _within(self.w, world.config["algorithm"].get("radius"))
            self.reach += lr
            losses.append(loss)
            self.path.append(self.w)
            self.passed.append(self.stats)
        self.loss = float(np.mean(losses)) if losses else 0.0

    @property
    def change(self):
        return self.w - self.start
