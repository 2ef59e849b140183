"""What is compared: whatever of the parts that the model knows fits together, on few rows."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from orchestrator.config import Config, build
from orchestrator.config.paths import put
from orchestrator.data.federated import FederatedData
from orchestrator.data.samples import Dataset, Request, Samples
from tests.meanings.networks import TINY_NORM

BASE: dict[str, Any] = {
    "data.limit": 100,
    "data.clients": 5,
    "data.client_test.least": 5,
    "model": "linear",
    "rounds": 3,
    "cohort": 4,
    "local.batch_size": 8,
    "local.lr": 0.05,
}
ATTACKS = ("same_value", "sign_flip", "scale", "gaussian", "label_flip")
COLLUDING = ("ipm", "alie", "min_max", "min_sum")
FED_BACK: tuple[dict[str, Any], ...] = (
    {"name": "top_k", "fraction": 0.1},
    {"name": "random_k", "fraction": 0.2},
    {"name": "qsgd", "levels": 8, "bucket": 40, "error_feedback": True},
    {"name": "qsgd", "levels": 16, "bucket": 100, "error_feedback": True},
)
"""What loses less than it sends, and so may be made up for."""
LOSSY: dict[str, tuple[dict[str, Any], ...]] = {
    "downlink": FED_BACK,
    "uplink": (
        *FED_BACK,
        {"name": "top_k", "fraction": 0.3, "error_feedback": False},
        {"name": "random_k", "fraction": 0.25, "scale": True, "error_feedback": False},
        {"name": "qsgd", "levels": 4, "bucket": 64},
        {"name": "qsgd", "levels": 3, "bucket": None},
    ),
}
PROJECTED: tuple[dict[str, Any], ...] = (
    {"name": "lp_proj", "dimension": 4, "strength": 0.5, "steps_between": 2},
    {"name": "lp_proj", "p": 1, "dimension": 3, "strength": 0.3, "steps_between": 1, "mixing": 0.6},
)
ALGORITHMS: tuple[dict[str, Any], ...] = (
    {"name": "fedavg"},
    {"name": "fedprox", "mu": 0.3},
    {"name": "moon"},
    {"name": "moon", "mu": 3.0, "temperature": 0.3},
    {"name": "fedbn"},
    {"name": "fedbn"},
    {"name": "scaffold"},
    {"name": "fedpvr"},
    {"name": "feddyn", "mu": 0.2},
    {"name": "fednova"},
    {"name": "fednova", "mu": 0.2},
    {"name": "qfedavg"},
    {"name": "qfedavg", "q": 0.3, "lipschitz": 5.0},
    {"name": "ditto"},
    {"name": "ditto", "strength": 0.3, "personal_steps": 2},
    {"name": "local"},
    {"name": "feddual", "kl_scale": 200.0},
    {"name": "feddual", "kl_scale": 50.0, "beta": "half"},
    *PROJECTED,
    {"name": "drdsgd"},
    {"name": "drdsgd", "mu": 2.0},
    {"name": "drdsgd", "robust": False},
    {"name": "clustered", "eps1": 5.0, "eps2": 0.01},
    {"name": "clustered", "eps1": 0.05, "eps2": 0.05, "least": 3},
    {"name": "fedavgm"},
    {"name": "fedadam"},
    {"name": "fedadamw"},
    {"name": "fedyogi"},
    {"name": "fedadagrad"},
    {"name": "synchronous"},
)
MINIMAX: tuple[dict[str, Any], ...] = (
    {"name": "drfa", "gamma": 0.05},
    {"name": "drfa", "gamma": 0.01, "replace": False, "floor": 0.1},
    {"name": "drdm", "gamma": 0.05},
    {"name": "drdm", "gamma": 0.02, "mu": 0.5, "replace": True, "initial_dual": "uniform"},
    {"name": "drdm", "gamma": 0.05, "control": "lambda_weighted"},
    {"name": "drdm", "gamma": 0.05, "initial_dual": "samples", "radius": 0.5},
    {"name": "afl", "dual_lr": 0.2},
    {"name": "afl", "dual_lr": {"start": 2.0, "power": 1.0}, "full_loss": True},
    {"name": "scaffpd"},
    {"name": "scaffpd", "theta": 0.5, "anchor_batches": 3, "dual_lr": 0.5, "server_scale": 0.7},
)
SETS: tuple[dict[str, Any], ...] = (
    {"name": "cvar", "alpha": 0.5},
    {"name": "cvar", "alpha": 0.2},
    {"name": "chi2", "radius": 0.05},
    {"name": "chi2", "radius": 1.0},
    {"name": "kl", "radius": 0.02},
    {"name": "kl", "radius": 0.5},
    {"name": "groups", "lists": [[3, 0], [1, 4, 2]]},
    {"name": "groups", "by": "label"},
    {"name": "groups", "by": "size", "count": 3},
)
INCREMENTS: tuple[dict[str, Any], ...] = (
    {"name": "scallion"},
    {"name": "scallion", "scale": 0.4, "momentum": 0.7},
)
WEIGHERS: tuple[dict[str, Any], ...] = (
    {"name": "uniform"},
    {"name": "random"},
    {"name": "samples"},
    {"name": "distance", "kappa": 3.0},
    {"name": "greedy"},
    {"name": "greedy_selection"},
    {"name": "greedy_selection", "criterion": "accuracy"},
    # slopes of a hundredth's width are of differences that are hardly more than rounding
    {"name": "exponentiated_gradient", "steps": 3, "width": 0.2},
)
"""Of FedAA, but for those that learn."""
MONITORS = ("exact", "naive", "linear", {"name": "linear", "direction": "random"})
MODELS = ("linear", {"name": "mlp", "hidden": [7]}, "tiny_norm", "tiny_norm")
MOMENTS = (
    {"name": "sgd", "momentum": 0.8},
    {"name": "sgd", "momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
    {"name": "adam", "eps": 1e-3},
)
SCHEDULES = (
    {"name": "step", "every": 2, "gamma": 0.5},
    {"name": "linear", "over": 5, "floor": 0.2, "warmup": 2},
    {"name": "cosine", "over": 4, "floor": 0.1},
)
ROOTED = (("data.dataset", "fashion_mnist_10k"), ("data.heldout.per_class", 2))
"""The server has rows of its own."""
ROBUST = (
    "median",
    {"name": "trimmed_mean", "byzantine": 0.3},
    {"name": "krum", "byzantine": 0.1},
    {"name": "multi_krum", "byzantine": 0.1},
    {"name": "faba", "byzantine": 0.3},
    "norm_clipping",
    {"name": "norm_clipping", "radius": 0.05},
    {"name": "centered_clipping", "radius": 0.1},
    {"name": "centered_clipping", "radius": 0.1, "iterations": 3, "start": "zero"},
    "geometric_median",
    {"name": "geometric_median", "by_samples": True, "iterations": 3},
)
BULYAN = (("aggregator", {"name": "bulyan", "byzantine": 0.15}), ("data.clients", 8))
"""One of seven or eight."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "buffers": ("aggregate", "local", "exclude"),
    "cohort": (1, 2, 3, 5, 0.6, 1.0),
    "data.partition": ("iid", "zipf", {"name": "dirichlet", "alpha": 1.0}),
    "data.client_test.source": ("local",),
    "local.block": (1, 2, 3, 5),
    "local.execution": ("sequential",),
    "local.batch_size": (3, 16, 1000),
    "local.lr_decay": (0.5,),
    "local.schedule": SCHEDULES,
    "local.within": SCHEDULES,
    "output": ("last", "average", "tail", {"name": "ema", "decay": 0.7}),
    "local.clip": (0.3,),
    "local.sampling": ("independent",),
    "local.drop_last": (True,),
    "seed": (1, 2, 3),
}
"""Of these, whatever fits."""
EVERYBODY = {"local", "synchronous", "drdsgd", "clustered"}
UNMOVED = {"scaffold", "fedpvr", "fednova"}
"""Whose clients step by plain SGD (or FedNova's, whose moments are a case of its own)."""
ALONE = {"drdsgd", "clustered", "scaffold", "fedpvr", "feddyn", "fednova", "qfedavg", "local"}
"""Which have a mean, and mostly a step, of their own."""
DISTINCT = {"scaffold", "fedpvr", "feddyn", "qfedavg", "local", *EVERYBODY}


def drawn(rng) -> list[tuple[str, Any]]:
    """The pieces of a random composition, of which most fit together."""
    if rng.random() < 0.2:
        return _game(rng)
    if rng.random() < 0.1:
        return _told_in_increments(rng)
    if rng.random() < 0.1:
        return _selecting(rng)
    algorithm = rng.choice(ALGORITHMS)
    name, model = algorithm["name"], rng.choice(MODELS)
    pieces: list[tuple[str, Any]] = [("algorithm", algorithm), ("model", model)]
    work = (("local.steps", 1), ("local.steps", 3), ("local.epochs", 1))
    pieces.append(work[0] if name == "synchronous" else rng.choice(work))
    if name in ("drdsgd", "clustered"):
        pieces += [("attack", {"name": "label_flip", "fraction": 0.4})] * (rng.random() < 0.3)
    elif rng.random() < 0.5:
        pieces += _attack(rng)
    # what is sent to nobody, or differs from one to the next, is not compressed
    ways = {"local": (), "drdsgd": (), "clustered": ("uplink",)}.get(name, tuple(LOSSY))
    for way in ways:
        if rng.random() < 0.5:
            pieces.append((f"compression.{way}", rng.choice(LOSSY[way])))
    pieces += [(key, rng.choice(v)) for key, v in CHOICES.items() if rng.random() < 0.2]
    pieces += [piece for draw in (_moments, _server, _cohort) for piece in draw(rng, name)]
    if name not in ("lp_proj", *EVERYBODY) and rng.random() < 0.3:
        pieces.append(("round_end", _end(rng)))
    if rng.random() < 0.2:
        pieces.append(("evaluation.every_steps", rng.choice((1, 2, 3, 4, 5, 7))))
    if model != "tiny_norm" and rng.random() < 0.2:
        pieces.append(("local.execution", "vectorized"))
    if name != "qfedavg" and rng.random() < 0.15:
        pieces += [("diverging", rng.randrange(5)), ("non_finite", rng.choice(("drop", "keep")))]
    return pieces


def _end(rng) -> dict[str, Any]:
    """Fixed, or asked for while clients train."""
    if rng.random() < 0.1:
        return {"name": "fixed", "steps": "longest"}
    monitor = rng.choice(MONITORS)
    end: dict[str, Any] = {"name": rng.choice(("fda", "fda_opt", "fda_async")), "monitor": monitor}
    if end["name"] != "fda_opt":
        end["theta"] = rng.choice((0.0, 1e-3, 1e-2, 0.1))
    if end["name"] == "fda" and rng.random() < 0.5:
        end |= rng.choice(({"every": 2}, {"at": [2, 5]}, {"at": [3, 1]}))
    if end["name"] == "fda_async":
        end |= {"jitter": rng.choice((0.1, 0.5)), "stragglers": rng.choice((0.0, 0.4))}
    return end


def _game(rng) -> list[tuple[str, Any]]:
    """One of those that play against a mixture of the clients, all of whom must answer."""
    algorithm = dict(rng.choice(MINIMAX))
    if rng.random() < 0.5:
        algorithm["uncertainty"] = rng.choice(SETS)
    if rng.random() < 0.2:
        key = "dual_lr" if algorithm["name"] in ("afl", "scaffpd") else "gamma"
        algorithm[key] = {"start": rng.choice((0.05, 1.0)), "power": rng.choice((0.5, 1.0))}
    afl = algorithm["name"] == "afl"
    pieces = [
        ("algorithm", algorithm), ("model", rng.choice(MODELS)),
        ("cohort", 1.0 if afl else rng.choice((2, 3, 4))),
        ("local.steps", 1 if afl else rng.choice((1, 2, 4))),
    ]  # fmt: skip
    if rng.random() < 0.4:
        pieces += _attack(rng)
    for way in LOSSY:
        if rng.random() < 0.5:
            pieces.append((f"compression.{way}", rng.choice(LOSSY[way])))
    keys = [key for key in CHOICES if key != "cohort"]
    pieces += [(key, rng.choice(CHOICES[key])) for key in keys if rng.random() < 0.2]
    return [*pieces, *_moments(rng, algorithm["name"])]


def _told_in_increments(rng) -> list[tuple[str, Any]]:
    """Control variates of which changes alone are sent, and what is left out is not fed back."""
    pieces = [
        ("algorithm", rng.choice(INCREMENTS)), ("model", rng.choice(MODELS)),
        rng.choice((("local.steps", 1), ("local.steps", 3), ("local.epochs", 1))),
    ]  # fmt: skip
    fits = [one for one in LOSSY["uplink"] if not one.get("error_feedback", one in FED_BACK)]
    if rng.random() < 0.7:
        pieces.append(("compression.uplink", rng.choice(fits)))
    if rng.random() < 0.5:
        pieces.append(("compression.downlink", rng.choice(LOSSY["downlink"])))
    if rng.random() < 0.2:
        pieces.append(("attack", {"name": "label_flip", "fraction": 0.4}))
    if rng.random() < 0.3:
        pieces.append(("server_optimizer", {"name": "sgd", "lr": 0.5, "momentum": 0.6}))
    return [*pieces, *((key, rng.choice(v)) for key, v in CHOICES.items() if rng.random() < 0.2)]


def _selecting(rng) -> list[tuple[str, Any]]:
    """The nearest clients, weighed by rows of the server's; or nobody but the server."""
    pieces: list[tuple[str, Any]] = [
        *ROOTED, ("model", rng.choice(MODELS)),
        rng.choice((("local.steps", 1), ("local.steps", 3), ("local.epochs", 1))),
    ]  # fmt: skip
    keys = ["buffers", "local.batch_size", "local.schedule", "local.within", "output", "seed"]
    if rng.random() < 0.1:
        pieces += [("algorithm.name", "server_only"), ("local.drop_last", rng.random() < 0.3)]
        pieces += [(key, rng.choice(CHOICES[key])) for key in keys if rng.random() < 0.3]
        return [*pieces, *_moments(rng, "server_only")]
    pieces += [
        ("algorithm.name", "fedaa"), ("algorithm.agent", rng.choice(WEIGHERS)),
        ("algorithm.select", rng.choice((0.3, 0.6, 1.0))),
        ("algorithm.candidates", rng.choice((0.6, 1.0, 1.0))),
        ("algorithm.layers", rng.choice(("all", "all", "last_hidden", "bias$"))),
        ("algorithm.reward", rng.choice(("accuracy", "change"))),
        ("algorithm.per_class", rng.random() < 0.3),
    ]  # fmt: skip
    if rng.random() < 0.5:
        pieces += _attack(rng)
    if rng.random() < 0.3:
        pieces.append(("round_end", _end(rng)))
    if rng.random() < 0.3:
        pieces.append(("server_optimizer", rng.choice(STEPS)))
    if rng.random() < 0.3:
        pieces += [("diverging", rng.randrange(5)), ("non_finite", rng.choice(("drop", "keep")))]
    for way in LOSSY:
        if rng.random() < 0.3:
            pieces.append((f"compression.{way}", rng.choice(LOSSY[way])))
    pieces += [(key, rng.choice(v)) for key, v in CHOICES.items() if rng.random() < 0.2]
    return [*pieces, *_moments(rng, "fedaa"), *_cohort(rng, "scaffold")]


STEPS: tuple[dict[str, Any], ...] = (
    {"name": "sgd", "lr": 0.5, "momentum": 0.6},
    {"name": "adam", "lr": 0.01, "eps": 1e-3},
    {"name": "yogi", "lr": 0.01, "eps": 1e-3},
)


def _moments(rng, name):
    if rng.random() < 0.6 or name in ("scaffold", "fedpvr", "scaffpd"):
        return []
    optimizer = MOMENTS[0] if name in UNMOVED else rng.choice(MOMENTS)
    states = ("reset", "average") if name == "ditto" else ("reset", "keep", "average")
    return [("local.optimizer", optimizer), ("local.optimizer_state", rng.choice(states))]


def _server(rng, name):
    if name == "feddual":
        layers = {"name": "barycenter", "by_samples": rng.random() < 0.5}
        layers["layers"] = rng.choice((1, 2))
        return [("aggregator", rng.choice(("mean", "median", layers, layers)))]
    if name in ALONE:
        return [("aggregator", "weighted_mean")] if name == "fednova" and rng.random() < 0.3 else []
    drawn: list[tuple[str, Any]] = []
    if rng.random() < 0.5:
        drawn.append(("aggregator", rng.choice(("weighted_mean", "weighted_mean", *ROBUST))))
    elif rng.random() < 0.1:
        drawn += [("aggregator", "fltrust"), *ROOTED]
    elif rng.random() < 0.1:
        drawn += [*BULYAN, ("cohort", rng.choice((7, 8)))]
    if not name.startswith(("fed", "lp")) and rng.random() < 0.3:
        drawn.append(("server_optimizer", {"name": "sgd", "lr": 0.5, "momentum": 0.6}))
    return drawn


def _cohort(rng, name):
    if name in EVERYBODY:
        return [("cohort", 1.0)]
    if rng.random() < 0.6:
        return []
    repeated = {"name": "weighted", "replace": True}
    return [("sampler", rng.choice(("weighted", "cyclic", *[repeated] * (name not in DISTINCT))))]


def _attack(rng):
    name = rng.choice((*ATTACKS, *COLLUDING))
    attack: dict[str, Any] = {"name": name, "fraction": rng.choice((0.2, 0.4, 0.6))}
    if rng.random() < 0.3:
        attack["ids"] = [rng.randrange(5)]
    if name in ("same_value", "gaussian", "sign_flip", "scale"):
        attack["tau"] = rng.choice((0.3, 1.0, 1.0, 1e38))
    if name in COLLUDING:
        attack["knowledge"] = rng.choice(("benign", "own"))
        if name.startswith("min"):
            attack["direction"] = rng.choice(("std", "unit", "sign"))
    elif name != "label_flip":
        attack["target"] = rng.choice(("model", "update"))
    if name != "label_flip":
        attack["buffers"], attack["probes"] = rng.random() < 0.4, rng.random() < 0.5
    return [("attack", attack)]


def composed(pieces) -> tuple[Config, FederatedData]:
    """Config and data of these pieces; raises UserError where they do not fit together."""
    raw: dict[str, Any] = {}
    given = dict([*BASE.items(), *pieces])
    diverging, normed = given.pop("diverging", None), given["model"] == "tiny_norm"
    # images' black pixels make entries that are equal, of which top_k may keep any
    given.setdefault("data.dataset", "fashion_mnist_10k" if normed else "synthetic")
    for path, value in given.items():
        put(raw, path, "linear" if value == "tiny_norm" else value)
    config = build(raw)
    samples = None if config.data.dataset.generated else _read(config.data.dataset)
    data = FederatedData.build(config.data, config.seed, samples)
    if diverging is not None:
        data = _spoilt(data, diverging)
    return config.model_copy(update={"model": TINY_NORM}) if normed else config, data


@cache
def _read(dataset: Dataset) -> Samples:
    return dataset.load(Request(0, 1))


def _spoilt(data: FederatedData, k: int) -> FederatedData:
    """Client k has rows that no network can learn from."""
    x = data.samples.x.astype(np.float32)
    x = x / 255 if data.samples.x.dtype == np.uint8 else x
    x[data.train[k]] = np.inf
    return replace(data, samples=replace(data.samples, x=x))
