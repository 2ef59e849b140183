"""Communication graphs of decentralised algorithms, and their mixing matrices."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from algorithms.draws import generator
from algorithms.part import Part, option


class Graph(Part):
    """An undirected connected graph over N clients."""

    @abstractmethod
    def adjacency(self, n: int, seed: int) -> np.ndarray:
        """Boolean [n, n], symmetric, without self-loops; raises ValueError if none was found."""

    def mixing(self, n: int, seed: int) -> np.ndarray:
        """Metropolis–Hastings weights W [n, n], W_ij = 1/(1 + max(deg_i, deg_j)) on edges.

        Symmetric and doubly stochastic.
        """
        edges = self.adjacency(n, seed)
        degree = edges.sum(1)
        w = np.where(edges, 1 / (1 + np.maximum.outer(degree, degree)), 0.0)
        return w + np.diag(1 - w.sum(1))


class Ring(Graph):
    """Each client talks to its two neighbours."""

    name: str = "ring"

    def adjacency(self, n: int, seed: int) -> np.ndarray:
        edges = np.zeros((n, n), bool)
        for i in range(n):
            edges[i, (i + 1) % n] = edges[(i + 1) % n, i] = n > 1
        np.fill_diagonal(edges, False)
        return edges


class Grid(Graph):
    """The most nearly square grid; the last row may be shorter."""

    name: str = "grid"

    def adjacency(self, n: int, seed: int) -> np.ndarray:
        width = math.ceil(math.sqrt(n))
        edges = np.zeros((n, n), bool)
        for i in range(n):
            for j in ([i + 1] if (i + 1) % width else []) + [i + width]:
                if j < n:
                    edges[i, j] = edges[j, i] = True
        return edges


class ErdosRenyi(Graph):
    """Random edges with probability p, drawn again until the graph is connected."""

    name: str = "erdos_renyi"
    p: float = option(0.5, "probability of an edge", "p", gt=0, le=1)

    def adjacency(self, n: int, seed: int) -> np.ndarray:
        # one generator for all tries, or each would be the same
        rng = generator(seed, "graph")
        for _ in range(1000):
            upper = np.triu(rng.random((n, n)) < self.p, 1)
            edges = upper | upper.T
            if connected(edges):
                return edges
        raise ValueError(
            f"no connected Erdős–Rényi graph over {n} clients with p = {self.p} in 1000 draws"
        )


class Complete(Graph):
    """Everybody talks to everybody."""

    name: str = "complete"

    def adjacency(self, n: int, seed: int) -> np.ndarray:
        return ~np.eye(n, dtype=bool)


def connected(edges: np.ndarray) -> bool:
    """Whether every client can be reached from client 0."""
    reached = np.zeros(len(edges), bool)
    reached[0] = True
    for _ in range(len(edges)):
        reached |= edges[reached].any(0)
    return bool(reached.all())
