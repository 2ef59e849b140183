"""What the paper does not ask: its tables on other seeds, and what the dual step adds with all else
equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweeps.entry import Budget, Claim, Entry, Settings
from sweeps.papers.drdm.published import TABLE3, TABLE4
from sweeps.papers.drdm.settings import (
    BASELINES,
    BY_ALPHA,
    BY_SIGMA,
    FEW_SEEDS,
    LINEAR,
    MEASURES,
    PAPER_SEEDS,
    SMOKE,
    WITHOUT_LAMBDA,
    measured_on,
    methods,
    names_of,
    partition,
)
from sweeps.papers.drdm.tables import cells, claimed

EQUAL_RATES = (0.0752, 0.146, 0.548)
"""Neighbours in the grid, of which tuning chose one or the other by hundredths of a point, and the
rate of DRDM's best setting on the finer one."""
EQUALS = (*WITHOUT_LAMBDA, "SCAFFOLD")
DUAL_STEPS = (0.001, 0.01, 0.03)
"""γ of the tables as they were tuned, the largest that is tried there, and one beyond it."""


def at_equal_rates(
    rates: Iterable[float], steps: Iterable[float], others: Iterable[str], axes: Iterable[str]
) -> tuple[dict[str, Settings], tuple[Claim, ...]]:
    """Rows, for each learning rate: DRDM with several γ, and others; and whether each of the first
    is ahead of each of these, over ``axes``, by each measure.
    """
    rows: dict[str, Settings] = {}
    claims: list[Claim] = []
    for rate in rates:
        own = methods((rate, 0.1), (rate, 0.001), rate, (rate, 0.001), rate)
        ours = {
            f"DRDM γ = {step}, η {rate}": (*own["DRDM"], f"algorithm.gamma={step}")
            for step in steps
        }
        rivals = {f"{name}, η {rate}": own[name] for name in others}
        rows |= ours | rivals
        claims += [
            Claim(f"{one} ahead of {other}: {measure}", one, (other,), names_of(axes, [measure]))
            for one in ours for other in rivals for measure in MEASURES
        ]  # fmt: skip
    return rows, tuple(claims)


def _dual_step() -> Entry:
    """No entry of the paper's: what the dual step adds with all else equal, and what DRDM adds to
    SCAFFOLD, where methods tuned by themselves have rates of their own.
    """
    rows, claims = at_equal_rates(EQUAL_RATES, DUAL_STEPS, EQUALS, BY_ALPHA)
    columns = measured_on(BY_ALPHA)
    first = names_of([*BY_ALPHA][:1], MEASURES)
    return Entry(
        "drdm/dual-step",
        "MNIST, linear model: DRDM with three dual steps beside itself without λ, FedDyn and "
        "SCAFFOLD at equal rates, μ = 0.1",
        rows, columns, LINEAR.base,
        {
            "smoke": Budget(SMOKE, columns=first, reduced="Two rounds of six clients."),
            "reduced": Budget(seeds=FEW_SEEDS, reduced="Three seeds."),
            "full": Budget(seeds=PAPER_SEEDS),
        },
        claims=claims,
    )  # fmt: skip


COURSE = {"rounds 25 to 45": "rounds=45", "rounds 80 to 100": "rounds=100"}
"""Ends of training, of which the tables' is the second: the tail's evaluations -> its setting."""
OTHER_SEEDS = tuple(range(50, 90))
"""On none of which it had been seen where in training λ does what."""


def _dual_course() -> Entry:
    """No entry of the paper's: what the dual step adds early in training and late, at two rates and
    the most skewed classes, on forty seeds.
    """
    ends = (EQUAL_RATES[0], EQUAL_RATES[-1])
    rows, claims = at_equal_rates(ends, DUAL_STEPS[:1], WITHOUT_LAMBDA, COURSE)
    return Entry(
        "drdm/dual-step-again",
        "MNIST, linear model, α = 0.1: DRDM beside itself without λ and FedDyn at equal rates, "
        "early in training and late, on forty other seeds",
        rows, measured_on(COURSE), (*LINEAR.base, partition(0.1, 0.0)),
        {
            "smoke": Budget((*SMOKE, "evaluation.every=5"),
                            columns=names_of([*COURSE][:1], MEASURES),
                            reduced="Six clients."),
            "reduced": Budget(seeds=OTHER_SEEDS[:3], reduced="Three seeds."),
            "full": Budget(seeds=OTHER_SEEDS),
        },
        claims=claims,
    )  # fmt: skip


FRESH_SEEDS = tuple(range(10, 50))
"""None of those that Tables 3 and 4 have been run on, or tuned on."""
FINER = "DRDM, η 0.548"
"""At the rate that a part of Table 3's finer grid has chosen."""


def _again(
    number: int,
    figure: int,
    rows: Mapping[str, Settings],
    partitions: Mapping[str, str],
    printed: Mapping[str, tuple[str, str, str]],
) -> Entry:
    """What Table 3 or 4 as it was tuned (docs/results/drdm.md) has answered on ten seeds, asked of
    forty others; and what the ``figure`` asks of its first partition alone.
    """
    axes, levels = tuple(partitions), ("average", "worst")
    columns = measured_on(partitions)
    first = names_of(axes[:1], MEASURES)
    ahead = "ahead of all baselines: average, worst"
    claims = [
        *claimed(axes, *levels),
        Claim(f"of {axes[0]} alone, as Figure {figure}: DRDM {ahead}",
              "DRDM", BASELINES, names_of(axes[:1], levels)),
    ]  # fmt: skip
    if FINER in rows:
        text = f"not the paper's question: {FINER}, {ahead}"
        claims.append(Claim(text, FINER, BASELINES, names_of(axes, levels)))
    return Entry(
        f"drdm/table{number}-again",
        f"As Table {number}, at settings that are tuned already, on forty other seeds",
        rows, columns, LINEAR.base,
        {
            "smoke": Budget(SMOKE, columns=first, reduced="Two rounds of six clients."),
            "reduced": Budget(seeds=FRESH_SEEDS, columns=first, reduced=f"{axes[0]} alone."),
            "full": Budget(seeds=FRESH_SEEDS),
        },
        published=cells(axes, printed), claims=tuple(claims),
    )  # fmt: skip


def _tables_again() -> tuple[Entry, ...]:
    """Tables 3 and 4 with what their tuning had chosen for each method."""
    third = methods((0.0752, 0.1), (2.06, 0.001), 0.458, (0.146, 0.003), 1.2)
    fourth = methods((0.0752, 0.1), (1.06, 0.001), 0.458, (0.146, 0.001), 0.836)
    third |= {
        "DRDM γ = 0": (third["DRDM γ = 0"][0], "local.lr=0.146"),
        FINER: (third["DRDM"][0], "local.lr=0.548"),
    }
    return _again(3, 5, third, BY_ALPHA, TABLE3), _again(4, 6, fourth, BY_SIGMA, TABLE4)


OURS = (*_tables_again(), _dual_step(), _dual_course())
