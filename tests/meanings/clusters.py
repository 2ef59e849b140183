"""Clustered FL, line by line: FedAvg within clusters, each of which may fall in two."""

import itertools

import torch
import torch.nn.functional as F

from tests.meanings.channel import SURE


def play(fed, t, ids, counts):
    """One round of the federation ``fed``."""
    if not fed.models:
        fed.models = {0: fed.w}
    old, found = dict(fed.models), []
    for c, w in old.items():
        mine = [k for k in ids if fed.cluster[k] == c]
        there = fed._broadcast(t, mine, c, {"w": w, "buffers": fed.statistics})
        sents = [fed._trained(t, k, there, session=c) for k in mine]
        counted = fed.arrived(t, sents, there)
        rows = torch.stack([s.parts["delta"] for s in counted])
        fed.models[c] = w + rows.mean(0)
        found += [s.parts.get("buffers", fed.statistics) for s in counted]
        leaving = _cut(fed, rows)
        if leaving:
            new = len(fed.models)
            fed.models[new] = fed.models[c]
            for place in leaving:
                fed.cluster[mine[place]] = new
    fed.statistics = torch.stack(found).mean(0)
    fed.w = torch.stack([fed.models[fed.cluster[k]] for k in ids]).mean(0)


def _cut(fed, rows):
    """Who leaves: of all ways to cut that with the least similarity across it, and of its halves
    the one without the first client.
    """
    options, m = fed.algorithm, len(rows)
    lengths, whole = rows.norm(dim=1), float(rows.mean(0).norm())
    for value, bound in ((whole, options["eps1"]), (float(lengths.max()), options["eps2"])):
        fed.open_ended |= abs(value - bound) <= SURE * bound
    if m < options["least"] or whole >= options["eps1"] or lengths.max() <= options["eps2"]:
        return ()
    unit = F.normalize(rows.double(), eps=1e-12)
    alike = unit @ unit.T
    ways = [
        set(some)
        for size in range(1, m)
        for some in itertools.combinations(range(1, m), size)
    ]  # fmt: skip
    across = [max(float(alike[i, j]) for i in one for j in set(range(m)) - one) for one in ways]
    best = min(across)
    if sum(value - best <= SURE for value in across) > 1:
        fed.open_ended = True
    return sorted(ways[across.index(best)])
