"""What a sweep's table and its tests are to say, counted from what each trial had, by hand."""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

NAN = math.nan
COSTS = ("bytes_up", "round")
EACH = ("train_loss", *COSTS)
"""Reported in every round."""


@dataclass
class Had:
    """What one trial had: metric -> its numbers, round by round (NaN where nobody looked)."""

    line: str
    seed: int
    status: str = "finished"
    diverged: bool = False
    series: dict[str, list[float]] = field(default_factory=dict)
    missed: bool = False
    """Of what it was to reach."""
    early: bool = False
    """It has reached it before its last round."""


def number(trial: Had, metric: str, plan, chosen: str = "") -> float:
    """A trial's number of a metric; of another than the one that is ``chosen`` by, beside that."""
    if trial.status == "failed" or (metric in COSTS and trial.missed):
        return NAN
    return _spent(trial, metric, plan, chosen)


def _spent(trial, metric, plan, chosen) -> float:
    looks = _looks(trial, metric)
    values = trial.series[metric]
    if metric == "bytes_up" and plan.statistic == "last":
        return sum(values)
    if plan.statistic == "tail":
        return float(np.mean([values[t] for t in looks[-plan.tail :]]))
    if plan.statistic == "last":
        return values[looks[-1]]
    known = [t for t in looks if not math.isnan(trial.series[chosen or metric][t])]
    if not known:
        return NAN
    way = 1 if plan.direction == "max" else -1
    best = max(way * trial.series[chosen or metric][t] for t in known)
    return values[next(t for t in known if way * trial.series[chosen or metric][t] == best)]


def lines(plan, trials: list[Had], test: str | None) -> list[dict]:
    """The table, in its order."""
    several, found = len(plan.seeds) > 1, []
    for name in dict.fromkeys(one.label for one in plan.planned()):
        its = [one for one in trials if one.line == name]
        if not its:
            continue
        ends = [one for one in its if one.status != "stopped" or not several]
        values = [number(one, plan.metric, plan) for one in ends]
        row = {"trial": name, **_mean(values, "count", "mean", "sem")}
        if test:
            row |= _mean(
                [number(one, test, plan, plan.metric) for one in ends], "", "test", "test_sem"
            )
        for status in ("stopped", "failed"):
            row[status] = sum(one.status == status for one in its)
        row["diverged"] = sum(one.diverged for one in its)
        sound = [one for one in its if one.status != "failed" or one.diverged]
        whole = row["count"] == len(sound) > 0 and not row["diverged"]
        up = float(f"{row['mean']:.9g}") if row["count"] else 0.0
        up = up if plan.direction == "min" else -up
        place = (not whole, row["stopped"] > 0, -row["count"], up, *_parts(name))
        found.append((place, row))
    if plan.choose_on != "nothing":
        found.sort(key=lambda pair: pair[0])
    return [row for _, row in found]


def _parts(name):
    """Numbers by their size, in the settings that a line is called by."""
    for said in name.split("=")[1:]:
        value = said.split(",")[0]
        yield (0.0, value) if value[0].isalpha() else (float(value), "")


def _mean(values, count, mean, error) -> dict:
    known = [v for v in values if not math.isnan(v)]
    n = len(known)
    said = {mean: sum(known) / n if n else NAN, error: NAN}
    if n > 1:
        said[error] = math.sqrt(sum((v - said[mean]) ** 2 for v in known) / (n - 1) / n)
    return said | ({count: n} if count else {})


def tests(plan, trials: list[Had], test: str | None, order: list[str], sided: bool) -> dict:
    """Line -> what its test against the first says."""
    metric = test or plan.metric
    if (plan.choose_on != "nothing" and not test) or (
        len(plan.seeds) > 1 and any(one.status == "stopped" for one in trials)
    ):
        return {}
    values = {
        name: {
            one.seed: number(one, metric, plan, plan.metric)
            for one in trials
            if one.line == name and (one.status != "failed" or one.diverged)
        }
        for name in order
    }
    first, found = order[0], {}
    high = plan.direction == "max"
    runs = {name: {t.seed: t for t in trials if t.line == name} for name in order}
    early = {name: any(t.early for t in some.values()) for name, some in runs.items()}
    if metric not in COSTS and early[first]:
        return {}
    for name in order[1:]:
        if metric not in COSTS and early[name]:
            continue
        if metric in COSTS and _cut_short(runs[name], runs[first], plan):
            continue
        if plan.statistic != "last" and not _looked_alike(runs[name], runs[first], plan):
            continue
        counted = metric in COSTS and (early[name] or early[first])
        seeds = sorted({*values[first]} & {*values[name]})
        pairs = [(values[name][s], values[first][s]) for s in seeds]
        if len(pairs) > 1:
            found[name] = _paired(pairs, high, sided, counted)
    known = sorted((one["p"], name) for name, one in found.items() if not math.isnan(one["p"]))
    least = 0.0
    for rank, (p, name) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        found[name]["p_holm"] = least
    for one in found.values():
        one.setdefault("p_holm", NAN)
    return found


def _looked_alike(one, other, plan) -> bool:
    """Whether on all seeds of both the numbers are of the same rounds, or of the best of as many."""
    for seed in {*one} & {*other}:
        both = [side[seed] for side in (one, other)]
        if any(t.status == "failed" for t in both):
            continue
        looks = [_looks(t, plan.metric) for t in both]
        if plan.statistic == "best":
            looks = [[len(rounds)] for rounds in looks]
        if looks[0][-plan.tail :] != looks[1][-plan.tail :]:
            return False
    return True


def _looks(trial, metric) -> list[int]:
    rounds = range(len(trial.series["judged"]))
    return [t for t in rounds if metric in EACH or not math.isnan(trial.series["judged"][t])]


def _cut_short(one, other, plan) -> bool:
    """Whether on some seed one has missed its goal after less than the other took to reach it."""
    for seed in {*one} & {*other}:
        both = [side[seed] for side in (one, other)]
        if any(t.status == "failed" for t in both):
            continue
        spent = [_spent(t, plan.metric, plan, "") for t in both]
        for a, b in ((0, 1), (1, 0)):
            if both[a].missed and not both[b].missed and spent[a] < spent[b]:
                return True
    return False


def _paired(pairs, high, sided, counted) -> dict:
    """Of (its, the first's) on each seed."""
    both = [(a, b) for a, b in pairs if not (math.isnan(a) or math.isnan(b))]
    apart = [a - b for a, b in both]
    missed = [sum(math.isnan(side[i]) for side in pairs) for i in (0, 1)]
    size = max([abs(v) for pair in pairs for v in pair if not math.isnan(v)], default=0.0)
    apart = [0.0 if abs(v) <= 1e-12 * size else v for v in apart]
    n, mean = len(apart), float(np.mean(apart)) if apart else NAN
    said = {"pairs": len(pairs), "missed": missed, "difference": mean}
    said |= dict.fromkeys(("low", "high", "d_z", "p"), NAN)
    constant = all(len({side[i] for side in pairs if not math.isnan(side[i])}) < 2 for i in (0, 1))
    constant &= not counted and all(missed[i] in (0, len(pairs)) for i in (0, 1))
    if any(missed):
        if not constant and sided:
            said["p"] = _by_ranks(pairs, high)
        return said
    spread = float(np.std(apart, ddof=1))
    if spread <= 1e-9 * size:
        if abs(mean) > 1e-9 * size and not constant:
            said["p"] = 2.0 ** (1 - n)
        return said
    low, up = stats.t.interval(0.95, n - 1, mean, stats.sem(apart))
    if not constant:
        said |= {
            "low": low,
            "high": up,
            "d_z": mean / spread,
            "p": stats.ttest_1samp(apart, 0.0).pvalue,
        }
    return said


def _ranks(sizes, least) -> list[float]:
    """1 for the smallest; those that differ by rounding (``least``) share the mean of theirs."""
    found = []
    for one in sizes:
        smaller = sum(other < one - least for other in sizes)
        same = sum(other == one or abs(other - one) <= least for other in sizes)
        found.append(smaller + (same + 1) / 2)
    return found


def _by_ranks(pairs, high) -> float:
    """Of all ways to flip the signs of ranks, the part that is as far from none; who has no number
    has lost.
    """
    worst = -math.inf if high else math.inf
    lost = [tuple(worst if math.isnan(v) else v for v in pair) for pair in pairs]
    apart = [a - b for a, b in lost if a != b]
    if len(apart) < 2:
        return NAN
    known = [abs(v) for pair in pairs for v in pair if not math.isnan(v)]
    ranks = _ranks([abs(gap) for gap in apart], 1e-9 * max(known, default=0.0))
    seen = float((ranks * np.sign(apart)).sum())
    sums = [float(np.dot(ranks, signs)) for signs in itertools.product((1, -1), repeat=len(ranks))]
    return sum(abs(s) >= abs(seen) - 1e-9 for s in sums) / len(sums)
