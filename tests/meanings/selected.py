"""FedAA's rounds, line by line, with whoever weighs and learns nothing; and the server that trains
alone on the rows that it holds out.
"""

import itertools
import math

import numpy as np
import torch

from algorithms.draws import generator
from tests.meanings import networks
from tests.meanings.channel import SURE
from tests.meanings.client import Trained


def step(fed, t, counted):
    """From those that count to the next model: the nearest are selected, and weighed."""
    options, chosen, sums = fed.algorithm, *_selected(fed, t, counted)
    if chosen:
        sents = [counted[i] for i in chosen]
        away = np.array(sums) / max(sums) if max(sums) > 0 else np.ones(len(sums))
        p = _WEIGHERS[options["agent"]["name"]](fed, t, sents, away, options["agent"])
        p = p / p.sum()
        fed.w, fed.statistics = _made(fed, sents, p, keep=True)
        used = dict(zip((s.k for s in sents), p.tolist(), strict=True))
        fed.shares = {s.k: used.get(s.k, 0.0) for s in counted}
    _rate(fed, sums)


def alone(fed, t):
    """The server's work on its own model."""
    server, memory = fed.clients, fed.memory[fed.clients]
    moments, aside = fed._moments(server, {}), fed.config["buffers"] != "aggregate"
    stats = memory.get("buffers", fed.initial) if aside else fed.statistics
    done = Trained(fed.world, t, 0, server, fed.w, stats, moments, lambda g, w: g)
    if aside and len(stats):
        memory["buffers"] = done.stats
    fed._remember_moments(memory, done.moments)
    fed.w, fed.alone = done.w, done.steps
    if fed.config["buffers"] != "exclude":
        fed.statistics = done.stats
    fed._require_finite()


def accuracy(fed, w, statistics):
    hits, _ = _heldout(fed, w, statistics)
    return float(hits.double().mean())


def _loss(fed, w, statistics):
    _, losses = _heldout(fed, w, statistics)
    mean = float(losses.double().mean())
    return mean if math.isfinite(mean) else math.inf


def _heldout(fed, w, statistics):
    x, y = fed.world.batch(fed.world.data.heldout_rows)
    losses, hits = networks.judged(fed.world.module, w, statistics, x, y)
    return hits, losses


def _selected(fed, t, counted):
    """Places among those that count, the nearest to all others first, and their sums of distances."""
    options, some = fed.algorithm, list(range(len(counted)))
    if options["candidates"] < 1:
        rng = generator(fed.config["seed"], "candidates", t)
        size = min(len(some), _part(options["candidates"], len(some)))
        some = sorted(rng.choice(len(some), size, replace=False).tolist())
    mask = _looked_at(fed, options["layers"])
    rows = {i: counted[i].parts["delta"] for i in some}
    fine = [i for i in some if rows[i].isfinite().all()]
    away = {i: [float((rows[i] - rows[j])[mask].double().norm()) for j in fine] for i in fine}
    sums = sorted((math.fsum(away[i]), i) for i in fine)
    slots = _slots(fed)
    for (one, _), (other, _) in itertools.pairwise(sums[: slots + 1]):
        if other - one <= SURE * other:
            fed.doubts.append(f"nearest: {one} and {other}")
    return [i for _, i in sums[:slots]], [one for one, _ in sums[:slots]]


def _slots(fed):
    """How many get a weight."""
    cohort, options = fed.config["cohort"], fed.algorithm
    cohort = max(1, round(cohort * fed.clients)) if isinstance(cohort, float) else cohort
    return _part(options["select"], _part(options["candidates"], cohort))


def _part(share, whole):
    return max(1, round(share * whole))


def _looked_at(fed, layers):
    """Mask [d] of the entries that distances look at."""
    module = fed.world.module
    parameters = [*module.named_parameters()]
    if layers == "all":
        return torch.ones(len(fed.w), dtype=torch.bool)
    if layers == "last_hidden":
        mixing = [m for m in module if any(p.dim() > 1 for p in m.parameters())]
        hidden = mixing[-2] if len(mixing) > 1 else mixing[-1]
        inside = {id(p) for p in hidden.parameters()}
    else:  # what names end with
        inside = {id(p) for name, p in parameters if name.endswith(layers.removesuffix("$"))}
    return networks.flat([torch.full_like(p, id(p) in inside) for _, p in parameters]).bool()


def _made(fed, sents, p, keep=False):
    """(model, statistics) that the server would make of the updates ``sents`` in parts ``p``;
    with ``keep`` it does.
    """
    update = sum(float(share) * s.parts["delta"] for share, s in zip(p, sents, strict=True))
    before = fed.optimizer.first, fed.optimizer.second
    w = fed.optimizer.step(fed.w, update)
    if not keep:
        fed.optimizer.first, fed.optimizer.second = before
    if "buffers" not in sents[0].parts:
        return w, fed.statistics
    fine = np.array([bool(s.parts["buffers"].isfinite().all()) for s in sents]) * p
    if not fine.any():
        return w, fed.statistics
    each = zip(fine / fine.sum(), sents, strict=True)
    return w, sum(float(share) * s.parts["buffers"] for share, s in each if share)


def _rate(fed, sums):
    before, fed.accuracy = fed.accuracy, accuracy(fed, fed.w, fed.statistics)
    change = fed.algorithm["reward"] == "change"
    fed.told["reward"] = fed.accuracy - (before if change else 0.0)
    state = np.ones(_slots(fed))
    if sums:
        state[: len(sums)] = np.array(sums) / max(sums) if max(sums) > 0 else 1.0
    fed.told["state_spread"] = float(np.ptp(state))
    if fed.algorithm["per_class"]:
        y = fed.world.data.samples.y[fed.world.data.heldout_rows]
        hits, _ = _heldout(fed, fed.w, fed.statistics)
        for label in np.unique(y):
            fed.told[f"heldout_class_{label}"] = float(hits.numpy()[y == label].mean())


# Who weighs: (fed, t, sents, distances [K], options) -> weights [K].


def _uniform(fed, t, sents, away, options):
    return np.ones(len(sents))


def _random(fed, t, sents, away, options):
    return generator(fed.config["seed"], "weights", t).dirichlet(np.ones(len(sents)))


def _by_samples(fed, t, sents, away, options):
    return np.array([float(fed.sizes[s.k]) for s in sents])


def _by_distance(fed, t, sents, away, options):
    return np.exp(-options["kappa"] * away)


def _greedy(fed, t, sents, away, options):
    lines = [np.exp(-kappa * away) for kappa in options["kappas"]]
    lines = [p / p.sum() for p in lines]
    rated = [accuracy(fed, *_made(fed, sents, p)) for p in lines]
    return lines[rated.index(max(rated))]


def _greedy_selection(fed, t, sents, away, options):
    k, ways, chosen = len(sents), [], []
    for _ in range(k):
        tried = [[*chosen, c] for c in range(k) if c not in chosen]
        costs = [_cost(fed, sents, one, options) for one in tried]
        least, *others = sorted(costs)
        if options["criterion"] == "loss" and others and others[0] - least <= SURE * abs(least):
            fed.doubts.append(f"joins: {costs}")
        chosen = tried[costs.index(least)]
        ways.append((least, chosen))
    least, *others = sorted(cost for cost, _ in ways)
    if options["criterion"] == "loss" and others and others[0] - least <= SURE * abs(least):
        fed.doubts.append(f"ways: {ways}")
    best = next(one for cost, one in ways if cost == least)
    return np.array([float(c in best) for c in range(k)])


def _cost(fed, sents, some, options):
    p = np.array([float(c in some) / len(some) for c in range(len(sents))])
    made = _made(fed, sents, p)
    return _loss(fed, *made) if options["criterion"] == "loss" else -accuracy(fed, *made)


def _by_gradient(fed, t, sents, away, options):
    k, eta, h = len(sents), options["rate"], options["width"]
    p = np.ones(k) / k
    here = _loss(fed, *_made(fed, sents, p))
    for _ in range(options["steps"]):
        there = [_loss(fed, *_made(fed, sents, (1 - h) * p + h * e)) for e in np.eye(k)]
        if any(abs(one - here) <= 1e-6 * here for one in there) or not np.isfinite(there).all():
            # what is left of them is rounding
            fed.doubts.append(f"slopes: {there} beside {here}")
        slopes = (np.array(there) - here) / h
        if not np.isfinite(slopes).all():
            known = np.abs(slopes[np.isfinite(slopes)]).max(initial=0.0)
            slopes = np.where(np.isfinite(slopes), slopes, known)
        if not slopes.any():
            break
        for _ in range(20):
            after = np.log(np.maximum(p, 1e-300)) - eta * slopes / np.abs(slopes).max()
            after = np.exp(after - after.max())
            after = after / after.sum()
            lower = _loss(fed, *_made(fed, sents, after))
            if abs(lower - here) <= 1e-6 * abs(here):
                fed.doubts.append(f"falls: {lower} from {here}")
            if lower < here:
                p, here, eta = after, lower, 2 * eta
                break
            eta /= 2
    return p


_WEIGHERS = {
    "uniform": _uniform,
    "random": _random,
    "samples": _by_samples,
    "distance": _by_distance,
    "greedy": _greedy,
    "greedy_selection": _greedy_selection,
    "exponentiated_gradient": _by_gradient,
}
