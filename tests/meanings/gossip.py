"""DR-DSGD on a ring, line by line: steps that weigh high losses, and means with the neighbours."""

import numpy as np
import torch

from tests.meanings.client import Sent, Trained


def play(fed, t, ids, counts):
    """One round of the federation ``fed``."""
    options, n = fed.algorithm, fed.clients
    if not fed.models:
        fed.models = dict.fromkeys(range(n), fed.w)
    sents, moved = [], {}

    def correct(g, w):
        if not options["robust"]:
            return g
        with np.errstate(over="ignore"):
            return g * float(np.exp(fed.world.lost / options["mu"])) / options["mu"]

    for k in ids:
        memory = dict(fed.memory[k])
        stats = memory.get("personal/buffers", fed.initial)
        done = Trained(fed.world, t, 0, k, fed.models[k], stats, fed._moments(k, {}), correct)
        if len(fed.initial):
            memory["personal/buffers"] = done.stats
        fed._remember_moments(memory, done.moments)
        moved[k] = done.w
        sent = Sent(k, done.steps, done.loss, {"delta": done.w - fed.models[k]}, memory=memory)
        sents.append(fed.with_common(sent, done))
    fed._committed(sents)
    if "buffers" in sents[0].parts:
        fed.statistics = sum(s.parts["buffers"] for s in sents) / n
    # the two beside it and itself; with fewer than three there is one, or nobody
    for k in range(n):
        beside = {(k - 1) % n, (k + 1) % n} - {k}
        share = 1 / (len(beside) + 1)
        fed.models[k] = share * (moved[k] + sum(moved[j] for j in beside))
        for way in (fed.down, fed.up):
            way[k] += 4 * len(fed.w) * len(beside)
    fed.w = torch.stack([fed.models[k] for k in range(n)]).mean(0)
