"""The probability simplex: projection onto it, and the dual variable of robust methods."""

from __future__ import annotations

import numpy as np

from algorithms.finite import NotFinite


def project(v: np.ndarray) -> np.ndarray:
    """The point of {x ≥ 0, Σ x = 1} nearest to ``v`` [N] in the Euclidean norm (Held et al. 1974;
    Duchi et al. 2008).

    Raises NotFinite if ``v`` is not.
    """
    v = np.asarray(v, np.float64)
    if not np.isfinite(v).all():
        raise NotFinite(
            "the dual variable λ is NaN or infinite after its step; lower its step size "
            "(algorithm.gamma or algorithm.dual_lr) or local.lr"
        )
    v = v - v.max()  # the projection is invariant, and huge entries would swallow the 1
    u = np.sort(v)[::-1]
    # θ is the one number with Σ max(v − θ, 0) = 1: tried for each count of positive entries, the
    # last that leaves its smallest entry positive
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    theta = excess[np.flatnonzero(u > excess)[-1]]
    return np.maximum(v - theta, 0.0)


def spread(dual: np.ndarray) -> dict[str, float]:
    """How far a dual variable [N] is from uniform: its largest entry, and exp(entropy) in [1, N],
    the effective number of clients.
    """
    positive = dual[dual > 0]
    return {
        "dual_max": float(dual.max()),
        "dual_effective": float(np.exp(-(positive * np.log(positive)).sum())),
    }
