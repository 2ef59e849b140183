"""Wasserstein barycenters of the clients' updates of a layer, in the readings that FedDUAL's text
and code allow.

A tensor's m updates are taken as m distributions on the real line (the values of their d entries,
each with mass 1/d), except by ``class_rows``. The barycenter's d values are given back to the
entries in the order of the entries' means.
"""

from __future__ import annotations

import itertools
import math
import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import SerializeAsAny

from algorithms.figure import Figure
from algorithms.flat import ParamSpec, Segment
from algorithms.part import Layers, Part, chosen_from, option
from algorithms.parts.aggregators import Aggregator, Combined, Rows, weighted_sum

if TYPE_CHECKING:
    from torch import Tensor


class Barycenter(Part):
    """Makes one update of a layer out of m."""

    @abstractmethod
    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        """The barycenter [d] of ``rows`` [m, d] for ``weights`` λ [m] (sum 1)."""

    def check(self, segments: tuple[Segment, ...]) -> None:
        """Raise ValueError if this barycenter is not defined for such tensors."""

    def layer(self, tensors: list[Tensor], weights: np.ndarray) -> list[Tensor]:
        """Barycenters of a layer's tensors, each [m, *shape] -> [*shape]; here one by one."""
        return [self.tensor(t.reshape(len(t), -1), weights).view(t.shape[1:]) for t in tensors]


class Linear(Barycenter):
    """The Euclidean mean Σ_k λ_k Δ_k: with it nothing differs from FedAvg."""

    name: str = "linear"

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        return weighted_sum(rows, weights)


class Unmoved(Barycenter):
    """Zero: the layers stay where they are (what the published FedDUAL code amounts to)."""

    name: str = "unmoved"

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        return torch.zeros_like(rows[0])


class Exact(Barycenter):
    """The exact W₂ barycenter on the line: its quantile function is the mean of the clients'
    quantile functions.

    It keeps the mean over all entries and, unlike the Euclidean mean, the spread of the entries.
    """

    name: str = "exact"

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        quantiles = torch.zeros_like(rows[0])
        for row, p in zip(rows, weights.tolist(), strict=True):
            quantiles.add_(ascending(row)[0], alpha=p)
        # the order of the entries is not the barycenter's to say; it is taken from the mean
        return by_rank(quantiles, weighted_sum(rows, weights))


class Sinkhorn(Barycenter):
    """The entropic W₂ barycenter of histograms on a common grid (POT, log domain); ``reg`` → 0
    tends to ``exact``.

    ``reg`` is relative to the largest squared distance on the grid.
    """

    name: str = "sinkhorn"
    bins: int = option(128, "bins of the grid", "B", ge=2, le=1024)
    reg: float = option(1e-3, "entropic regularisation", "ε", gt=0)
    iterations: int = option(1000, "largest number of Sinkhorn iterations", ge=1, le=100_000)

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        from ot.bregman import barycenter  # slow to import, in every actor

        values = rows.double().numpy()
        low, high = float(values.min()), float(values.max())
        mean = weighted_sum(rows, weights)
        if low == high:
            return mean
        edges = np.linspace(low, high, self.bins + 1)
        histograms = np.stack([np.histogram(v, edges)[0] for v in values], 1) / values.shape[1]
        centres = (edges[1:] + edges[:-1]) / 2
        cost = np.square(centres[:, None] - centres[None, :])
        mass = barycenter(
            histograms, cost / cost.max(), self.reg, weights, method="sinkhorn_log",
            numItermax=self.iterations,
            stopThr=1e-7, warn=False,
        )  # fmt: skip
        # quantiles of the d entries: the histogram's distribution function, read backwards
        cumulative = np.concatenate([[0.0], np.cumsum(mass / mass.sum())])
        places = (np.arange(values.shape[1]) + 0.5) / values.shape[1]
        return by_rank(torch.from_numpy(np.interp(places, cumulative, edges)).to(rows.dtype), mean)


class ClassRows(Barycenter):
    """The free-support W₂ barycenter of a dense layer's rows (a class's kernel and bias), started
    at their mean (POT).

    Transport may pair rows of different classes: near the mean it does not, far from it permutes
    them.
    """

    name: str = "class_rows"
    iterations: int = option(100, "largest number of updates of the support", ge=1, le=100_000)

    def check(self, segments: tuple[Segment, ...]) -> None:
        for layer, group in itertools.groupby(segments, key=lambda e: e.layer):
            # a number has no first axis
            if len(first := {e.shape[:1] for e in group}) != 1 or () in first:
                raise ValueError(
                    f"class_rows needs layers whose tensors share their first axis, and {layer} "
                    "does not"
                )

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        return self.layer([rows], weights)[0]

    def layer(self, tensors: list[Tensor], weights: np.ndarray) -> list[Tensor]:
        from ot.lp import free_support_barycenter

        clients, classes = tensors[0].shape[:2]
        atoms = torch.cat([t.reshape(clients, classes, -1) for t in tensors], 2).double()
        even = np.full(classes, 1 / classes)
        found = free_support_barycenter(
            list(atoms.numpy()), [even] * clients, weighted_sum(atoms, weights).numpy(), even,
            np.asarray(weights, float), numItermax=self.iterations,
        )  # fmt: skip
        pieces = (
            torch.from_numpy(found)
            .to(tensors[0].dtype)
            .split([t[0, 0].numel() for t in tensors], 1)
        )
        return [p.reshape(t.shape[1:]) for p, t in zip(pieces, tensors, strict=True)]


class _Reweighted(Barycenter):
    """b ← Σ_k λ_k u_k Δ_k / Σ_k λ_k u_k with u_k = exp(−W₁(b, Δ_k)/ε), from the mean (FedDUAL Eqs.
    15-16, inferred).
    """

    def tensor(self, rows: Tensor, weights: np.ndarray) -> Tensor:
        rows64 = rows.double()
        # between equally many points on the line, W₁ is the mean distance of those of equal rank
        ordered = torch.from_numpy(np.sort(rows64.numpy(), axis=1))
        b = weighted_sum(rows64, weights)
        for _ in range(self.iterations):
            distances = (b.sort().values - ordered).abs().mean(1)
            new = weighted_sum(rows64, self.shares(distances.numpy() / self.eps, weights))
            b, moved = new, float((new - b).abs().max())
            if moved <= 1e-6 * float(new.abs().max()):
                break
        return b.to(rows.dtype)

    iterations: int = 0
    eps: float = 1.0

    @abstractmethod
    def shares(self, scaled: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Coefficients [m] of the rows, from W₁/ε [m] and λ [m]."""


class Iterated(_Reweighted):
    """The paper's iteration with its normalisation in the log domain: ε → 0 picks one client, ε → ∞
    is the mean.
    """

    name: str = "iterated"
    eps: float = option(1e-4, "scale of the W₁ distances", "ε", gt=0)
    iterations: int = option(150, "iterations", ge=1, le=100_000)

    def shares(self, scaled: np.ndarray, weights: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):  # log 0 = −∞, a share of 0
            logs = np.log(weights) - scaled
        # the largest becomes exp(0), so that not all can underflow, as they do in ``authors``
        shares = np.exp(logs - logs.max())
        return shares / shares.sum()


class Authors(_Reweighted):
    """The published code's iteration, with 1e-10 in the denominator: zero as soon as every W₁
    exceeds about 23 ε.
    """

    name: str = "authors"
    eps: float = option(1e-5, "scale of the W₁ distances", "ε", gt=0)
    iterations: int = option(1000, "iterations", ge=1, le=100_000)

    def shares(self, scaled: np.ndarray, weights: np.ndarray) -> np.ndarray:
        shares = weights * np.exp(-scaled)
        return shares / (shares.sum() + 1e-10)


class BarycentricMean(Aggregator):
    """The mean of the updates, except in some layers: there their Wasserstein barycenter."""

    name: str = "barycenter"
    records = {
        "barycenter_collapsed": "tensors whose barycenter is exactly zero, so that they stay",
        "barycenter_to_mean": "length of the barycenters over that of the means in their place",
    }
    figures = (
        Figure(
            "barycenter",
            "What the barycenter leaves of the mean",
            "length of the barycenters over that of the means in their place: 0 where all of them "
            "are zero",
            "ratio of lengths",
            {"barycenter_to_mean": "‖barycenter‖ / ‖mean‖"},
        ),
        Figure(
            "collapsed",
            "Tensors whose barycenter is zero",
            "they stay as they were in that round",
            "tensors",
            {"barycenter_collapsed": "tensors"},
        ),
    )
    method: Annotated[SerializeAsAny[Barycenter], chosen_from(Barycenter)] = option(
        Exact(), "which barycenter"
    )
    layers: Layers = option(
        2,
        "the last so many layers that the network declares, or a regular expression over tensor "
        "names",
    )
    by_samples: bool = option(False, "weigh clients by n_k/n, not equally", "λ")

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> None:
        return None

    def check(self, spec: ParamSpec) -> None:
        self.method.check(spec.chosen(self.layers))

    def combine(self, rows: Rows) -> Combined:
        assert rows.spec is not None
        x, m = rows.updates, len(rows.updates)
        weights = rows.samples / rows.samples.sum() if self.by_samples else np.full(m, 1 / m)
        vector = weighted_sum(x, weights)
        # views: what is written to ``means`` below changes ``vector``
        means, collapsed, squared = rows.spec.views(vector), 0, [0.0, 0.0]
        updates = rows.spec.views(x)
        for _, entries in itertools.groupby(rows.spec.chosen(self.layers), key=lambda e: e.layer):
            names = [e.name for e in entries]
            for name, b in zip(
                names, self.method.layer([updates[n] for n in names], weights), strict=True
            ):
                # a mean that is zero itself (a frozen or untrained layer) has not collapsed
                collapsed += not b.any() and bool(means[name].any())
                squared = [
                    s + float(v.double().square().sum())
                    for s, v in zip(squared, (b, means[name]), strict=True)
                ]
                means[name].copy_(b)
        if collapsed and not isinstance(self.method, Unmoved):
            warnings.warn(
                f"barycenter_collapsed: exactly zero for {collapsed} tensors, which therefore stay",
                RuntimeWarning,
                2,
            )
        report = {
            "barycenter_collapsed": float(collapsed),
            "barycenter_to_mean": math.sqrt(squared[0] / squared[1]) if squared[1] else 1.0,
        }
        # barycenters are not linear in the updates: no weights, but shares
        return Combined(vector, None, torch.from_numpy(weights), report)


def by_rank(values: Tensor, like: Tensor) -> Tensor:
    """Ascending ``values`` [d] in the places of the smallest, next smallest … entry of ``like``."""
    out = torch.empty_like(values)
    out[ascending(like)[1]] = values
    return out


def ascending(values: Tensor) -> tuple[Tensor, Tensor]:
    """``values`` [d] sorted, and their places before; equal ones in their order (−0 before 0).

    float32 is sorted by its bits as integers, for which torch has a radix sort, several times
    faster.
    """
    if values.dtype != torch.float32:
        return values.sort(stable=True)
    keys, places = torch.sort(_as_integer(values.contiguous().view(torch.int32)), stable=True)
    return _as_integer(keys).view(torch.float32), places


def _as_integer(bits: Tensor) -> Tensor:
    """float32 bits -> integers in the same order, and back."""
    # of negative numbers (sign-extended to all ones) all bits but the sign are inverted, since the
    # larger their magnitude, the smaller they are; done twice, nothing has happened
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
