"""Clients with quadratic losses f_k(w) = ½ (w − a_k)ᵀ A_k (w − a_k): everything about them is known
in closed form.
"""

from contextlib import contextmanager

import numpy as np
import torch

from algorithms.algorithm import Algorithm, AlgorithmOptions
from algorithms.contract import Updates
from algorithms.flat import ParamSpec
from algorithms.local import Work
from algorithms.local_config import LocalConfig
from algorithms.part import variants
from algorithms.parts.aggregators import Mean
from algorithms.parts.compressors import NoCompression
from algorithms.parts.iterates import Last, Output
from algorithms.parts.round_ends import Fixed
from algorithms.parts.samplers import Uniform
from algorithms.parts.server_optimizers import ServerSgd
from algorithms.setting import Composition, Setting


class Quadratics:
    """A ``Clients`` that shares no code with the trainers: full gradients, plain local SGD,
    float64.
    """

    def __init__(self, clients=6, d=3, steps=10, lr=0.05, seed=0, spread=2.0, uplink=None):
        rng = np.random.default_rng(seed)
        roots = rng.normal(size=(clients, d, d)) / np.sqrt(d)
        self.curvature = torch.tensor(roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(d))
        self.centre = torch.tensor(rng.normal(size=(clients, d)) * spread)
        self.n, self.d, self.steps, self.lr = clients, d, steps, lr
        self.states = {}
        self.log = []
        self.uplink, self.dice = uplink or NoCompression(), torch.Generator().manual_seed(seed)

    def gradient(self, ids, w):
        return times(self.curvature[ids], w - self.centre[ids])

    def losses(self, w):
        return self.losses_of(torch.arange(self.n), w)

    def losses_of(self, ids, w):
        gap = w - self.centre[ids]
        return 0.5 * (gap * times(self.curvature[ids], gap)).sum(1)

    def heldout(self, w, buffers):
        """Two classes: the model is right on the share 1/(1 + mean loss) of 1000 rows."""
        loss = float(self.losses(w).mean())
        right = 1000 / (1 + loss)
        one = [right, 1000.0, 1000.0 * loss]
        return torch.tensor([one, one], dtype=torch.float64)

    def exchange(self, ids, nbytes):
        self.log.append(nbytes)

    def erm(self, weights=None):
        """argmin Σ p_k f_k."""
        p = (
            torch.full((self.n,), 1 / self.n, dtype=torch.float64)
            if weights is None
            else torch.as_tensor(weights)
        )
        left = torch.einsum("k,kij->ij", p, self.curvature)
        right = torch.einsum("k,kij,kj->i", p, self.curvature, self.centre)
        return torch.linalg.solve(left, right)

    def loss(self, ids, w, buffers, batch_size=None, known=False):
        return self.losses_of(ids, w)

    @contextmanager
    def train(self, cohort, rule, received, known=None, own=None):
        yield QuadraticTraining(self, cohort, rule, {**(known or {}), **received}, own or {})


def times(matrices, vectors):
    """Each row's matrix by its vector; thousands of rounds of tiny ones cost what is called, not
    what is computed, and an einsum calls a lot.
    """
    return torch.matmul(matrices, vectors.unsqueeze(-1)).squeeze(-1)


class QuadraticTraining:
    def __init__(self, world, cohort, rule, received, own):
        self.world, self.cohort, self.rule = world, cohort, rule
        spec = ParamSpec.of({"w": torch.zeros(world.d)})
        fresh = rule.state(received, spec)
        first = {n: v.double() for n, v in fresh.items()}
        rows = [first | world.states.get(int(k), {}) for k in cohort.ids]
        state = {n: torch.stack([r[n] for r in rows]) for n in fresh}
        empty = torch.empty(0, dtype=torch.float64)
        ids = torch.from_numpy(cohort.ids)
        self.work = Work(
            spec,
            ids,
            torch.ones(len(ids)),
            received,
            state,
            empty,
            empty,
            torch.zeros(len(ids)),
            world.lr,
        )
        self.work.own = own
        self.work.start = rule.begin(self.work)
        self.work.w = self.work.start.clone()

    @property
    def start(self):
        return self.work.received["w"]

    def advance(self, steps=None):
        everyone = len(self.cohort)
        if steps is None:
            steps = self.world.steps - int(self.work.steps[0])
        each = torch.from_numpy(np.broadcast_to(steps, everyone).copy())
        curvature = self.world.curvature[self.cohort.ids]
        centre = self.world.centre[self.cohort.ids]
        for step in range(int(each.max())):
            gap = self.work.w - centre
            pull = times(curvature, gap)
            self.work.loss = 0.5 * (gap * pull).sum(1)
            g = self.rule.direction(pull, self.work)
            moving = (each > step).double()
            self.work.w -= self.world.lr * g * moving[:, None]
            self.rule.after_step(self.work)
            self.work.steps += moving

    def query(self, probe, weights=None, among=None):
        rows = probe.answer(self.work)
        rows = rows if among is None else rows[among]
        return rows if weights is None else torch.as_tensor(weights) @ rows

    def combine(self, rows, weights):
        return torch.as_tensor(weights) @ rows

    def evaluate(self):
        self.world.log.append(self.work.w.clone())

    def collect(self, weights=None):
        self.work.reach = self.work.steps * self.work.lr
        dice, compress = [self.world.dice] * len(self.cohort), self.world.uplink.compress
        uploads = {
            n: compress(v, dice) if v.dim() > 1 else v
            for n, v in self.rule.upload(self.work).items()
        }
        self.rule.sent(self.work, uploads)
        for c, k in enumerate(self.cohort.ids):
            mine = {n: v[c].clone() for n, v in self.work.state.items()}
            self.world.states[int(k)] = self.world.states.get(int(k), {}) | mine
        vectors = {n: v for n, v in uploads.items() if v.dim() > 1}
        scalars = {n: v for n, v in uploads.items() if v.dim() == 1}
        samples = np.ones(len(self.cohort))
        if weights is None:
            return Updates(self.cohort.ids, samples, None, vectors, scalars)
        p = torch.as_tensor(weights)
        return Updates(self.cohort.ids, samples, p, {n: p @ v for n, v in vectors.items()}, scalars)


def algorithm(name, world, cohort=None, output=None, seed=0, **options) -> Algorithm:
    """The registered algorithm ``name`` on a quadratic world, in float64."""
    chosen = variants(AlgorithmOptions)[name](**options)
    server = chosen.defaults.get("server_optimizer", ServerSgd())
    usual = chosen.defaults.get("output", Last())
    parts = Composition(
        world.n,
        cohort or world.n,
        Uniform(),
        Fixed(),
        Mean(),
        server,
        LocalConfig(steps=world.steps, lr=world.lr),
        usual if output is None else variants(Output)[output](),
    )
    spec = ParamSpec.of({"w": torch.zeros(world.d)})
    setting = Setting(seed, np.ones(world.n, np.int64), spec, parts, heldout=1000)
    start = torch.zeros(world.d, dtype=torch.float64)
    return chosen.start(setting, start, torch.zeros(0, dtype=torch.float64))


def run(name, world, rounds, cohort=None, **options) -> Algorithm:
    """``rounds`` rounds of an algorithm."""
    alg = algorithm(name, world, cohort, **options)
    for t in range(1, rounds + 1):
        alg.round(t, world)
        alg.count()
    return alg
