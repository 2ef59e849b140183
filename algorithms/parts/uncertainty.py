"""Uncertainty sets: where the mixture λ of the clients may be in min_w max_λ Σ λ_i f_i(w).

Each is a closed convex part of the simplex that holds the uniform mixture; the dual steps of DRFA,
DRDM, AFL and SCAFF-PD end with the Euclidean projection onto it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from algorithms.part import Part, option
from algorithms.parts.simplex import project, project_capped, project_chi2, project_kl
from algorithms.setting import Setting

Projection = Callable[[np.ndarray], np.ndarray]
"""v [N] ↦ the nearest point of a set in the Euclidean norm; raises NotFinite if v is not finite."""


class Uncertainty(Part):
    """A set of mixtures of the clients."""

    def refuses(self, clients: int) -> str | None:
        """Why there is no such set for so many clients, in a sentence; None if there is."""
        return None

    @abstractmethod
    def projection(self, setting: Setting) -> Projection:
        """The projection onto the set of this run's clients."""


class Simplex(Uncertainty):
    """All mixtures: the worst of them is the worst client."""

    name: str = "simplex"

    def projection(self, setting: Setting) -> Projection:
        return project


class Cvar(Uncertainty):
    """λ_i ≤ 1/(αN): the worst of them is the mean over the worst share α of the clients, the
    conditional value at risk (Rockafellar and Uryasev 2000; for clients Laguel et al. 2021).
    """

    name: str = "cvar"
    alpha: float = option(
        0.1, "share of the clients; 1: their mean, 1/N or less: the worst one", "α", gt=0, le=1
    )

    def projection(self, setting: Setting) -> Projection:
        return partial(project_capped, cap=1 / (self.alpha * setting.clients))


class Chi2(Uncertainty):
    """N Σ (λ_i − 1/N)² ≤ ρ: a ball of Pearson's χ² divergence around the uniform mixture (Duchi and
    Namkoong 2019 have half of it).
    """

    name: str = "chi2"
    radius: float = option(
        1.0, "largest divergence; N − 1 and more: all mixtures", "ρ", ge=1e-6, le=1e9
    )

    def projection(self, setting: Setting) -> Projection:
        return partial(project_chi2, radius=self.radius)


class Kl(Uncertainty):
    """Σ λ_i log(N λ_i) ≤ ρ: a ball of the Kullback–Leibler divergence from the uniform mixture (Hu
    and Hong 2013).
    """

    name: str = "kl"
    radius: float = option(
        0.5, "largest divergence, in nats; log N and more: all mixtures", "ρ", ge=1e-6, le=1e9
    )

    def projection(self, setting: Setting) -> Projection:
        return partial(project_kl, radius=self.radius)


class Groups(Uncertainty):
    """A λ for each group of clients, spread evenly inside it (group DRO, Sagawa et al. 2020): the
    worst mixture is the group with the highest mean loss.
    """

    name: str = "groups"
    lists: tuple[tuple[int, ...], ...] | None = option(
        None, "ids of each group's clients; every client is in one"
    )
    by: Literal["label", "size"] = option(
        "label",
        "without lists: clients with the same commonest label, or with about as many training rows",
    )
    count: int = option(2, "by size: groups, of as many clients each", ge=1)

    def refuses(self, clients: int) -> str | None:
        if self.lists is None:
            if self.by == "size" and self.count > clients:
                return f"{clients} clients cannot make algorithm.uncertainty.count {self.count}"
            return None
        named = sorted(k for group in self.lists for k in group)
        if named == list(range(clients)) and all(self.lists):
            return None
        return (
            f"algorithm.uncertainty.lists must name each of the clients 0 to {clients - 1} once, "
            "in groups of at least one"
        )

    def projection(self, setting: Setting) -> Projection:
        group = self.members(setting)
        sizes = np.bincount(group)

        def nearest(v: np.ndarray) -> np.ndarray:
            # all else in Σ (λ_i − v_i)² is the groups' own scatter, which λ cannot change
            means = np.bincount(group, np.asarray(v, np.float64)) / sizes
            return project(means[group])

        return nearest

    def members(self, setting: Setting) -> np.ndarray:
        """The group of each client [N], numbered from 0."""
        n = setting.clients
        if self.lists is not None:
            group = np.empty(n, np.int64)
            for number, ids in enumerate(self.lists):
                group[list(ids)] = number
            return group
        if self.by == "label":
            return np.unique(setting.labels, return_inverse=True)[1]
        # the places in the order of sizes, cut into as many parts as there are groups
        order = np.argsort(setting.samples, kind="stable")
        parts = np.array_split(np.arange(n), self.count)
        group = np.empty(n, np.int64)
        group[order] = np.repeat(np.arange(self.count), [len(part) for part in parts])
        return group


def largest(losses: np.ndarray, projection: Projection) -> float:
    """max Σ λ_i f_i over the set, of the clients' ``losses`` [N]; at most 5 · 10⁻¹⁰ too small.

    Π(t f) maximises Σ λ_i f_i − ‖λ‖²/(2t).
    """
    return float(projection(1e9 * np.asarray(losses, np.float64)) @ losses)
