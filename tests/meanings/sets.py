"""Nearest points of sets of mixtures: thresholds and multipliers, by bisection."""

from fractions import Fraction

import numpy as np
from scipy.special import wrightomega


def nearest(fed, v):
    """The nearest point to ``v`` of the set that the federation ``fed`` plays over."""
    given, n = fed.algorithm["uncertainty"], fed.clients
    if not np.isfinite(v).all():
        return np.full(n, np.nan)
    match given["name"]:
        case "simplex":
            return _simplex(v)
        case "cvar":
            cap = 1 / (given["alpha"] * n)
            return np.full(n, 1 / n) if cap * n <= 1 else _threshold(v, cap)
        case "chi2":
            return _ball(
                lambda a: _simplex((v + a / n) / (1 + a)),
                lambda x: n * np.square(x - 1 / n).sum() - given["radius"],
            )
        case "kl":
            return _ball(
                lambda a: _pulled(v, a),
                lambda x: sum(y * np.log(n * y) for y in x if y > 0) - given["radius"],
            )
        case "groups":
            return _spread(v, _groups(fed, given))


def _spread(v, groups):
    """Of λ that is one number in each group: the nearest to the groups' means."""
    means = np.array([v[ids].mean() for ids in groups])
    share = _threshold(means, None, [len(ids) for ids in groups])
    x = np.empty(len(v))
    for ids, part in zip(groups, share, strict=True):
        x[ids] = part
    return x


def _groups(fed, given):
    n = fed.clients
    if given["lists"] is not None:
        return [list(ids) for ids in given["lists"]]
    if given["by"] == "label":
        common = []
        for k in range(n):
            labels = [int(y) for y in fed.world.data.samples.y[fed.world.data.train[k]]]
            common.append(min(set(labels), key=lambda y: (-labels.count(y), y)))
        return [[k for k in range(n) if common[k] == y] for y in sorted(set(common))]
    order = sorted(range(n), key=lambda k: (len(fed.world.data.train[k]), k))
    count, groups = given["count"], []
    for left in range(count, 0, -1):
        # the first are the larger ones, where they cannot be equal
        size = -(-len(order) // left)
        groups.append(order[:size])
        order = order[size:]
    return groups


def _ball(at, beyond):
    """``at`` of the multiplier a ≥ 0 from which on it is not ``beyond`` its bound."""
    if beyond(at(0.0)) <= 0:
        return at(0.0)
    low, high = -60.0, 120.0  # numbers of float32 are up to e^89
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(at(np.exp(middle))) > 0 else (low, middle)
    return at(np.exp(high))


def _pulled(v, a):
    """argmin ½‖x − v‖² + a Σ x log x on the simplex."""
    if a == 0:
        return _simplex(v)

    def at(nu):
        return a * wrightomega((v - nu) / a - np.log(a))

    return at(_zero(lambda nu: 1 - at(nu).sum(), v.min() - 2 - 60 * a, v.max() + 60 * a))


def _simplex(v):
    return _threshold(v, None)


def _threshold(v, cap, counts=None):
    """min(max(v − θ, 0), cap), with the θ that leaves a sum of 1 where each entry counts so often.

    In fractions, as an entry may be so large that its float has no room for a difference of 1.
    """
    if not np.isfinite(v).all():
        return v * np.nan
    exact, top = [Fraction(float(x)) for x in v], None if cap is None else Fraction(cap)
    counts = counts or [1] * len(v)

    def at(theta):
        full = [max(x - theta, Fraction(0)) for x in exact]
        return full if top is None else [min(x, top) for x in full]

    def total(theta):
        return sum(c * x for c, x in zip(counts, at(theta), strict=True))

    corners = {*exact, min(exact) - 1, *(x - top for x in exact if top is not None)}
    right = min(c for c in corners if total(c) < 1)
    left = max(c for c in corners if total(c) >= 1)
    # between two corners it is a line
    theta = right - (right - left) * (1 - total(right)) / (total(left) - total(right))
    return np.array([float(x) for x in at(theta)])


def _zero(rising, low, high):
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low
