"""Robust aggregators: one update out of a cohort of which some clients may send anything at all.

Each says how many of m clients may be malicious. Rows that are not finite are set aside first, and
counted among them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch

from algorithms.account import Rounds, recorded
from algorithms.finite import all_finite, finite_rows
from algorithms.part import option
from algorithms.parts.aggregators import Aggregator, Combined, Rows
from algorithms.parts.distances import norms, pairwise
from algorithms.parts.ordered import coordinate_median, mean_of_nearest, trimmed_mean

if TYPE_CHECKING:
    from torch import Tensor


class Robust(Aggregator):
    """Looks at the rows; ``weigh`` or ``pick`` does the work on the finite ones."""

    def weights(self, samples: np.ndarray, counts: np.ndarray) -> None:
        return None

    def combine(self, rows: Rows) -> Combined:
        finite = finite_rows(rows.updates)
        if not finite.any():
            return of_nobody(rows.updates)
        if finite.all():
            return self.judge(rows, 0)
        kept = Rows(rows.updates[finite], rows.samples[finite.numpy()], rows.reference, rows.memory)
        combined = self.judge(kept, int((~finite).sum()))
        return replace(
            combined,
            weights=_spread(combined.weights, finite),
            shares=_spread(combined.shares, finite),
        )

    @abstractmethod
    def judge(self, rows: Rows, set_aside: int) -> Combined:
        """The aggregate of the finite ``rows`` (at least one), after ``set_aside`` others."""


class Counting(Robust):
    """Knows how many malicious clients to reckon with.

    In a round in which too few clients are left for it against so many (some were dropped, or drawn
    twice) the coordinate-wise median takes its place, which any cohort with more than twice as many
    stands.
    """

    records = {
        "by_median": "1 in a round in which too few clients were left for the aggregator, and the "
        "coordinate-wise median took its place",
    }
    headline: ClassVar[Mapping[str, str]] = {"by_median": "by median"}
    byzantine: float = option(
        0.2,
        "part of the cohort that may be malicious (rounded to whole clients f)",
        "f/m",
        ge=0,
        lt=1,
    )

    def tolerated(self, cohort: int) -> int:
        """f, the number of malicious clients in a cohort of m."""
        return round(self.byzantine * cohort)

    def least(self, f: int) -> int:
        """The smallest cohort for which f malicious clients are no danger."""
        return 2 * f + 1

    def refuses(self, cohort: int) -> str | None:
        f = self.tolerated(cohort)
        if cohort >= self.least(f):
            return None
        return (
            f"aggregator {self.name} with byzantine {self.byzantine} reckons with {f} malicious "
            f"clients of {cohort}, for which it needs a cohort of at least {self.least(f)}"
        )

    def account(self, rounds: Rounds) -> Iterator[str]:
        if few := len(recorded(rounds, "by_median")):
            yield (
                f"In {few:,} of {len(rounds['round']):,} rounds too few clients were left for "
                f"{self.name} (byzantine {self.byzantine:g}): the coordinate-wise median took its "
                "place."
            )

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        # a row that is not finite was one of the f
        f = max(0, self.tolerated(len(rows.updates) + set_aside) - set_aside)
        if len(rows.updates) < self.least(f):
            return Combined(coordinate_median(rows.updates), None, report={"by_median": 1.0})
        return self.against(rows, f)

    @abstractmethod
    def against(self, rows: Rows, f: int) -> Combined:
        """The aggregate of finite rows, of which up to ``f`` are malicious."""


def average(rows: Tensor, weights: Tensor) -> Combined:
    """Σ_k p_k x_k, for weights [m] of any sum; a row of weight 0 does not count."""
    used = weights != 0
    if used.all():  # no copy of them is made
        return Combined(weights.to(rows) @ rows, weights)
    return Combined(weights[used].to(rows) @ rows[used], weights)


def of_nobody(rows: Tensor) -> Combined:
    """No change [d], in which none of ``rows`` [m, d] has a part."""
    nothing = torch.zeros(len(rows), dtype=torch.float64)
    return Combined(rows.new_zeros(rows.shape[1]), nothing, nothing)


def chosen(rows: Tensor, ids: Tensor) -> Combined:
    """The mean of the rows ``ids``."""
    # as weights, so that the round's record can say who was chosen
    weights = torch.zeros(len(rows), dtype=torch.float64)
    weights[ids] = 1 / len(ids)
    return average(rows, weights)


class Median(Robust):
    """Coordinate-wise median (Yin et al. 2018); tolerates fewer than half."""

    name: str = "median"

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        return Combined(coordinate_median(rows.updates), None)


class TrimmedMean(Counting):
    """Coordinate-wise mean without the f smallest and f largest values (Yin et al. 2018)."""

    name: str = "trimmed_mean"

    def against(self, rows: Rows, f: int) -> Combined:
        return Combined(trimmed_mean(rows.updates, f), None)


class Krum(Counting):
    """The update with the least sum of squared distances to its m − f − 2 nearest (Blanchard et al.
    2017).
    """

    name: str = "krum"

    def least(self, f: int) -> int:
        return 2 * f + 3

    def against(self, rows: Rows, f: int) -> Combined:
        # stable: a tie goes to the client of the lower number
        return chosen(rows.updates, krum_scores(pairwise(rows.updates), f).argsort(stable=True)[:1])


class MultiKrum(Krum):
    """The mean of the m − f updates with the best Krum scores (Blanchard et al. 2017)."""

    name: str = "multi_krum"
    keep: int | None = option(None, "updates averaged; unset: m − f", "k", ge=1)

    def against(self, rows: Rows, f: int) -> Combined:
        keep = min(self.keep or len(rows.updates) - f, len(rows.updates))
        return chosen(
            rows.updates, krum_scores(pairwise(rows.updates), f).argsort(stable=True)[:keep]
        )


class Bulyan(Counting):
    """m − 2f updates picked one by one by Krum, then a coordinate-wise mean of the m − 4f values
    nearest the median.

    El Mhamdi et al. 2018, "The Hidden Vulnerability of Distributed Learning in Byzantium".
    """

    name: str = "bulyan"

    def least(self, f: int) -> int:
        return 4 * f + 3

    def against(self, rows: Rows, f: int) -> Combined:
        table = pairwise(rows.updates)
        left = list(range(len(table)))
        picked: list[int] = []
        while len(picked) < len(table) - 2 * f:
            # scored anew among those left, whose nearest have changed; the distances have not
            scores = krum_scores(table[left][:, left], f)
            picked.append(left.pop(int(scores.argmin())))
        x = rows.updates[sorted(picked)]
        return Combined(mean_of_nearest(x, len(x) - 2 * f), None)


def krum_scores(table: Tensor, f: int) -> Tensor:
    """Sum of squared distances to the m − f − 2 nearest others (at least one) for each row of
    ``table`` [m, m].
    """
    near = max(1, len(table) - f - 2)
    # the first of each sorted row is its distance 0 to itself
    return table.square().sort(1).values[:, 1 : near + 1].sum(1)


class GeometricMedian(Robust):
    """The point with the least sum of distances, by smoothed Weiszfeld steps (RFA, Pillutla et al.
    2022).
    """

    name: str = "geometric_median"
    iterations: int = option(
        50, "Weiszfeld steps at most; RFA's own choice is 3", "R", ge=1, le=100_000
    )
    smoothing: float = option(1e-6, "least distance in the weights 1/max(ν, ‖x_k − z‖)", "ν", gt=0)
    tolerance: float = option(
        1e-7, "stop when no weight changes by more than this part of it", ge=0
    )
    by_samples: bool = option(False, "weigh the clients by n_k instead of equally")

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        x = rows.updates
        alpha = (
            torch.from_numpy(np.asarray(rows.samples, np.float64))
            if self.by_samples
            else torch.ones(len(x))
        )
        alpha = alpha.double() / alpha.sum()
        # starting from the mean, one huge row would take many steps to leave; no weights have led
        # to it, and it may be as far from all rows
        point, weights = coordinate_median(x), torch.zeros_like(alpha)
        for _ in range(self.iterations):
            near = alpha / norms(x, point).clamp_min(self.smoothing)
            previous, weights = weights, near / near.sum()
            point = average(x, weights).vector
            if ((weights - previous).abs() <= self.tolerance * previous).all():
                break
        return average(x, weights)


class Faba(Counting):
    """Drop, f times, the update farthest from the mean of those left; then the mean (FABA, Xia et
    al. 2019).
    """

    name: str = "faba"

    def against(self, rows: Rows, f: int) -> Combined:
        x = rows.updates
        left = torch.ones(len(x), dtype=torch.bool)
        for _ in range(f):
            ids = left.nonzero()[:, 0]
            left[ids[norms(x[left], x[left].double().mean(0)).argmax()]] = False
        return chosen(x, left.nonzero()[:, 0])


class FLTrust(Robust):
    """Updates scaled to the norm of the server's own one and weighted by max(0, cos) to it (Cao et
    al. 2021).

    The server's update g_0 is the same local work done on its held-out rows (``data.heldout``).
    With no update pointing its way, or a g_0 that is not finite, the model stays where it is.
    """

    name: str = "fltrust"
    needs_reference: ClassVar[bool] = True

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        if rows.reference is None:
            raise TypeError("fltrust needs the server's own update")
        x, root = rows.updates, rows.reference
        if not all_finite(root):
            return of_nobody(x)
        length = norms(x).clamp_min(1e-30)
        reference = norms(root[None])[0].clamp_min(1e-30)
        cosine = (x.double() @ root.double()) / (length * reference)
        trust = cosine.clamp_min(0.0)
        # weights carry the rescaling to ‖g_0‖, shares do not: a long update has no more say
        shares = trust / trust.sum().clamp_min(1e-30)
        weights = shares * reference / length
        return Combined(average(x, weights).vector, weights, shares)


class NormClipping(Robust):
    """The mean of the updates, each shortened to at most ``radius`` (Sun et al. 2019)."""

    name: str = "norm_clipping"
    radius: float | None = option(
        None,
        "longest update; unset: the median length in the cohort (of an even number the lower of "
        "the two in the middle)",
        "τ",
        gt=0,
    )

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        length = norms(rows.updates)
        # torch's median is the lower of two middle ones
        radius = float(length.median()) if self.radius is None else self.radius
        shares = torch.full_like(length, 1 / len(length))
        weights = shares * (radius / length.clamp_min(1e-30)).clamp_max(1.0)
        return Combined(average(rows.updates, weights).vector, weights, shares)


class CenteredClipping(Robust):
    """v ← v + mean_k (x_k − v) min(1, τ/‖x_k − v‖), from the last round's v (Karimireddy et al.
    2021, Eq. 4).
    """

    name: str = "centered_clipping"
    radius: float = option(10.0, "clipping radius", "τ", gt=0)
    iterations: int = option(1, "clipping steps a round", "l", ge=1, le=100_000)
    start: Literal["previous", "zero"] = option(
        "previous",
        "previous: from the last aggregate (the paper); zero: from no change",
    )

    def judge(self, rows: Rows, set_aside: int) -> Combined:
        x = rows.updates
        v = (
            rows.memory.get("centre", torch.zeros_like(x[0]))
            if self.start == "previous"
            else torch.zeros_like(x[0])
        )
        for _ in range(self.iterations):
            scale = (self.radius / norms(x, v).clamp_min(1e-30)).clamp_max(1.0) / len(x)
            # v + Σ scale_k (x_k − v), without the matrix of differences
            v = v * (1 - float(scale.sum())) + average(x, scale).vector
        rows.memory["centre"] = v
        return Combined(v, None)


def _spread(values: Tensor | None, finite: Tensor) -> Tensor | None:
    """Values of the finite rows in their places among all rows [m]; 0 for the others."""
    if values is None:
        return None
    full = torch.zeros(len(finite), dtype=torch.float64)
    full[finite] = values
    return full
