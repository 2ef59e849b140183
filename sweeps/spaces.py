"""Search spaces: any config key by its dotted path, on a grid or drawn at random."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class Axis(BaseModel):
    """The values of one key. A bare list in YAML is a grid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: tuple[Any, ...] | None = Field(None, min_length=1, description="every value is tried")
    choice: tuple[Any, ...] | None = Field(
        None, min_length=1, description="drawn from these values"
    )
    uniform: tuple[float, float] | None = Field(None, description="drawn between two numbers")
    loguniform: tuple[float, float] | None = Field(
        None, description="drawn between two numbers, evenly in logarithms"
    )
    when: dict[str, Any] = Field(
        default_factory=dict, description="only where earlier grid keys are so"
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, given: Any) -> Any:
        return {"grid": given} if isinstance(given, list | tuple) else given

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        kinds = [
            k for k in ("grid", "choice", "uniform", "loguniform") if getattr(self, k) is not None
        ]
        if len(kinds) != 1:
            raise ValueError("an axis is one of grid, choice, uniform, loguniform")
        for low, high in filter(None, (self.uniform, self.loguniform)):
            if not low < high or (self.loguniform and low <= 0):
                raise ValueError(
                    f"the ends of a range must ascend (and be positive for loguniform), not {low}, "
                    f"{high}"
                )
        return self

    def domain(self) -> Any:
        """What Tune draws from; None for a grid."""
        from ray import tune

        if self.choice is not None:
            return tune.choice(list(self.choice))
        if self.uniform is not None:
            return tune.uniform(*self.uniform)
        return tune.loguniform(*self.loguniform) if self.loguniform is not None else None

    def some(self) -> list[Any]:
        """Values that stand for all, to be validated before anything runs."""
        return list(self.grid or self.choice or self.uniform or self.loguniform or ())


def cells(axes: Mapping[str, Axis]) -> list[dict[str, Any]]:
    """Every combination of the grid axes, in order, without those that a ``when`` leaves out; path
    -> value.
    """
    found: list[dict[str, Any]] = [{}]
    for path, axis in axes.items():
        if axis.grid is not None:
            found = [
                {**cell, path: value} if fits(axis, cell) else cell
                for cell, value in itertools.product(found, axis.grid)
                if fits(axis, cell) or value == axis.grid[0]
            ]
    return found


def problem(axes: Mapping[str, Axis]) -> str | None:
    """Why the conditions and grids of ``axes`` make no sense, in one sentence; None if they do."""
    grids: dict[str, list[Any]] = {}
    for path, axis in axes.items():
        if path == "seed":
            return "axes.seed: the seeds of a sweep are its seeds: [0, 1, 2]"
        if axis.when and axis.grid is None:
            return f"axes.{path}: it is drawn in every trial, so it cannot have a when"
        for key, value in axis.when.items():
            if _name(value) not in grids.get(key, []):
                return f"axes.{path}: when {key} is {_name(value)!r}, which no grid above it has"
        if axis.grid is not None:
            values = [_yaml(value) for value in axis.grid]
            if len(set(values)) < len(values):
                return f"axes.{path}: a value is there twice"
            grids[path] = [_name(value) for value in axis.grid]
    return None


def fits(axis: Axis, cell: Mapping[str, Any]) -> bool:
    """Whether the axis' condition holds in ``cell``; a part is compared by its name."""
    return all(_name(cell.get(path)) == _name(value) for path, value in axis.when.items())


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, Mapping) else value


def as_settings(cell: Mapping[str, Any]) -> list[str]:
    """``key=value`` strings, with the values in YAML on one line."""
    return [f"{path}={_yaml(value)}" for path, value in cell.items()]


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").strip()
