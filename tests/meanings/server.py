"""What a server makes of the rows it got: means, robust aggregates, and the step of its optimiser."""

import torch
import torch.nn.functional as F

from tests.meanings.channel import SURE


def median(rows):
    """Coordinate-wise [d]; of an even number the mean of the two in the middle."""
    ordered, m = rows.sort(0).values, len(rows)
    return (ordered[(m - 1) // 2] + ordered[m // 2]) / 2


def robust(aggregator, rows, doubts, sizes, memory, root):
    """(aggregate [d], shares [m] of the rows in it, or None) of rows [m, d], of clients with
    ``sizes`` [m] rows; ``root`` [d] is the server's own update.
    """
    usable = rows.isfinite().all(1)
    m, bad = len(rows), int((~usable).sum())
    if bad == m:
        return torch.zeros(rows.shape[1]), torch.zeros(m)
    x = rows[usable]
    if aggregator["name"] in SOFT:
        aggregate, shares = SOFT[aggregator["name"]](
            aggregator, x.double(), sizes[usable], memory, root
        )
        if shares is not None:
            shares = torch.zeros(m).double().masked_scatter(usable, shares)
        return aggregate.float(), shares
    if aggregator["name"] == "median":
        return median(x), None
    # rows that are not finite are among the f that were reckoned with
    f = max(0, round(aggregator["byzantine"] * m) - bad)
    each, extra = (4, 3) if aggregator["name"] == "bulyan" else (2, 1)
    extra = 3 if "krum" in aggregator["name"] else extra
    if len(x) < each * f + extra:
        return median(x), None
    if aggregator["name"] == "trimmed_mean":
        return x.sort(0).values[f : len(x) - f].mean(0), None
    if aggregator["name"] == "faba":
        return _faba(rows, usable, f, doubts)
    if aggregator["name"] == "bulyan":
        return _bulyan(x, f, doubts), None
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


def _faba(rows, usable, f, doubts):
    left = usable.nonzero()[:, 0].tolist()
    for _ in range(f):
        x = rows[left].double()
        away = (x - x.mean(0)).norm(dim=1)
        order = away.argsort(descending=True, stable=True)
        if away[order[0]] - away[order[1]] <= SURE * away[order[0]]:
            doubts.append(f"faba: {away.tolist()}")
        del left[int(order[0])]
    return rows[left].mean(0), torch.zeros(len(rows)).index_fill(
        0, torch.tensor(left), 1 / len(left)
    )


def _bulyan(x, f, doubts):
    """Of those that Krum picks one by one, what is nearest to their median, in each coordinate."""
    left, picked = list(range(len(x))), []
    while len(picked) < len(x) - 2 * f:
        scores = [_krum(x[left], i, f) for i in range(len(left))]
        best, *others = sorted(scores)
        if others and others[0] - best <= SURE * best:
            doubts.append(f"bulyan: {scores}")
        picked.append(left.pop(scores.index(best)))
    # a row's place decides between two values that are as near
    x = x[sorted(picked)]
    keep, away = len(x) - 2 * f, (x - median(x)).abs()
    near = away.argsort(dim=0, stable=True)
    if f:
        last, next_ = (near[i : i + 1] for i in (keep - 1, keep))
        gap = (away.gather(0, next_) - away.gather(0, last))[0]
        apart = (x.gather(0, next_) - x.gather(0, last)).abs()[0]
        if bool(((gap <= SURE * apart) & (apart > 0)).any()):
            doubts.append("bulyan: as near to the median")
    return x.gather(0, near[:keep]).mean(0)


def _clipped(options, x, sizes, memory, root):
    """Each row is shortened to the radius, or to the lower of the two lengths in the middle."""
    lengths = x.norm(dim=1)
    radius = options["radius"] or float(lengths.sort().values[(len(x) - 1) // 2])
    short = [
        row * min(1.0, radius / max(float(n), 1e-30)) for row, n in zip(x, lengths, strict=True)
    ]
    return torch.stack(short).mean(0), torch.full((len(x),), 1 / len(x)).double()


def _centred(options, x, sizes, memory, root):
    v = memory.get("centre", torch.zeros_like(x[0])) if options["start"] == "previous" else 0 * x[0]
    for _ in range(options["iterations"]):
        steps = [
            (row - v) * min(1.0, options["radius"] / max(float((row - v).norm()), 1e-30))
            for row in x
        ]
        v = v + torch.stack(steps).mean(0)
    memory["centre"] = v
    return v, None


def _nearest_to_all(options, x, sizes, memory, root):
    """Weiszfeld's steps from the coordinates' median."""
    alpha = sizes.double() if options["by_samples"] else torch.ones(len(x)).double()
    point, shares = median(x), torch.zeros(len(x)).double()
    for _ in range(options["iterations"]):
        pull = alpha / (x - point).norm(dim=1).clamp_min(options["smoothing"])
        before, shares = shares, pull / pull.sum()
        point = shares @ x
        if ((shares - before).abs() <= options["tolerance"] * before).all():
            break
    return point, shares


def _trusted(options, x, sizes, memory, root):
    """As long as the server's own, by their cosine with it."""
    if root is None or not root.isfinite().all():
        return torch.zeros_like(x[0]), torch.zeros(len(x)).double()
    root = root.double()
    trust = F.cosine_similarity(x, root[None], eps=1e-60).clamp_min(0)
    shares = trust / trust.sum().clamp_min(1e-30)
    return shares @ F.normalize(x, eps=1e-30) * root.norm(), shares


SOFT = {
    "norm_clipping": _clipped,
    "centered_clipping": _centred,
    "geometric_median": _nearest_to_all,
    "fltrust": _trusted,
}
"""Which choose nobody: (options, rows [m, d], sizes [m], memory, root) -> (aggregate, shares)."""


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
