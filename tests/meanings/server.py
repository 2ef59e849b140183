"""What a server makes of the rows it got: means, robust aggregates, and the step of its optimiser."""

import torch

from tests.meanings.channel import SURE


def median(rows):
    """Coordinate-wise [d]; of an even number the mean of the two in the middle."""
    ordered, m = rows.sort(0).values, len(rows)
    return (ordered[(m - 1) // 2] + ordered[m // 2]) / 2


def robust(aggregator, rows, doubts):
    """(aggregate [d], weights [m] of who was chosen, or None) of rows [m, d]."""
    usable = rows.isfinite().all(1)
    m, bad = len(rows), int((~usable).sum())
    if bad == m:
        return torch.zeros(rows.shape[1]), torch.zeros(m)
    x = rows[usable]
    if aggregator["name"] == "median":
        return median(x), None
    # rows that are not finite are among the f that were reckoned with
    f = max(0, round(aggregator["byzantine"] * m) - bad)
    extra = 1 if aggregator["name"] == "trimmed_mean" else 3
    if len(x) < 2 * f + extra:
        return median(x), None
    if aggregator["name"] == "trimmed_mean":
        return x.sort(0).values[f : len(x) - f].mean(0), None
    scores = [_krum(x, i, f) for i in range(len(x))]
    order = sorted(range(len(x)), key=lambda i: (scores[i], i))
    keep = 1
    if aggregator["name"] == "multi_krum":
        keep = min(aggregator["keep"] or len(x) - f, len(x))
    if (
        keep < len(x)
        and scores[order[keep]] - scores[order[keep - 1]] <= SURE * scores[order[keep]]
    ):
        doubts.append(f"krum: {scores}")
    chosen = usable.nonzero()[:, 0][order[:keep]]
    weights = torch.zeros(m)
    weights[chosen] = 1 / keep
    return rows[chosen].mean(0), weights


def _krum(x, i, f):
    squares = sorted(float(((x[i] - x[j]).double() ** 2).sum()) for j in range(len(x)) if j != i)
    return sum(squares[: max(1, len(x) - f - 2)])


class Optimizer:
    """The update Δ is read as a negative gradient."""

    def __init__(self, options, w):
        self.options = options
        self.first, self.second = torch.zeros_like(w), torch.zeros_like(w)

    def step(self, w, update):
        o = self.options
        if o["name"] == "sgd":
            rho = o["momentum"]
            self.first = rho * self.first + update
            ahead = update + rho * self.first if o["nesterov"] else self.first
            return w + o["lr"] * ahead
        square = update * update
        if o["name"] == "adagrad":
            self.first, self.second = update, self.second + square
        else:
            self.first = o["beta1"] * self.first + (1 - o["beta1"]) * update
            grown = square - self.second
            if o["name"] == "yogi":
                grown = square * torch.sign(grown)
            self.second = self.second + (1 - o["beta2"]) * grown
        if o["name"] == "adamw":
            w = w * (1 - o["lr"] * o["weight_decay"])
        return w + o["lr"] * self.first / (self.second.sqrt() + o["eps"])
