"""The probability simplex {x ≥ 0, Σ x = 1}, and Euclidean projections onto it and parts of it.

Each is exact up to rounding: by the sorted entries, but for the KL ball, where the stationary point
is found by Newton's method.
"""

from __future__ import annotations

import numpy as np

from algorithms.finite import NotFinite


def project(v: np.ndarray) -> np.ndarray:
    """The point of {x ≥ 0, Σ x = 1} nearest to ``v`` [N] in the Euclidean norm (Held et al. 1974;
    Duchi et al. 2008).

    Raises NotFinite if ``v`` is not.
    """
    v = _finite(v)
    v = v - v.max()  # the projection is invariant, and huge entries would swallow the 1
    u = np.sort(v)[::-1]
    # θ is the one number with Σ max(v − θ, 0) = 1: tried for each count of positive entries, the
    # last that leaves its smallest entry positive
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    theta = excess[np.flatnonzero(u > excess)[-1]]
    return np.maximum(v - theta, 0.0)


def project_capped(v: np.ndarray, cap: float) -> np.ndarray:
    """The point of {0 ≤ x ≤ ``cap``, Σ x = 1} nearest to ``v`` [N]; needs N · ``cap`` ≥ 1.

    x_i = min(max(v_i − θ, 0), cap), whose sum falls with θ, linearly between the numbers v_i and
    v_i − cap. Raises NotFinite if ``v`` is not.
    """
    v = _finite(v)
    if cap * len(v) <= 1:
        return np.full(len(v), 1 / len(v))
    v = _closer(v, 2 * cap)
    corners = np.concatenate([v, v - cap])
    order = np.argsort(-corners, kind="stable")
    corners = corners[order]
    # as θ falls, an entry begins to grow at v_i and stops at v_i − cap
    growing = np.cumsum(np.repeat([1.0, -1.0], len(v))[order])
    sums = np.append(0.0, np.cumsum(growing[:-1] * -np.diff(corners)))
    middle = corners[np.flatnonzero(sums < 1)[-1]]
    # which entries are at a bound is known by now; θ of the others is computed anew from them
    full, free = v - cap >= middle, (v >= middle) & (v - cap < middle)
    theta = (v[free].sum() + cap * full.sum() - 1) / free.sum()
    return np.clip(v - theta, 0.0, cap)


def _closer(v: np.ndarray, most: float) -> np.ndarray:
    """``v`` [N] less its maximum, with no gap between neighbours in order larger than ``most``.

    Beyond the cap a gap changes nothing: those above it are full before those below grow. A huge
    one would swallow the cap.
    """
    order = np.argsort(-v, kind="stable")
    closer = np.empty_like(v)
    closer[order] = np.append(0.0, np.cumsum(np.maximum(np.diff(v[order]), -most)))
    return closer


def project_chi2(v: np.ndarray, radius: float) -> np.ndarray:
    """The point of the simplex with N Σ (x_i − 1/N)² ≤ ``radius`` nearest to ``v`` [N].

    Where the ball binds it is Π(s v) for an s < 1, Π being the projection onto the simplex: with k
    positive entries, of mean m_k and squared deviation V_k in v, N Σ (x_i − 1/N)² is N (s² V_k +
    1/k) − 1. Raises NotFinite if ``v`` is not.
    """
    x, n = project(v), len(v)
    # at a corner of the simplex the divergence is N − 1, but for the rounding of a sum of n numbers
    if n * np.square(x - 1 / n).sum() <= radius + 4 * n * np.finfo(float).eps * (radius + 1):
        return x
    u = np.sort(v)[::-1] - np.max(v)
    k = np.arange(1, n + 1)
    # means and deviations of the k largest by Welford's recursion: sums of squares would cancel
    mean = np.cumsum(u) / k
    deviation = np.cumsum(np.append(0.0, (u[1:] - mean[:-1]) * (u[1:] - mean[1:])))
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.sqrt(((radius + 1) / n - 1 / k) / deviation)
        # with the right k, its smallest entry is positive and the next one would not be
        inner = s * (u - mean) + 1 / k
        outer = np.append(s[:-1] * (u[1:] - mean[:-1]) + 1 / k[:-1], 0.0)
    wrong = np.maximum(-inner, 0) + np.maximum(outer, 0)
    # where an entry is about to vanish, two of them are right but for rounding
    right = np.where(np.isfinite(s), wrong, np.inf).argmin()
    return project(s[right] * (v - np.max(v)))


def project_kl(v: np.ndarray, radius: float) -> np.ndarray:
    """The point of the simplex with Σ x_i log(N x_i) ≤ ``radius`` nearest to ``v`` [N].

    Where the ball binds it minimises ½‖x − v‖² + τ Σ x log x, with the temperature τ > 0 at which
    the divergence, which falls with τ, is the radius. Raises NotFinite if ``v`` is not.
    """
    x = project(v)
    if divergence(x) <= radius:
        return x
    # no other run need wait for it
    from scipy.optimize import brentq

    v = np.asarray(v, np.float64) - np.max(v)

    def beyond(log_temperature: float) -> float:
        return divergence(tempered(v, np.exp(log_temperature))) - radius

    low = high = np.log(max(1.0, -v.min()))
    while beyond(high) > 0:
        high += 2.0
    while beyond(low) <= 0:
        low -= 2.0
        # at the simplex's own projection, up to rounding: the ball only just binds
        if low < -60:
            return x
    return tempered(v, np.exp(brentq(beyond, low, high, xtol=1e-14, rtol=1e-15)))


def divergence(x: np.ndarray) -> float:
    """Σ x_i log(N x_i), in nats: KL divergence of a point of the simplex from the uniform one."""
    ratio = x * len(x)
    # each term is at least 0, so that nothing cancels near the uniform point
    logs = np.log(np.where(ratio > 0, ratio, 1.0))
    return float(np.mean(ratio * logs - ratio + 1))


def tempered(v: np.ndarray, temperature: float) -> np.ndarray:
    """argmin of ½‖x − ``v``‖² + τ Σ x log x over the simplex, for τ > 0.

    x_i + τ log x_i = v_i − ν, which Wright's ω solves; ν makes the sum 1.
    """
    from scipy.special import wrightomega

    log, n = np.log(temperature), len(v)
    # the largest entry alone is 1 here; Σ x is convex in ν and falls, so Newton's steps from the
    # left never go too far
    shift = v.max() - 1.0
    for _ in range(200):
        x = temperature * wrightomega((v - shift) / temperature - log)
        excess = x.sum() - 1
        if excess <= 1e-16 * n:
            break
        shift += excess / (x / (x + temperature)).sum()
    return x / x.sum()


def spread(dual: np.ndarray) -> dict[str, float]:
    """How far a dual variable [N] is from uniform: its largest entry, and exp(entropy) in [1, N],
    the effective number of clients.
    """
    positive = dual[dual > 0]
    return {
        "dual_max": float(dual.max()),
        "dual_effective": float(np.exp(-(positive * np.log(positive)).sum())),
    }


def _finite(v: np.ndarray) -> np.ndarray:
    v = np.asarray(v, np.float64)
    if not np.isfinite(v).all():
        raise NotFinite(
            "the dual variable λ is NaN or infinite after its step; lower its step size "
            "(algorithm.gamma or algorithm.dual_lr) or local.lr"
        )
    return v
