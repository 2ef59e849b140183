"""Which runs have reached what they were to (``stop``), and what that says of their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from orchestrator.analysis.goals import (
    Looked,
    Spent,
    ends_of,
    gave_up,
    goals_of,
    is_blind,
    is_cut_short,
    limits_of,
    looks_said,
    met,
    missed,
    sought,
)
from orchestrator.analysis.judged import SOME, Judged
from orchestrator.config import Config
from orchestrator.config.goal import Goal
from orchestrator.rounds.metrics import is_budget, is_cost


@dataclass
class Reached:
    """Runs by number, and the columns that they are in."""

    configs: Sequence[Config]
    rounds: Sequence[pd.DataFrame]
    early: Sequence[bool]
    """Whether ``stop`` has ended it before its last round."""
    seeds: Sequence[int]
    columns: Mapping[str, Sequence[int]]
    judged: Judged
    """What the columns' numbers are of."""

    @cached_property
    def _ends(self) -> list[list[str]]:
        """Of each run, the metrics whose goals have ended it before its last round."""
        return [
            met(ends_of(config).items(), rounds) if early else []
            for config, rounds, early in zip(self.configs, self.rounds, self.early, strict=True)
        ]

    @cached_property
    def ended_by(self) -> list[str]:
        """The metrics whose goals have ended some of the runs."""
        return [*dict.fromkeys(metric for ended in self._ends for metric in ended)]

    @cached_property
    def missed(self) -> list[bool]:
        """Of each run, whether it was to reach a goal and has reached none, or was given up."""
        return [missed(*one) for one in zip(self.configs, self.rounds, strict=True)]

    @cached_property
    def _met(self) -> list[list[str]]:
        """Of each run, the metrics whose goals it has reached."""
        pairs = zip(self.configs, self.rounds, strict=True)
        return [met(goals_of(config).items(), rounds) for config, rounds in pairs]

    def counts(self, metric: str) -> list[str]:
        """The columns in which it counts what runs did until they reached a goal."""
        if not is_cost(metric) or metric == "seconds":
            return []
        ended = [bool({*a} & {*b}) for a, b in zip(self._met, self._ends, strict=True)]
        return [name for name, some in self.columns.items() if any(ended[run] for run in some)]

    def ended(self, metric: str, run: int) -> bool:
        """Whether a metric is as large as the budget that has ended a run, or as good as the goal,
        as all are that say how good its model is: they say how far that overshot.
        """
        goals = goals_of(self.configs[run])
        if is_budget(metric):
            return metric in self._ends[run] and not (is_cost(metric) and goals)
        return metric in self._ends[run] or self.at_goal(run)

    def at_goal(self, run: int) -> bool:
        """Whether a goal has ended a run."""
        return not {*goals_of(self.configs[run])}.isdisjoint(self._ends[run])

    def other_goals(self, against: str) -> list[str]:
        """The columns whose runs end at other goals than those of ``against``, have reached another
        one of several, or reach one that is measured otherwise; if goals mattered to any run: one
        has ended by its own, or missed it.
        """
        blind = any(map(is_blind, self.configs, self.rounds))
        if not self.ended_by and not any(self.missed) and not blind:
            return []
        ends = {name: ends_of(self.configs[some[0]]) for name, some in self.columns.items()}
        goals = [*goals_of(self.configs[self.columns[against][0]])]
        otherwise = {name for goal in goals for name in self.judged.others(goal, against)}
        return [
            name
            for name, some in self.columns.items()
            if ends[name] != ends[against]
            or name in otherwise
            or self._sought(name) != self._sought(against)
            or not self._have_one_goal([*some, *self.columns[against]])
        ]

    def _has_reached(self, run: int) -> bool:
        return bool(self._met[run]) and not self.missed[run]

    def _sought(self, name: str) -> set[str]:
        """The goals that some run of a column has looked for."""
        return {goal for one in self.looked[name] for goal in sought(*one)}

    def _blind_said(self) -> str:
        """Which columns have never looked for their goals; or ""."""
        blind = [
            f"{name}{_listed(goals)}"
            for name, some in self.columns.items()
            if (goals := goals_of(self.configs[some[0]])) and not self._sought(name)
        ]
        said = "a goal that was never looked for, and so neither reached nor missed"
        return f"{said}: {', '.join(blind)}" if blind else ""

    def _have_one_goal(self, runs: Sequence[int]) -> bool:
        """Whether there is one that all have reached which have reached any."""
        reached = [{*self._met[run]} for run in runs if self._met[run]]
        return not reached or bool(set.intersection(*reached))

    def cut_short(self, metric: str, against: str, ends: Sequence[float | None]) -> list[str]:
        """The columns of which, or against which, a run has missed its goal after less of a cost
        than the other took to reach it; ``ends``: what the runs have spent.
        """
        if not is_cost(metric):
            return []
        spent = {
            name: {
                self.seeds[run]: Spent(end, self.missed[run])
                for run in some
                if (end := ends[run]) is not None
            }
            for name, some in self.columns.items()
        }
        return [name for name, its in spent.items() if is_cut_short(its, spent[against])]

    def said(self) -> Iterator[str]:
        """What it means to compare runs by what has ended them, and which of them have not reached
        what they were to.
        """
        yield from self._overshot_said()
        each = [
            f"{sum(self._has_reached(run) for run in some)} of {len(some)} of {name}"
            f"{self._goals_said(some)}"
            for name, some in self.columns.items()
            if self._sought(name)
        ]
        yield from filter(None, [self._blind_said()])
        one = len({name for its in self._met for name in its}) < 2
        if each and (any(self.missed) or not one):
            others = (
                "; what the others did and sent is of all that they were given, and missed in tests"
            )
            yield f"the goal was reached by {', '.join(each)}{others * any(self.missed)}"
        gone = [gave_up(*one) for one in zip(self.configs, self.rounds, strict=True)]
        each = [
            f"{many} of {len(some)} of {name} ({_limits(limits_of(self.configs[some[0]]))})"
            for name, some in self.columns.items()
            if (many := sum(gone[run] for run in some))
        ]
        if each:
            yield f"given up (stop), which is no goal that was reached: {', '.join(each)}"

    def _overshot_said(self) -> Iterator[str]:
        """What has ended runs, and so is nothing to compare them by."""
        goals = {one for config in self.configs for one in goals_of(config)}
        if by := [one for one in self.ended_by if one in goals]:
            yield (
                f"{' and '.join(by)} ended runs (stop): how good their models are says how far "
                "each overshot, and is not tested there; what it took is compared"
            )
        runs, others = range(len(self.configs)), [n for n in self.ended_by if n not in goals]
        if by := [one for one in others if any(self.ended(one, run) for run in runs)]:
            yield (
                f"{' and '.join(by)} ended runs (stop): such a number says how far each overshot, "
                "and is not tested there; others are of the rounds in which each ended"
            )

    def _goals_said(self, runs: Sequence[int]) -> str:
        """Goals that were looked for; of several how many runs have reached each."""
        looked = {goal for run in runs for goal in sought(self.configs[run], self.rounds[run])}
        goals = {n: g for n, g in goals_of(self.configs[runs[0]]).items() if n in looked}
        if len(goals) < 2:
            return _listed(goals)
        each = {name: sum(name in self._met[run] for run in runs) for name in goals}
        return f" ({', '.join(f'{name} {goals[name]}: {many}' for name, many in each.items())})"

    def looks_said(self) -> str:
        """How often the columns were looked at, where runs have ended at a goal and that is not the
        same; or "".
        """
        if not self.counts("round"):
            return ""
        goals = dict.fromkeys(name for config in self.configs for name in goals_of(config))
        return next(filter(None, (looks_said(self.looked, one) for one in goals)), "")

    @property
    def looked(self) -> dict[str, list[Looked]]:
        """The runs of each column."""
        return {
            name: [(self.configs[run], self.rounds[run]) for run in some]
            for name, some in self.columns.items()
        }

    def untested_said(
        self, against: str, ends: Mapping[str, Sequence[float | None]]
    ) -> Iterator[str]:
        """Which metrics are not tested against a column, as they are costs of other goals, or of
        none; ``ends``: metric -> what the runs have spent.
        """
        others, costs = self.other_goals(against), [one for one in ends if is_cost(one)]
        if against in others and costs:
            yield (
                f"not tested: {', '.join(costs)}, as runs of {against} have reached different goals"
            )
        elif others and costs:
            yield (
                f"not tested: {', '.join(costs)} of {', '.join(others[:SOME])}, whose runs end at "
                f"another goal (stop) than those of {against}, or at one that is measured "
                "otherwise, or not looked for"
            )
        short = {one: self.cut_short(one, against, its) for one, its in ends.items()}
        if each := [f"{one} of {', '.join(some[:SOME])}" for one, some in short.items() if some]:
            yield (
                f"not tested against {against}: {'; '.join(each)}, as a run has missed its goal "
                "after less than the other took to reach it, and nobody knows what it would have "
                "taken"
            )


def _limits(limits: Mapping[str, Goal]) -> str:
    said = (f"{name} {'<=' if of.falling else '>='} {of.limit:g}" for name, of in limits.items())
    return " or ".join(said)


def _listed(goals: Mapping[str, Goal]) -> str:
    return f" ({' or '.join(f'{metric} {goal}' for metric, goal in goals.items())})"
