"""Sweeps' files: planned, or refused, before anything runs."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from sweeps.plan import Sweep
from sweeps.targets import resolve
from tests.fuzz.family import Family, Pieces, Wrong
from tests.fuzz.oddities import FLOATS, HUGE, TEXTS, anything, document
from tests.fuzz.schema import settings

KEYS = (
    "local.lr",
    "algorithm",
    "rounds",
    "data.partition",
    "data.partition.alpha",
    "seed",
    "model",
    "nonsense",
    "local",
    "",
    "a.b",
    "local.lr.x",
    "cohort",
)
GOOD = {
    "local.lr": [0.1, 0.2],
    "algorithm": ["fedavg", "scaffold"],
    "rounds": [1, 2],
    "cohort": [1, 0.5],
    "model": ["linear", {"name": "mlp"}],
    "data.partition": ["iid", {"name": "zipf", "sigma": 1}],
}


class Plans(Family):
    """A sweep of any fields, axes and texts."""

    name = "plans"
    deadline = 15.0
    quick = 25

    def draw(self, rng: Random) -> Pieces:
        if rng.random() < 0.15:
            return [("line", line) for line in document(rng, list(Sweep.model_fields))]
        odd = rng.choice((0.0, 0.1, 0.4))
        fields = [
            p for p in settings(rng, Sweep, 0.12, odd) if p[0].split(".")[0] not in ("axes", "base")
        ]
        axes = [
            ("axes", (rng.choice(KEYS), self._axis(rng, odd)))
            for _ in range(rng.choice((0, 1, 2, 3, 30)))
        ]
        base = [
            (
                "base",
                rng.choice(
                    ({"rounds": 2}, "c.yaml", "nothing.yaml", "s.yaml", "/dev/null", anything(rng))
                ),
            )
        ]
        return [*[("field", p) for p in fields], *axes, *(base if rng.random() < 0.4 else [])]

    def _axis(self, rng: Random, odd: float) -> Any:
        if rng.random() < odd:
            return anything(rng)
        values = rng.choice(
            (
                *GOOD.values(),
                list(range(1, rng.choice((3, 200)))),
                list(FLOATS[:4]),
                list(TEXTS[:6]),
                [HUGE[-1]],
            )
        )
        ends = [rng.choice((*FLOATS, 1, 2)) for _ in range(2)]
        when = {rng.choice(KEYS): rng.choice(("fedavg", 1))}
        return rng.choice(
            (
                values,
                values,
                {"grid": values},
                {"choice": values},
                {"uniform": ends},
                {"loguniform": ends},
                {"uniform": sorted(ends)},
                {"grid": values, "when": when},
            )
        )

    def play(self, pieces: Pieces, folder: Path) -> None:
        (folder / "c.yaml").write_text("rounds: 3\nmodel: linear\n")
        path = folder / "s.yaml"
        path.write_bytes(_text(pieces).encode("utf-8", "surrogatepass"))
        target = resolve(str(path), "reduced")
        target.check()
        target.place(None)
        plan = target.plan  # type: ignore[attr-defined]
        labels = [(one.label, one.seed, one.settings) for one in plan.planned()]
        if not labels or len(set(labels)) < len(labels):
            raise Wrong(f"a trial is planned twice, or none is: {len(labels)} {labels[:2]}")
        if Sweep.model_validate_json(plan.model_dump_json()) != plan:
            raise Wrong("read again it is another sweep: " + plan.model_dump_json()[:300])


def _text(pieces: Pieces) -> str:
    lines = [what for kind, what in pieces if kind == "line"]
    raw: dict[str, Any] = {}
    for kind, what in pieces:
        if kind == "field":
            here = raw
            *above, last = what[0].split(".")
            for key in above:
                here[key] = here.get(key) if isinstance(here.get(key), dict) else {}
                here = here[key]
            here[last] = what[1]
        elif kind == "axes":
            raw.setdefault("axes", {})[what[0]] = what[1]
        elif kind == "base":
            raw["base"] = what
    return "\n".join(lines) if lines else yaml.safe_dump(_plain(raw), allow_unicode=True)


def _plain(value: Any) -> Any:
    """What YAML can write."""
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bytes | None) else str(value)
