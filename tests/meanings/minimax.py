"""DRFA's, DRDM's, AFL's and SCAFF-PD's rounds, line by line: a game between the model and λ."""

import numpy as np
import torch

from algorithms.draws import generator
from tests.meanings import networks, sets

DRAWING = ("drfa", "drdm", "afl")
"""Which draw their cohorts in a way of their own."""
NAMES = (*DRAWING, "scaffpd")


def first(fed):
    """λ of before the first round."""
    n = fed.clients
    if fed.algorithm.get("initial_dual") == "samples":
        return sets.nearest(fed, fed.sizes[:n] / fed.sizes[:n].sum())
    return np.full(n, 1 / n)


def cohort(fed, t):
    """Who trains, as often as drawn: DRFA's and DRDM's by λ, AFL's everyone."""
    options, n = fed.algorithm, fed.clients
    if options["name"] == "afl":
        return list(range(n)), np.ones(n, int)
    m, floor = fed.config["cohort"], options["floor"]
    p = (1 - floor) * fed.dual + floor / n
    rng = generator(fed.config["seed"], "cohort", t)
    drawn = rng.choice(n, m, replace=options["replace"], p=p / p.sum())
    ids, counts = np.unique(drawn, return_counts=True)
    return [int(k) for k in ids], counts


def play(fed, t, ids, counts):
    """One round of the federation ``fed``."""
    options, steps, n = fed.algorithm, fed.config["local"]["steps"], fed.clients
    if options["name"] == "scaffpd":
        _primal_dual(fed, t, ids)
        return
    there = fed._broadcast(t, ids)
    sents = [fed._trained(t, k, there) for k in ids]
    fed.arrived(t, sents, there)
    if options["name"] == "afl":
        weights = {k: float(fed.dual[k]) for k in ids}
        losses, fed.shares = _losses(fed, t, ids, there["w"], there["buffers"]), weights
        fed.w = fed.w + _sum(sents, weights)
        fed.take(sents, weights)
        fed.dual = sets.nearest(fed, fed.dual + _size(options["dual_lr"], t) * losses)
        return
    weights = {k: c / counts.sum() for k, c in zip(ids, counts, strict=True)}
    fed.shares = weights
    # t', and how far each client is by then from what it was sent
    at = int(generator(fed.config["seed"], "snapshot", t).integers(1, steps + 1))
    middles = fed.lied(t, {s.k: s.path[at - 1] for s in sents}, ids)
    moved = {k: v - there["w"] for k, v in middles.items()}
    for k in ids:
        fed.up[k] += 4 * len(fed.w)
    middle = sum(weights[k] * moved[k] for k in ids)
    end = _sum(sents, weights)
    if options["name"] == "drfa":
        snapshot, fed.w = fed.w + middle, fed.w + end
    elif options["control"] == "published":
        # lines 17 to 20
        mu, part = options["mu"], fed.config["cohort"] / n
        snapshot = fed.w + middle - (fed.control - mu * part * middle) / mu
        fed.control = fed.control - mu * part * end
        fed.w = fed.w + end - fed.control / mu
    else:
        mu, dual = options["mu"], fed.dual
        base = sum(dual[k] * fed.gradients[k] for k in range(n)).float()
        then = base - mu * sum(dual[k] * moved[k] for k in ids)
        snapshot = fed.w + middle - then / mu
        for s in sents:
            fed.gradients[s.k] = fed.gradients[s.k] - mu * s.parts["delta"]
        fed.control = sum(dual[k] * fed.gradients[k] for k in range(n)).float()
        fed.w = fed.w + end - fed.control / mu
    fed.take(sents, weights)
    _estimate(fed, t, snapshot)


def _primal_dual(fed, t, ids):
    """SCAFF-PD: what they lose and their gradients first; then λ, and steps with the mixed
    gradient in the place of their own.
    """
    options = fed.algorithm
    there, anchors = fed._broadcast(t, ids), {}
    new = _losses(fed, t, ids, there["w"], there["buffers"])

    def stay(k):
        def noted(g, w):
            anchors[k] = anchors[k] + g
            return torch.zeros_like(g)

        anchors[k] = torch.zeros_like(fed.w)
        return noted

    def told(k):
        s, done = fed.worked_on(t, 0, k, there, stay(k), options["anchor_batches"])
        s.memory["anchor"] = anchors[k] / max(1, done.steps)
        s.parts["gradient"] = s.memory["anchor"]
        return s

    sents = [told(k) for k in ids]
    lost = dict(zip(ids, new, strict=True))
    weights = _mixed(fed, t, ids, lost)
    counted = fed.arrived(t, sents, there)
    control = sum(weights[s.k] * s.parts["gradient"] for s in counted)
    there |= fed._broadcast(t, ids, 1, {"control": control})

    def corrected(k):
        own = fed.memory[k].get("anchor", torch.zeros_like(fed.w))
        s, done = fed.worked_on(t, 1, k, there, lambda g, w: g - own + there["control"])
        s.parts["delta"] = done.w - there["w"]
        return s

    counted = fed.arrived(t, [corrected(k) for k in ids], there)
    fed.w = fed.w + options["server_scale"] * _sum(counted, weights)
    fed.shares = {s.k: weights[s.k] for s in counted}
    fed.take(counted, weights)
    fed.losses |= lost


def _mixed(fed, t, ids, lost):
    """The next λ, and its part of the cohort {k: weight}."""
    options, n = fed.algorithm, fed.clients
    sigma, rho, theta = _size(options["dual_lr"], t), options["rho"], options["theta"]
    mean = np.mean(list(lost.values()))
    s = np.array([fed.losses.get(k, mean) for k in range(n)])
    for k in ids:
        # nothing is extrapolated of who has never answered
        s[k] = lost[k] + theta * (lost[k] - fed.losses.get(k, lost[k]))
    fed.dual = sets.nearest(fed, (fed.dual + sigma * s + sigma * rho) / (1 + sigma * rho * n))
    mine = fed.dual[ids]
    mine = mine / mine.sum() if mine.sum() > 0 else np.full(len(ids), 1 / len(ids))
    return dict(zip(ids, mine, strict=True))


def _sum(sents, weights):
    return sum(weights[s.k] * s.parts["delta"] for s in sents)


def _estimate(fed, t, snapshot):
    """Algorithm 3: some clients are sent w', and say what they lose there."""
    n, m, options = fed.clients, fed.config["cohort"], fed.algorithm
    asked = generator(fed.config["seed"], "dual cohort", t).choice(n, m, replace=False)
    asked = [int(k) for k in sorted(asked)]
    whole = 4 * len(snapshot)
    if fed.config["buffers"] == "aggregate":
        whole += fed.statistics.numel() * fed.statistics.element_size()
    for k in asked:
        fed.down[k] += whole
    v = np.zeros(n)
    v[asked] = n / m * _losses(fed, t, asked, snapshot, fed.statistics)
    step = fed.config["local"]["steps"] * _size(options["gamma"], t)
    fed.dual = sets.nearest(fed, fed.dual + step * v)


def _size(step, t):
    """Of a step of λ in round t."""
    return step["start"] / t ** step["power"] if isinstance(step, dict) else step


def _losses(fed, t, ids, w, common):
    """Of a mini-batch or all rows of each client's, with the statistics that it has."""
    batch, told = fed.config["local"]["batch_size"], []
    for k in ids:
        rows = fed.world.data.train[k]
        if batch < len(rows) and not fed.algorithm.get("full_loss"):
            rows = generator(fed.config["seed"], "loss", t, k).choice(rows, batch, replace=False)
        stats = common
        if fed.config["buffers"] != "aggregate" and len(fed.initial):
            stats = fed.memory[k].get("buffers", fed.initial)
        x, y = fed.world.batch(rows, k)
        told.append(networks.judged(fed.world.module, w, stats, x, y)[0].mean()[None])
        fed.up[k] += 4
    answers = fed.lied(t, dict(zip(ids, told, strict=True)), ids)
    return np.array([float(answers[k]) for k in ids])
