"""FedDUAL: a loss in two parts at the clients, and barycenters of the last layers at the server."""

import torch

from tests.meanings import networks
from tests.meanings.channel import SURE
from tests.meanings.client import each_pass


def client(fed, k, start):
    """(before, correct): what client k looks at before a step, and what it makes of a gradient."""
    options, rows = fed.algorithm, fed.world.rows(k)
    epoch = max(1, each_pass(fed.config["local"], len(rows)))
    beta, first = 0.5, None

    def before(s, w, stats):
        nonlocal beta, first
        if options["beta"] == "half" or not options["adaptive_loss"] or (s - 1) % epoch:
            return
        x, y = fed.world.batch(rows, k)
        fed.open_ended |= networks.ties(fed.world.module, w, stats, x)
        accuracy = networks.judged(fed.world.module, w, stats, x, y)[1].double().mean()
        first = accuracy if first is None else first
        beta = float(torch.sigmoid(accuracy - first))

    def correct(g, w):
        if not options["adaptive_loss"]:
            return g
        w = w.detach().double().requires_grad_()
        p, q = w.softmax(0), start.double().softmax(0)
        (pull,) = torch.autograd.grad((p * (p.log() - q.log())).sum(), w)
        return (1 - beta) * g + beta * options["kl_scale"] * pull.float()

    return before, correct


def barycenter(fed, rows, sizes):
    """(update [d], shares [m]): of values that are given to the entries in the order of means."""
    options, m = fed.config["aggregator"], len(rows)
    even = torch.full((m,), 1 / m).double()
    shares = sizes.double() / sizes.sum() if options["by_samples"] else even
    update = shares @ rows.double()
    for some in _last(fed.world.module, options["layers"]):
        means, each = update[some].clone(), rows[:, some].double()
        places = means.argsort(stable=True)
        gaps = means[places].diff()
        if len(gaps) and bool((gaps <= SURE * means.abs().max()).any()):
            fed.doubts.append("barycenter: two entries have the same mean")
        found = torch.empty_like(means)
        found[places] = shares @ each.sort(1).values
        update[some] = found
    return update.float(), shares


def _last(module, layers):
    """Slices of the tensors of the last layers that have any, each by itself."""
    sizes = [[p.numel() for p in m.parameters(recurse=False)] for m in module.modules()]
    at, slices = 0, []
    for its in filter(None, sizes):
        mine = []
        for size in its:
            mine.append(slice(at, at + size))
            at += size
        slices.append(mine)
    return [one for mine in slices[-layers:] for one in mine]
