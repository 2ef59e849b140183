"""Tables: sweeps whose trials had whatever is drawn, and what is to be said of them."""

from __future__ import annotations

import atexit
import io
import json
import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from orchestrator.analysis.comparison import show_comparison
from orchestrator.config import build
from orchestrator.config.paths import put
from orchestrator.results.contents import RESULT, ROUNDS
from orchestrator.results.run_folder import RunFolder
from orchestrator.rounds.metrics import on_test
from sweeps.choice import Choice, Planned
from sweeps.own_table import cells_as
from sweeps.plan import Sweep
from sweeps.status import Status
from tests.fuzz import compositions
from tests.fuzz.family import Family, Pieces, Wrong
from tests.meanings import tables
from tests.meanings.tables import COSTS, EACH, NAN, Had

BASE: dict[str, Any] = {
    "data.dataset": "synthetic",
    "data.limit": 100,
    "data.clients": 4,
    "data.client_test.least": 5,
    "data.validation.clients": 0.2,
    "model": "linear",
    "rounds": 5,
    "cohort": 2,
    "local.steps": 1,
}
METHODS = ("fedavg", "fedprox", "scaffold", "feddyn")
METRICS = {
    "validation": ("validation_accuracy", "validation_loss", "client_validation_accuracy_worst"),
    "test": ("test_accuracy", "test_loss"),
    "nothing": (
        "test_accuracy", "test_loss", "client_accuracy_mean", "validation_loss", "train_loss",
        "bytes_up", "bytes_up", "round",
    ),
}  # fmt: skip
SIZES = ((1, 3, 1), (2, 0, 3), (2, 2, 3), (4, 0, 5), (2, 0, 7), (3, 1, 2), (2, 3, 1), (2, 2, 2))
"""Methods, rates and seeds."""
STYLES = ("any", "any", "tenths", "few", "one of a method", "one")
"""How the numbers of trials lie: of no two the same, with ties, or of no spread at all."""
ENDS = ("broken", "failed", "diverged", "stopped")
"""Of trials: failed without having diverged, failed for that, ended in NaN, given up."""
RANKED = r"best first|tied for the best|the best( of [^;]+)? has "
"""What is said of an order in which somebody is the best."""


class Tables(Family):
    """Methods, rates and seeds; the metric, and which rounds' numbers; who failed, diverged, or was
    stopped.
    """

    name = "tables"
    deadline = 60.0
    quick = 2

    def draw(self, rng: Random) -> Pieces:
        choose_on = rng.choice(("validation", "nothing", "nothing", "test"))
        pieces: Pieces = [
            ("choose_on", choose_on),
            ("metric", rng.choice(METRICS[choose_on])),
            ("statistic", rng.choice(("last", "last", "best", "tail"))),
            ("values", rng.choice(STYLES), rng.randrange(2**30)),
            ("every", rng.choice((1, 1, 2))),
            ("form", rng.choice(("csv", "markdown", "html", "latex"))),
        ]
        if choose_on != "nothing" and rng.random() < 0.3:
            pieces.append(("scheduler", "asha"))
        elif rng.random() < 0.4:
            pieces.append(("stop", rng.choice((0.5, 0.8))))
        methods, rates, seeds = rng.choice(SIZES)
        pieces += [("method", name) for name in rng.sample(METHODS, methods)]
        pieces += [("rate", rate) for rate in rng.sample((0.01, 0.1, 0.5), rates)]
        pieces += [("seed", seed) for seed in rng.sample(range(9), seeds)]
        if rng.random() < 0.4:
            odd = (rng.choice(ENDS) for _ in range(rng.choice((1, 2, 5))))
            pieces += [("end", rng.random(), kind, rng.randrange(1, 5)) for kind in odd]
        return pieces

    def play(self, pieces: Pieces, folder: Path) -> None:
        plan = _planned(pieces)
        trials = _had(pieces, plan)
        _lay(plan, trials, folder)
        told = json.loads(cells_as(folder, "json"))
        test = on_test(plan.metric)
        table = tables.lines(plan, [one for _, one in trials], test)
        _require_same("table", told["cells"], table)
        order = _with_trials(table, [had for _, had in trials])
        expected = tables.tests(
            plan, [had for _, had in trials], test, order, plan.metric != "train_loss"
        )
        found = {one["group"]: one for one in told["tests"]}
        if {*found} != {*expected}:
            raise Wrong(f"tests of {sorted(found)}, not of {sorted(expected)}")
        for name, one in expected.items():
            _require_same(f"test of {name}", [{k: found[name][k] for k in one}], [one])
            _require_verdict(found[name], one, test or plan.metric, plan.metric != "train_loss")
        if plan.statistic == "last" and plan.metric not in COSTS and expected:
            _require_compared(folder, trials, order[0], test or plan.metric, expected.values())
        ended = any(had.early for _, had in trials) and plan.metric not in COSTS
        if ended and re.search(RANKED, " ".join(told["notes"])):
            raise Wrong(f"a best among those whom a goal has ended: {told['notes']}")
        form = next((piece[1] for piece in pieces if piece[0] == "form"), "csv")
        _require_form(form, cells_as(folder, form), told["cells"])


def _planned(pieces: Pieces) -> Sweep:
    given = {piece[0]: piece[1] for piece in pieces}
    each = {kind: [p[1] for p in pieces if p[0] == kind] for kind in ("method", "rate", "seed")}
    base: dict[str, Any] = {}
    for path, value in BASE.items():
        put(base, path, value)
    put(base, "evaluation.every", given.get("every", 1))
    if "stop" in given:
        put(base, "stop", {"validation_accuracy": given["stop"]})
    plan: dict[str, Any] = {
        "base": base, "axes": {}, "seeds": each["seed"] or [0], "loggers": [],
        "choose_on": given.get("choose_on", "nothing"),
        "metric": given.get("metric", "test_accuracy"),
        "statistic": given.get("statistic", "last"), "tail": 2,
        "scheduler": given.get("scheduler", "fifo"),
    }  # fmt: skip
    if each["method"]:
        plan["axes"]["algorithm"] = each["method"]
    if each["rate"]:
        plan["axes"]["local.lr"] = each["rate"]
    if plan["metric"] == "train_loss":
        plan["mode"] = "min"
    return Sweep.model_validate(plan)


def _had(pieces: Pieces, plan: Sweep) -> list[tuple[Planned, Had]]:
    """What each trial was to do, and what it had."""
    given = {piece[0]: piece[1:] for piece in pieces}
    style, seed = given.get("values", ("any", 0))
    every, goal = given.get("every", (1,))[0], given.get("stop", (None,))[0]
    planned = [*plan.planned()]
    ends = {int(p[1] * len(planned)): p[2:] for p in pieces if p[0] == "end"}
    found = []
    for i, one in enumerate(planned):
        kind, when = ends.get(i, ("finished", 5))
        had = Had(one.label, one.seed)
        rounds = 5
        if kind in ("broken", "failed"):
            had.status = "failed"
        if kind == "stopped" and plan.scheduler.name == "asha":
            had.status, rounds = kind, max(when, every)
        had.diverged = kind in ("failed", "diverged")
        looked = [t % every == 0 or t == 5 for t in range(1, rounds + 1)]
        had.series["judged"] = [1.0 if look else NAN for look in looked]
        for metric in ("test_accuracy", *METRICS["validation"], *METRICS["nothing"]):
            rng = Random(_key(style, seed, one, metric))
            drawn = [_value(rng, style) for _ in range(rounds)]
            if metric == "bytes_up":
                drawn = [float(round(1000 * v)) for v in drawn]
            if had.diverged and "loss" in metric:
                drawn[when:] = [NAN] * (rounds - when)
                drawn[-1] = NAN
            had.series[metric] = [
                v if look or metric in EACH else NAN for v, look in zip(drawn, looked, strict=True)
            ]
        had.series["client_accuracy_worst"] = had.series["client_accuracy_mean"]
        had.series["round"] = [float(t) for t in range(1, rounds + 1)]
        if goal is not None and had.status == "finished":
            _end(had, goal)
        found.append((one, had))
    return found


def _end(had: Had, goal: float) -> None:
    """At the first round in which it is seen to have reached its goal."""
    at = [t for t, v in enumerate(had.series["validation_accuracy"], start=1) if v >= goal]
    had.missed = not at
    if at:
        had.early = at[0] < len(had.series["judged"])
        had.series = {name: values[: at[0]] for name, values in had.series.items()}


def _key(style: str, seed: int, one: Planned, metric: str) -> str:
    """What a trial's numbers are drawn by."""
    parts = {"one": (), "one of a method": (one.label,)}.get(style, (one.label, one.seed))
    return f"{seed} {metric} {parts}"


def _value(rng: Random, style: str) -> float:
    v = abs(rng.gauss(0.5, 0.2))
    return {"tenths": round(v, 1), "few": float(v > 0.5)}.get(style, v)


@cache
def _original() -> Path:
    """A run of as many rounds."""
    home = Path(tempfile.mkdtemp(prefix="fuzz-tables-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    raw: dict[str, Any] = {}
    for path, value in BASE.items():
        put(raw, path, value)
    with compositions.drawn(False):
        compositions.run(build(raw), home / "run")
    return home / "run"


def _lay(plan: Sweep, trials: Sequence[tuple[Planned, Had]], folder: Path) -> None:
    """Leave a sweep's folder in which each trial had what is drawn."""
    home, names = RunFolder.at(folder), []
    base = plan.raw()
    for planned, had in trials:
        choice = Choice(planned)
        place = folder / "trials" / choice.name("")
        names.append(place.name)
        if had.status == "failed":
            choice.leave_failed(RunFolder(place), "of a reason", had.diverged)
            continue
        shutil.copytree(_original(), place, ignore=shutil.ignore_patterns("checkpoints", ".lock"))
        one = RunFolder(place)
        config = choice.config(base)
        (place / "config.yaml").write_text(config.dump())
        rounds = one.rounds().iloc[: len(had.series["judged"])]
        rounds = rounds.assign(**had.series)
        said = one.result()
        last = {k: _json(v) for k, v in rounds.iloc[-1].items() if k in said["metrics"]}
        result = {
            **said, "seed": planned.seed, "status": had.status, "diverged": had.diverged,
            "rounds": len(rounds), "metrics": last, "bytes_up": int(rounds["bytes_up"].sum()),
        }  # fmt: skip
        one.write_table(ROUNDS, rounds)
        (place / RESULT).write_text(json.dumps(result))
        choice.write(one)
        one.seal()
    home.write_sealed("sweep.json", plan.model_dump(mode="json", exclude={"at_once"}))
    many = Counter(had.status for _, had in trials)
    status = Status(
        len(names), many["finished"], many["stopped"], many["failed"], {}, plan.metric, None, "",
        1.0, None, trials=tuple(names),
    )  # fmt: skip
    status.write(home)


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _with_trials(table: list[dict[str, Any]], trials: Sequence[Had]) -> list[str]:
    """The lines that are compared: those of which some trial was not stopped."""
    whole = [one for one in trials if one.status != "stopped"]
    if all(one.status == "failed" for one in whole):
        whole = [*trials]
    lines = {one.line for one in whole}
    return [row["trial"] for row in table if row["trial"] in lines]


def _require_same(what: str, found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    names = [[row.get("trial") for row in some] for some in (found, expected)]
    if names[0] != names[1]:
        raise Wrong(f"{what}: lines {names[0]}, not {names[1]}")
    for mine, theirs in zip(found, expected, strict=True):
        if {*mine} != {*theirs}:
            raise Wrong(f"{what}: columns {sorted(mine)}, not {sorted(theirs)}")
        for key, value in theirs.items():
            if not _equal(mine[key], value):
                raise Wrong(f"{what}: {key} of {mine.get('trial', '')} is {mine[key]}, not {value}")


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(other, float):
        return one == other
    if one is None or math.isnan(other):
        return one is None and math.isnan(other)
    return abs(one - other) <= 1e-9 * max(1.0, abs(other))


def _require_verdict(told: dict[str, Any], one: dict[str, Any], metric: str, sided: bool) -> None:
    """What its words say follows from the numbers."""
    apart = one["p_holm"] < 0.05
    words = {"better", "worse"} if sided else {"told apart"}
    if (told["verdict"] in words) != apart:
        raise Wrong(f"{metric}: {told['verdict']} at p {one['p_holm']}")
    if apart and sided and not any(one["missed"]):
        less = "loss" in metric or metric in COSTS
        better = (one["difference"] > 0) != less
        if told["verdict"] != ("better" if better else "worse"):
            raise Wrong(f"{metric} {one['difference']:+}: {told['verdict']}")


def _require_compared(
    folder: Path,
    trials: Sequence[tuple[Planned, Had]],
    first: str,
    metric: str,
    expected: Collection[Any],
) -> None:
    """``fedorch compare`` says the same of the same runs, if all have ended."""
    places = [folder / "trials" / Choice(planned).name("") for planned, _ in trials]
    if any(had.status != "finished" for _, had in trials):
        return
    runs = [RunFolder.existing(place) for place in places]
    against = places[[had.line for _, had in trials].index(first)]
    told = json.loads(show_comparison(runs, None, [metric], form="json", against=str(against)))
    keys = ("difference", "p", "p_holm", "low", "d_z")
    found, wanted = (
        [[-math.inf if _gone(one[key]) else one[key] for key in keys] for one in some]
        for some in (told["tests"], expected)
    )
    # in whatever order: which of two comes first may be a matter of rounding
    left = [*found]
    for theirs in wanted:
        mine = next((one for one in left if _alike(one, theirs)), None)
        if mine is None:
            raise Wrong(f"compared: {found}, not {wanted}")
        left.remove(mine)
    if left:
        raise Wrong(f"compared: {left}, and nothing like it")


def _alike(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(one, other, strict=True)
    )


def _gone(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _require_form(form: str, text: str, cells: list[dict[str, Any]]) -> None:
    """Whatever a table is written as, it has the same lines and numbers."""
    if form == "csv":
        rows = pd.read_csv(io.StringIO(text)).to_json(orient="records", double_precision=15)
        known = [{k: NAN if v is None else v for k, v in cell.items()} for cell in cells]
        _require_same("csv", json.loads(rows), known)
        return
    numbers = [float(v) for v in re.findall(r"\d+(?:\.\d+)?(?:e[+-]\d+)?", text)]
    for cell in cells:
        mean = cell["mean"]
        if mean is not None and not any(abs(v - mean) <= 6e-4 * abs(mean) for v in numbers):
            raise Wrong(f"{form}: no {mean} of {cell['trial']}")
