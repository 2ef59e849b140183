"""lp-proj's rounds, line by line: models of one's own, and a shared point of few numbers."""

import torch

from algorithms.draws import torch_generator
from tests.meanings.client import Sent, Trained, rate


def play(fed, t, ids, counts):
    """One round of the federation ``fed``."""
    there = {"w": fed.w, "buffers": fed.statistics}
    everyone = fed.all_of(ids)
    there |= fed._broadcast(t, everyone, 0, {"reference": fed.reference})
    sents = [_trained(fed, t, k, there) for k in everyone]
    counted = fed.arrived(t, sents, there)
    weights = fed._weights(ids, counts, None, [s.k for s in counted])
    fed._average(counted, weights)
    mean, _ = fed._aggregate(counted, weights, "reference")
    beta = fed.algorithm["mixing"]
    fed.reference = (1 - beta) * fed.reference + beta * mean


def matrix(fed):
    """P [d', d], whose rows have length 1."""
    draw = torch_generator(fed.config["seed"], "projection")
    rows = torch.randn(fed.algorithm["dimension"], len(fed.w), generator=draw)
    return rows / rows.square().sum(1, keepdim=True).sqrt()


def _trained(fed, t, k, there):
    """Turns of steps of θ and one of ω, of which the last may be short."""
    options, local, p, memory = fed.algorithm, fed.config["local"], matrix(fed), dict(fed.memory[k])
    omega, done = there["reference"], 0

    def pull(w):
        """Of P θ on ω."""
        gap = p @ w - omega
        return options["strength"] * (gap if options["p"] == 2 else gap.sign())

    def correct(g, w):
        nonlocal omega, done
        if done and done % options["steps_between"] == 0:
            omega = omega + rate(local, t, done) * pull(w)
        done += 1
        return g + p.T @ pull(w)

    first = there["buffers"] if fed.config["buffers"] == "aggregate" else fed.initial
    start = memory.get("model", there["w"]), memory.get("personal/buffers", first)
    work = Trained(fed.world, t, 0, k, *start, fed._moments(k, there), correct)
    if work.steps:
        omega = omega + rate(local, t, work.steps) * pull(work.w)
    memory["model"] = work.w
    if len(fed.initial):
        memory["personal/buffers"] = work.stats
    fed._remember_moments(memory, work.moments)
    sent = Sent(k, work.steps, work.loss, {"reference": omega}, memory=memory, change=work.change)
    return fed.with_common(sent, work)
