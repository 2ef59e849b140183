"""Search spaces: any config key by its dotted path, on a grid or drawn at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, model_validator

from algorithms.section import Section

if TYPE_CHECKING:
    from ray.tune.search.sample import Domain

Yaml = object
"""A value as YAML has it: a scalar, a list or a mapping. Sweeps pass it on to configs, which
validate it."""
KINDS = ("grid", "choice", "uniform", "loguniform")
MOST = 10_000
"""Trials of a sweep: some ten times those of the largest that a paper has."""
SEEDS = "the seeds of a sweep are its seeds: [0, 1, 2]"
"""Why ``seed`` is neither an axis nor a setting."""


class Axis(Section):
    """The values of one key. A bare list in YAML is a grid."""

    grid: tuple[Yaml, ...] | None = Field(None, min_length=1, description="every value is tried")
    choice: tuple[Yaml, ...] | None = Field(
        None, min_length=1, description="drawn from these values"
    )
    uniform: tuple[float, float] | None = Field(None, description="drawn between two numbers")
    loguniform: tuple[float, float] | None = Field(
        None, description="drawn between two numbers, evenly in logarithms"
    )
    when: dict[str, Yaml] = Field(
        default_factory=dict, description="only where earlier grid keys are so"
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, given: Yaml) -> Yaml:
        return {"grid": given} if isinstance(given, list | tuple) else given

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            raise ValueError("an axis is one of grid, choice, uniform, loguniform")
        for low, high in filter(None, (self.uniform, self.loguniform)):
            if not low < high or (self.loguniform and low <= 0):
                raise ValueError(
                    f"the ends of a range must ascend (and be positive for loguniform), not {low}, "
                    f"{high}"
                )
        return self

    @property
    def range(self) -> tuple[float, float] | None:
        """What numbers are drawn from, if not from a list."""
        return self.uniform or self.loguniform

    def domain(self) -> Domain | None:
        """What Tune draws from; None for a grid."""
        from ray import tune

        if self.choice is not None:
            return tune.choice(list(self.choice))
        if self.uniform is not None:
            return tune.uniform(*self.uniform)
        return tune.loguniform(*self.loguniform) if self.loguniform is not None else None

    def some(self) -> list[Yaml]:
        """Values that stand for all, to be validated before anything runs."""
        return list(self.grid or self.choice or self.uniform or self.loguniform or ())


def cells(axes: Mapping[str, Axis]) -> list[dict[str, Yaml]]:
    """Every combination of the grid axes, in order, without those that a ``when`` leaves out; path
    -> value. Raises ValueError, before they are built, if there are more than ``MOST``.
    """
    found: list[dict[str, Yaml]] = [{}]
    for path, axis in axes.items():
        if axis.grid is not None:
            many = sum(len(axis.grid) if fits(axis, cell) else 1 for cell in found)
            require_few(many, f"axes: up to {path} there are")
            # a cell that the condition leaves out goes on once, without the axis
            found = [
                {**cell, path: value} if fits(axis, cell) else cell
                for cell, (place, value) in itertools.product(found, enumerate(axis.grid))
                # by its place, because 1 == 1.0 == True
                if fits(axis, cell) or place == 0
            ]
    return found


def mutations(drawn: Mapping[str, Domain]) -> dict[str, Any]:
    """What pbt may make of drawn axes: of one that is drawn from values the next of them, and no
    number in between.
    """
    from ray.tune.search.sample import Categorical

    return {
        path: list(domain.categories) if isinstance(domain, Categorical) else domain
        for path, domain in drawn.items()
    }


def bounds_of(drawn: Mapping[str, Domain]) -> dict[str, tuple[float, float]]:
    """Path -> the ends of an axis that is drawn between two numbers."""
    from ray.tune.search.sample import Float

    return {
        path: (domain.lower, domain.upper)
        for path, domain in drawn.items()
        if isinstance(domain, Float)
    }


def within(bounds: Mapping[str, tuple[float, float]], config: dict[str, Any]) -> dict[str, Any]:
    """A trial's settings, in which what pbt has multiplied does not leave its axis."""
    ends = {path: bounds[path] for path in config if path in bounds}
    return config | {path: min(max(config[path], low), high) for path, (low, high) in ends.items()}


def numbers_of(values: Sequence[Yaml]) -> list[int | float]:
    """The values of an axis of numbers, ascending and each once; of any other nothing."""
    found = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return sorted(set(found)) if len(found) == len(values) else []


def as_number(value: Yaml) -> Yaml:
    """A number that YAML takes for a text: 1e-3 has no point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def require_few(trials: int, where: str) -> None:
    """Raise ValueError if there are more ``trials`` than a sweep may have."""
    if trials > MOST:
        raise ValueError(
            f"{where} {trials:,} trials, and a sweep has at most {MOST:,}; give fewer values, or "
            "draw them at random"
        )


def problem(axes: Mapping[str, Axis]) -> str | None:
    """Why the conditions and grids of ``axes`` make no sense, in one sentence; None if they do."""
    grids: dict[str, list[Yaml]] = {}
    for path, axis in axes.items():
        wrong = _problem(path, axis, grids)
        if wrong is not None:
            return f"axes.{path}: {wrong}"
        if axis.grid is not None:
            grids[path] = [_name(value) for value in axis.grid]
    return None


def _problem(path: str, axis: Axis, above: Mapping[str, list[Yaml]]) -> str | None:
    """What is wrong with one axis below the grids ``above`` (path -> names of its values)."""
    if path == "seed":
        return SEEDS
    if axis.when and axis.grid is None:
        return "it is drawn in every trial, so it cannot have a when"
    for key, value in axis.when.items():
        if _name(value) not in above.get(key, []):
            return f"when {key} is {_name(value)!r}, which no grid above it has"
    values = [_yaml(as_number(value)) for value in axis.grid or ()]
    if unending := next((value for value in axis.grid or () if not _finite(value)), None):
        return f"{_name(unending)!r} is no value of a setting"
    return "a value is there twice" if len(set(values)) < len(values) else None


def _finite(value: Yaml) -> bool:
    """Whether all numbers in it are: others cannot be written down as JSON, nor be a setting."""
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def require_free(settings: Iterable[str]) -> None:
    """Raise ValueError if one of the ``settings`` (``key=value``) is what all trials share, or what
    a sweep varies by itself.
    """
    for setting in settings:
        key = setting.partition("=")[0].strip().partition(".")[0]
        if key == "seed":
            raise ValueError(f"seed: {SEEDS}")
        if key == "plugins":
            raise ValueError("plugins: all trials of a sweep have those of its base")


def fits(axis: Axis, cell: Mapping[str, Yaml]) -> bool:
    """Whether the axis' condition holds in ``cell``; a part is compared by its name."""
    return all(_name(cell.get(path)) == _name(value) for path, value in axis.when.items())


def _name(value: Yaml) -> Yaml:
    return value.get("name") if isinstance(value, Mapping) else value


def as_settings(cell: Mapping[str, Yaml]) -> list[str]:
    """``key=value`` strings, with the values in YAML on one line."""
    return [f"{path}={_yaml(value)}" for path, value in cell.items()]


def _yaml(value: Yaml) -> str:
    """On one line, however long: a setting is one."""
    return _scalar(value) if isinstance(value, str | int | float) else _dumped(value)


# the numbers of a grid come again in each of its combinations
@lru_cache(2**14, typed=True)
def _scalar(value: str | int | float) -> str:
    return _dumped(value)


def _dumped(value: Yaml) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").strip()
