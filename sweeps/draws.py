"""What Ray Tune makes trials of: the grid, and what is drawn for each of its cells."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sweeps.choice import PLANNED, Choice
from sweeps.plan import Sweep
from sweeps.spaces import Yaml

if TYPE_CHECKING:
    from ray.tune.search.sample import Domain

DRAW = "draw"
"""Key beside those of a planned trial: which of the samples it is."""


def space(sweep: Sweep, shuffled: bool = False) -> dict[str, Any]:
    """The planned trials as Tune's grid, each with every draw of the random axes. Optuna, which
    knows no grids, has the one trial that it is, and draws by itself.
    """
    from ray import tune

    planned = [cast(dict[str, Yaml], Choice(one).as_trial()[PLANNED]) for one in sweep.planned()]
    domains = sweep.drawn()
    if sweep.searcher == "optuna":
        return {PLANNED: planned[0], **domains}
    trials = [
        {**one, DRAW: number} if domains else one
        for number in range(sweep.samples)
        for one in planned
    ]
    if shuffled:
        random.Random(sweep.seeds[0]).shuffle(trials)
    draws = {path: tune.sample_from(Drawn(sweep.seeds[0], path, d)) for path, d in domains.items()}
    return {PLANNED: tune.grid_search(trials), **draws}


@dataclass(frozen=True)
class Drawn:
    """A random axis, which all seeds of a cell have the same draws of: else a setting would be
    judged by the seed that it has fallen on.
    """

    seed: int
    """The sweep's first."""
    path: str
    domain: Domain

    def __call__(self, trial: Mapping[str, Any]) -> Yaml:
        """The value for a trial whose cell and number of the draw are known."""
        planned = trial[PLANNED]
        key = json.dumps([self.seed, self.path, planned["label"], planned[DRAW]])
        digest = hashlib.sha256(key.encode()).digest()
        return self.domain.sample(random_state=int.from_bytes(digest[:4], "little"))
