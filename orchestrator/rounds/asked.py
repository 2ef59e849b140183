"""What a config asks of a run that may be another on ``--resume``, and how it may be: a metric goes
on as what it was, or under another name, and a goal is one that no look has met before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.config import Config
from orchestrator.config.goal import Goal, is_sound
from orchestrator.errors import UserError
from orchestrator.plugins.raw import unpinned
from orchestrator.results.columns import OF_ONE_MODEL
from orchestrator.rounds.metrics import Record

Asked = dict[str, dict[str, Any]]


def asked_of(config: Config, before: Mapping[str, Any]) -> Asked:
    """The goals of ``stop``, and the settings of each metric of one's choice by what it is recorded
    as, also of those that the run had ``before``: as a checkpoint keeps it.
    """
    raw = unpinned(config.model_dump(mode="json"))
    called = [metric.called for metric in config.evaluation.metrics]
    metrics = dict(zip(called, raw["evaluation"]["metrics"], strict=True))
    return {"stop": raw["stop"], "metrics": {**before.get("metrics", {}), **metrics}}


def asked_by(raw: Mapping[str, Any]) -> Asked:
    """The same of a raw config, such as a run leaves in its folder, which does not say what all its
    metrics are recorded as: those of functions of one's own.
    """
    each = unpinned(raw)["evaluation"]["metrics"]
    functions = {one["of"].rpartition(":")[2]: one for one in each if "of" in one}
    return {"stop": raw["stop"], "metrics": functions}


def require_same_metrics(now: Asked, before: Asked, place: str) -> None:
    """Raise UserError if one column of the run at ``place`` would be of two metrics."""
    for name, metric in now["metrics"].items():
        known = before["metrics"].get(name, {})
        if others := sorted(key for key in {*known} & {*metric} if known[key] != metric[key]):
            raise UserError(
                f"{place}: evaluation.metrics: {name} was recorded with other settings "
                f"({', '.join(others)}), and would be two in one column; leave it as it was"
            )


def has_new_goal(now: Asked, before: Asked) -> bool:
    """Whether ``stop`` has a goal now, of what one model is worth, which the looks of ``before``
    were not asked for.
    """
    return any(
        name.startswith(OF_ONE_MODEL) and before["stop"].get(name) != goal
        for name, goal in now["stop"].items()
    )


def is_over(record: Record, stop: Mapping[str, Any]) -> bool:
    """Whether a look within the ``record``'s round has met one of the goals, after which nobody has
    looked at that round again.
    """
    seen = {name: value for name, value in record.items() if name.startswith(OF_ONE_MODEL)}
    return is_within(record) and meets(seen, stop)


def is_within(record: Record) -> bool:
    """Whether what the ``record`` says of models was found in the middle of its round."""
    return record.get("evaluated_steps", record["steps_total"]) < record["steps_total"]


def meets(record: Record, stop: Mapping[str, Any]) -> bool:
    """Whether a round's record meets one of the goals of ``stop``."""
    return any(
        Goal.read(goal).met(record[metric])
        for metric, goal in stop.items()
        if metric in record and is_sound(record, metric)
    )


def lost_looks(records: Sequence[Record], known: int) -> list[int]:
    """Rounds in which models were looked at more often than is known: of each the last look, of the
    last round ``known`` ones.
    """
    kept = [1] * (len(records) - 1) + [known]
    return [
        int(record["round"])
        for record, looks in zip(records, kept, strict=True)
        if record.get("judged", 0) > looks
    ]
