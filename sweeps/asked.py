"""What a sweep asks of its trials, and whether they could answer."""

from __future__ import annotations

from algorithms.algorithm import Algorithm
from algorithms.part import variants
from algorithms.parts.metrics import Metric
from orchestrator.config import Config
from orchestrator.data.federated import DataConfig
from orchestrator.data.partitioners import Partitioner
from orchestrator.errors import UserError
from orchestrator.rounds.metrics import is_of_all

MEASURES = ("mse", "l1", "huber")
"""Losses of numbers, of which none is right or wrong."""


def is_by_the_loss(metric: str) -> bool:
    """Whether it is of the loss, or of what the loss makes of a model's outputs."""
    family: type[Metric] = Metric  # type: ignore[type-abstract]
    scores = [name for name, one in variants(family).items() if one.given != "outputs"]
    return "loss" in metric.split("_") or any(f"_{name}" in metric for name in scores)


def require_metric(metric: str, config: Config) -> None:
    """Raise UserError for a metric that no trial of such a config could report."""
    if why := _unlooked_at(metric, config):
        raise UserError(f"metric: no trial would report {metric}: {why}")
    if is_of_all(metric) and not config.algorithm.makes_common:
        raise UserError(
            f"metric: {metric} is of a model for all clients, and algorithm "
            f"{config.algorithm.name} makes none but the clients' own; take one of theirs "
            "(personal_validation_accuracy_mean), or leave it out of this sweep"
        )
    numbers = getattr(config.data.dataset, "task", "") == "numbers"
    if numbers and config.loss.name in MEASURES and "accuracy" in metric.split("_"):
        raise UserError(
            f"metric: {metric}, and data.dataset.task is numbers, of which none is right or "
            "wrong; take validation_loss, or validation_rmse"
        )


def _unlooked_at(metric: str, config: Config) -> str:
    """Why nobody looks at the rows that a metric is of, or ""."""
    kept = config.data.validation
    of_clients = metric.startswith("client_")
    if of_clients and not config.evaluation.clients:
        return "evaluation.clients is false"
    personal = metric.startswith("personal_")
    if personal and (why := _no_personal(config)):
        return why
    own = of_clients or personal
    if own and "_validation_" in metric and not kept.clients:
        return "data.validation.clients is 0, and clients have no such rows"
    if metric.startswith("validation_") and not (kept.clients or kept.server):
        return "data.validation keeps no rows back"
    if metric.startswith("heldout_") and not _holds_out(config.data):
        return "data.heldout is unset, and the server holds no rows"
    return ""


def _no_personal(config: Config) -> str:
    """Why no model of a client's own is judged, or ""."""
    if config.evaluation.local_models:
        return ""  # each that was just trained is, where an algorithm keeps none
    if not config.evaluation.personal:
        return "evaluation.personal is false"
    if not _may_keep_personal(config.algorithm.algorithm):
        return (
            f"under algorithm {config.algorithm.name} no client has a model of its own; set "
            "evaluation.local_models, or take a client_... metric"
        )
    return ""


def _may_keep_personal(algorithm: type[Algorithm]) -> bool:
    """Whether it has something to say of its clients' own models; with which network, it knows."""
    hooks = ("personal_models", "personal_rule")
    return any(getattr(algorithm, hook) is not getattr(Algorithm, hook) for hook in hooks)


def _holds_out(data: DataConfig) -> bool:
    """Whether rows are held out at the server: as asked for, or by a published partition."""
    asked = data.heldout.per_class or data.heldout.per_client
    return bool(asked) or type(data.partition).published is not Partitioner.published
